//! `vmcc report`: the HTML report of a result folder, again.

use crate::failure::{Exit, Failure, chain, folder_failure};
use crate::ui::Ui;
use serde_json::json;
use std::path::Path;
use vmcc_report::ReportError;

pub(crate) fn report(folder: &Path, ui: &Ui) -> Result<Exit, Failure> {
    let path = vmcc_report::write(folder).map_err(|error| report_failure(&error, folder))?;
    ui.answer(&json!({ "report": path }), || path.display().to_string());
    Ok(Exit::Done)
}

/// Failure for an error while the report is made, with the remedy.
pub(crate) fn report_failure(error: &ReportError, folder: &Path) -> Failure {
    match error {
        ReportError::Folder(inner) => folder_failure(inner, folder),
        other => Failure::usage(chain(other)).help("point at a folder that `vmcc run` of this version made"),
    }
}
