//! Errors of a search.

use vmcc_engine::{EngineError, ErrorKind};
use vmcc_scenario::ScenarioError;

/// Reason for which nothing was searched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The scenario or a setting does not suit a search.
    #[error("{message}")]
    Unsuitable {
        /// Object and cause.
        message: String,
        /// Remedy.
        remedy: String,
    },
    /// The scenario with one TCP connection instead of those under test is not valid.
    #[error("the scenario cannot be compared with one TCP connection per path: {0}")]
    Control(#[source] ScenarioError),
    /// The engine could not run the scenario.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl SearchError {
    pub(crate) fn unsuitable(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unsuitable { message: message.into(), remedy: remedy.into() }
    }

    /// Class of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Engine(error) => error.kind(),
            _ => ErrorKind::BadInput,
        }
    }

    /// Remedy, if its text does not have it.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Unsuitable { remedy, .. } => Some(remedy),
            Self::Control(_) => {
                Some("take out what only several subflows have, such as events of subflows and `coupling`")
            }
            Self::Engine(error) => error.remedy(),
        }
    }
}
