//! Removing what crashed runs left behind.

use crate::failure::{Exit, Failure, chain, engine_failure};
use crate::ui::Ui;
use serde_json::json;
use vmcc_host::port::{self, PortError};

pub(crate) fn clean(ui: &Ui) -> Result<Exit, Failure> {
    let guests = vmcc_lab::guest::clean().map_err(|e| Failure::host(chain(&e)))?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::host("clean: only root can see and remove what runs of the kernel engine left")
            .help("run it with sudo"));
    }
    let lab = vmcc_lab::clean().map_err(|e| engine_failure(&e.into()))?;
    let kernel = vmcc_host::clean().map_err(|e| Failure::host(chain(&e)))?;
    let entries = vmcc_host::reclaim(vmcc_host::RECLAIM_AGE).map_err(|e| Failure::host(chain(&e)))?;
    let ports = ports().map_err(|e| Failure::host(chain(&e)))?;
    ui.answer(
        &json!({ "lab": lab, "algorithms": kernel, "entries": entries, "guests": guests, "ports": ports }),
        || {
            let removed = lab.runs.len() + kernel.len() + entries + guests.len() + ports.len();
            let mut lines = Vec::new();
            lines.extend(lab.runs.iter().map(|r| format!("removed run {r}")));
            lines.extend(lab.namespaces.iter().map(|n| format!("removed network namespace {n}")));
            lines.extend(kernel.iter().map(|k| format!("removed congestion control {k}")));
            lines.extend(ports.iter().map(|p| format!("removed what served port {p}")));
            lines.extend(guests.iter().map(|g| format!("removed {}", g.display())));
            lines.extend(lab.alive.iter().map(|r| format!("run {r} is alive and was left alone")));
            if entries > 0 {
                lines.push(format!(
                    "removed {entries} connections that are gone from the tables of congestion controls"
                ));
            }
            if removed == 0 {
                lines.push("nothing was left behind".to_owned());
            }
            lines.join("\n")
        },
    );
    Ok(Exit::Done)
}

/// Ports of this network namespace whose process was killed, and records of ports that are gone.
fn ports() -> Result<Vec<String>, PortError> {
    let mut ports = port::detach_orphans()?;
    ports.extend(port::forget_gone()?);
    Ok(ports)
}
