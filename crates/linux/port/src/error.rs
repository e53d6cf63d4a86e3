//! Errors in a port's configuration.

use std::fmt;

/// A setting that cannot be: which, why, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// The setting, as a path from the top of the configuration: `class[1].weight`.
    pub key: String,
    /// The class that `key` belongs to, by its name.
    pub class: Option<String>,
    /// Description of the error.
    pub message: String,
    /// Remedy.
    pub help: Option<String>,
}

impl ConfigError {
    /// The setting `key` is wrong because of `message`.
    pub fn at(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), class: None, message: message.into(), help: None }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says which class it is about.
    #[must_use]
    pub(crate) fn of_class(mut self, name: &str) -> Self {
        self.class = Some(name.to_owned());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.key)?;
        if let Some(class) = &self.class {
            write!(f, " (class `{class}`)")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigError {}

pub(crate) type Check = Result<(), ConfigError>;

/// Fails with `message` at `key` unless `holds`.
pub(crate) fn require(holds: bool, key: &str, message: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(ConfigError::at(key, message())) }
}
