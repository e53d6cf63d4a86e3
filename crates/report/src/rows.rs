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

/// One sample of the first run of a case.
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

/// Values of this metric are events of their own: their distribution is over all runs.
pub(crate) const EVENTS: &str = "vm_off_us";

/// The samples of the first run of every case, and those of [`EVENTS`] of the other runs; each in the order of the file.
pub(crate) fn series(path: &Path) -> Result<(Vec<Sample>, Vec<Sample>), ReportError> {
    let (mut samples, mut events) = (Vec::new(), Vec::new());
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
        samples.extend(first.into_iter().map(sample));
        events.extend(others.into_iter().filter(|row| metric.value(*row) == EVENTS).map(sample));
        Ok(())
    })?;
    Ok((samples, events))
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
