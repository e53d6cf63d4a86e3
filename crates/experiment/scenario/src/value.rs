//! Values of a sweep as text.

use serde_json::Value;

/// A value without the quotes of JSON.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
