//! A result folder as one HTML file that needs no network.
//!
//! Tables and bars are drawn here and can be read without JavaScript; lines (distributions, time series, sweeps)
//! are drawn in the browser by [uPlot](https://github.com/leeoniya/uPlot), which is part of the file. No figure
//! is computed from packets here: everything comes from `summary.json` and the Parquet files beside it.

mod bars;
mod index;
mod page;
mod plots;
mod rows;

pub use index::{Entry, Outcome};

use std::path::{Path, PathBuf};
use vmcc_results::folder::{self, FolderError};
use vmcc_results::parquet_files::TableError;

/// Name of the report inside a result folder.
pub const REPORT_FILE: &str = "report.html";
/// Name of the page over several result folders.
pub const INDEX_FILE: &str = "index.html";
/// Name of the scenario inside a result folder, shown if it is there.
const SCENARIO_FILE: &str = "scenario.toml";
/// A longer one is not shown.
const MAX_SCENARIO_BYTES: u64 = 1 << 20;

/// Why a report could not be made. The folder is as before.
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
    let flows = rows::flows(&folder.join(folder::FLOWS_FILE))?;
    let series = rows::series(&folder.join(folder::SERIES_FILE))?;
    // Optional: a folder from elsewhere may lack it, and the report can do without.
    let scenario = vmcc_files::read_regular(&folder.join(SCENARIO_FILE), MAX_SCENARIO_BYTES).ok();
    let scenario = scenario.and_then(|bytes| String::from_utf8(bytes).ok());
    let plots = plots::Plots::of(&summary, &flows, &series);
    let html = page::page(&summary, &plots, scenario.as_deref());
    let path = folder.join(REPORT_FILE);
    folder::replace_file(&path, html.as_bytes())?;
    Ok(path)
}

/// Writes the page over the result folders inside `folder` and returns its path.
///
/// # Errors
/// When it cannot be written.
pub fn write_index(folder: &Path, title: &str, entries: &[Entry<'_>]) -> Result<PathBuf, ReportError> {
    let path = folder.join(INDEX_FILE);
    folder::replace_file(&path, index::page(title, entries).as_bytes())?;
    Ok(path)
}
