//! A port's configuration as a TOML text.

use crate::check;
use crate::config::PortConfig;
use crate::error::ConfigError;
use std::path::{Path, PathBuf};
use vmcc_config::Diagnostic;
use vmcc_config::ReadError;
use vmcc_config::{MAX_BYTES, Source};

/// A configuration that was read, and the text that it came from.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// The parsed configuration.
    pub config: PortConfig,
    source: Source,
}

/// Error of reading a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not text, or too long.
    #[error("`{}` is not a configuration: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Description of the error.
        why: String,
    },
    /// The text is not a valid configuration.
    #[error("{0}")]
    Invalid(Box<Diagnostic>),
}

impl FileError {
    /// The text that was read of a file.
    ///
    /// # Errors
    /// It could not be read, or is no text.
    pub fn text(path: &Path, bytes: Result<Vec<u8>, ReadError>) -> Result<String, Self> {
        let unusable = |why: String| Self::Unusable { path: path.to_owned(), why };
        let bytes = bytes.map_err(|e| match e {
            ReadError::Io(source) => Self::Read { path: path.to_owned(), source },
            other => unusable(other.to_string()),
        })?;
        String::from_utf8(bytes).map_err(|e| unusable(format!("it is not UTF-8 text: {e}")))
    }
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or it is no configuration of a port.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let text = FileError::text(path, vmcc_config::read(path, MAX_BYTES as u64))?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads a text; `name` stands for the file in messages.
    ///
    /// # Errors
    /// It is no configuration of a port.
    pub fn parse(name: &str, text: &str) -> Result<Self, FileError> {
        let source = Source::parse(name, text).map_err(FileError::Invalid)?;
        let config: PortConfig = source.decode().map_err(FileError::Invalid)?;
        let file = Self { config, source };
        match check::config(&file.config) {
            Ok(()) => Ok(file),
            Err(error) => Err(FileError::Invalid(Box::new(file.locate(&error)))),
        }
    }

    /// The place in the text that an error of this configuration is about.
    pub fn locate(&self, error: &ConfigError) -> Diagnostic {
        let message = match &error.class {
            Some(class) if !class.is_empty() => format!("class `{class}`: {}", error.message),
            _ => error.message.clone(),
        };
        self.source.diagnostic(&error.key, false, message, error.help.clone())
    }
}

/// The JSON schema of the configuration.
pub fn schema() -> serde_json::Value {
    let generator = schemars::SchemaGenerator::default();
    let mut schema = generator.into_root_schema_for::<PortConfig>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".into(), "vmcc port".into());
    }
    vmcc_config::sorted(schema)
}
