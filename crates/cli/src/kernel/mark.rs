//! Serving ports of this host.

use crate::failure::{Exit, Failure, chain};
use crate::interrupt;
use crate::port::live::Live;
use crate::port::options::Asked;
use crate::port::said;
use crate::port::show;
use crate::ui::Ui;
use serde_json::json;
use std::time::Duration;
use vmcc_host::port::{self, Port, PortError};
use vmcc_port::{Backend, PortConfig, PortStats};

/// How soon a foreground process notices a signal, or that its port is gone.
const GLANCE: Duration = Duration::from_millis(100);

/// The version of the documents below.
const SCHEMA: u32 = 1;

/// Serves a port, or changes how it is served.
pub(crate) fn serve(name: &str, asked: &Asked, foreground: bool, ui: &Ui) -> Result<Exit, Failure> {
    needs_root(&format!("port {name}: serving it"))?;
    // From here on a signal must not leave half of it.
    interrupt::listen()?;
    let (port, changed) = match Port::attach(name, &asked.config) {
        Ok(port) => (port, None),
        Err(PortError::AlreadyAttached { .. }) => {
            let (port, changed) = change(name, asked, foreground)?;
            (port, Some(changed))
        }
        Err(error) => return Err(refused(&error, asked)),
    };
    // Not `?`: the port would be dropped, and that detaches a port that others may rely on.
    let stats = match port.stats() {
        Ok(stats) => stats,
        Err(error) => {
            if changed.is_some() {
                port.keep();
            }
            return Err(refused(&error, asked));
        }
    };
    let why = why(&asked.config, stats.backend);
    let removed = changed.as_ref().map_or_else(Vec::new, |changed| said::removed(&changed.classes, &stats));
    let dropped = changed.as_ref().map_or(0, |changed| changed.dropped_packets);
    if dropped > 0 {
        ui.warn(&format!(
            "port {name}: {dropped} packets that waited in removed classes did not leave in time and were dropped"
        ));
    }
    let text = |end: &str| {
        let head = sentence(name, &stats, &why, changed.is_some());
        format!("{head}; {end}\n  {}", said::settings(&asked.config, &stats, &removed))
    };
    if foreground {
        ui.note(&text("Ctrl-C ends it"));
        return hold(port, ui);
    }
    port.keep();
    let document = json!({
        "schema": SCHEMA,
        "port": name,
        "marking": true,
        "changed": changed.is_some(),
        "settings": asked.config,
        "removed_classes": removed,
        "dropped_packets": dropped,
        "backend": stats.backend,
        "backend_reason": why,
        "stats": stats,
    });
    ui.answer(&document, || text(&format!("`vmcc unmark {name}` ends it")));
    Ok(if dropped > 0 { Exit::CheckFailed } else { Exit::Done })
}

/// What a change of a served port found and did.
struct Changed {
    /// The names of the classes that it had.
    classes: Vec<String>,
    /// What waited in classes that are gone and did not leave in time.
    dropped_packets: u64,
}

/// Goes on with a port that is served and that nobody holds.
fn change(name: &str, asked: &Asked, foreground: bool) -> Result<(Port, Changed), Failure> {
    let mut port = Port::adopt(name).map_err(|e| refused(&e, asked))?;
    if foreground && port.is_kept() {
        port.keep();
        return Err(Failure::usage(format!(
            "port {name} is served until `vmcc unmark {name}`; --foreground would end that with this process"
        ))
        .help(format!("unmark it first, or change it with `vmcc mark {name}` without --foreground")));
    }
    // Only to name those that go; that they cannot be read shows below.
    let classes = port.stats().map_or_else(|_| Vec::new(), |stats| stats.classes);
    let classes = classes.into_iter().map(|class| class.name).collect();
    match port.reconfigure(&asked.config) {
        Ok(dropped_packets) => Ok((port, Changed { classes, dropped_packets })),
        Err(error) => {
            // It goes on as before.
            port.keep();
            Err(refused(&error, asked))
        }
    }
}

