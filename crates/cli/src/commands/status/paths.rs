//! Connections, a line per path.

use crate::table;
use vmcc_agent::{Connection, Path};

/// More would drown the rest; `--json` has all.
const MAX_SHOWN: usize = 20;

/// `None` where there are none.
pub(super) fn table(connections: &[Connection]) -> Option<String> {
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
        "ALPHA",
        "MARKED",
        "RATE",
    ]);
    table::align_right_from(&mut lines, 4);
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
    }
    let more = connections.len().saturating_sub(MAX_SHOWN);
    let more =
        if more > 0 { format!("\nand {more} more connections, which --json has") } else { String::new() };
    Some(table::render(&lines) + &more)
}

fn name(connection: &Connection) -> String {
    connection.token.map_or_else(|| "tcp".to_owned(), |token| format!("{token:08x}"))
}

fn cells(path: &Path) -> [String; 7] {
    let backup = if path.backup { " (backup)" } else { "" };
    let unknown = || "-".to_owned();
    [
        format!("{} -> {}{backup}", path.local, path.remote),
        path.device.clone().unwrap_or_else(unknown),
        format!("{} pkt", path.cwnd_pkt),
        format!("{:.2} ms", f64::from(path.srtt_us) / 1e3),
        path.alpha.map_or_else(unknown, |alpha| format!("{alpha:.3}")),
        path.ece_share.map_or_else(unknown, |share| format!("{:.1} %", share * 100.0)),
        format!("{:.1} Mbit/s", path.delivery_rate_bps as f64 / 1e6),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_line_and_many_connections_are_counted() {
        let path = |port| Path {
            local: format!("10.0.0.1:{port}").parse().unwrap(),
            remote: "10.0.0.2:5201".parse().unwrap(),
            device: Some("eth0".to_owned()),
            backup: port == 2,
            cwnd_pkt: 12,
            srtt_us: 2_150,
            alpha: Some(0.25),
            ece_share: Some(0.034),
            bytes_acked: 7,
            delivery_rate_bps: 93_000_000,
        };
        let connection = Connection {
            token: Some(0xab),
            algorithm: "mp_vmcc".to_owned(),
            received_bytes: None,
            retransmitted_bytes: None,
            paths: vec![path(1), path(2)],
        };
        let text = table(std::slice::from_ref(&connection)).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..2], ["000000ab", "mp_vmcc"], "{text}");
        assert_eq!(
            lines[1][5..],
            ["eth0", "12", "pkt", "2.15", "ms", "0.250", "3.4", "%", "93.0", "Mbit/s"],
            "{text}"
        );
        assert_eq!(lines[2][..4], ["10.0.0.1:2", "->", "10.0.0.2:5201", "(backup)"], "{text}");
        assert!(table(&vec![connection; 23]).unwrap().ends_with("and 3 more connections, which --json has"));
        assert_eq!(table(&[]), None);
    }
}
