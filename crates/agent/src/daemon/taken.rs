//! Figures of processor time that this machine did not get, for Prometheus.

use super::namespaces;
use prometheus::{CounterVec, IntCounterVec, Opts, Registry};
use std::os::fd::AsFd;
use vmcc_host::netns;
use vmcc_host::taken::{Timeouts, steal, throttled, timeouts};

/// More cgroups are not listed: those throttled the longest are.
const MAX_CGROUPS: usize = 256;

/// Whatever the kernel does not say is left out.
pub(super) fn fill(registry: &Registry) -> prometheus::Result<()> {
    if let Ok(stolen) = steal() {
        let help = "Time that the hypervisor gave to others while a processor here had something to do.";
        let counter = CounterVec::new(Opts::new("vmcc_cpu_steal_seconds_total", help), &[])?;
        counter.with_label_values::<&str>(&[]).inc_by(stolen.as_secs_f64());
        registry.register(Box::new(counter))?;
    }
    of_cgroups(registry)?;
    of_namespaces(registry)
}

fn of_cgroups(registry: &Registry) -> prometheus::Result<()> {
    let help = "Time that a cgroup waited with its quota used up, over all processors.";
    let time = CounterVec::new(Opts::new("vmcc_cgroup_throttled_seconds_total", help), &["cgroup"])?;
    let help = "Periods in which a cgroup used up its quota.";
    let periods = IntCounterVec::new(Opts::new("vmcc_cgroup_throttled_periods_total", help), &["cgroup"])?;
    for one in throttled().into_iter().take(MAX_CGROUPS) {
        // The same path in two hierarchies is the same cgroup to whoever looks.
        time.with_label_values(&[&one.cgroup]).inc_by(one.time_us as f64 / 1e6);
        periods.with_label_values(&[&one.cgroup]).inc_by(one.periods);
    }
    registry.register(Box::new(time))?;
    registry.register(Box::new(periods))
}

fn of_namespaces(registry: &Registry) -> prometheus::Result<()> {
    let counter = |name: &str, help: &str| -> prometheus::Result<IntCounterVec> {
        let counter = IntCounterVec::new(Opts::new(name, help), &["netns"])?;
        registry.register(Box::new(counter.clone()))?;
        Ok(counter)
    };
    let all = counter("vmcc_tcp_timeouts_total", "Retransmission timeouts, of any congestion control.")?;
    let help = "Retransmission timeouts that were for nothing (F-RTO).";
    let spurious = counter("vmcc_tcp_spurious_timeouts_total", help)?;
    let help = "Retransmissions not made because the packet had not left this host yet.";
    let withheld = counter("vmcc_tcp_withheld_retransmissions_total", help)?;
    for (name, found) in every_namespace() {
        all.with_label_values(&[&name]).inc_by(found.all);
        spurious.with_label_values(&[&name]).inc_by(found.spurious);
        withheld.with_label_values(&[&name]).inc_by(found.withheld);
    }
    Ok(())
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
