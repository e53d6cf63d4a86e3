//! Figures of processor time that this machine did not get, for Prometheus.

use super::namespaces;
use std::os::fd::AsFd;
use vmcc_exposition::Figures;
use vmcc_exposition::Kind::Counter;
use vmcc_host::netns;
use vmcc_host::taken::{Timeouts, steal, throttled, timeouts};

/// More cgroups are not listed: those throttled the longest are.
const MAX_CGROUPS: usize = 256;

/// Whatever the kernel does not say is left out.
pub(super) fn fill(figures: &mut Figures) {
    if let Ok(stolen) = steal() {
        let help = "Time that the hypervisor gave to others while a processor here had something to do.";
        figures.one(("vmcc_cpu_steal_seconds_total", Counter, help), stolen.as_secs_f64());
    }
    of_cgroups(figures);
    of_namespaces(figures);
}

/// The same path in two hierarchies is the same cgroup to whoever looks.
fn of_cgroups(figures: &mut Figures) {
    let all = throttled();
    let some = || all.iter().take(MAX_CGROUPS);
    let help = "Time that a cgroup waited with its quota used up, over all processors.";
    let family = ("vmcc_cgroup_throttled_seconds_total", Counter, help);
    figures.family(family, ["cgroup"], some().map(|one| ([one.cgroup.as_str()], one.time_us as f64 / 1e6)));
    let help = "Periods in which a cgroup used up its quota.";
    let family = ("vmcc_cgroup_throttled_periods_total", Counter, help);
    figures.family(family, ["cgroup"], some().map(|one| ([one.cgroup.as_str()], one.periods as f64)));
}

type Figure = fn(&Timeouts) -> u64;

const OF_NAMESPACES: [(&str, &str, Figure); 3] = [
    ("vmcc_tcp_timeouts_total", "Retransmission timeouts, of any congestion control.", |found| found.all),
    ("vmcc_tcp_spurious_timeouts_total", "Retransmission timeouts that were for nothing (F-RTO).", |found| {
        found.spurious
    }),
    (
        "vmcc_tcp_withheld_retransmissions_total",
        "Retransmissions not made because the packet had not left this host yet.",
        |found| found.withheld,
    ),
];

fn of_namespaces(figures: &mut Figures) {
    let all = every_namespace();
    for (name, help, value) in OF_NAMESPACES {
        let samples = all.iter().map(|(netns, found)| ([netns.as_str()], value(found) as f64));
        figures.family((name, Counter, help), ["netns"], samples);
    }
}

/// The agent's own, which has no name here, and the named ones but for that.
fn every_namespace() -> Vec<(String, Timeouts)> {
    let mut found: Vec<(String, Timeouts)> = timeouts().map(|own| (String::new(), own)).into_iter().collect();
    let own = netns::own();
    for name in namespaces::names().unwrap_or_default() {
        // Those that go away meanwhile, or cannot be entered, are left out.
        let Ok(Some(namespace)) = namespaces::named(&name) else { continue };
        let inside =
            netns::within(namespace.as_fd(), || (netns::own() != own).then(|| timeouts().ok()).flatten());
        found.extend(inside.ok().flatten().map(|timeouts| (name, timeouts)));
    }
    found
}
