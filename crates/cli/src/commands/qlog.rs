//! Logs of QUIC connections, where they are wanted.

use crate::failure::Failure;
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vmcc_tunnel::Qlog;

/// What the drafts name it.
const VARIABLE: &str = "QLOGDIR";

/// Opens the folder that was named, or that the environment names; what is asked for and cannot be done is said before anything begins.
pub(super) fn open(named: Option<&Path>) -> Result<Option<Arc<Qlog>>, Failure> {
    let usual = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let Some(folder) = named.map(Path::to_owned).or(usual) else { return Ok(None) };
    let opened = Qlog::open(&folder);
    let failed = |error| {
        Failure::host(format!("{}: no log can be written there: {error}", folder.display()))
            .help(format!("name another folder with --qlog or the variable {VARIABLE}, or leave both out"))
    };
    opened.map(Some).map_err(failed)
}

/// After the connections' end: a log that is not whole is no failure of what was logged.
pub(super) fn finish(qlog: Option<Arc<Qlog>>, ui: &Ui) {
    if let Some(trouble) = qlog.and_then(|qlog| qlog.finish()) {
        ui.warn(&format!("log: {trouble}"));
    }
}
