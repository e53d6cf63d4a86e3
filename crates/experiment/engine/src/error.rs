//! Errors of engines, whichever it was.

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;

/// Class of an error; the command line turns it into its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is wrong; the same input fails on every host.
    BadInput,
    /// The input is right, and this host cannot do it: a privilege, a program or a kernel feature is missing.
    HostCannot,
    /// Something that should have worked did not.
    Failed,
    /// The caller asked to stop; everything has been cleaned up.
    Interrupted,
}

/// An engine's own error, with what to do about it.
#[derive(Debug)]
pub struct EngineError {
    kind: ErrorKind,
    cause: Box<dyn Error + Send + Sync>,
    remedy: Option<String>,
}

impl EngineError {
    /// An error of an engine.
    pub fn new(kind: ErrorKind, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { kind, cause: Box::new(cause), remedy: None }
    }

    /// Adds the remedy, where the error's own text does not have it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Its class.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The engine's own error, which can be downcast to its type.
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        self.cause.as_ref()
    }

    /// Remedy.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for EngineError {
    /// The cause speaks for itself in [`fmt::Display`], so the chain goes on below it.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

/// An error with its chain of causes on one line, each cause once.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("reading a case")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn engine_error_keeps_its_type_and_names_causes_once() {
        let error = EngineError::new(ErrorKind::Failed, Outer(std::io::Error::other("no disk")))
            .with_remedy("find the disk");
        assert_eq!(chain(&error), "reading a case: no disk");
        assert_eq!((error.kind(), error.remedy()), (ErrorKind::Failed, Some("find the disk")));
        assert!(error.cause().downcast_ref::<Outer>().is_some());
    }
}
