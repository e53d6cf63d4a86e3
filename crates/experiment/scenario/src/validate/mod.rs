//! Checks that types cannot express: impossible networks, contradictory settings, quantities that overflow.

mod congestion_control;
mod host;
mod traffic;

use std::sync::Arc;

use vmcc_network::check;
use vmcc_units::Nanos;

use crate::model::{DescheduleEvent, EventKind, Scenario, SubflowEvent, ThrottleEvent, Topology, Traffic};
pub use congestion_control::CongestionControl;
use vmcc_config::BadValue;

/// The longest run; keeps every time within 64 bits of picoseconds.
const MAX_DURATION: Nanos = Nanos::from_secs(86_400);
/// The most samples of one time series.
const MAX_SAMPLES: u64 = 1_000_000;

type Check = Result<(), BadValue>;

fn fault(path: impl Into<String>, message: impl Into<String>) -> BadValue {
    BadValue { path: path.into(), of_key: false, message: message.into(), help: None }
}

fn fault_with(path: impl Into<String>, message: impl Into<String>, help: Option<String>) -> BadValue {
    BadValue { help, ..fault(path, message) }
}

/// Fails with `message` at `path` unless `holds`.
fn require(holds: bool, path: &str, message: &str) -> Check {
    if holds { Ok(()) } else { Err(fault(path, message)) }
}

/// Checks a whole scenario. Returns the congestion control of each entry of traffic.
pub(crate) fn check(scenario: &Scenario) -> Result<Vec<Arc<CongestionControl>>, BadValue> {
    run(scenario)?;
    host::check(&scenario.host)?;
    scenario.topology.as_kind().check(scenario.host.mtu)?;
    machines(scenario)?;
    let congestion_controls = traffic::check(scenario)?;
    events(scenario)?;
    Ok(congestion_controls)
}

fn run(scenario: &Scenario) -> Check {
    require(!scenario.title.trim().is_empty(), "title", "a scenario needs a title")?;
    require(!scenario.duration.is_zero(), "duration", "a run must last longer than nothing")?;
    require(scenario.duration <= MAX_DURATION, "duration", "a run lasts at most one day")?;
    require(scenario.warmup < scenario.duration, "warmup", "the warm-up must end before the run does")?;
    require((1..=10_000).contains(&scenario.runs), "runs", "from 1 to 10000 runs per case are possible")?;
    // Seeds are counted up, and kept exact in JSON and TOML.
    let seeds_fit = scenario.seed.checked_add(u64::from(scenario.runs)).is_some_and(|end| end <= 1 << 53);
    require(seeds_fit, "seed", "a seed is at most 2^53")?;
    require(!scenario.interval().is_zero(), "interval", "the interval of time series must not be zero")?;
    let samples = scenario.duration.get() / scenario.interval().get();
    require(
        samples <= MAX_SAMPLES,
        "interval",
        "the interval would give more than a million samples per series",
    )
}

fn machines(scenario: &Scenario) -> Check {
    scenario.host.machine_names().iter().try_for_each(|name| host_exists(scenario, name, "host.machines"))
}

fn events(scenario: &Scenario) -> Check {
    let links = if scenario.event.is_empty() { Vec::new() } else { scenario.topology.links() };
    for (index, event) in scenario.event.iter().enumerate() {
        let at = |key: &str| format!("event[{index}].{key}");
        require(event.at <= scenario.duration, &at("at"), "the run ends before this")?;
        let link = |name: &str| {
            let help = || vmcc_config::did_you_mean(name, links.iter().map(String::as_str));
            let message = || format!("the topology has no link or path called `{name}`");
            if links.iter().any(|l| l == name) {
                Ok(())
            } else {
                Err(fault_with(at("link"), message(), help()))
            }
        };
        match &event.kind {
            EventKind::LinkDown(e) | EventKind::LinkUp(e) => link(&e.link)?,
            EventKind::SetRate(e) => {
                link(&e.link)?;
                require(!e.rate.is_zero(), &at("rate"), "a rate of zero; use the event `link-down`")?;
                check::rate(e.rate, &at("rate"))?;
            }
            EventKind::SetDelay(e) => {
                link(&e.link)?;
                check::delay(e.delay, &at("delay"))?;
            }
            EventKind::SetLoss(e) => {
                link(&e.link)?;
                check::loss(&e.loss, &at("loss"))?;
            }
            EventKind::Remap(e) => remap(scenario, e, &at)?,
            EventKind::SetBackup(e)
            | EventKind::ClearBackup(e)
            | EventKind::CloseSubflow(e)
            | EventKind::OpenSubflow(e) => subflows(scenario, e, &at)?,
            EventKind::Deschedule(e) => {
                pattern(e, &at)?;
                require(
                    e.until.is_none_or(|until| until > event.at),
                    &at("until"),
                    "it ends before it begins",
                )?;
                host_exists(scenario, &e.host, &at("host"))?;
            }
            EventKind::Throttle(e) => {
                quota(e, event.at, &at)?;
                host_exists(scenario, &e.host, &at("host"))?;
            }
        }
    }
    Ok(())
}

/// More than Linux knows (`CONFIG_NR_CPUS` is 8192 at most).
const PROCESSORS_MOST: u64 = 8192;

/// Checks a quota against the limits of the kernel.
fn quota(e: &ThrottleEvent, begins: Nanos, at: &dyn Fn(&str) -> String) -> Check {
    const LEAST: Nanos = Nanos::from_millis(1);
    require(e.quota >= LEAST, &at("quota"), "the kernel takes 1 ms and more")?;
    let possible = (LEAST..=Nanos::from_secs(1)).contains(&e.period);
    require(possible, &at("period"), "the kernel takes 1 ms to 1 s")?;
    let most = e.period.get().saturating_mul(PROCESSORS_MOST);
    require(e.quota.get() <= most, &at("quota"), "no machine has this many processors in one period")?;
    require(e.until.is_none_or(|until| until > begins), &at("until"), "it ends before it begins")
}

