//! Transfers that a scenario has in a file beside it: `flows = "trace.csv"`.
//!
//! The first line names the columns, of which `start_us`, `src`, `dst` and `size_bytes` are read, as in `flows.parquet`. Empty lines and
//! those that begin with `#` are left out.

use serde_json::{Value, json};

use super::text_file::{Fault, Text};

const COLUMNS: [&str; 4] = ["start_us", "src", "dst", "size_bytes"];
const REMEDY: &str =
    "the first line names the columns, such as start_us,src,dst,size_bytes; the others have a cell for each";

/// The transfers of a file, as the language has them.
pub(super) fn flows(file: &Text) -> Result<Value, Fault> {
    let mut lines = file.lines();
    let (number, head) = lines.next().ok_or_else(|| file.fault(1, "there is no transfer in it", REMEDY))?;
    let names: Vec<&str> = head.split(',').map(str::trim).collect();
    let mut places = [0; COLUMNS.len()];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let found = names.iter().position(|name| *name == column);
        *place =
            found.ok_or_else(|| file.fault(number, &format!("there is no column `{column}`"), REMEDY))?;
    }
    let flows: Vec<Value> = lines.map(|line| flow(file, line, &places)).collect::<Result<_, _>>()?;
    if flows.is_empty() {
        return Err(file.fault(number, "there is no transfer in it", REMEDY));
    }
    Ok(Value::Array(flows))
}

fn flow(file: &Text, (number, line): (usize, &str), places: &[usize; 4]) -> Result<Value, Fault> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let wrong = |what: String| file.fault(number, &what, REMEDY);
    let cell = |column: usize| {
        let found = cells.get(places[column]).filter(|cell| !cell.is_empty());
        found.ok_or_else(|| wrong(format!("no cell for `{}`", COLUMNS[column])))
    };
    let whole = |column: usize| {
        let text = cell(column)?;
        text.parse::<u64>().map_err(|_| wrong(format!("{text:?} is no whole number (`{}`)", COLUMNS[column])))
    };
    let (at, size) = (format!("{}us", whole(0)?), format!("{}B", whole(3)?));
    Ok(json!({ "at": at, "from": cell(1)?, "to": cell(2)?, "size": size }))
}
