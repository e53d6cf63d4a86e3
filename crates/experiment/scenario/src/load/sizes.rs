//! Distributions of sizes that a scenario has in a file beside it: `sizes = "mine.csv"`.
//!
//! A line of it is a size in bytes and the share of transfers up to it, separated by a comma or by blanks: `10000,0.15`. The shares end
//! at 1, or at 100 if they are percentages, as in the files of the HPCC simulations. A first line of names, empty lines and those
//! that begin with `#` are left out.

use serde_json::{Value, json};

use super::text_file::{Fault, Text};

const REMEDY: &str = "a line has a whole number of bytes and the share of transfers up to it: 10000,0.15";

/// True for a text that names a file: what it could mean otherwise, a size or a published distribution, has no such ending.
pub(super) fn is_file(name: &str) -> bool {
    [".csv", ".txt"].iter().any(|ending| name.ends_with(ending))
}

/// The points of a file, as the language has them.
pub(super) fn points(file: &Text) -> Result<Value, Fault> {
    let mut points: Vec<(u64, f64)> = Vec::new();
    for (index, (number, line)) in file.lines().enumerate() {
        match pair(line) {
            Some(point) => points.push(point),
            // Names of the columns.
            None if index == 0 && line.starts_with(char::is_alphabetic) => {}
            None => {
                return Err(file.fault(number, &format!("{line:?} is no point of a distribution"), REMEDY));
            }
        }
    }
    let Some((_, last)) = points.last() else { return Err(file.fault(1, "there is no point in it", REMEDY)) };
    let whole = if *last == 100.0 { 100.0 } else { 1.0 };
    // Such files begin at a size of 0, which nobody sends.
    let one =
        |(size, share): &(u64, f64)| json!({ "size": format!("{}B", size.max(&1)), "cdf": share / whole });
    Ok(points.iter().map(one).collect())
}

fn pair(line: &str) -> Option<(u64, f64)> {
    let mut parts = line.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty());
    let (size, share) = (parts.next()?.parse().ok()?, parts.next()?.parse::<f64>().ok()?);
    (parts.next().is_none() && share.is_finite()).then_some((size, share))
}
