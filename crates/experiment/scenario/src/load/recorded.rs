//! Patterns of on and off times that a scenario has in a file beside it: `recorded = "off.csv"`.
//!
//! A line of it is a pair of whole microseconds, `30000,90177`: for how long the host ran, and for how long it was off then. A
//! first line of names, empty lines and those that begin with `#` are left out.

use serde_json::{Map, Value};
use std::path::{Component, Path};
use vmcc_config::BadValue;

/// Enough for as many pairs as a pattern may have.
const MAX_BYTES: u64 = 4 << 20;
const HEADER: &str = "on_us,off_us";

/// Replaces the names of files in a scenario that lies in `folder` by the pairs in them.
pub(super) fn expand(tree: &mut Map<String, Value>, folder: Option<&Path>) -> Result<(), BadValue> {
    let Some(Value::Array(events)) = tree.get_mut("event") else { return Ok(()) };
    for (number, event) in events.iter_mut().enumerate() {
        let Some(recorded) = event.get_mut("recorded") else { continue };
        let Value::String(name) = &*recorded else { continue };
        let pairs = read(name, folder).map_err(|(message, help)| BadValue {
            path: format!("event[{number}].recorded"),
            of_key: false,
            message,
            help: Some(help.to_owned()),
        })?;
        *recorded = Value::Array(pairs);
    }
    Ok(())
}

type Fault = (String, &'static str);

fn read(name: &str, folder: Option<&Path>) -> Result<Vec<Value>, Fault> {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if name.is_empty() || !Path::new(name).components().all(inside) {
        let message = format!("{name:?} is no file in the scenario's folder or below it");
        return Err((message, "put it there, and write its path from there"));
    }
    let Some(folder) = folder else {
        let message = format!("there is no folder in which {name:?} could be");
        return Err((message, "write the pairs here, or keep the scenario in a file of its own"));
    };
    let path = folder.join(name);
    let unreadable =
        |why: String| (format!("{} cannot be read: {why}", path.display()), "it lies beside the scenario");
    let bytes = vmcc_config::read_regular(&path, MAX_BYTES).map_err(|e| unreadable(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|e| unreadable(format!("it is not UTF-8 text: {e}")))?;
    pairs(&text).map_err(|(line, what)| {
        let message = format!("{}:{line}: {what}", path.display());
        (message, "a line has two whole numbers of microseconds, on and off: 30000,90000")
    })
}

/// The pairs of a text, or the first line that is none.
fn pairs(text: &str) -> Result<Vec<Value>, (usize, String)> {
    let mut pairs = Vec::new();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        let is_names = pairs.is_empty() && line == HEADER;
        if line.is_empty() || line.starts_with('#') || is_names {
            continue;
        }
        let at = |what: String| (number + 1, what);
        let (on, off) = line.split_once(',').ok_or_else(|| at(format!("{line:?} is no pair")))?;
        let time = |text: &str| match text.trim().parse::<u64>() {
            Ok(us) => Ok(Value::String(format!("{us}us"))),
            Err(_) => Err(at(format!("{text:?} is no time"))),
        };
        pairs.push(Value::Array(vec![time(on)?, time(off)?]));
    }
    if pairs.is_empty() { Err((1, "there is no pair in it".to_owned())) } else { Ok(pairs) }
}
