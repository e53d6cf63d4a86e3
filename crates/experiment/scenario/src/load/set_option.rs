//! `--set key=value`.

use serde_json::Value;
use toml::de::DeValue;

use vmcc_config::Source;

/// One override of the command line: a key and one or more values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SetOption {
    pub(crate) key: String,
    pub(crate) values: Vec<Value>,
}

impl SetOption {
    /// Reads `key=value` or `key=value,value`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let expected = "expected key=value, such as cc=vmcc or topology.delay=5ms";
        let (key, value) = text.split_once('=').ok_or_else(|| expected.to_owned())?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return Err(expected.to_owned());
        }
        // A TOML list, table or text is one value, whatever commas it has.
        let values = match value.chars().next() {
            Some('[' | '{' | '"' | '\'') => vec![toml_value(value)?],
            _ => value.split(',').map(|part| scalar(part.trim())).collect::<Result<_, _>>()?,
        };
        Ok(Self { key: key.to_owned(), values })
    }
}

fn toml_value(text: &str) -> Result<Value, String> {
    DeValue::parse(text).map_err(|e| format!("the value is not TOML: {}", e.message()))?;
    let source = Source::parse("--set", &format!("value = {text}")).map_err(|d| d.message)?;
    source.tree().get("value").cloned().ok_or_else(|| "the value is not TOML".to_owned())
}

/// A number or truth value if it reads as one, otherwise text without quotes.
fn scalar(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Err("a value of the comma list is empty".into());
    }
    let is_plain = matches!(text, "true" | "false")
        || text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'_' | b'e' | b'E'));
    match toml_value(text) {
        Ok(value) if is_plain => Ok(value),
        _ => Ok(Value::String(text.to_owned())),
    }
}
