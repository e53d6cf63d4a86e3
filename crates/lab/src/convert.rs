//! From a scenario's case to the lab's input. What the kernel engine cannot express is refused by key.

use crate::Error;
use crate::spec::{Cc, Flow, LabSpec, Path, Role, Transport};
use vmcc_cc::{Algorithm, ParamValue, Params};
use vmcc_scenario::model::{
    Discipline, Host, LinkSettings, Marking, OneOrMany, ParallelPaths, Param, Protocol, Queue, Topology,
    Traffic, TrafficKind,
};
use vmcc_scenario::{ResolvedCase, Scenario};
use vmcc_units::{Nanos, Threshold};

/// How often the kernel is sampled.
const SAMPLE_INTERVAL: Nanos = Nanos::from_millis(10);
/// One-way delay that the lab's own links and bridges have anyway; up to this none is added.
pub const OWN_DELAY: Nanos = Nanos::from_micros(50);
const REMEDY: &str = "change it, or use `--engine sim`";

impl TryFrom<&ResolvedCase> for LabSpec {
    type Error = Error;

    /// # Errors
    /// [`Error::NotExpressible`] or [`Error::Spec`], naming the key.
    fn try_from(case: &ResolvedCase) -> Result<Self, Error> {
        let scenario = &case.scenario;
        let Topology::ParallelPaths(topology) = &scenario.topology else {
            return refuse("topology.kind", "only \"parallel-paths\" is built from namespaces");
        };
        if let Some(event) = scenario.event.first() {
            return refuse("event", format!("something changes at {}", event.at));
        }
        check_host(&scenario.host)?;
        let paths = paths(topology)?;
        let flows: Result<Vec<_>, _> =
            (0..scenario.traffic.len()).map(|index| flow(scenario, index, &paths)).collect();
        let spec = LabSpec {
            run_id: None,
            paths,
            flows: flows?,
            duration: scenario.duration,
            warmup: scenario.warmup,
            sample_interval: SAMPLE_INTERVAL,
            series_interval: scenario.interval,
            receive_buffer: Some(scenario.host.receive_buffer),
            send_buffer: Some(scenario.host.send_buffer),
        };
        spec.check()?;
        Ok(spec)
    }
}

fn refuse<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, Error> {
    Err(Error::NotExpressible { key: key.into(), problem: problem.into(), remedy: REMEDY.to_owned() })
}

/// Settings that shape the simulator's model of a host are the kernel's own here.
fn check_host(host: &Host) -> Result<(), Error> {
    let linux = Host::default();
    let differs = [
        ("scheduler", host.scheduler != linux.scheduler),
        ("min_rto", host.min_rto != linux.min_rto),
        ("delayed_ack", host.delayed_ack != linux.delayed_ack),
        ("initial_window", host.initial_window != linux.initial_window),
        ("mtu", host.mtu != linux.mtu),
        ("join_delay", host.join_delay != linux.join_delay),
        ("hystart", host.hystart != linux.hystart),
        ("ecn", host.ecn != linux.ecn),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        Some((key, _)) => {
            refuse(format!("host.{key}"), "it is the kernel's own business and not Linux's default")
        }
        None => Ok(()),
    }
}

fn paths(topology: &ParallelPaths) -> Result<Vec<Path>, Error> {
    if topology.queue != Queue::default() && topology.queue.kind != Discipline::Fifo {
        return refuse("topology.queue", "ports have one first-in-first-out queue");
    }
    topology.links().into_iter().map(|(name, link)| path(name, &link)).collect()
}

fn path(name: String, link: &LinkSettings) -> Result<Path, Error> {
    if link.loss.probability != 0.0 {
        return refuse("topology.loss", format!("random loss on path {name}"));
    }
    if !link.jitter.is_zero() {
        return refuse("topology.jitter", format!("jitter on path {name}"));
    }
    let delay = if link.delay <= OWN_DELAY { Nanos::ZERO } else { link.delay };
    let marking = marking(&link.marking)?;
    Ok(Path { name, rate: link.rate, delay, buffer: link.buffer, marking })
}

fn marking(marking: &Marking) -> Result<Option<Threshold>, Error> {
    match marking {
        Marking::None => Ok(None),
        Marking::Threshold(rule) => Ok(Some(rule.at)),
        _ => refuse("topology.marking", "ports mark by rule \"threshold\" only"),
    }
}

fn flow(scenario: &Scenario, index: usize, paths: &[Path]) -> Result<Flow, Error> {
    let traffic = &scenario.traffic[index];
    let label = Traffic::label(&scenario.traffic, index);
    let key = |key: &str| format!("traffic.{label}.{key}");
    let TrafficKind::Bulk(bulk) = &traffic.kind else {
        return refuse(key("kind"), format!("traffic of kind {:?}; only \"bulk\" is", traffic.kind.name()));
    };
    let common = &traffic.common;
    check_end(&key("from"), common.from.as_ref(), "client")?;
    check_end(&key("to"), common.to.as_ref(), "server")?;
    let multipath = common.protocol.unwrap_or(scenario.host.protocol) == Protocol::Mptcp;
    let subflows = common.subflows.or(scenario.host.subflows);
    if multipath && subflows.is_some_and(|count| count as usize != paths.len()) {
        return refuse(key("subflows"), "a connection has one subflow per path");
    }
    let role = if traffic.is_competing() { Role::Competing } else { Role::Measured };
    Ok(Flow {
        role,
        cc: congestion_control(scenario, traffic, role, &key("cc"))?,
        transport: transport(&key("path"), common.path.as_ref(), multipath, paths)?,
        connections: bulk.connections,
        start: common.start,
        stop: common.stop.unwrap_or(scenario.duration),
        label,
    })
}

