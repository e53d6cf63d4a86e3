//! From a scenario's case to the lab's input. What the kernel engine cannot express is refused by key.

mod network;
mod traffic;

#[cfg(test)]
pub(crate) mod tests;

use crate::Error;
use crate::spec::{LabSpec, Remap, Throttle};
use vmcc_scenario::model::{Event, EventKind, Host};
use vmcc_scenario::{ResolvedCase, Scenario};
use vmcc_units::Nanos;

/// How often the kernel is sampled.
const SAMPLE_INTERVAL: Nanos = Nanos::from_millis(10);
/// One-way delay that the lab's own links and bridges have anyway; up to this none is added.
pub const OWN_DELAY: Nanos = Nanos::from_micros(50);

impl TryFrom<&ResolvedCase> for LabSpec {
    type Error = Error;

    /// # Errors
    /// [`Error::NotExpressible`] or [`Error::Spec`], naming the key.
    fn try_from(case: &ResolvedCase) -> Result<Self, Error> {
        let scenario = &case.scenario;
        check_host(&scenario.host)?;
        let hosts = scenario.topology.hosts();
        let pairs = traffic::all_pairs(scenario, &hosts)?;
        let (layout, paths) = network::convert(&scenario.topology, &pairs)?;
        let flows = traffic::convert(scenario, &layout, &paths, &hosts)?;
        let remaps = remaps(scenario, &hosts)?;
        let throttles = throttles(scenario, &hosts);
        let spec = LabSpec {
            run_id: None,
            layout,
            hosts,
            paths,
            flows,
            remaps,
            throttles,
            duration: scenario.duration,
            warmup: scenario.warmup,
            sample_interval: SAMPLE_INTERVAL,
            series_interval: scenario.interval,
            receive_buffer: Some(scenario.host.receive_buffer),
            send_buffer: Some(scenario.host.send_buffer),
            notsent_lowat: Some(scenario.host.notsent_lowat),
            min_rto: Some(scenario.host.min_rto).filter(|min| *min != Host::default().min_rto),
        };
        spec.check()?;
        Ok(spec)
    }
}

fn refuse<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, Error> {
    Err(Error::not_expressible(key, problem))
}

/// Settings that shape the simulator's model of a host are the kernel's own here.
fn check_host(host: &Host) -> Result<(), Error> {
    let linux = Host::default();
    let differs = [
        ("scheduler", host.scheduler != linux.scheduler),
        ("ack_path", host.ack_path != linux.ack_path),
        ("delayed_ack", host.delayed_ack != linux.delayed_ack),
        ("initial_window", host.initial_window != linux.initial_window),
        ("mtu", host.mtu != linux.mtu),
        ("join_delay", host.join_delay != linux.join_delay),
        ("hystart", host.hystart != linux.hystart),
        ("packet_memory", host.packet_memory.is_some()),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        Some((key, _)) => {
            refuse(format!("host.{key}"), "it is the kernel's own business and not Linux's default")
        }
        None => Ok(()),
    }
}

fn remaps(scenario: &Scenario, hosts: &[String]) -> Result<Vec<Remap>, Error> {
    let others = scenario.event.iter().filter(|event| !matches!(event.kind, EventKind::Throttle(_)));
    let mut remaps = others.map(|event| remap(event, hosts)).collect::<Result<Vec<_>, _>>()?;
    remaps.sort_by_key(|remap| remap.at);
    Ok(remaps)
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

fn remap(event: &Event, hosts: &[String]) -> Result<Remap, Error> {
    let kind = match &event.kind {
        EventKind::Remap(e) => {
            // Validation knows the VM, the vNIC and the NIC.
            let Some(vm) = hosts.iter().position(|host| *host == e.vm) else {
                return refuse("event.vm", format!("there is no VM `{}`", e.vm));
            };
            return Ok(Remap { at: event.at, vm, vnic: e.vnic as usize, nic: e.nic as usize });
        }
        EventKind::Deschedule(e) => {
            let problem = format!(
                "{} is a container, which has no virtual CPUs to take away; its programs can be given a quota by the event `throttle`",
                e.host
            );
            return refuse("event.deschedule", problem);
        }
        EventKind::SetBackup(_)
        | EventKind::ClearBackup(_)
        | EventKind::CloseSubflow(_)
        | EventKind::OpenSubflow(_) => {
            return refuse("event.kind", "events of subflows, which the kernel's path manager owns");
        }
        EventKind::Throttle(_) => "throttle",
        EventKind::LinkDown(_) => "link-down",
        EventKind::LinkUp(_) => "link-up",
        EventKind::SetRate(_) => "set-rate",
        EventKind::SetDelay(_) => "set-delay",
        EventKind::SetLoss(_) => "set-loss",
    };
    refuse(format!("event.{kind}"), format!("a change of a link at {}; only \"remap\" is possible", event.at))
}
