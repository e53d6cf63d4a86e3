//! Strict decoding of a tree of values, with errors at the key that caused them.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::suggest::did_you_mean;
use crate::tagged::{Cause, Fault, read_strict};

/// A value that does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadValue {
    /// The key path from the value's top.
    pub path: String,
    /// The key itself is at fault, not its value.
    pub of_key: bool,
    /// The fault, and the expected form.
    pub message: String,
    /// The nearest valid name.
    pub help: Option<String>,
}

/// Reads a typed value.
///
/// # Errors
/// The first key that does not fit.
pub fn decode<T: DeserializeOwned>(value: Value) -> Result<T, BadValue> {
    read_strict(value).map_err(explain)
}

/// Joins a key path and a key or index, as serde_path_to_error prints paths.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A fault for the author of the file.
fn explain(fault: Fault) -> BadValue {
    let Fault { path, cause } = fault;
    match cause {
        Cause::UnknownKey { name, expected } => {
            let help = did_you_mean(&name, expected.iter().map(String::as_str));
            let message = match expected.as_slice() {
                [] => format!("unknown key `{name}`; no keys belong here"),
                list => format!("unknown key `{name}`; expected one of {}", list.join(", ")),
            };
            // What reads a table by its keys is at the key already.
            let path = if last_key(&path) == name { path } else { join(&path, &name) };
            BadValue { path, of_key: true, message, help }
        }
        Cause::UnknownWord { name, expected } => {
            let help = did_you_mean(&name, expected.iter().map(String::as_str));
            let message = format!("`{name}` is not one of {}", expected.join(", "));
            BadValue { path, of_key: false, message, help }
        }
        Cause::Missing { name, note } => {
            let message = format!("the key `{name}` is missing{note}");
            BadValue { path, of_key: true, message, help: None }
        }
        Cause::Other(message) => BadValue { path, of_key: false, message, help: None },
    }
}

fn last_key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}
