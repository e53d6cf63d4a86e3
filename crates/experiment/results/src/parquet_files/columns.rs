//! The columns of the files, each with its name, its type and its cells.

use super::cell::{Cell, Cells, Kind};
use crate::{FlowRecord, Series, Settings};
use serde_json::{Value, json};
use std::iter::repeat_n;
use std::ops::Range;
use vmcc_metrics::catalogue::Place;
use vmcc_metrics::catalogue::columns::described;

/// A column that can be written.
pub(super) struct Column<'a> {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) optional: bool,
    /// Cells of a range of rows.
    pub(super) cells: Box<dyn Fn(Range<usize>) -> Cells + 'a>,
}

impl<'a> Column<'a> {
    fn required<T: Cell, I: Iterator<Item = T>>(name: &str, cells: impl Fn(Range<usize>) -> I + 'a) -> Self {
        let cells = Box::new(move |rows| Cells::required(cells(rows)));
        Self { name: name.to_owned(), kind: T::KIND, optional: false, cells }
    }

    fn optional<T: Cell, I: Iterator<Item = Option<T>>>(
        name: &str,
        cells: impl Fn(Range<usize>) -> I + 'a,
    ) -> Self {
        let cells = Box::new(move |rows| Cells::optional(cells(rows)));
        Self { name: name.to_owned(), kind: T::KIND, optional: true, cells }
    }
}

/// The swept keys of a whole result, with the type each has over all cases.
#[derive(Debug, Clone, PartialEq)]
pub struct SetColumns(Vec<SetColumn>);

/// Column of one swept key.
#[derive(Debug, Clone, PartialEq)]
struct SetColumn {
    key: String,
    name: String,
    kind: Kind,
}

impl SetColumns {
    /// Looks at every case: a key is a number column when each case that has it gives a number.
    pub fn of(cases: &[Settings]) -> Self {
        let mut columns: Vec<SetColumn> = Vec::new();
        for (key, value) in cases.iter().flatten() {
            let kind = if value.is_number() { Kind::Float64 } else { Kind::Text };
            match columns.iter_mut().find(|column| column.key == *key) {
                Some(column) if kind == Kind::Text => column.kind = kind,
                Some(_) => {}
                None => columns.push(SetColumn { key: key.clone(), name: set_name(key, &columns), kind }),
            }
        }
        Self(columns)
    }

    /// Columns that say which run a row belongs to and what its case sets.
    pub(super) fn of_run<'a>(&self, key: RunKey<'a>) -> Vec<Column<'a>> {
        let mut columns = vec![
            Column::required("case_index", move |rows| repeat_n(key.case, rows.len())),
            Column::required("run", move |rows| repeat_n(key.run, rows.len())),
            Column::required("seed", move |rows| repeat_n(key.seed, rows.len())),
        ];
        columns.extend(self.0.iter().map(|column| {
            let (name, value) = (&column.name, key.set.get(&column.key));
            if column.kind == Kind::Float64 {
                let number = value.and_then(Value::as_f64);
                Column::optional(name, move |rows| repeat_n(number, rows.len()))
            } else {
                let text = value.map(plain_text);
                Column::optional(name, move |rows| repeat_n(text.clone(), rows.len()))
            }
        }));
        columns
    }

    /// Metadata of a file: unit and meaning of each column as JSON, under `column.<name>`.
    pub(super) fn described(&self, place: Place, columns: &[Column<'_>]) -> Vec<(String, String)> {
        let one = |column: &Column<'_>| {
            let swept = self.0.iter().find(|set| set.name == column.name);
            let (unit, meaning) = match swept {
                Some(set) => ("", format!("value of `{}` in the case", set.key)),
                None => described(place, &column.name).map(|(unit, meaning)| (unit, meaning.to_owned()))?,
            };
            let value = json!({ "unit": unit, "meaning": meaning }).to_string();
            Some((format!("column.{}", column.name), value))
        };
        columns.iter().filter_map(one).collect()
    }
}

/// Column of a swept key: a name that needs no quotes in SQL, and that no other key has.
fn set_name(key: &str, taken: &[SetColumn]) -> String {
    let plain: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let name = format!("set_{plain}");
    // SQL compares names without case.
    let is_free = |name: &String| !taken.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
}

/// The run that rows belong to.
#[derive(Debug, Clone, Copy)]
pub struct RunKey<'a> {
    /// Index of the case.
    pub case: u32,
    /// Index of the run within the case.
    pub run: u32,
    /// Seed of the run.
    pub seed: u64,
    /// Settings of the case.
    pub set: &'a Settings,
}

/// A setting as a person writes it: text without quotes, anything else as JSON.
pub fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Columns of time series.
pub(super) fn of_series(series: &Series) -> Vec<Column<'_>> {
    vec![
        Column::required("t_us", |rows| series.range(rows).map(|point| point.t_us)),
        Column::required("entity", |rows| series.range(rows).map(|point| point.entity)),
        Column::required("metric", |rows| series.range(rows).map(|point| point.metric)),
        Column::required("value", |rows| series.range(rows).map(|point| point.value)),
    ]
}

/// Columns of flow records.
pub(super) fn of_flows(flows: &[FlowRecord]) -> Vec<Column<'_>> {
    fn each<'a, T: Cell>(
        flows: &'a [FlowRecord],
        name: &str,
        cell: impl Fn(&'a FlowRecord) -> T + Copy + 'a,
    ) -> Column<'a> {
        Column::required(name, move |rows| flows[rows].iter().map(cell))
    }
    fn some<'a, T: Cell>(
        flows: &'a [FlowRecord],
        name: &str,
        cell: impl Fn(&'a FlowRecord) -> Option<T> + Copy + 'a,
    ) -> Column<'a> {
        Column::optional(name, move |rows| flows[rows].iter().map(cell))
    }
    vec![
        each(flows, "flow", |f| f.flow),
        each(flows, "kind", |f| f.kind.name()),
        each(flows, "traffic", |f| &*f.traffic),
        each(flows, "src", |f| &*f.src),
        each(flows, "dst", |f| &*f.dst),
        each(flows, "cc", |f| &*f.cc),
        each(flows, "subflows", |f| f.subflows),
        some(flows, "paths", |f| f.paths.as_deref()),
        each(flows, "start_us", |f| f.start_us),
        some(flows, "end_us", |f| f.end_us),
        some(flows, "size_bytes", |f| f.size_bytes),
        each(flows, "delivered_bytes", |f| f.delivered_bytes),
        each(flows, "completed", |f| f.completed),
        each(flows, "measured", |f| f.measured),
        some(flows, "goodput_bps", |f| f.goodput_bps),
        some(flows, "fct_us", |f| f.fct_us),
        some(flows, "ideal_us", |f| f.ideal_us),
        some(flows, "slowdown", |f| f.slowdown),
        some(flows, "rtt_mean_us", |f| f.rtt_mean_us),
        some(flows, "rtt_p50_us", |f| f.rtt_p50_us),
        some(flows, "rtt_p99_us", |f| f.rtt_p99_us),
        some(flows, "retransmits", |f| f.retransmits),
        some(flows, "timeouts", |f| f.timeouts),
        some(flows, "ce_marks", |f| f.ce_marks),
    ]
}
