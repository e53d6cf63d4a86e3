//! Errors of loading and resolving a scenario.

use std::path::PathBuf;
use vmcc_config::Diagnostic;

/// Error of loading or resolving a scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file could not be read.
    #[error("cannot read scenario `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not text of a sensible size.
    #[error("scenario `{}` is not usable: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// There is neither a built-in scenario nor a file of this name.
    #[error(
        "no built-in scenario and no file is called `{name}`{}; `vmcc scenarios` lists the built-in ones",
        nearest_text(nearest)
    )]
    NotFound {
        /// The name as given.
        name: String,
        /// Built-in scenarios with similar names.
        nearest: Vec<String>,
    },
    /// The text is not a valid scenario.
    #[error("{0}")]
    Invalid(Box<Diagnostic>),
}

fn nearest_text(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!(" (nearest: {})", names.join(", ")),
    }
}
