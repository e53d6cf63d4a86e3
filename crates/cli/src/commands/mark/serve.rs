//! Serving a port, or changing how it is served.

use super::live::Live;
use super::options::Asked;
use super::{SCHEMA, settings, show};
use crate::failure::{Exit, Failure, agent_failure, chain};
use crate::interrupt;
use crate::ui::Ui;
use serde_json::json;
use vmcc_agent::Error;
use vmcc_agent::ports::{self, Served};
use vmcc_port::PortError;

pub(super) fn serve(name: &str, asked: &Asked, foreground: bool, ui: &Ui) -> Result<Exit, Failure> {
    // From here on a signal must not leave half of it.
    interrupt::listen()?;
    let served = ports::serve(name, &asked.config, foreground).map_err(|e| refused(&e, asked))?;
    let dropped = served.changed.as_ref().map_or(0, |changed| changed.dropped_packets);
    if dropped > 0 {
        ui.warn(&format!(
            "port {name}: {dropped} packets that waited in removed classes did not leave in time and were dropped"
        ));
    }
    let end = if foreground { "Ctrl-C ends it".to_owned() } else { format!("`vmcc unmark {name}` ends it") };
    let text = text(name, &served, &end);
    if foreground {
        ui.note(&text);
        return hold(name, served, ui);
    }
    let document = json!({
        "schema": SCHEMA,
        "port": name,
        "marking": true,
        "changed": served.changed.is_some(),
        "settings": served.settings,
        "removed_classes": removed_classes(&served),
        "dropped_packets": dropped,
        "backend": served.stats.backend,
        "backend_reason": served.backend_reason,
        "stats": served.stats,
    });
    served.keep();
    ui.answer(&document, || text);
    Ok(if dropped > 0 { Exit::CheckFailed } else { Exit::Done })
}

fn removed_classes(served: &Served) -> &[String] {
    served.changed.as_ref().map_or(&[], |changed| &changed.removed_classes)
}

fn text(name: &str, served: &Served, end: &str) -> String {
    let settings = settings::one_line(&served.settings, &served.stats, removed_classes(served));
    format!("{}; {end}\n  {settings}", sentence(name, served))
}

fn sentence(name: &str, served: &Served) -> String {
    let stats = &served.stats;
    let budget = match stats.members.as_slice() {
        [] => String::new(),
        ports => format!(" from the budget of VM {} (ports: {})", stats.port, ports.join(", ")),
    };
    let verb = if served.changed.is_some() { "was served already and is changed:" } else { "is served" };
    format!("{name}: {verb} by {} ({}){budget}", show::backend(stats.backend), served.backend_reason)
}

/// Serves until a signal comes or the port goes.
fn hold(name: &str, served: Served, ui: &Ui) -> Result<Exit, Failure> {
    let mut live = Live::new(ui);
    let held = served.hold(interrupt::flag(), &mut |port| {
        if let Err(error) = live.show(|| port.stats()) {
            ui.warn(&chain(&error));
        }
    });
    live.end();
    let stats = held.map_err(|e| agent_failure(&e))?;
    let document = json!({ "schema": SCHEMA, "port": name, "marking": false, "stats": stats });
    ui.answer(&document, || {
        format!("{}\n{name}: no longer served", show::ports(std::slice::from_ref(&stats)))
    });
    Ok(Exit::Interrupted)
}

/// An error of a configuration is shown where it was written.
fn refused(error: &Error, asked: &Asked) -> Failure {
    match error {
        Error::Port(PortError::Config { error, .. }) => asked.failure(error),
        other => agent_failure(other),
    }
}
