//! Logs of QUIC connections, where they are wanted.

use crate::failure::Failure;
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vmcc_apps::Qlog;

/// Environment variable of the log folder, as the drafts name it.
const VARIABLE: &str = "QLOGDIR";

/// Opens the folder that was named, or that the environment names. What is asked for and cannot be done is said before anything begins; the
/// variable was not meant for this program alone, so that a folder of it that is of no use ends nothing.
pub(super) fn open(named: Option<&Path>, ui: &Ui) -> Result<Option<Arc<Qlog>>, Failure> {
    let usual = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let Some(folder) = named.map(Path::to_owned).or(usual) else { return Ok(None) };
    let error = match Qlog::open(&folder) {
        Ok(opened) => return Ok(Some(opened)),
        Err(error) => error,
    };
    let text = format!("{}: no log can be written there: {error}", folder.display());
    if named.is_none() {
        ui.warn(&format!("{text}; nothing is logged ({VARIABLE})"));
        return Ok(None);
    }
    Err(Failure::host(text).help("name another folder with --qlog, or leave it out"))
}

/// After the connections' end: a log that is not whole is no failure of what was logged.
pub(super) fn finish(qlog: Option<Arc<Qlog>>, ui: &Ui) {
    if let Some(trouble) = qlog.and_then(|qlog| qlog.finish()) {
        ui.warn(&format!("log: {trouble}"));
    }
}
