//! `vmcc unmark`: what was there before comes back.

use super::SCHEMA;
use crate::args::UnmarkOptions;
use crate::failure::{Exit, Failure, agent_failure};
use crate::ui::Ui;
use serde_json::json;
use vmcc_agent::ports::{self, Unmarked};

pub(crate) fn unmark(options: &UnmarkOptions, ui: &Ui) -> Result<Exit, Failure> {
    match &options.port {
        Some(port) => one(port, ui),
        None => all(ui),
    }
}

fn one(name: &str, ui: &Ui) -> Result<Exit, Failure> {
    let (was_served, stats, text) = match ports::unmark(name).map_err(|e| agent_failure(&e))? {
        Unmarked::Ended(stats) => (true, stats, "no longer served"),
        Unmarked::NotServed => (false, None, "was not served"),
        Unmarked::Gone => (false, None, "the port is gone, and with it what served it"),
    };
    let document = json!({ "schema": SCHEMA, "port": name, "marking": false, "was_marking": was_served, "stats": stats });
    ui.answer(&document, || format!("{name}: {text}"));
    Ok(Exit::Done)
}

fn all(ui: &Ui) -> Result<Exit, Failure> {
    let done = ports::unmark_all().map_err(|e| agent_failure(&e))?;
    let mut failed = done.failed.iter().map(agent_failure);
    if let Some(first) = failed.next() {
        // Of several the last is why the command fails.
        return Err(failed.fold(first, |earlier, failure| {
            ui.warn(&earlier.message);
            failure
        }));
    }
    let document = json!({ "schema": SCHEMA, "unmarked": done.ended, "gone": done.gone });
    ui.answer(&document, || match done.ended.as_slice() {
        [] => "vmcc serves no port of this network namespace".to_owned(),
        names => names.iter().map(|n| format!("{n}: no longer served")).collect::<Vec<_>>().join("\n"),
    });
    Ok(Exit::Done)
}
