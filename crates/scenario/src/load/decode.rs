//! From a tree of values to the typed scenario, with errors at the key that caused them.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::did_you_mean;
use crate::model::{read_strict, split_at_path};

/// What did not fit: where, why, and the nearest valid name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadValue {
    pub(crate) path: String,
    pub(crate) of_key: bool,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// Reads a typed value; errors name the path from the value's top.
pub(crate) fn decode<T: DeserializeOwned>(value: Value) -> Result<T, BadValue> {
    read_strict(value).map_err(|message| explain(&message))
}

/// Turns serde's words into ours.
fn explain(message: &str) -> BadValue {
    let (path, text) = split_at_path(message);
    let path = path.unwrap_or_default().to_owned();
    let names = quoted_names(text);
    let plain = |of_key: bool, message: String, help| BadValue { path: path.clone(), of_key, message, help };
    if text.starts_with("unknown field `") {
        let (name, expected) =
            (names.first().copied().unwrap_or_default(), names.get(1..).unwrap_or_default());
        let full = if last_key(&path) == name { path.clone() } else { super::source::join(&path, name) };
        let message = match expected {
            [] => format!("unknown key `{name}`; no keys belong here"),
            list => format!("unknown key `{name}`; expected one of {}", list.join(", ")),
        };
        let help = did_you_mean(name, expected.iter().copied());
        return BadValue { path: full, of_key: true, message, help };
    }
    if text.starts_with("unknown variant `") {
        let (name, expected) =
            (names.first().copied().unwrap_or_default(), names.get(1..).unwrap_or_default());
        let message = format!("`{name}` is not one of {}", expected.join(", "));
        return plain(false, message, did_you_mean(name, expected.iter().copied()));
    }
    if let Some(rest) = text.strip_prefix("missing field `") {
        let (name, more) = rest.split_once('`').unwrap_or((rest, ""));
        return plain(true, format!("the key `{name}` is missing{more}"), None);
    }
    plain(false, text.to_owned(), None)
}

fn last_key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// The texts between backticks, in order.
fn quoted_names(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}
