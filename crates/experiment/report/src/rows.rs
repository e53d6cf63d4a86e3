//! The columns of the Parquet files that plots need.

use crate::ReportError;
use std::path::Path;
use vmcc_metrics::catalogue::{self, Place};
use vmcc_results::parquet_files::{Batch, read_columns};

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
    /// Runs as long as it may: where there are such, only their goodput is compared.
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
    let names: Vec<&str> = ["case_index", "measured", "size_bytes", "completed"]
        .into_iter()
        .chain(flow_figures().map(|(name, _)| name))
        .collect();
    let mut values = Vec::new();
    for_each_batch(path, &names, |batch| {
        let case = batch.required::<u32>("case_index").ok_or_else(|| wrong(path, "case_index"))?;
        let flags = |name| batch.required::<bool>(name).ok_or_else(|| wrong(path, name));
        let (measured, completed) = (flags("measured")?, flags("completed")?);
        let size = batch.optional::<u64>("size_bytes").ok_or_else(|| wrong(path, "size_bytes"))?;
        // A transfer cut off by the end of the run has no rate of its own.
        let counts = |row: usize| measured[row] && (size[row].is_none() || completed[row]);
        for (figure, (name, _)) in flow_figures().enumerate() {
            let column = batch.optional::<f64>(name).ok_or_else(|| wrong(path, name))?;
            let present = column.into_iter().enumerate().filter(|(row, _)| counts(*row));
            values.extend(present.filter_map(|(row, value)| {
                Some(FlowValue { case: case[row], figure, value: value?, endless: size[row].is_none() })
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

/// Single links are too many for a plot; their tiers are drawn.
fn is_link(entity: &str) -> bool {
    entity.starts_with("link.")
}

/// Time series to draw, in the order of the file.
pub(crate) fn series(path: &Path) -> Result<Series, ReportError> {
    let mut series = Series { first: Vec::new(), others: Vec::new() };
    for_each_batch(path, &["case_index", "run", "t_us", "entity", "metric", "value"], |batch| {
        let numbers = |name| batch.required::<u32>(name).ok_or_else(|| wrong(path, name));
        let texts = |name| batch.required::<String>(name).ok_or_else(|| wrong(path, name));
        let (case, run) = (numbers("case_index")?, numbers("run")?);
        let t_us = batch.required::<u64>("t_us").ok_or_else(|| wrong(path, "t_us"))?;
        let value = batch.required::<f64>("value").ok_or_else(|| wrong(path, "value"))?;
        let names = texts("entity")?.into_iter().zip(texts("metric")?);
        for (row, (entity, metric)) in names.enumerate() {
            let of = match run[row] {
                _ if is_link(&entity) => continue,
                0 => &mut series.first,
                _ if is_distributed(&entity, &metric) => &mut series.others,
                _ => continue,
            };
            of.push(Sample { case: case[row], t_us: t_us[row], entity, metric, value: value[row] });
        }
        Ok(())
    })?;
    Ok(series)
}

/// Returns true if the samples of every run are drawn as one distribution.
fn is_distributed(entity: &str, metric: &str) -> bool {
    match metric {
        EVENTS => true,
        RTTS => !is_flow(entity),
        _ => false,
    }
}

fn for_each_batch(
    path: &Path,
    columns: &[&str],
    mut each: impl FnMut(&Batch) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    for batch in read_columns(path, columns)? {
        each(&batch?)?;
    }
    Ok(())
}

fn wrong(path: &Path, column: &'static str) -> ReportError {
    ReportError::Column { path: path.to_owned(), column }
}
