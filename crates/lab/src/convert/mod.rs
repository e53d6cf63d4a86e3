//! From a scenario's case to the lab's input. What the kernel engine cannot express is refused by key.

mod network;
mod quic;
mod subnets;
mod traffic;

#[cfg(test)]
pub(crate) mod tests;

use crate::Error;
use crate::spec::{Cut, Deschedule, LabSpec, Lengths, Machines, Path, Remap, Throttle};
use std::collections::BTreeSet;
use vmcc_multipath::MIN_PATHS;
use vmcc_scenario::model::{DescheduleEvent, Event, EventKind, First, Host, Protocol, Traffic};
use vmcc_scenario::{ResolvedCase, Scenario};
use vmcc_units::Nanos;

/// Interval of the kernel's samples.
const SAMPLE_INTERVAL: Nanos = Nanos::from_millis(10);
/// One-way delay that the lab's own links and bridges have anyway; up to this none is added.
pub const OWN_DELAY: Nanos = Nanos::from_micros(50);

impl TryFrom<&ResolvedCase> for LabSpec {
    type Error = Error;

    /// # Errors
    /// [`Error::NotExpressible`] or [`Error::Spec`], naming the key.
    fn try_from(case: &ResolvedCase) -> Result<Self, Error> {
        Self::of(case, &BTreeSet::new(), 0)
    }
}

impl LabSpec {
    /// Spec of a case. The hosts of `machines` are virtual machines even if they always run in this case, so that cases with times off
    /// have a baseline. So are the hosts that the case itself names. `seed` is the seed of everything random.
    ///
    /// # Errors
    /// As for [`LabSpec::try_from`].
    pub fn of(case: &ResolvedCase, machines: &BTreeSet<String>, seed: u64) -> Result<Self, Error> {
        let scenario = &case.scenario;
        check_host(scenario)?;
        let hosts = scenario.topology.hosts();
        let pairs = traffic::all_pairs(scenario, &hosts)?;
        let (layout, paths) = network::convert(&scenario.topology, &pairs)?;
        let flows = traffic::convert(case, &layout, &paths, &hosts)?;
        let remaps = remaps(scenario, &hosts)?;
        let cuts = cuts(scenario, &paths)?;
        let throttles = throttles(scenario, &hosts);
        let sleeps = sleeps(scenario, &hosts)?;
        let off: BTreeSet<&String> = machines.iter().chain(sleeps.iter().map(|s| &hosts[s.host])).collect();
        let key = if off.is_empty() { "host.machines" } else { "event.deschedule" };
        let is_one = |name: &String| off.contains(name) || scenario.host.machine_names().contains(name);
        let numbers = (0..hosts.len()).filter(|number| is_one(&hosts[*number])).collect();
        let machines = Machines { hosts: numbers, key, sleeps, seed };
        let mut spec = LabSpec {
            run_id: None,
            layout,
            hosts,
            paths,
            flows,
            remaps,
            cuts,
            throttles,
            machines,
            duration: scenario.duration,
            warmup: scenario.warmup,
            sample_interval: SAMPLE_INTERVAL,
            series_interval: scenario.interval(),
            receive_buffer: Some(scenario.host.receive_buffer),
            send_buffer: Some(scenario.host.send_buffer),
            notsent_lowat: Some(scenario.host.notsent_lowat),
            min_rto: Some(scenario.host.min_rto).filter(|min| *min != Host::default().min_rto),
            min_paths: scenario.host.min_paths.unwrap_or(MIN_PATHS),
        };
        spec.outlast_machines();
        spec.check()?;
        Ok(spec)
    }
}

fn refuse<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, Error> {
    Err(Error::not_expressible(key, problem))
}

/// Settings that shape the simulator's model of a host are the kernel's own here.
fn check_host(scenario: &Scenario) -> Result<(), Error> {
    let (host, linux) = (&scenario.host, Host::default());
    let any = |protocols: &[Protocol]| {
        let of_kind = |t: &&Traffic| t.kind.has_connections() && protocols.contains(&t.protocol(host));
        scenario.traffic.iter().any(|traffic| of_kind(&traffic))
    };
    // What programs of ours choose themselves is the kernel's business only of connections of its own.
    let (kernels, multipath) = (any(&[Protocol::Tcp, Protocol::Mptcp]), any(&[Protocol::Mptcp]));
    let differs = [
        ("scheduler", multipath && host.scheduler != linux.scheduler),
        ("ack_path", multipath && host.ack_path != linux.ack_path),
        ("delayed_ack", kernels && host.delayed_ack != linux.delayed_ack),
        ("initial_window", kernels && host.initial_window != linux.initial_window),
        ("mtu", host.mtu != linux.mtu),
        ("initial_rto", kernels && host.initial_rto != linux.initial_rto),
        ("join_delay", host.join_delay != linux.join_delay),
        ("hystart", host.hystart != linux.hystart),
        ("packet_memory", host.packet_memory.is_some()),
        ("pool_routes", host.pool_routes),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        Some((key, _)) => {
            refuse(format!("host.{key}"), "it is the kernel's own business and not Linux's default")
        }
        None => Ok(()),
    }
}

