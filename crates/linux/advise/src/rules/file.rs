//! The agent's file (docs/reference/agent.md) for an advice.

use super::Verdict;
use super::candidates::Candidates;
use super::settings::{CGROUP_ALGORITHM, HOST_ALGORITHM, Setting, UNSENT, subflows};
use crate::facts::{Application, Facts, Kind};
use std::fmt::Write as _;

pub(super) fn of(
    facts: &Facts,
    candidates: &Candidates<'_>,
    verdict: Verdict,
    algorithm: Option<&str>,
    settings: &[Setting],
) -> String {
    let mut file = format!("# vmcc advise: {}\n", subject(facts));
    let Some(algorithm) = algorithm else {
        file.push_str("# Several paths do not help here: nothing to set.\n");
        return file;
    };
    if verdict == Verdict::Survival {
        file.push_str("# No more goodput; connections survive a failed path.\n");
    }
    push(&mut file, format_args!("[algorithm.{algorithm}]\n\n[host]"));
    for setting in settings {
        match setting.name {
            HOST_ALGORITHM => push(&mut file, format_args!("congestion_control = {}", text(&setting.value))),
            UNSENT => push(&mut file, format_args!("notsent_lowat = \"{}B\"", setting.value)),
            _ => {}
        }
    }
    let others =
        settings.iter().filter(|one| ![HOST_ALGORITHM, CGROUP_ALGORITHM, UNSENT].contains(&one.name));
    let mut others = others.peekable();
    if others.peek().is_some() {
        push(&mut file, format_args!("\n[host.sysctl]"));
    }
    for setting in others {
        push(&mut file, format_args!("\"{}\" = {}", setting.name, text(&setting.value)));
    }
    push(&mut file, format_args!("\n[host.mptcp]\nsubflows = {0}\naccept = {0}", subflows(candidates)));
    let flag = if facts.peer.is_some() { "subflow" } else { "signal" };
    for nic in candidates.further() {
        push(
            &mut file,
            format_args!(
                "[[host.mptcp.endpoint]]\nnic = {}\nflags = [\"{flag}\"]{}",
                text(&nic.name),
                family(facts)
            ),
        );
    }
    if let Some(chosen) = settings.iter().find(|setting| setting.name == CGROUP_ALGORITHM) {
        push(
            &mut file,
            format_args!(
                "\n# Only chosen programs: their TCP sockets become MPTCP, all others stay TCP.\n# [[cgroup]]\n\
                 # path = \"system.slice/NAME.service\"\n# congestion_control = {}\n# upgrade = true",
                text(&chosen.value)
            ),
        );
    }
    file
}

fn push(file: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(file, "{line}");
}

fn family(facts: &Facts) -> &'static str {
    let addresses = facts.peer_addresses();
    let four = addresses.iter().filter(|address| address.is_ipv4()).count();
    match (four, addresses.len() - four) {
        (1.., 0) => "\nfamily = \"ipv4\"",
        (0, 1..) => "\nfamily = \"ipv6\"",
        _ => "",
    }
}

/// A string of TOML: names of interfaces may have any character but `/` and blanks.
fn text(value: &str) -> String {
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Subject of the file; of a user's name nothing that could end the comment.
fn subject(facts: &Facts) -> String {
    let Application { kind, .. } = facts.application;
    let what = match kind {
        Some(Kind::Bulk) => "transfers",
        Some(Kind::RequestResponse) => "requests and responses",
        None => "connections",
    };
    match &facts.peer {
        Some(peer) => {
            format!("{what} with {}", peer.name.chars().filter(|c| !c.is_control()).collect::<String>())
        }
        None => format!("{what} of this host"),
    }
}
