//! A scenario file without keys that say the default.

use serde_json::{Map, Value};

/// Sections whose keys may go; the others are written on purpose.
const SECTIONS: [&str; 6] = ["warmup", "interval", "host", "topology", "traffic", "event"];

/// The value without keys that are null, which TOML does not have.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(table) => {
            let kept = table.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Removes every key without which `means_the_same` still holds.
pub(crate) fn minimize(tree: &mut Map<String, Value>, means_the_same: &dyn Fn(&Map<String, Value>) -> bool) {
    for section in SECTIONS {
        let Some(value) = tree.get(section) else { continue };
        for path in keys_below(section, value) {
            let mut smaller = tree.clone();
            if remove(&mut smaller, &path) && means_the_same(&smaller) {
                *tree = smaller;
            }
        }
    }
}

/// Part of a way into a tree.
#[derive(Clone)]
enum Step {
    Key(String),
    Index(usize),
}

/// Ways to all keys of a section, the outer ones first: without a table, its keys need not be tried.
fn keys_below(section: &str, value: &Value) -> Vec<Vec<Step>> {
    let mut found = vec![vec![Step::Key(section.to_owned())]];
    collect(value, &found[0].clone(), &mut found);
    found
}

fn collect(value: &Value, path: &[Step], found: &mut Vec<Vec<Step>>) {
    match value {
        Value::Object(table) => {
            for (key, inner) in table {
                let path = [path, &[Step::Key(key.clone())]].concat();
                found.push(path.clone());
                collect(inner, &path, found);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                collect(inner, &[path, &[Step::Index(index)]].concat(), found);
            }
        }
        _ => {}
    }
}

/// Removes the key at the end of a way. False if it is not there (any more).
fn remove(tree: &mut Map<String, Value>, path: &[Step]) -> bool {
    let [Step::Key(first), rest @ ..] = path else { return false };
    if rest.is_empty() {
        return tree.shift_remove(first).is_some();
    }
    let mut slot = tree.get_mut(first);
    for step in &rest[..rest.len() - 1] {
        slot = match (slot, step) {
            (Some(Value::Object(table)), Step::Key(key)) => table.get_mut(key),
            (Some(Value::Array(items)), Step::Index(index)) => items.get_mut(*index),
            _ => None,
        };
    }
    match (slot, rest.last()) {
        (Some(Value::Object(table)), Some(Step::Key(key))) => table.shift_remove(key).is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_without_effect_are_removed_and_others_stay() {
        let mut tree = json!({
            "host": { "cc": "lia", "mtu": "1500B" },
            "topology": { "kind": "x", "loss": { "probability": 0.0 } },
            "traffic": [{ "kind": "bulk", "connections": 1 }],
            "claim": [{ "id": "kept" }],
        })
        .as_object()
        .cloned()
        .unwrap_or_default();
        minimize(&mut tree, &|smaller| {
            let kept = |pointer: &str| Value::Object(smaller.clone()).pointer(pointer).is_some();
            kept("/host/cc") && kept("/topology/kind") && kept("/traffic/0/kind")
        });
        let smallest = json!({
            "host": { "cc": "lia" }, "topology": { "kind": "x" }, "traffic": [{ "kind": "bulk" }], "claim": [{ "id": "kept" }],
        });
        assert_eq!(Value::Object(tree), smallest);
    }
}
