//! Values that a scenario has in files beside it.

use std::path::Path;

use serde_json::{Map, Value};
use vmcc_config::BadValue;

use super::text_file::{Fault, read};
use super::{flow_list, recorded, sizes};

/// Replaces the names of files in a scenario that lies in `folder` by what they contain.
pub(super) fn expand(tree: &mut Map<String, Value>, folder: Option<&Path>) -> Result<(), BadValue> {
    each(tree, ("event", "recorded"), |name| recorded::pairs(&read(name, folder)?))?;
    each(tree, ("traffic", "flows"), |name| flow_list::flows(&read(name, folder)?).map(Some))?;
    each(tree, ("traffic", "sizes"), |name| match sizes::is_file(name) {
        true => sizes::points(&read(name, folder)?).map(Some),
        false => Ok(None),
    })
}

/// Replaces the texts under a key of a list's entries.
fn each(
    tree: &mut Map<String, Value>,
    (list, key): (&str, &str),
    contents: impl Fn(&str) -> Result<Option<Value>, Fault>,
) -> Result<(), BadValue> {
    let Some(Value::Array(entries)) = tree.get_mut(list) else { return Ok(()) };
    for (number, entry) in entries.iter_mut().enumerate() {
        let Some(value) = entry.get_mut(key) else { continue };
        let Value::String(name) = &*value else { continue };
        let bad = |(message, help)| BadValue {
            path: format!("{list}[{number}].{key}"),
            of_key: false,
            message,
            help: Some(help),
        };
        if let Some(contents) = contents(name).map_err(bad)? {
            *value = contents;
        }
    }
    Ok(())
}
