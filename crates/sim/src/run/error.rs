//! Errors of a case that cannot be simulated.

use crate::build::FabricError;
use crate::hosts::HostError;
use crate::net::NetError;

/// Error of a case that cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The topology.
    #[error("topology: {0}")]
    Fabric(#[from] FabricError),
    /// The network.
    #[error("network: {0}")]
    Net(#[from] NetError),
    /// A connection or sender.
    #[error("traffic `{traffic}`: {source}")]
    Host {
        /// The traffic entry.
        traffic: String,
        /// The reason.
        source: HostError,
    },
    /// Host settings.
    #[error("host settings: {0}")]
    Config(HostError),
    /// An algorithm or parameter that the registry does not have.
    #[error("congestion control: {0}")]
    Algorithm(String),
    /// An event of subflows that are not there.
    #[error(
        "event at {at_s} s: no connection with several subflows has one there; name another `path`, `subflow` or `traffic`"
    )]
    NoSubflow {
        /// Time of the event, in seconds.
        at_s: f64,
    },
    /// Something that the simulator does not have.
    #[error("{what} is not simulated; {remedy}")]
    Unsupported {
        /// Unsupported feature.
        what: String,
        /// Alternative for the user.
        remedy: &'static str,
    },
    /// More connections, requests or busy periods than fit.
    #[error(
        "traffic `{traffic}` makes more than {most} connections, requests or busy periods; shorten the run, lower the load, or let clients `think`"
    )]
    TooMany {
        /// The traffic entry.
        traffic: String,
        /// The limit.
        most: usize,
    },
    /// More probes than fit.
    #[error("traffic `{traffic}` sends more than {most} probes; lengthen `interval`, or shorten the run")]
    TooManyProbes {
        /// The traffic entry.
        traffic: String,
        /// The limit.
        most: usize,
    },
    /// The caller asked to stop.
    #[error("the run was interrupted")]
    Canceled,
}
