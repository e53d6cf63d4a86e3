//! Settings that go with several paths, and what the other end needs.

use super::Scope;
use super::candidates::{Candidates, largest_rtt_us};
use super::gain::rate;
use crate::facts::{Facts, MptcpState};
use serde::Serialize;
use vmcc_netlink::MAX_LIMIT;

/// Unsent data per subflow: 93 of 95 Mbit/s on the fast path instead of 85 (docs/evidence/hosts.md).
const UNSENT_BYTES: u64 = 16_384;
/// The same for fast paths: 16 kB carried 11 to 16 Gbit/s over two unshaped paths, 128 kB 44 to 49 (docs/evidence/hosts.md).
const FAST_UNSENT_BYTES: u64 = 131_072;
/// Rate of all paths from which the larger limit holds: half of the least that the smaller one carried.
const FAST_BPS: u64 = 5_000_000_000;
/// Memory per byte of payload in a socket buffer: `tcp_adv_win_scale` of 1 leaves half for payload.
const BUFFER_OVERHEAD: u64 = 2;
/// Largest buffer that is advised.
const MAX_BUFFER_BYTES: u64 = 1 << 30;
/// Least limits: room for another path and for repeated attempts.
const MIN_LIMIT: usize = 2;

/// Names of settings that have a key of their own in the agent's file.
pub(super) const HOST_ALGORITHM: &str = "net.ipv4.tcp_congestion_control";
pub(super) const CGROUP_ALGORITHM: &str = "cgroup.congestion_control";
pub(super) const UNSENT: &str = "net.ipv4.tcp_notsent_lowat";

const HOSTS: &str = "docs/evidence/hosts.md";

/// A setting of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Sysctl, or key of the agent's file.
    pub name: &'static str,
    /// Value to set.
    pub value: String,
    /// Value now, where it is known.
    pub now: Option<String>,
    /// Its reason.
    pub reason: String,
    /// Measurement behind it.
    pub evidence: Option<&'static str>,
}

/// LIA needs no marks and nothing of the other end. vMCC kept RTTs 4.5 times shorter than LIA's at equal goodput, where ports
/// mark and both ends negotiate ECN (docs/evidence/papers.md, fig9).
pub(super) fn algorithm(facts: &Facts) -> &'static str {
    let connections = facts.peer.as_ref().map(|peer| peer.connections);
    let marked = connections.is_some_and(|all| all.total > 0 && all.ecn == all.total);
    if marked { "vmcc" } else { "lia" }
}

pub(super) fn of(facts: &Facts, candidates: &Candidates<'_>, algorithm: &str, scope: Scope) -> Vec<Setting> {
    let mut settings = Vec::new();
    if facts.mptcp.state == MptcpState::Off {
        settings.push(Setting {
            name: "net.mptcp.enabled",
            value: "1".to_owned(),
            now: Some("0".to_owned()),
            reason: "programs get MPTCP sockets".to_owned(),
            evidence: None,
        });
    }
    settings.push(congestion_control(facts, algorithm, scope));
    settings.push(unsent(facts, candidates));
    settings.extend(buffers(facts, candidates));
    settings.extend(scheduler(facts));
    settings
}

/// Of all connections, or of chosen cgroups: on one path LIA grows as Reno does.
fn congestion_control(facts: &Facts, algorithm: &str, scope: Scope) -> Setting {
    let reason = match algorithm {
        "vmcc" => {
            "coupled; connections with this peer negotiate ECN: short queues where ports mark (`vmcc mark`)"
        }
        _ => "coupled: takes no more of a shared link than TCP; needs no marks and nothing of the other end",
    };
    Setting {
        name: if scope == Scope::Everything { HOST_ALGORITHM } else { CGROUP_ALGORITHM },
        value: format!("mp_{algorithm}"),
        now: facts.host.congestion_control.clone(),
        reason: reason.to_owned(),
        evidence: Some("docs/evidence/papers.md"),
    }
}

fn unsent(facts: &Facts, candidates: &Candidates<'_>) -> Setting {
    let fast = candidates.rates_bps().is_some_and(|(_, total)| total >= FAST_BPS);
    let (bytes, reason) = if fast {
        (
            FAST_UNSENT_BYTES,
            "a slow path holds up the fast one without a limit; a smaller one limits fast paths",
        )
    } else {
        (UNSENT_BYTES, "without a limit a slow path holds up the fast one")
    };
    Setting {
        name: UNSENT,
        value: bytes.to_string(),
        now: facts.host.notsent_lowat_bytes.map(|bytes| bytes.to_string()),
        reason: reason.to_owned(),
        evidence: Some(HOSTS),
    }
}

/// Buffers by RFC 6182, 5.3: twice the sum of all rates times the largest round-trip time. Only those that are too small.
fn buffers(facts: &Facts, candidates: &Candidates<'_>) -> Vec<Setting> {
    let (Some((_, total_bps)), Some(rtt_us)) = (candidates.rates_bps(), largest_rtt_us(facts, candidates))
    else {
        return Vec::new();
    };
    let payload = u128::from(total_bps) * u128::from(rtt_us) / 8_000_000 * 2;
    let needed =
        u64::try_from(payload).unwrap_or(u64::MAX).saturating_mul(BUFFER_OVERHEAD).min(MAX_BUFFER_BYTES);
    let host = &facts.host;
    let both = [("net.ipv4.tcp_rmem", host.tcp_rmem_bytes), ("net.ipv4.tcp_wmem", host.tcp_wmem_bytes)];
    let small = both.into_iter().filter_map(|(name, now)| Some((name, now?)));
    small
        .filter(|(_, [_, _, most])| *most < needed)
        .map(|(name, [least, initial, most])| Setting {
            name,
            value: format!("{least} {initial} {needed}"),
            now: Some(format!("{least} {initial} {most}")),
            reason: format!(
                "RFC 6182: 2 x {} x {:.1} ms, and the kernel's overhead",
                rate(total_bps),
                rtt_us as f64 / 1e3
            ),
            evidence: Some("not measured"),
        })
        .collect()
}

fn scheduler(facts: &Facts) -> Option<Setting> {
    let now = facts.mptcp.scheduler.as_ref().filter(|name| *name != "default")?;
    Some(Setting {
        name: "net.mptcp.scheduler",
        value: "default".to_owned(),
        now: Some(now.clone()),
        reason: "the scheduler that the measurements have".to_owned(),
        evidence: Some(HOSTS),
    })
}

/// Limit of additional subflows.
pub(super) fn subflows(candidates: &Candidates<'_>) -> usize {
    candidates.further().len().clamp(MIN_LIMIT, MAX_LIMIT as usize)
}

pub(super) fn other_end(candidates: &Candidates<'_>, algorithm: &str) -> Vec<String> {
    let mut needs = vec![
        "MPTCP: `net.mptcp.enabled` of 1, and a server that listens with it (`mptcpize run`, or `upgrade` of its cgroup)".to_owned(),
        format!("room for the joins: `ip mptcp limits set subflows {}`", subflows(candidates)),
        "an algorithm and `tcp_notsent_lowat` of its own where it sends the data".to_owned(),
    ];
    if algorithm == "vmcc" {
        needs.push("before Linux 7: an algorithm with ECN, such as vmcc, is selected there, too".to_owned());
    }
    needs
}
