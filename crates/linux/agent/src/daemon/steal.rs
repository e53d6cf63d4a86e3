//! Figures of processor time that this machine did not get, for Prometheus.

use std::os::fd::AsFd;
use vmcc_system::cpu_steal::{Timeouts, steal, throttled, timeouts};
use vmcc_system::mptcp::Fallbacks;
use vmcc_system::namespaces;
use vmcc_system::netns;
use vmcc_telemetry::Figures;
use vmcc_telemetry::Kind::Counter;

/// More cgroups are not listed: those throttled the longest are.
const MAX_CGROUPS: usize = 256;

/// Whatever the kernel does not say is left out.
pub(super) fn fill(figures: &mut Figures) {
    if let Ok(stolen) = steal() {
        let help = "CPU time stolen by the hypervisor, over all processors.";
        figures.one(("vmcc_cpu_steal_seconds_total", Counter, help), stolen.as_secs_f64());
    }
    of_cgroups(figures);
    of_namespaces(figures);
}

/// The same path in two hierarchies is the same cgroup to any reader.
fn of_cgroups(figures: &mut Figures) {
    let all = throttled();
    let some = || all.iter().take(MAX_CGROUPS);
    let help = "Time that a cgroup was throttled by its CPU quota, over all processors.";
    let family = ("vmcc_cgroup_throttled_seconds_total", Counter, help);
    figures.family(family, ["cgroup"], some().map(|one| ([one.cgroup.as_str()], one.time_us as f64 / 1e6)));
    let help = "Periods in which a cgroup was throttled by its CPU quota.";
    let family = ("vmcc_cgroup_throttled_periods_total", Counter, help);
    figures.family(family, ["cgroup"], some().map(|one| ([one.cgroup.as_str()], one.periods as f64)));
}

/// Counters of a network namespace.
struct Counts {
    timeouts: Timeouts,
    fallbacks: Fallbacks,
}

type Figure = fn(&Counts) -> u64;

const OF_NAMESPACES: [(&str, &str, Figure); 5] = [
    ("vmcc_tcp_timeouts_total", "Retransmission timeouts, of any congestion control.", |found| {
        found.timeouts.all
    }),
    ("vmcc_tcp_spurious_timeouts_total", "Spurious retransmission timeouts (F-RTO).", |found| {
        found.timeouts.spurious
    }),
    (
        "vmcc_tcp_withheld_retransmissions_total",
        "Retransmissions not made because the packet had not left this host yet.",
        |found| found.timeouts.withheld,
    ),
    ("vmcc_mptcp_fallbacks_total", "Connections that fell back from MPTCP to TCP.", |found| {
        found.fallbacks.total()
    }),
    (
        "vmcc_mptcp_blackholes_total",
        "Detections of a network that drops SYNs with the MPTCP option; MPTCP is disabled for a while after each.",
        |found| found.fallbacks.blackholes,
    ),
];

fn of_namespaces(figures: &mut Figures) {
    let all = every_namespace();
    for (name, help, value) in OF_NAMESPACES {
        let samples = all.iter().map(|(netns, found)| ([netns.as_str()], value(found) as f64));
        figures.family((name, Counter, help), ["netns"], samples);
    }
}

/// Those of the calling thread's namespace. A kernel without MPTCP has none of its connections.
fn counts() -> Option<Counts> {
    Some(Counts { timeouts: timeouts().ok()?, fallbacks: Fallbacks::read().unwrap_or_default() })
}

/// The agent's own, which has no name here, and the named ones but for that.
fn every_namespace() -> Vec<(String, Counts)> {
    let mut found: Vec<(String, Counts)> = counts().map(|own| (String::new(), own)).into_iter().collect();
    let own = netns::own();
    for name in namespaces::names().unwrap_or_default() {
        // Those that go away meanwhile, or cannot be entered, are left out.
        let Ok(Some(namespace)) = namespaces::named(&name) else { continue };
        let inside = netns::within(namespace.as_fd(), || (netns::own() != own).then(counts).flatten());
        found.extend(inside.ok().flatten().map(|counts| (name, counts)));
    }
    found
}
