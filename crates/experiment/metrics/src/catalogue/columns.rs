//! Columns of the Parquet files that are no metrics, and the description of every column.

use super::{Place, at};

/// A column that is no metric.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Symbol of its unit; empty for names, numbers of rows and truth values.
    pub unit: &'static str,
    /// Its exact definition.
    pub meaning: &'static str,
}

/// Columns of both files that say which run a row belongs to.
pub const OF_RUN: &[Column] = &[
    Column {
        name: "case_index",
        unit: "",
        meaning: "index of the case in `cases` of `summary.json`, from 0",
    },
    Column { name: "run", unit: "", meaning: "index of the run within its case, from 0" },
    Column { name: "seed", unit: "", meaning: "seed of the run" },
];

/// Columns of `flows.parquet`.
pub const OF_FLOWS: &[Column] = &[
    Column {
        name: "flow",
        unit: "",
        meaning: "number of the connection in its run, from 0; its requests share it",
    },
    Column {
        name: "kind",
        unit: "",
        meaning: "`transfer` (a connection with a given size), `connection` (any other) or `request` (one on a connection)",
    },
    Column { name: "traffic", unit: "", meaning: "entry of traffic that it belongs to" },
    Column { name: "src", unit: "", meaning: "host that sends" },
    Column { name: "dst", unit: "", meaning: "host that receives" },
    Column { name: "cc", unit: "", meaning: "congestion control" },
    Column {
        name: "paths",
        unit: "",
        meaning: "names of the paths of its established subflows, separated by commas; null where paths have no names",
    },
    Column {
        name: "start_us",
        unit: "µs",
        meaning: "start, of a request its arrival, from the start of the run",
    },
    Column { name: "end_us", unit: "µs", meaning: "end, from the start of the run; null: open at its end" },
    Column { name: "size_bytes", unit: "B", meaning: "payload to transfer; null: no end" },
    Column { name: "completed", unit: "", meaning: "true if a transfer or request was done within the run" },
    Column {
        name: "measured",
        unit: "",
        meaning: "true if the figures of `summary.json` count it: it does not compete, and if it ends by itself, it began within \
                  the window",
    },
];

/// Columns of `series.parquet`.
pub const OF_SERIES: &[Column] = &[
    Column { name: "t_us", unit: "µs", meaning: "end of the interval, from the start of the run" },
    Column {
        name: "entity",
        unit: "",
        meaning: "path, queue, entry of traffic, tier, link, host or subflow that the value is about",
    },
    Column { name: "metric", unit: "", meaning: "name of the metric" },
    Column { name: "value", unit: "", meaning: "value of the metric, in the metric's unit" },
];

/// Columns of a file that are no metrics, those of the run first.
pub fn keys(place: Place) -> impl Iterator<Item = &'static Column> {
    let own = match place {
        Place::Flow => OF_FLOWS,
        Place::Series => OF_SERIES,
        _ => &[],
    };
    OF_RUN.iter().filter(|_| !own.is_empty()).chain(own)
}

/// Unit and meaning of a column of a file.
pub fn described(place: Place, name: &str) -> Option<(&'static str, &'static str)> {
    let key = keys(place).find(|column| column.name == name).map(|column| (column.unit, column.meaning));
    key.or_else(|| at(place, name).map(|metric| (metric.unit.symbol(), metric.meaning)))
}