/// Serves until a signal comes or the port goes.
fn hold(port: Port, ui: &Ui) -> Result<Exit, Failure> {
    let name = port.name().to_owned();
    let index = nix::net::if_::if_nametoindex(name.as_str());
    let mut live = Live::new(ui);
    while !interrupt::stopped() {
        // Not just any port of this name: it may come back as another one.
        if index.is_err() || nix::net::if_::if_nametoindex(name.as_str()) != index {
            live.end();
            drop(port);
            let _ = port::forget_gone();
            return Err(Failure::host(format!("port {name} is gone, and with it what served it"))
                .help("serve it again when it is back"));
        }
        if let Err(error) = live.show(|| port.stats()) {
            ui.warn(&chain(&error));
        }
        std::thread::sleep(GLANCE);
    }
    live.end();
    let stats = port.detach().map_err(|e| failure(&e))?;
    let document = json!({ "schema": SCHEMA, "port": name, "marking": false, "stats": stats });
    ui.answer(&document, || {
        format!("{}\n{name}: no longer served", show::ports(std::slice::from_ref(&stats)))
    });
    Ok(Exit::Interrupted)
}

fn sentence(name: &str, stats: &PortStats, why: &str, changed: bool) -> String {
    let budget = match stats.members.as_slice() {
        [] => String::new(),
        ports => format!(" from the budget of VM {} (ports: {})", stats.port, ports.join(", ")),
    };
    let verb = if changed { "was served already and is changed:" } else { "is served" };
    format!("{name}: {verb} by {} ({why}){budget}", show::backend(stats.backend))
}

/// Why this backend.
fn why(config: &PortConfig, chosen: Backend) -> String {
    match (config.backend, chosen) {
        (_, Backend::Auto) => "no rate and one class: the queue that is there stays".to_owned(),
        (Backend::Auto, Backend::Bpf) => "the best that loads".to_owned(),
        (Backend::Auto, Backend::Htb) => match port::usable(Backend::Bpf) {
            Err(reason) => format!("bpf: {reason}"),
            Ok(()) => "what suits these settings".to_owned(),
        },
        _ => "as asked".to_owned(),
    }
}

/// All served ports.
pub(crate) fn list(prometheus: bool, ui: &Ui) -> Result<Exit, Failure> {
    needs_root("mark: reading counters")?;
    let mut ports: Vec<PortStats> = Vec::new();
    for name in port::attached().map_err(|e| failure(&e))? {
        // The ports of one budget have the same counters.
        if ports.iter().any(|port| port.members.contains(&name)) {
            continue;
        }
        match port::peek(&name) {
            Ok(stats) => ports.push(stats),
            // It went away since it was listed; the others are still worth a line.
            Err(PortError::NoSuchPort { .. } | PortError::NotAttached { .. } | PortError::Gone { .. }) => {}
            Err(error) => ui.warn(&chain(&error)),
        }
    }
    print(&ports, &json!({ "schema": SCHEMA, "ports": ports }), prometheus, ui)
}

/// One served port.
pub(crate) fn stats(name: &str, prometheus: bool, ui: &Ui) -> Result<Exit, Failure> {
    needs_root(&format!("port {name}: reading its counters"))?;
    let stats = port::peek(name).map_err(|e| failure(&e))?;
    let mut document = json!(stats);
    document["schema"] = SCHEMA.into();
    print(std::slice::from_ref(&stats), &document, prometheus, ui)?;
    Ok(if stats.differences.is_empty() { Exit::Done } else { Exit::CheckFailed })
}

/// Serves a port again as it was set.
pub(crate) fn repair(name: &str, ui: &Ui) -> Result<Exit, Failure> {
    needs_root(&format!("port {name}: repairing it"))?;
    // As in `serve`.
    interrupt::listen()?;
    let before = port::peek(name).map_err(|e| failure(&e))?;
    let stats = if before.differences.is_empty() {
        before.clone()
    } else {
        let port = Port::repair(name).map_err(|e| failure(&e))?;
        let stats = port.stats();
        port.keep();
        stats.map_err(|e| failure(&e))?
    };
    let document = json!({ "schema": SCHEMA, "port": name, "repaired": before.differences, "stats": stats });
    ui.answer(&document, || match before.differences.as_slice() {
        [] => format!("{name}: is as it was set; there is nothing to repair"),
        repaired => format!("{name}: served again as it was set; repaired: {}", repaired.join("; ")),
    });
    Ok(Exit::Done)
}

