//! The columns of the Parquet files that plots need.

use crate::ReportError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use std::path::Path;
use vmcc_metrics::catalogue::{self, Place};
use vmcc_results::parquet_files::{TableError, read_columns};

/// Figures of flows that have a distribution plot: column and title.
pub(crate) fn flow_figures() -> impl Iterator<Item = (&'static str, &'static str)> {
    catalogue::of(Place::Flow).flat_map(|metric| metric.shown.iter().map(|(_, title)| (metric.name, *title)))
}

/// One figure of one flow.
pub(crate) struct FlowValue {
    pub(crate) case: u32,
    /// Index into [`flow_figures`].
    pub(crate) figure: usize,
    pub(crate) value: f64,
    /// Whether it goes on as long as it may: where there are such, only their goodput is compared.
    pub(crate) endless: bool,
}

/// One sample of a time series.
pub(crate) struct Sample {
    pub(crate) case: u32,
    pub(crate) t_us: u64,
    pub(crate) entity: String,
    pub(crate) metric: String,
    pub(crate) value: f64,
}

/// Every figure of every flow that the summary's figures count, in the order of the file.
pub(crate) fn flows(path: &Path) -> Result<Vec<FlowValue>, ReportError> {
    let names: Vec<&str> = ["case", "measured", "size_bytes", "completed"]
        .into_iter()
        .chain(flow_figures().map(|(name, _)| name))
        .collect();
    let mut values = Vec::new();
    for_each_batch(path, &names, |batch| {
        let case = batch.column_by_name("case").and_then(|c| c.as_primitive_opt::<UInt32Type>());
        let case = case.ok_or_else(|| wrong(path, "case"))?;
        let flag = |name: &'static str| {
            let column = batch.column_by_name(name).and_then(|c| c.as_boolean_opt());
            column.ok_or_else(|| wrong(path, name))
        };
        let (measured, completed) = (flag("measured")?, flag("completed")?);
        let size = batch.column_by_name("size_bytes").ok_or_else(|| wrong(path, "size_bytes"))?;
        // A transfer cut off by the end of the run has no rate of its own.
        let counts = |row: &usize| measured.value(*row) && (size.is_null(*row) || completed.value(*row));
        for (figure, (name, _)) in flow_figures().enumerate() {
            let column = batch.column_by_name(name).and_then(|c| c.as_primitive_opt::<Float64Type>());
            let column = column.ok_or_else(|| wrong(path, name))?;
            let present = (0..batch.num_rows()).filter(|row| column.is_valid(*row) && counts(row));
            values.extend(present.map(|row| FlowValue {
                case: case.value(row),
                figure,
                value: column.value(row),
                endless: size.is_null(row),
            }));
        }
        Ok(())
    })?;
    Ok(values)
}

/// Values of this metric are events of their own.
pub(crate) const EVENTS: &str = "vm_off_us";
/// The samples of this one, on paths, have a distribution.
pub(crate) const RTTS: &str = "srtt_us";

/// Time series.
pub(crate) struct Series {
    /// The first run of every case.
    pub(crate) first: Vec<Sample>,
    /// Of the other runs what is distributed over all of them.
    pub(crate) others: Vec<Sample>,
}

impl Series {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Sample> {
        self.first.iter().chain(&self.others)
    }
}

/// Single flows are among the paths' figures already, and some of them compete with what is measured.
pub(crate) fn is_flow(entity: &str) -> bool {
    entity.strip_prefix("flow").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// What is drawn of the time series, in the order of the file.
pub(crate) fn series(path: &Path) -> Result<Series, ReportError> {
    let mut series = Series { first: Vec::new(), others: Vec::new() };
    for_each_batch(path, &["case", "run", "t_us", "entity", "metric", "value"], |batch| {
        let column = |name: &'static str| batch.column_by_name(name).ok_or_else(|| wrong(path, name));
        let case = column("case")?.as_primitive_opt::<UInt32Type>().ok_or_else(|| wrong(path, "case"))?;
        let run = column("run")?.as_primitive_opt::<UInt32Type>().ok_or_else(|| wrong(path, "run"))?;
        let t_us = column("t_us")?.as_primitive_opt::<UInt64Type>().ok_or_else(|| wrong(path, "t_us"))?;
        let entity = column("entity")?.as_string_opt::<i32>().ok_or_else(|| wrong(path, "entity"))?;
        let metric = column("metric")?.as_string_opt::<i32>().ok_or_else(|| wrong(path, "metric"))?;
        let value = column("value")?.as_primitive_opt::<Float64Type>().ok_or_else(|| wrong(path, "value"))?;
        let sample = |row: usize| Sample {
            case: case.value(row),
            t_us: t_us.value(row),
            entity: entity.value(row).to_owned(),
            metric: metric.value(row).to_owned(),
            value: value.value(row),
        };
        let (first, others): (Vec<usize>, Vec<usize>) =
            (0..batch.num_rows()).partition(|row| run.value(*row) == 0);
        let is_distributed = |row: &usize| match metric.value(*row) {
            EVENTS => true,
            RTTS => !is_flow(entity.value(*row)),
            _ => false,
        };
        series.first.extend(first.into_iter().map(sample));
        series.others.extend(others.into_iter().filter(is_distributed).map(sample));
        Ok(())
    })?;
    Ok(series)
}

fn for_each_batch(
    path: &Path,
    columns: &[&str],
    mut each: impl FnMut(&RecordBatch) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    for batch in read_columns(path, columns)? {
        let unreadable =
            |e: &dyn std::fmt::Display| TableError::Format { path: path.to_owned(), reason: e.to_string() };
        each(&batch.map_err(|e| unreadable(&e))?)?;
    }
    Ok(())
}

fn wrong(path: &Path, column: &'static str) -> ReportError {
    ReportError::Column { path: path.to_owned(), column }
}
