//! Errors of a network that cannot be simulated.

use crate::net::NetError;

/// Error of a scenario's topology that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The network refused a part.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A combination that the simulator does not have.
    #[error("{what} is not simulated; {remedy}")]
    Unsupported {
        /// Unsupported feature.
        what: &'static str,
        /// Alternative for the user.
        remedy: &'static str,
    },
    /// A host that the topology does not have.
    #[error("the topology has no host called `{0}`")]
    UnknownHost(String),
    /// Two hosts without a route between them.
    #[error("there is no path from `{from}` to `{to}`")]
    NoPath {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
    },
}
