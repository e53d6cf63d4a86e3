//! Marking on one port of this host.

use crate::failure::{Exit, Failure, chain};
use crate::ui::Ui;
use serde_json::json;
use vmcc_host::mark::{self, MarkError, Marker, Threshold};
use vmcc_units::Bytes;

/// Starts marking; it lasts until `vmcc unmark` or a restart of the host.
pub(crate) fn mark(port: &str, threshold: Bytes, ui: &Ui) -> Result<Exit, Failure> {
    let bytes = threshold.get();
    let marker = Marker::attach(port, Threshold::Bytes(bytes)).map_err(|e| failure(&e))?;
    marker.keep();
    ui.answer(&json!({ "port": port, "threshold_bytes": bytes, "marking": true }), || {
        format!("{port}: marks packets that meet a backlog above {threshold}; `vmcc unmark {port}` stops it")
    });
    Ok(Exit::Done)
}

/// Stops marking.
pub(crate) fn unmark(port: &str, ui: &Ui) -> Result<Exit, Failure> {
    let was = mark::unmark(port).map_err(|e| failure(&e))?;
    ui.answer(&json!({ "port": port, "marking": false, "was_marking": was }), || match was {
        true => format!("{port}: no longer marks"),
        false => format!("{port}: was not marking"),
    });
    Ok(Exit::Done)
}

fn failure(error: &MarkError) -> Failure {
    match error {
        MarkError::NoSuchPort { .. } => Failure::usage(error).help("`ip link` lists the ports"),
        MarkError::AlreadyMarked { port } => {
            Failure::usage(error).help(format!("`vmcc unmark {port}` removes it"))
        }
        other if !nix::unistd::geteuid().is_root() => Failure::host(chain(other)).help("run it with sudo"),
        other => Failure::host(chain(other)).help("`vmcc doctor` says what this kernel lacks"),
    }
}