fn remaps(scenario: &Scenario, hosts: &[String]) -> Result<Vec<Remap>, Error> {
    let elsewhere = |event: &Event| {
        let (hosts, links) = (
            matches!(event.kind, EventKind::Throttle(_) | EventKind::Deschedule(_)),
            matches!(event.kind, EventKind::LinkDown(_) | EventKind::LinkUp(_)),
        );
        hosts || links
    };
    let others = scenario.event.iter().filter(|event| !elsewhere(event));
    let mut remaps = others.map(|event| remap(event, hosts)).collect::<Result<Vec<_>, _>>()?;
    remaps.sort_by_key(|remap| remap.at);
    Ok(remaps)
}

/// Links that fail, by the path that is called as they are.
fn cuts(scenario: &Scenario, paths: &[Path]) -> Result<Vec<Cut>, Error> {
    let mut cuts = Vec::new();
    for event in &scenario.event {
        let (link, up) = match &event.kind {
            EventKind::LinkDown(e) => (&e.link, false),
            EventKind::LinkUp(e) => (&e.link, true),
            _ => continue,
        };
        let Some(path) = paths.iter().position(|path| path.name == *link) else {
            return refuse("event.link", format!("{link} is no whole path, and only paths are cut"));
        };
        cuts.push(Cut { at: event.at, path, up });
    }
    cuts.sort_by_key(|cut| cut.at);
    Ok(cuts)
}

/// Validation knows the hosts.
fn throttles(scenario: &Scenario, hosts: &[String]) -> Vec<Throttle> {
    let throttle = |event: &Event| {
        let EventKind::Throttle(e) = &event.kind else { return None };
        let host = hosts.iter().position(|host| *host == e.host)?;
        Some(Throttle { at: event.at, until: e.until, host, quota: e.quota, period: e.period })
    };
    scenario.event.iter().filter_map(throttle).collect()
}

/// Hosts whose processors are taken away. What they find when they run again is their kernel's own business.
fn sleeps(scenario: &Scenario, hosts: &[String]) -> Result<Vec<Deschedule>, Error> {
    let mut sleeps = Vec::new();
    for event in &scenario.event {
        let EventKind::Deschedule(e) = &event.kind else { continue };
        if e.ring.is_some() {
            return refuse("event.ring", "the receive ring is that of the virtual machine's card");
        }
        if e.first != First::Timers {
            return refuse(
                "event.first",
                "what a host handles first when it runs again is its kernel's choice",
            );
        }
        // Validation knows the hosts.
        if let Some(host) = hosts.iter().position(|host| *host == e.host) {
            let until = e.until.unwrap_or(scenario.duration).min(scenario.duration);
            sleeps.push(Deschedule { host, at: event.at, until, lengths: lengths(e) });
        }
    }
    Ok(sleeps)
}

fn lengths(event: &DescheduleEvent) -> Lengths {
    match event.recorded.is_empty() {
        false => Lengths::Recorded(event.recorded.clone()),
        true if event.random => Lengths::Random(event.on, event.off),
        true => Lengths::Fixed(event.on, event.off),
    }
}

fn remap(event: &Event, hosts: &[String]) -> Result<Remap, Error> {
    let kind = match &event.kind {
        EventKind::Remap(e) => {
            // Validation knows the VM, the vNIC and the NIC.
            let Some(vm) = hosts.iter().position(|host| *host == e.vm) else {
                return refuse("event.vm", format!("there is no VM `{}`", e.vm));
            };
            return Ok(Remap { at: event.at, vm, vnic: e.vnic as usize, nic: e.nic as usize });
        }
        EventKind::SetBackup(_)
        | EventKind::ClearBackup(_)
        | EventKind::CloseSubflow(_)
        | EventKind::OpenSubflow(_) => {
            return refuse("event.kind", "events of subflows, which the kernel's path manager owns");
        }
        EventKind::Throttle(_) => "throttle",
        EventKind::Deschedule(_) => "deschedule",
        EventKind::LinkDown(_) | EventKind::LinkUp(_) => "link",
        EventKind::SetRate(_) => "set-rate",
        EventKind::SetDelay(_) => "set-delay",
        EventKind::SetLoss(_) => "set-loss",
    };
    refuse(format!("event.{kind}"), format!("a change of a link at {}; only \"remap\" is possible", event.at))
}