fn check_end(key: &str, names: Option<&OneOrMany>, only: &str) -> Result<(), Error> {
    match names.map(|names| names.0.as_slice()) {
        None => Ok(()),
        Some([name]) if name == only || name == "*" => Ok(()),
        Some(_) => refuse(key, format!("data flows from client to server; only {only:?} can be here")),
    }
}

fn transport(
    key: &str,
    names: Option<&OneOrMany>,
    multipath: bool,
    paths: &[Path],
) -> Result<Transport, Error> {
    let mut indices = Vec::new();
    for name in names.map(|names| names.0.as_slice()).unwrap_or_default() {
        let found = paths.iter().position(|path| path.name == *name);
        indices.push(found.ok_or_else(|| Error::spec(key, format!("there is no path {name:?}")))?);
    }
    match (multipath, indices.as_slice()) {
        (true, []) => Ok(Transport::Mptcp { first: 0 }),
        (true, [first, ..]) if indices.len() == paths.len() => Ok(Transport::Mptcp { first: *first }),
        (true, _) => refuse(key, "an MPTCP connection over some of the paths"),
        (false, []) => Ok(Transport::Tcp { path: 0 }),
        (false, [path]) => Ok(Transport::Tcp { path: *path }),
        (false, _) => refuse(key, "a TCP connection over several paths"),
    }
}

/// Measured traffic runs under the registry's algorithm. What competes under a name that the kernel itself has
/// runs under the kernel's own code: it stands for the hosts of others.
fn congestion_control(scenario: &Scenario, traffic: &Traffic, role: Role, key: &str) -> Result<Cc, Error> {
    let name = traffic.common.cc.as_ref().unwrap_or(&scenario.host.cc);
    if role == Role::Competing && ["reno", "cubic"].contains(&name.as_str()) {
        return Ok(Cc::Native(name.clone()));
    }
    let algorithm = Algorithm::by_name(name).map_err(|e| Error::spec(key, e.to_string()))?;
    let mut params = Params::defaults(algorithm);
    for (param, value) in scenario.host.params.get(algorithm.name()).into_iter().flatten() {
        let value = match value {
            Param::Number(number) => ParamValue::Number(*number),
            Param::Word(word) => ParamValue::Text(word),
        };
        params
            .set(param, value)
            .map_err(|e| Error::spec(format!("host.params.{name}.{param}"), e.to_string()))?;
    }
    Ok(Cc::Registry(params))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_scenario::{Document, Overrides};

    fn convert(name: &str, set: &[&str]) -> Result<Vec<LabSpec>, Error> {
        let set = set.iter().map(|&text| text.to_owned()).collect();
        let overrides = Overrides { set, ..Overrides::default() };
        let plan = Document::open(name).unwrap().plan(&overrides).unwrap();
        plan.cases.iter().map(LabSpec::try_from).collect()
    }

    fn refused(set: &[&str], key: &str) {
        let error = convert("demo", set).expect_err(key);
        assert_eq!(error.kind(), crate::ErrorKind::BadInput);
        assert!(error.to_string().starts_with(key), "{error}");
    }

    #[test]
    fn the_demo_converts() {
        let specs = convert("demo", &[]).unwrap();
        assert_eq!(specs.len(), 4);
        for spec in &specs {
            assert_eq!(spec.paths.len(), 2);
            assert!(spec.paths.iter().all(|path| path.delay.is_zero()), "runs without netem");
            assert_eq!(spec.flows[1].role, Role::Competing);
        }
        assert!(matches!(specs[0].flows[0].transport, Transport::Tcp { .. }));
        assert_eq!(specs[3].flows[0].cc.kernel_name(), "mp_vmcc");
        assert!(specs[3].paths[0].marking.is_some());
    }

    #[test]
    fn delays_beyond_the_labs_own_are_kept() {
        let specs = convert("demo", &["topology.delay=10ms"]).unwrap();
        assert_eq!(specs[0].paths[0].delay, Nanos::from_millis(10));
    }

    #[test]
    fn what_the_kernel_engine_cannot_do_is_named() {
        refused(&["topology.loss=0.01"], "topology.loss");
        refused(&["topology.jitter=1ms"], "topology.jitter");
        refused(&["host.scheduler=blest"], "host.scheduler");
        refused(&["host.min_rto=10ms"], "host.min_rto");
        refused(&["traffic.measured.stop=2500ms"], "traffic[measured].stop");
    }
}