fn print(
    ports: &[PortStats],
    document: &serde_json::Value,
    prometheus: bool,
    ui: &Ui,
) -> Result<Exit, Failure> {
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

/// Stops serving a port.
pub(crate) fn unmark(name: &str, ui: &Ui) -> Result<Exit, Failure> {
    needs_root(&format!("port {name}: to stop serving it"))?;
    let gone = port::forget_gone().map_err(|e| failure(&e))?;
    // Of a port that somebody took the program from there are no counters, but what else served it goes.
    let served = port::attached().map_err(|e| failure(&e))?.iter().any(|port| port == name);
    let (stats, text) = match end(name) {
        Ok(stats) if served || stats.is_some() => (stats, format!("{name}: no longer served")),
        Ok(_) => (None, format!("{name}: was not served")),
        Err(PortError::NoSuchPort { .. }) if gone.iter().any(|port| port == name) => {
            (None, format!("{name}: the port is gone, and with it what served it"))
        }
        Err(error) => return Err(failure(&error)),
    };
    let document = json!({ "schema": SCHEMA, "port": name, "marking": false, "was_marking": served || stats.is_some(), "stats": stats });
    ui.answer(&document, || text);
    Ok(Exit::Done)
}

/// Stops serving all ports; one that cannot be ended does not keep the others.
pub(crate) fn unmark_all(ui: &Ui) -> Result<Exit, Failure> {
    needs_root("unmark: to stop serving ports")?;
    let gone = port::forget_gone().map_err(|e| failure(&e))?;
    let (mut ended, mut first_error) = (Vec::new(), None);
    for name in port::attached().map_err(|e| failure(&e))? {
        match end(&name) {
            Ok(_) | Err(PortError::NoSuchPort { .. } | PortError::Gone { .. }) => ended.push(name),
            Err(error) => {
                if let Some(earlier) = first_error.replace(failure(&error)) {
                    ui.warn(&earlier.message);
                }
            }
        }
    }
    if let Some(error) = first_error {
        return Err(error);
    }
    ui.answer(&json!({ "schema": SCHEMA, "unmarked": ended, "gone": gone }), || match ended.as_slice() {
        [] => "vmcc serves no port of this network namespace".to_owned(),
        names => names.iter().map(|n| format!("{n}: no longer served")).collect::<Vec<_>>().join("\n"),
    });
    Ok(Exit::Done)
}

/// Its last counters; `None` if it was not served.
fn end(name: &str) -> Result<Option<PortStats>, PortError> {
    match Port::adopt(name) {
        Ok(port) => port.detach().map(Some),
        Err(PortError::NotAttached { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn needs_root(what: &str) -> Result<(), Failure> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::host(format!("{what} needs root")).help("run it with sudo"))
}

/// An error of a configuration is shown where it was written.
fn refused(error: &PortError, asked: &Asked) -> Failure {
    match error {
        PortError::Config { error, .. } => asked.failure(error),
        other => failure(other),
    }
}

fn failure(error: &PortError) -> Failure {
    let text = chain(error);
    match error {
        PortError::NoSuchPort { .. }
        | PortError::AlreadyAttached { .. }
        | PortError::NotAttached { .. }
        | PortError::Held { .. }
        | PortError::Config { .. }
        | PortError::NoQueue { .. }
        | PortError::Down { .. }
        | PortError::OtherQueues { .. }
        | PortError::ForeignQueue { .. } => Failure::usage(text),
        // Says what to do.
        PortError::Gone { .. } => Failure::host(text),
        _ => {
            let help = vmcc_host::remedy(error).unwrap_or("`vmcc doctor` says what this kernel lacks");
            Failure::host(text).help(help)
        }
    }
}