/// Pairs of a recorded pattern: what a file of a scenario should hold.
const RECORDED_MOST: usize = 100_000;

/// A pattern of on and off times, given once.
fn pattern(e: &DescheduleEvent, at: &dyn Fn(&str) -> String) -> Check {
    if e.recorded.is_empty() {
        require(!e.on.is_zero(), &at("on"), "the host would never run")?;
        require(!e.off.is_zero(), &at("off"), "the host would never be off")?;
    } else {
        let alone = e.on.is_zero() && e.off.is_zero() && !e.random;
        require(alone, &at("recorded"), "it stands instead of `on`, `off` and `random`")?;
        require(e.recorded.len() <= RECORDED_MOST, &at("recorded"), "it has more than 100,000 pairs")?;
        let runs = e.recorded.iter().all(|pair| !pair.0.is_zero());
        require(runs, &at("recorded"), "the host does not run between two pairs: make them one")?;
        let sleeps = e.recorded.iter().any(|pair| !pair.1.is_zero());
        require(sleeps, &at("recorded"), "the host would never be off")?;
    }
    require(e.ring.is_none_or(|ring| !ring.is_zero()), &at("ring"), "the host could receive nothing")
}

/// Subflows that some connection can have.
fn subflows(scenario: &Scenario, event: &SubflowEvent, at: &dyn Fn(&str) -> String) -> Check {
    match (&event.path, event.subflow) {
        (Some(path), None) => traffic::path_exists(scenario, path, &at("path"))?,
        (None, Some(number)) => {
            let most = vmcc_cc::MAX_PATHS;
            let known = (number as usize) < most;
            require(
                known,
                &at("subflow"),
                &format!("a connection has up to {most} subflows, counted from 0"),
            )?;
        }
        _ => return Err(fault(at("path"), "expected either `path` or `subflow`: which subflows")),
    }
    let connections: Vec<(String, &Traffic)> = Traffic::labels(&scenario.traffic)
        .into_iter()
        .zip(&scenario.traffic)
        .filter(|(_, entry)| entry.kind.has_connections())
        .collect();
    for name in event.traffic.iter().flat_map(|names| &names.0) {
        if !connections.iter().any(|(label, _)| label == name) {
            let help = vmcc_config::did_you_mean(name, connections.iter().map(|(label, _)| label.as_str()));
            let message = format!("no entry of connections is called `{name}`");
            return Err(fault_with(at("traffic"), message, help));
        }
    }
    let meant = connections.iter().filter(|(label, _)| event.means(label)).map(|(_, entry)| *entry);
    anybody_has(scenario, event, &meant.collect::<Vec<_>>(), at)
}

/// Checks that one of these entries can have such a subflow, as far as that is known without the network.
fn anybody_has(
    scenario: &Scenario,
    event: &SubflowEvent,
    meant: &[&Traffic],
    at: &dyn Fn(&str) -> String,
) -> Check {
    let most = |entry: &&Traffic| traffic::most_subflows(scenario, entry);
    let several: Vec<&Traffic> = meant.iter().copied().filter(|entry| most(entry) > 1).collect();
    let alone = "no connection that it means has several subflows, and the only one is the connection; give it more paths \
                 or `subflows`, or name other `traffic`";
    require(!several.is_empty(), &at("kind"), alone)?;
    if let Some(number) = event.subflow {
        let most = several.iter().map(most).max().unwrap_or_default();
        let message = format!("the connections that it means have {most} subflows, counted from 0");
        require((number as usize) < most, &at("subflow"), &message)?;
    }
    // A remap brings subflows to paths that their entries do not name.
    let moves = scenario.event.iter().any(|event| matches!(event.kind, EventKind::Remap(_)));
    if let Some(path) = event.path.as_ref().filter(|_| !moves) {
        let takes = |entry: &&Traffic| entry.common.path.as_ref().is_none_or(|names| names.0.contains(path));
        let message = format!("no connection that it means takes the path `{path}`; see its entry's `path`");
        require(several.iter().any(takes), &at("path"), &message)?;
    }
    Ok(())
}

fn host_exists(scenario: &Scenario, name: &str, path: &str) -> Check {
    let hosts = scenario.topology.hosts();
    if hosts.iter().any(|host| host == name) {
        return Ok(());
    }
    let help = vmcc_config::did_you_mean(name, hosts.iter().map(String::as_str));
    Err(fault_with(path, format!("the topology has no host called `{name}`"), help))
}

fn remap(scenario: &Scenario, event: &crate::model::RemapEvent, at: &dyn Fn(&str) -> String) -> Check {
    let Topology::VirtualHost(t) = &scenario.topology else {
        return Err(fault(at("kind"), "only a `virtual-host` topology has vNICs to remap"));
    };
    let hosts = scenario.topology.hosts();
    require(
        hosts.iter().take(t.vms as usize).any(|vm| *vm == event.vm),
        &at("vm"),
        &format!("expected a VM from vm0 to vm{}", t.vms - 1),
    )?;
    require(event.vnic < t.vnics(), &at("vnic"), &format!("VMs have {} vNICs, counted from 0", t.vnics()))?;
    require(event.nic < t.nics, &at("nic"), &format!("the host has {} NICs, counted from 0", t.nics))
}
