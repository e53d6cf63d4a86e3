//! Patterns of on and off times that a scenario has in a file beside it: `recorded = "off.csv"`.
//!
//! A line of it is a pair of whole microseconds, `30000,90177`: for how long the host ran, and for how long it was off then. A
//! first line of names, empty lines and those that begin with `#` are left out.

use serde_json::Value;

use super::text_file::{Fault, Text};

const HEADER: &str = "on_us,off_us";
const REMEDY: &str = "a line has two whole numbers of microseconds, on and off: 30000,90000";

/// The pairs of a file.
pub(super) fn pairs(file: &Text) -> Result<Option<Value>, Fault> {
    let mut pairs = Vec::new();
    for (number, line) in file.lines() {
        if pairs.is_empty() && line == HEADER {
            continue;
        }
        let wrong = |what: String| file.fault(number, &what, REMEDY);
        let (on, off) = line.split_once(',').ok_or_else(|| wrong(format!("{line:?} is no pair")))?;
        let time = |text: &str| match text.trim().parse::<u64>() {
            Ok(us) => Ok(Value::String(format!("{us}us"))),
            Err(_) => Err(wrong(format!("{text:?} is no time"))),
        };
        pairs.push(Value::Array(vec![time(on)?, time(off)?]));
    }
    if pairs.is_empty() {
        return Err(file.fault(1, "there is no pair in it", REMEDY));
    }
    Ok(Some(Value::Array(pairs)))
}
