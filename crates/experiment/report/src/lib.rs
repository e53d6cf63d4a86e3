//! A result folder as one HTML file that needs no network.
//!
//! Tables and bars are drawn here and can be read without JavaScript; lines (distributions, time series, sweeps)
//! are drawn in the browser by [uPlot](https://github.com/leeoniya/uPlot), which is part of the file. No figure
//! is computed from packets here: everything comes from `summary.json` and the Parquet files beside it.

mod about;
mod bars;
mod figure;
mod histogram;
mod index;
mod page;
mod plots;
mod rows;
mod sides;
mod titles;

pub use about::{About, Outcome, Part};
pub use sides::markdown;

use std::path::{Path, PathBuf};
use vmcc_results::Summary;
use vmcc_results::folder::{self, FolderError};
use vmcc_results::parquet_files::TableError;

/// Name of the report inside a result folder.
pub const REPORT_FILE: &str = "report.html";
/// Name of the page over several result folders, and of a figure's.
pub const INDEX_FILE: &str = "index.html";
/// Name of the scenario inside a result folder, shown if it is there.
const SCENARIO_FILE: &str = "scenario.toml";
/// A longer one is not shown.
const MAX_SCENARIO_BYTES: u64 = 1 << 20;

/// Error of making a report. The folder is as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The folder, or its summary.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its flow records or time series.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A column of one of them has another type than this version writes.
    #[error("{}: column `{column}` is missing or of another type", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
}

/// Writes the report of the result folder `folder` into it and returns its path.
///
/// # Errors
/// When the folder cannot be read, is not of this version, or cannot be written.
pub fn write(folder: &Path) -> Result<PathBuf, ReportError> {
    let summary = folder::read_summary(folder)?;
    // Optional: a folder from elsewhere may lack it, and the report can do without.
    let scenario = vmcc_config::read_regular(&folder.join(SCENARIO_FILE), MAX_SCENARIO_BYTES).ok();
    let scenario = scenario.and_then(|bytes| String::from_utf8(bytes).ok());
    let html = page::page(&summary, &plots_of(folder, &summary)?, scenario.as_deref());
    let path = folder.join(REPORT_FILE);
    folder::replace_file(&path, html.as_bytes())?;
    Ok(path)
}

fn plots_of(folder: &Path, summary: &Summary) -> Result<plots::Plots, ReportError> {
    let flows = rows::flows(&folder.join(folder::FLOWS_FILE))?;
    let series = rows::series(&folder.join(folder::SERIES_FILE))?;
    let off_times = histogram::Histogram::of(summary, series.all());
    Ok(plots::Plots { off_times, ..plots::Plots::of(summary, &flows, &series) })
}

/// Writes the page of a figure into `folder`, below which each engine's result folder has the engine's name, and returns
/// its path.
///
/// # Errors
/// When one of them cannot be read, or the page not be written.
pub fn write_figure(folder: &Path, about: &About<'_>, parts: &[Part<'_>]) -> Result<PathBuf, ReportError> {
    let mut plots = Vec::new();
    for part in parts {
        if let Some(summary) = part.summary() {
            plots.push((part.engine, plots_of(&folder.join(part.engine), summary)?));
        }
    }
    let path = folder.join(INDEX_FILE);
    folder::replace_file(&path, figure::page(about, parts, plots).as_bytes())?;
    Ok(path)
}

/// Writes the page over the figures inside `folder` and returns its path.
///
/// # Errors
/// When it cannot be written.
pub fn write_index(
    folder: &Path,
    title: &str,
    figures: &[(About<'_>, Vec<Part<'_>>)],
) -> Result<PathBuf, ReportError> {
    let path = folder.join(INDEX_FILE);
    folder::replace_file(&path, index::page(title, figures).as_bytes())?;
    Ok(path)
}
