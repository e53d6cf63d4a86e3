//! Counters of served ports, and serving one again as it was set.

use super::{SCHEMA, show};
use crate::args::MarkOptions;
use crate::failure::{Exit, Failure, agent_failure, chain};
use crate::interrupt;
use crate::ui::Ui;
use serde_json::{Value, json};
use vmcc_agent::ports;
use vmcc_port::PortStats;

/// All served ports.
pub(super) fn list(options: &MarkOptions, ui: &Ui) -> Result<Exit, Failure> {
    let listed = ports::list().map_err(|e| agent_failure(&e))?;
    listed.unreadable.iter().for_each(|error| ui.warn(&chain(error)));
    for device in &listed.unused_budgets {
        ui.warn(&format!(
            "{device}, the device of a budget, is there although its ports are gone; `vmcc clean` removes it"
        ));
    }
    let document = json!({ "schema": SCHEMA, "ports": listed.ports });
    print(&listed.ports, &document, options.prometheus, ui)
}

/// One served port.
pub(super) fn stats(name: &str, options: &MarkOptions, ui: &Ui) -> Result<Exit, Failure> {
    let stats = ports::stats(name).map_err(|e| agent_failure(&e))?;
    let mut document = json!(stats);
    document["schema"] = SCHEMA.into();
    print(std::slice::from_ref(&stats), &document, options.prometheus, ui)?;
    Ok(if stats.differences.is_empty() { Exit::Done } else { Exit::CheckFailed })
}

fn print(ports: &[PortStats], document: &Value, prometheus: bool, ui: &Ui) -> Result<Exit, Failure> {
    if prometheus {
        let text = vmcc_port::prometheus(ports).map_err(|e| Failure::host(format!("counters: {e}")))?;
        ui.plain(text.trim_end());
    } else if ports.is_empty() {
        ui.answer(document, || "vmcc serves no port of this network namespace".to_owned());
    } else {
        ui.answer(document, || show::ports(ports));
    }
    Ok(Exit::Done)
}

/// Serves a port again as it was set.
pub(super) fn repair(name: &str, ui: &Ui) -> Result<Exit, Failure> {
    // From here on a signal must not leave half of it.
    interrupt::listen()?;
    let done = ports::repair(name).map_err(|e| agent_failure(&e))?;
    let document =
        json!({ "schema": SCHEMA, "port": name, "repaired": done.differences, "stats": done.stats });
    ui.answer(&document, || match done.differences.as_slice() {
        [] => format!("{name}: is as it was set; there is nothing to repair"),
        repaired => format!("{name}: served again as it was set; repaired: {}", repaired.join("; ")),
    });
    Ok(Exit::Done)
}
