//! Traffic: one flow, and so one program, per pair of hosts.

use super::refuse;
use crate::Error;
use crate::spec::{Cc, Flow, Layout, Path, Role, Transport};
use vmcc_cc::{Algorithm, ParamValue, Params};
use vmcc_scenario::Scenario;
use vmcc_scenario::model::{Bulk, OneOrMany, Pairing, Param, Protocol, Traffic, TrafficKind};

pub(super) fn convert(
    scenario: &Scenario,
    layout: &Layout,
    paths: &[Path],
    hosts: &[String],
) -> Result<Vec<Flow>, Error> {
    let mut flows = Vec::new();
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        let label = Traffic::label(&scenario.traffic, index);
        let key = |key: &str| format!("traffic.{label}.{key}");
        let TrafficKind::Bulk(bulk) = &traffic.kind else {
            return refuse(
                key("kind"),
                format!("traffic of kind {:?}; only \"bulk\" is", traffic.kind.name()),
            );
        };
        let like = common(scenario, traffic, bulk, &label, (layout, paths))?;
        for (from, to) in pairs(scenario, traffic, hosts, &key("pairing"))? {
            flows.push(Flow { from, to, ..like.clone() });
        }
    }
    Ok(flows)
}

/// Everything of an entry but the hosts.
fn common(
    scenario: &Scenario,
    traffic: &Traffic,
    bulk: &Bulk,
    label: &str,
    (layout, paths): (&Layout, &[Path]),
) -> Result<Flow, Error> {
    let key = |key: &str| format!("traffic.{label}.{key}");
    let common = &traffic.common;
    let multipath = common.protocol.unwrap_or(scenario.host.protocol) == Protocol::Mptcp;
    let subflows = common.subflows.or(scenario.host.subflows);
    if multipath && subflows.is_some_and(|count| count as usize != layout.lanes(paths.len())) {
        return refuse(key("subflows"), "a connection has one subflow per path, or per vNIC");
    }
    let role = if traffic.is_competing() { Role::Competing } else { Role::Measured };
    let cc = congestion_control(scenario, traffic, role, &key("cc"))?;
    let ecn = common.ecn.or(scenario.host.ecn);
    if let (Some(false), Cc::Registry(params)) = (ecn, &cc)
        && params.algorithm().info().needs_ecn
    {
        return refuse(key("ecn"), format!("{} asks the kernel for ECN by itself", params.algorithm()));
    }
    Ok(Flow {
        role,
        from: 0,
        to: 0,
        cc,
        ecn,
        transport: transport(&key("path"), common.path.as_ref(), multipath, (layout, paths))?,
        class: common.class,
        connections: bulk.connections,
        start: common.start,
        // The run's end stops whatever goes on then.
        stop: common.stop.map_or(scenario.duration, |stop| stop.min(scenario.duration)),
        label: label.to_owned(),
    })
}

fn pairs(
    scenario: &Scenario,
    traffic: &Traffic,
    hosts: &[String],
    key: &str,
) -> Result<Vec<(usize, usize)>, Error> {
    let (from, to) = scenario.endpoints(traffic);
    let number = |name: &String| hosts.iter().position(|host| host == name);
    let (from, to): (Vec<usize>, Vec<usize>) =
        (from.iter().filter_map(number).collect(), to.iter().filter_map(number).collect());
    match traffic.common.pairing {
        Pairing::OneToOne => {
            let pair = |i: usize| (from[i % from.len()], to[i % to.len()]);
            Ok((0..from.len().max(to.len())).map(pair).collect())
        }
        Pairing::All => Ok(from.iter().flat_map(|from| to.iter().map(|to| (*from, *to))).collect()),
        Pairing::Permutation | Pairing::Random => refuse(key, "pairs by chance"),
    }
}

fn transport(
    key: &str,
    names: Option<&OneOrMany>,
    multipath: bool,
    (layout, paths): (&Layout, &[Path]),
) -> Result<Transport, Error> {
    let mut indices = Vec::new();
    for name in names.map(|names| names.0.as_slice()).unwrap_or_default() {
        let found = paths.iter().position(|path| path.name == *name);
        indices.push(found.ok_or_else(|| Error::spec(key, format!("there is no path {name:?}")))?);
    }
    let lane_on = |path: usize| {
        let mut lanes = 0..layout.lanes(paths.len());
        lanes
            .find(|lane| layout.path_of_lane(*lane) == path)
            .ok_or_else(|| Error::spec(key, "no vNIC uses this path"))
    };
    match (multipath, indices.as_slice()) {
        (true, []) => Ok(Transport::Mptcp { first: 0 }),
        (true, [first, ..]) if indices.len() == paths.len() => {
            Ok(Transport::Mptcp { first: lane_on(*first)? })
        }
        (true, _) => refuse(key, "an MPTCP connection over some of the paths"),
        (false, []) => Ok(Transport::Tcp { lane: 0 }),
        (false, [path]) => Ok(Transport::Tcp { lane: lane_on(*path)? }),
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
