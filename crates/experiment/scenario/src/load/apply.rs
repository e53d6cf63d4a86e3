//! Overriding values of a scenario's tree.

use serde_json::{Map, Value};

use super::keys::Keys;
use vmcc_config::did_you_mean;
use vmcc_config::join;

/// Error of an override that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadKey {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// Sets the value at a dotted key; a table is merged into what is there.
///
/// A list is entered by index or by an entry's `name`; any other key goes to every entry that has that key.
/// Returns the paths that were set, as places are named.
pub(crate) fn set(
    tree: &mut Map<String, Value>,
    keys: &Keys,
    key: &str,
    value: &Value,
) -> Result<Vec<String>, BadKey> {
    let Some(full) = keys.canonical(key) else {
        let all = keys.all();
        return Err(BadKey {
            message: format!("the scenario has no value called `{key}`"),
            help: did_you_mean(key, all.iter().map(String::as_str)),
        });
    };
    let segments: Vec<&str> = full.split('.').collect();
    if segments.iter().any(|s| s.is_empty()) {
        return Err(BadKey { message: format!("`{key}` has an empty part"), help: None });
    }
    let mut touched = Vec::new();
    set_in_table(tree, keys, &segments, value, "", &mut touched)?;
    Ok(touched)
}

fn set_in_table(
    table: &mut Map<String, Value>,
    keys: &Keys,
    segments: &[&str],
    value: &Value,
    path: &str,
    touched: &mut Vec<String>,
) -> Result<(), BadKey> {
    let Some((first, rest)) = segments.split_first() else { return Ok(()) };
    let inner = join(path, first);
    let slot = table.entry((*first).to_owned()).or_insert(Value::Null);
    set_in_value(slot, keys, rest, value, &inner, touched)
}

fn set_in_value(
    slot: &mut Value,
    keys: &Keys,
    segments: &[&str],
    value: &Value,
    path: &str,
    touched: &mut Vec<String>,
) -> Result<(), BadKey> {
    if segments.is_empty() {
        match (slot, value) {
            (Value::Object(old), Value::Object(new)) if !replaces(new) => {
                for (key, inner) in new {
                    set_in_table(old, keys, &[key.as_str()], inner, path, touched)?;
                }
            }
            (slot @ Value::Array(_), Value::Object(new)) => {
                for (key, inner) in new {
                    set_in_value(slot, keys, &[key.as_str()], inner, path, touched)?;
                }
            }
            (slot, value) => {
                *slot = value.clone();
                touched.push(path.to_owned());
            }
        }
        return Ok(());
    }
    match slot {
        Value::Array(items) => set_in_list(items, keys, segments, value, path, touched),
        Value::Object(table) => set_in_table(table, keys, segments, value, path, touched),
        // A scalar gives way to a table: `marking.lambda` where nothing was said about marking.
        other => {
            let mut table = Map::new();
            set_in_table(&mut table, keys, segments, value, path, touched)?;
            *other = Value::Object(table);
            Ok(())
        }
    }
}

/// A table with a tag is a new choice, not a change to the old one.
fn replaces(table: &Map<String, Value>) -> bool {
    table.contains_key("kind") || table.contains_key("rule")
}

fn set_in_list(
    items: &mut [Value],
    keys: &Keys,
    segments: &[&str],
    value: &Value,
    path: &str,
    touched: &mut Vec<String>,
) -> Result<(), BadKey> {
    let Some((first, rest)) = segments.split_first() else { return Ok(()) };
    let named = |item: &Value| item.get("name").and_then(Value::as_str) == Some(*first);
    let chosen = match first.parse::<usize>() {
        Ok(index) if index < items.len() => Some(index),
        Ok(index) => {
            let message = format!(
                "`{path}` has {} entries; there is no entry {index} (they count from 0)",
                items.len()
            );
            return Err(BadKey { message, help: None });
        }
        Err(_) => items.iter().position(named),
    };
    if let Some(index) = chosen {
        return set_in_value(&mut items[index], keys, rest, value, &format!("{path}[{index}]"), touched);
    }
    let has = |index: usize| path != "traffic" || keys.traffic_has(index, first);
    let mut any = false;
    for (index, item) in items.iter_mut().enumerate().filter(|(index, _)| has(*index)) {
        any = true;
        set_in_value(item, keys, segments, value, &format!("{path}[{index}]"), touched)?;
    }
    if any {
        return Ok(());
    }
    let names: Vec<&str> = items.iter().filter_map(|i| i.get("name").and_then(Value::as_str)).collect();
    let all = keys.all();
    let help = did_you_mean(first, names.into_iter().chain(all.iter().map(String::as_str)));
    Err(BadKey { message: format!("no entry of `{path}` is called `{first}` or has that key"), help })
}
