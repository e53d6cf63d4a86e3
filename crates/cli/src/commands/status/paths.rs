//! Connections, a line per path.

use crate::table;
use crate::ui::counted;
use vmcc_agent::{ClosedPath, Connection, EcnFeedback, Path, Verdict};
use vmcc_cc::SHARING_PATHS;

/// More would drown the rest; `--json` has all.
const MAX_SHOWN: usize = 20;

/// `None` where there are none.
pub(super) fn table(connections: &[Connection]) -> Option<String> {
    within(connections, table::output_width())
}

fn within(connections: &[Connection], width: usize) -> Option<String> {
    if connections.is_empty() {
        return None;
    }
    let mut lines = table::plain(&[
        "CONNECTION",
        "ALGORITHM",
        "PATH",
        "DEVICE",
        "CWND",
        "RTT",
        "ECN",
        "ALPHA",
        "MARKED",
        "RATE",
        "FOUND",
    ]);
    table::align_right(&mut lines, 4..6);
    table::align_right(&mut lines, 7..10);
    for connection in connections.iter().take(MAX_SHOWN) {
        for (index, path) in connection.paths.iter().enumerate() {
            // Said once: the other paths follow.
            let (name, algorithm) = if index == 0 {
                (name(connection), connection.algorithm.clone())
            } else {
                Default::default()
            };
            let [first, device, rest @ ..] = cells(path);
            lines.add_row([name, algorithm, first, device].into_iter().chain(rest));
        }
        for path in &connection.closed {
            lines.add_row(closed(path));
        }
    }
    let more = connections.len().saturating_sub(MAX_SHOWN);
    let more = match more {
        0 => String::new(),
        more => {
            format!("\nand {more} more of {}, which --json has", counted(connections.len(), "connection"))
        }
    };
    // A path is named by the first three.
    Some(table::within(&lines, 3, width) + &more)
}

/// Name of a connection.
pub(crate) fn name(connection: &Connection) -> String {
    match (connection.token, &connection.program) {
        (Some(token), _) => format!("{token:08x}"),
        (None, Some(program)) => format!("{} {}", program.name, program.pid),
        (None, None) => "tcp".to_owned(),
    }
}

/// Beside the place of its connection's name.
fn closed(path: &ClosedPath) -> [String; 11] {
    let mut cells: [String; 11] = Default::default();
    cells[2] = format!("{} -> {}", path.local, path.remote);
    cells[10] = format!("closed {:.0} s ago: {}", path.seconds_ago, path.reason);
    cells
}

/// Its coupling, and the findings of its algorithm for each other path that it knows something of.
fn found(path: &Path) -> String {
    let siblings = || path.siblings.iter();
    let uncoupled = path.uncoupled.map(|cause| format!("UNCOUPLED: {cause}"));
    let known = siblings().filter_map(|sibling| match sibling.finding.verdict {
        Verdict::Shares => Some(format!("shares with {} -> {}", sibling.local, sibling.remote)),
        Verdict::Apart => Some(format!("apart from {} -> {}", sibling.local, sibling.remote)),
        Verdict::Unknown | Verdict::NotCompared => None,
    });
    let left_out = siblings().filter(|s| s.finding.verdict == Verdict::NotCompared).count();
    let left_out = (left_out > 0)
        .then(|| format!("not compared with {left_out} others (only the first {SHARING_PATHS} paths are)"));
    let said: Vec<String> = uncoupled.into_iter().chain(known).chain(left_out).collect();
    if said.is_empty() { "-".to_owned() } else { said.join(", ") }
}

fn feedback_name(feedback: EcnFeedback) -> &'static str {
    match feedback {
        EcnFeedback::None => "none",
        EcnFeedback::Rfc3168 => "RFC 3168",
        EcnFeedback::AccEcn => "AccECN",
    }
}

fn cells(path: &Path) -> [String; 9] {
    let backup = if path.backup { " (backup)" } else { "" };
    let silent = if path.silent { " (silent)" } else { "" };
    let unknown = || "-".to_owned();
    [
        format!("{} -> {}{backup}{silent}", path.local, path.remote),
        path.device.clone().unwrap_or_else(unknown),
        format!("{} pkt", path.cwnd_pkt),
        format!("{:.2} ms", f64::from(path.srtt_us) / 1e3),
        path.ecn_feedback.map_or_else(unknown, |feedback| feedback_name(feedback).to_owned()),
        path.alpha.map_or_else(unknown, |alpha| format!("{alpha:.3}")),
        path.ece_share.map_or_else(unknown, |share| format!("{:.1} %", share * 100.0)),
        format!("{:.1} Mbit/s", path.delivery_rate_bps as f64 / 1e6),
        found(path),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_agent::{Finding, Sibling};

    #[test]
    fn each_path_is_a_line_and_excess_connections_are_counted() {
        let path = |port| Path {
            cookie: [0; 8],
            local: format!("10.0.0.1:{port}").parse().unwrap(),
            remote: "10.0.0.2:5201".parse().unwrap(),
            device: Some("eth0".to_owned()),
            backup: port == 2,
            silent: false,
            cwnd_pkt: 12,
            srtt_us: 2_150,
            ecn_feedback: Some(if port == 1 { EcnFeedback::AccEcn } else { EcnFeedback::Rfc3168 }),
            alpha: Some(0.25),
            ece_share: Some(0.034),
            delivered_pkt: 1000,
            delivered_ce_pkt: 34,
            bytes_acked: 7,
            bytes_received: 0,
            delivery_rate_bps: 93_000_000,
            uncoupled: (port == 2).then_some(vmcc_bpf::states::Uncoupled::TooManyPaths),
            siblings: vec![Sibling {
                local: "10.0.1.1:9".parse().unwrap(),
                remote: "10.0.0.2:5201".parse().unwrap(),
                finding: Finding {
                    verdict: if port == 1 { Verdict::Apart } else { Verdict::Unknown },
                    evidence: -1.0,
                },
            }],
        };
        let connection = Connection {
            token: Some(0xab),
            program: None,
            algorithm: "mp_vmcc".to_owned(),
            received_bytes: None,
            retransmitted_bytes: None,
            paths: vec![path(1), path(2)],
            closed: vec![ClosedPath {
                local: "10.0.2.1:3".parse().unwrap(),
                remote: "10.0.0.2:5201".parse().unwrap(),
                seconds_ago: 12.3,
                reason: "shares a bottleneck".to_owned(),
            }],
        };
        let text = within(std::slice::from_ref(&connection), 250).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..2], ["000000ab", "mp_vmcc"], "{text}");
        assert_eq!(
            lines[1][5..],
            [
                "eth0",
                "12",
                "pkt",
                "2.15",
                "ms",
                "AccECN",
                "0.250",
                "3.4",
                "%",
                "93.0",
                "Mbit/s",
                "apart",
                "from",
                "10.0.1.1:9",
                "->",
                "10.0.0.2:5201"
            ],
            "{text}"
        );
        assert_eq!(lines[2][..4], ["10.0.0.1:2", "->", "10.0.0.2:5201", "(backup)"], "{text}");
        assert_eq!(lines[2][9..11], ["RFC", "3168"], "{text}");
        assert_eq!(lines[2][16..].join(" "), "UNCOUPLED: more than 32 subflows in this connection", "{text}");
        assert_eq!(lines[3].join(" "), "10.0.2.1:3 -> 10.0.0.2:5201 closed 12 s ago: shares a bottleneck");
        assert!(
            table(&vec![connection; 23]).unwrap().ends_with("and 3 more of 23 connections, which --json has")
        );
        assert_eq!(table(&[]), None);
    }
}
