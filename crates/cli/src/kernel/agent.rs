//! Algorithms that stay in the kernel until they are taken down.

use crate::args::UpOptions;
use crate::failure::{Exit, Failure, chain};
use crate::interrupt;
use crate::table;
use crate::ui::Ui;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use vmcc_cc::Params;
use vmcc_host::diag::{Diag, Subflow};
use vmcc_host::guard::{CloseRequest, Guard};
use vmcc_host::port;
use vmcc_host::probe;
use vmcc_host::{ControlError, LoadError, Loaded, Status, Turn, parameter_table};

const DEFAULT_SETTING: &str = "net.ipv4.tcp_congestion_control";
/// How soon the guard notices Ctrl-C.
const WAIT: Duration = Duration::from_millis(200);

pub(crate) fn up(wanted: &[Params], options: &UpOptions, ui: &Ui) -> Result<Exit, Failure> {
    let guard = options.guard;
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::host("up: only root can load congestion controls").help("run it with sudo"));
    }
    // What a killed one left is gone before, and one that starts meanwhile finds what this one did.
    let turn = Turn::to_keep().map_err(control)?;
    turn.clean().map_err(control)?;
    vmcc_host::reclaim(vmcc_host::RECLAIM_AGE).map_err(control)?;
    let kept = kept()?;
    // All are loaded before any is kept: if one is refused, none stays.
    let loaded: Vec<Option<Loaded>> =
        wanted.iter().map(|params| load(params, &kept, guard)).collect::<Result<_, _>>()?;
    let guards = if guard { guards(&loaded).map_err(control)? } else { Vec::new() };
    for one in loaded.into_iter().flatten() {
        one.keep().map_err(control)?;
    }
    drop(turn);
    let names: Vec<&str> = wanted.iter().map(kernel_name).collect();
    if options.restricted {
        vmcc_host::restrict(&names).map_err(control)?;
    }
    let listed: Vec<String> = wanted.iter().map(with_changes).collect();
    if !guard {
        let parameters: BTreeMap<_, _> =
            wanted.iter().map(|p| (kernel_name(p), parameter_table(p))).collect();
        ui.answer(&json!({ "up": names, "parameters": parameters }), || {
            format!(
                "up: {}\nselect one with, for example, `sysctl -w {DEFAULT_SETTING}={}`; `vmcc down` removes them",
                listed.join(", "),
                names.first().copied().unwrap_or("mp_vmcc"),
            )
        });
        advise(ui);
        return Ok(Exit::Done);
    }
    // Before anything says that Ctrl-C ends it.
    interrupt::listen()?;
    ui.note(&format!("up: {}; closing paths that share a bottleneck until Ctrl-C", listed.join(", ")));
    advise(ui);
    watch(&guards, ui)
}

/// What would keep the algorithms from doing here what they can.
fn advise(ui: &Ui) {
    let unsent = probe::unsent_limit();
    if let (Some(reason), Some(remedy)) = (unsent.reason, unsent.remedy) {
        ui.note(&format!("note: {reason}\n  help: {remedy}"));
    }
}

fn kernel_name(params: &Params) -> &'static str {
    params.algorithm().info().kernel_name
}

/// `mp_vmcc (theta=5)`: the name, and the parameters that are not at their defaults.
fn with_changes(params: &Params) -> String {
    match changes(params).as_str() {
        "" => kernel_name(params).to_owned(),
        changes => format!("{} ({changes})", kernel_name(params)),
    }
}

fn changes(params: &Params) -> String {
    let changed = params.changed().map(|(info, value)| format!("{}={}", info.name, info.value_text(value)));
    changed.collect::<Vec<_>>().join(", ")
}

/// Loads an algorithm. One that is up already gets the new parameters; then there is nothing to hold, except for
/// a guard that wants to read its events.
fn load(params: &Params, kept: &[Status], guard: bool) -> Result<Option<Loaded>, Failure> {
    let kernel_name = params.algorithm().info().kernel_name;
    let up_already = kept.iter().any(|k| k.kernel_name == kernel_name && k.same_build);
    if up_already {
        vmcc_host::set_params(params).map_err(control)?;
        if !guard {
            return Ok(None);
        }
    }
    let loaded = Loaded::load(params.algorithm(), params).map_err(|e| failure(&e))?;
    if loaded.is_shared() && !up_already {
        return Err(Failure::host(format!(
            "up: {kernel_name} belongs to another vmcc process that runs now"
        ))
        .help("wait until that process ends, then try again"));
    }
    Ok(Some(loaded))
}

fn guards(loaded: &[Option<Loaded>]) -> Result<Vec<Guard>, ControlError> {
    loaded.iter().flatten().filter_map(|one| Guard::new(one).transpose()).collect()
}

/// What an earlier `vmcc up` left.
fn kept() -> Result<Vec<Status>, Failure> {
    let all = vmcc_host::list().map_err(control)?;
    Ok(all.into_iter().filter(|status| status.kept).collect())
}

