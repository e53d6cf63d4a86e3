//! `vmcc clean`: what crashed runs left behind.

use crate::failure::{Exit, Failure, agent_failure, chain, engine_failure};
use crate::ui::Ui;
use serde_json::json;
use std::path::PathBuf;
use vmcc_agent::needs_root;

pub(crate) fn clean(ui: &Ui) -> Result<Exit, Failure> {
    let guests = vmcc_lab::guest::clean().map_err(|e| Failure::host(chain(&e)))?;
    needs_root("clean: only root can see and remove what runs of the kernel engine left")
        .map_err(|e| agent_failure(&e))?;
    let lab = vmcc_lab::clean().map_err(|e| engine_failure(&e.into()))?;
    let host = vmcc_agent::clean().map_err(|e| agent_failure(&e))?;
    let document = json!({
        "lab": lab,
        "algorithms": host.algorithms,
        "entries": host.entries,
        "guests": guests,
        "ports": host.ports,
        "budgets": host.budgets,
    });
    ui.answer(&document, || text(&guests, &lab, &host));
    Ok(Exit::Done)
}

fn text(guests: &[PathBuf], lab: &vmcc_lab::Cleaned, host: &vmcc_agent::Cleaned) -> String {
    let of_ports = host.ports.len() + host.budgets.len();
    let removed = lab.runs.len() + host.algorithms.len() + host.entries + guests.len() + of_ports;
    let mut lines = Vec::new();
    lines.extend(lab.runs.iter().map(|r| format!("removed run {r}")));
    lines.extend(lab.namespaces.iter().map(|n| format!("removed network namespace {n}")));
    lines.extend(lab.cgroups.iter().map(|path| format!("removed cgroup {}", path.display())));
    lines.extend(host.algorithms.iter().map(|k| format!("removed congestion control {k}")));
    lines.extend(host.ports.iter().map(|p| format!("removed what served port {p}")));
    lines.extend(
        host.budgets.iter().map(|b| format!("removed {b}, the device of a budget whose ports are gone")),
    );
    lines.extend(guests.iter().map(|g| format!("removed {}", g.display())));
    lines.extend(lab.alive.iter().map(|r| format!("run {r} is alive and was left alone")));
    if host.entries > 0 {
        lines.push(format!(
            "removed {} connections that are gone from the tables of congestion controls",
            host.entries
        ));
    }
    lines.extend(lab.busy.iter().map(|busy| {
        let place = busy.cgroup.display();
        match busy.processes[..] {
            [] => format!("cgroup {place} has cgroups inside that are not ours: remove these, then clean again"),
            _ => {
                let numbers = busy.processes.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
                format!("cgroup {place} has processes that are not ours ({numbers}): end or move them, then clean again")
            }
        }
    }));
    if removed == 0 && lab.busy.is_empty() {
        lines.push("nothing was left behind".to_owned());
    }
    lines.join("\n")
}
