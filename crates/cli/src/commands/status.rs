//! `vmcc status`: what is kept on this host.

mod paths;

pub(crate) use paths::name;

use super::{programs, taken};
use crate::failure::{Exit, Failure, agent_failure};
use crate::table;
use crate::ui::{Ui, counted};
use serde_json::Value;
use vmcc_agent::{HostStatus, Lingering};
use vmcc_bpf::Status;
use vmcc_cc::{Algorithm, MAX_PATHS, Params};
use vmcc_system::diag::Subflow;

pub(crate) fn status(ui: &Ui) -> Result<Exit, Failure> {
    let left_out = |count: usize| {
        ui.note(&format!(
            "{count} programs or folders of programs are left out: they do not answer, or their user has more than are looked at"
        ));
    };
    let host = programs::with(vmcc_agent::status().map_err(|e| agent_failure(&e)), left_out)?;
    ui.answer(&host, || {
        let mut parts = match host.algorithms.as_slice() {
            [] if programs::are_all(&host) => Vec::new(),
            [] => vec!["no algorithm is loaded; `vmcc up` loads them".to_owned()],
            some => vec![text(some, &host.sockets)],
        };
        parts.extend(host.lingering.iter().map(lingering));
        parts.extend(paths::table(&host.connections));
        if !host.ports.is_empty() {
            parts.push(format!("ports: {}; `vmcc mark --list` has their counters", host.ports.join(", ")));
        }
        parts.extend(fallbacks(&host));
        let off = host.agent.as_ref().map_or(&Value::Null, |view| &view["off"]);
        let taken = taken::lines(&host.taken, off).join("\n");
        parts.extend(Some(taken).filter(|lines| !lines.is_empty()));
        parts.extend(host.agent.as_ref().map(agent));
        parts.extend(left(&host.left));
        parts.join("\n\n")
    });
    Ok(Exit::Done)
}

/// Remaining holders of an algorithm that was taken down, and when they end.
pub(super) fn lingering(one: &Lingering) -> String {
    let Lingering { kernel_name, references, unreachable } = one;
    let users = match references {
        1 => "1 socket, or default of a network namespace, uses it".to_owned(),
        several => format!("{several} sockets, or defaults of network namespaces, use it"),
    };
    let mut text = format!("{kernel_name} was taken down and is still in the kernel: {users}");
    let reachable = references - unreachable;
    if reachable > 0 {
        text.push_str(&format!(
            "\n  {reachable} in network namespaces with a name or a process: connections keep it until they end (`ss -tin` shows them), \
             a default until `sysctl -w net.ipv4.tcp_congestion_control` sets another one"
        ));
    }
    if *unreachable > 0 {
        text.push_str(&format!(
            "\n  {unreachable} in deleted network namespaces, or not connected: closed connections whose peer is silent (orphans) keep it \
             until `net.ipv4.tcp_orphan_retries` timeouts have passed, by default about two minutes; one that stays longer is a socket \
             that the kernel has lost, which costs memory until a restart (docs/reference/kernels.md)"
        ));
    }
    text
}

/// Connections here that were to be MPTCP; `None` if all are.
fn fallbacks(host: &HostStatus) -> Option<String> {
    let found = host.fallbacks.filter(|found| found.total() > 0)?;
    let mut text = format!(
        "MPTCP connections here that fell back to TCP: {}; refused {}, SYN with TCP option 30 dropped {}",
        found.total(),
        found.refused,
        found.dropped
    );
    if found.blackholes > 0 {
        text.push_str(&format!(
            ", not tried {}\n  such SYNs were dropped on the way {} times: after each the kernel opens connections as TCP for {} s \
             or longer (net.mptcp.blackhole_timeout); `vmcc doctor` says whether it does now",
            found.disabled,
            found.blackholes,
            host.blackhole_timeout_s.unwrap_or_default()
        ));
    }
    Some(text)
}

/// Values that an ended agent left on record.
fn left(values: &[Value]) -> Option<String> {
    let line = |value: &Value| {
        let text = |key: &str| value[key].as_str().unwrap_or("nothing").to_owned();
        format!("\n  {}: {}: {}", text("place"), text("what"), text("value"))
    };
    let lines: String = values.iter().map(line).collect();
    let head = "left by an agent that has ended; `vmcc down` restores what was before:";
    (!lines.is_empty()).then(|| format!("{head}{lines}"))
}

/// Summary of the agent's status; `--json` has all of it.
fn agent(view: &Value) -> String {
    let count = |key: &str| view[key].as_array().map_or(0, Vec::len);
    let mut text = format!(
        "agent: process {} keeps {}: {} set, guard {}, {} closed lately",
        view["pid"],
        view["file"].as_str().unwrap_or_default(),
        counted(count("values"), "value"),
        if view["guard"] == true { "on" } else { "off" },
        counted(count("closed"), "path")
    );
    for problem in view["problems"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text.push_str(&format!("\n  cannot be set now: {problem}"));
    }
    for warning in view["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text.push_str(&format!("\n  {warning}"));
    }
    text
}

/// The parameters that are not at their defaults.
pub(crate) fn changes(params: &Params) -> String {
    let changed = params.changed().map(|(info, value)| format!("{}={}", info.name, info.value_text(value)));
    changed.collect::<Vec<_>>().join(", ")
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
            build(one).to_owned(),
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
    let said = all.iter().flat_map(|one| [shortage(one), beyond(one)]).flatten();
    table::render(&lines) + &said.map(|line| format!("\n{line}")).collect::<String>()
}

/// Origin of a loaded program. Only the registry's can be compared with this program's own.
fn build(one: &Status) -> &'static str {
    match Algorithm::by_name(&one.kernel_name) {
        Ok(_) if one.same_build => "this",
        Ok(_) => "another",
        Err(_) => "own file",
    }
}

/// Paths of connections with more paths than can be coupled.
fn beyond(one: &Status) -> Option<String> {
    let count = one.shortage.map(|shortage| shortage.beyond).filter(|count| *count > 0)?;
    Some(format!(
        "{}: {} uncoupled, of connections with more than {MAX_PATHS} subflows; allow fewer (`ip mptcp limits`; Linux does \
         not count the first)",
        one.kernel_name,
        counted(count, "path")
    ))
}

/// Uncoupled paths and dropped requests, because other users, or the same one, hold too much.
fn shortage(one: &Status) -> Option<String> {
    let found = one.shortage.filter(|s| s.uncoupled > 0 || s.requests_lost > 0)?;
    Some(format!(
        "{}: no room in the table for {}, which ran uncoupled; dropped {} to close a path",
        one.kernel_name,
        counted(found.uncoupled, "path"),
        counted(found.requests_lost, "request")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_of_own_files_are_not_reported_as_another_build() {
        let of = |kernel_name: &str, same_build| {
            let kernel_name = kernel_name.to_owned();
            build(&Status {
                kernel_name,
                kept: true,
                owner_pid: None,
                orphaned: false,
                same_build,
                connections: None,
                counters: None,
                shortage: None,
                parameters: None,
            })
        };
        assert_eq!(
            [of("mp_lia", true), of("mp_lia", false), of("mp_mylia", false)],
            ["this", "another", "own file"]
        );
    }
}