fn watch(guards: &[Guard], ui: &Ui) -> Result<Exit, Failure> {
    let share = WAIT / u32::try_from(guards.len().max(1)).unwrap_or(1);
    let mut closed = Vec::new();
    while !interrupt::stopped() {
        if guards.is_empty() {
            std::thread::sleep(WAIT);
        }
        for guard in guards {
            match guard.step(share) {
                Ok(requests) => {
                    requests.iter().for_each(|request| ui.note(&line(request)));
                    closed.extend(requests);
                }
                // One path that cannot be closed is no reason to leave the others unguarded.
                Err(error) => ui.warn(&chain(&error)),
            }
        }
    }
    ui.answer(&json!({ "closed": closed }), || {
        format!("closed {} paths; the algorithms stay up", closed.len())
    });
    Ok(Exit::Interrupted)
}

fn line(request: &CloseRequest) -> String {
    format!(
        "closed {} -> {} (connection {:08x}): it shares a bottleneck with path {}",
        request.local, request.remote, request.token, request.peer
    )
}

pub(crate) fn status(ui: &Ui) -> Result<Exit, Failure> {
    let all = vmcc_host::list().map_err(control)?;
    let ports = port::attached().map_err(|e| Failure::host(chain(&e)))?;
    let subflows = Diag::open().and_then(|mut diag| diag.subflows()).map_err(|e| Failure::host(chain(&e)))?;
    let sockets: Vec<Subflow> =
        subflows.into_iter().filter(|s| all.iter().any(|a| a.kernel_name == s.algorithm)).collect();
    ui.answer(&json!({ "algorithms": all, "sockets": sockets, "ports": ports }), || {
        let algorithms = match all.as_slice() {
            [] => "no algorithm is loaded; `vmcc up` loads them".to_owned(),
            some => text(some, &sockets),
        };
        match ports.as_slice() {
            [] => algorithms,
            names => {
                format!("{algorithms}\n\nports: {}; `vmcc mark --list` has their counters", names.join(", "))
            }
        }
    });
    Ok(Exit::Done)
}

/// With the sockets of this network namespace.
fn text(all: &[Status], sockets: &[Subflow]) -> String {
    let head =
        ["ALGORITHM", "HELD BY", "BUILD", "MPTCP CONNECTIONS", "SOCKETS HERE", "LEFT TO RENO", "PARAMETERS"];
    let mut lines = table::plain(&head);
    for one in all {
        let here = || sockets.iter().filter(|s| s.algorithm == one.kernel_name);
        lines.add_row([
            one.kernel_name.clone(),
            match one.owner_pid {
                _ if one.kept => "vmcc up".to_owned(),
                Some(pid) => format!("process {pid}"),
                None => "not seen from here".to_owned(),
            },
            if one.same_build { "this".to_owned() } else { "another".to_owned() },
            one.connections.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            format!("{}, {} with ECN", here().count(), here().filter(|s| s.ecn).count()),
            one.counters.map_or_else(|| "-".to_owned(), |counters| counters.without_ecn.to_string()),
            match one.parameters.as_ref().map(changes) {
                None => "-".to_owned(),
                Some(none) if none.is_empty() => "defaults".to_owned(),
                Some(changes) => changes,
            },
        ]);
    }
    let shortages = all.iter().filter_map(shortage).map(|line| format!("\n{line}"));
    table::render(&lines) + &shortages.collect::<String>()
}

/// What users lack because others, or they themselves, hold too much.
fn shortage(one: &Status) -> Option<String> {
    let found = one.shortage.filter(|s| s.uncoupled > 0 || s.requests_lost > 0)?;
    Some(format!(
        "{}: {} paths found no room in the table and ran uncoupled, {} requests to close a path were dropped",
        one.kernel_name, found.uncoupled, found.requests_lost
    ))
}

pub(crate) fn down(ui: &Ui) -> Result<Exit, Failure> {
    let removed = vmcc_host::take_down().map_err(control)?;
    if let Some(name) = default_of_this_namespace().filter(|name| removed.contains(name)) {
        ui.warn(&format!(
            "new connections here go on using {name}: it is the default of this network namespace, until for example \
             `sysctl -w {DEFAULT_SETTING}=cubic`"
        ));
    }
    ui.answer(&json!({ "down": removed }), || match removed.as_slice() {
        [] => "nothing was up".to_owned(),
        names => format!("down: {}", names.join(", ")),
    });
    Ok(Exit::Done)
}

fn default_of_this_namespace() -> Option<String> {
    let path = format!("/proc/sys/{}", DEFAULT_SETTING.replace('.', "/"));
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn control(error: ControlError) -> Failure {
    let failure = Failure::host(chain(&error));
    if !nix::unistd::geteuid().is_root() {
        return failure.help("run it with sudo");
    }
    match vmcc_host::remedy(&error) {
        Some(remedy) if !failure.message.contains(remedy) => failure.help(remedy),
        _ => failure,
    }
}

fn failure(error: &LoadError) -> Failure {
    let failure = Failure::host(chain(error));
    match (vmcc_host::remedy(error), error) {
        (Some(remedy), _) if !failure.message.contains(remedy) => failure.help(remedy),
        (None, LoadError::Refused { .. }) => failure.help("`vmcc doctor` says what this kernel lacks"),
        _ => failure,
    }
}
