//! A scenario's events as changes of links, pauses of hosts, and vNICs that move.

use vmcc_scenario::Scenario;
use vmcc_scenario::model::EventKind;

use super::error::SimError;
use super::setup::{Flow, Setup};
use crate::lower::{Fabric, Way, loss, span};
use crate::net::LinkChange;
use crate::packet::RouteId;
use crate::rng::Streams;
use crate::tcp::{ConnId, Hosts, OffTimes, World};
use crate::time::Time;

/// A vNIC that moves, and the routes its subflows have from then on.
#[derive(Debug)]
pub(crate) struct Remap {
    pub(crate) at: Time,
    vm: usize,
    vnic: usize,
    nic: usize,
    subflows: Vec<Moved>,
}

/// One subflow's new routes.
#[derive(Debug)]
struct Moved {
    flow: usize,
    subflow: usize,
    routes: (RouteId, RouteId),
    path: Option<usize>,
}

/// Plans all events; answers the remaps, whose routes are not known yet.
pub(crate) fn plan(
    scenario: &Scenario,
    fabric: &mut Fabric,
    world: &mut World,
    streams: &Streams,
) -> Result<Vec<Remap>, SimError> {
    let mut remaps = Vec::new();
    for (index, event) in scenario.event.iter().enumerate() {
        let at = Time::ZERO + span(event.at);
        match &event.kind {
            EventKind::LinkDown(e) => change(fabric, at, &e.link, LinkChange::Down)?,
            EventKind::LinkUp(e) => change(fabric, at, &e.link, LinkChange::Up)?,
            EventKind::SetRate(e) => {
                change(fabric, at, &e.link, LinkChange::Rate { rate_bps: e.rate.get() })?;
            }
            EventKind::SetDelay(e) => change(fabric, at, &e.link, LinkChange::Delay(span(e.delay)))?,
            EventKind::SetLoss(e) => change(fabric, at, &e.link, LinkChange::Loss(loss(&e.loss)))?,
            EventKind::Remap(e) => {
                let vm = fabric.host(&e.vm)?;
                let (vnic, nic) = (e.vnic as usize, e.nic as usize);
                remaps.push(Remap { at, vm, vnic, nic, subflows: Vec::new() });
            }
            EventKind::Deschedule(e) => {
                let node = fabric.hosts[fabric.host(&e.host)?].0;
                let end = e.until.unwrap_or(scenario.duration).min(scenario.duration);
                let earlier = scenario.event[..index].iter().filter(
                    |other| matches!(&other.kind, EventKind::Deschedule(other) if other.host == e.host),
                );
                let name = format!("event/deschedule/{}/{}", e.host, earlier.count());
                let times = OffTimes {
                    at,
                    end: Time::ZERO + span(end),
                    on: span(e.on),
                    off: span(e.off),
                    random: e.random.then(|| streams.stream(&name)),
                };
                world.deschedule(node, times).map_err(SimError::Config)?;
            }
        }
    }
    remaps.sort_by_key(|remap| remap.at);
    Ok(remaps)
}

fn change(fabric: &mut Fabric, at: Time, name: &str, change: LinkChange) -> Result<(), SimError> {
    for link in fabric.named_links(name) {
        fabric.net.change(at, link, change)?;
    }
    Ok(())
}

/// Finds the subflows that each remap moves, and their new routes.
pub(crate) fn routes(
    fabric: &mut Fabric,
    scenario: &Scenario,
    flows: &[Flow],
    mut remaps: Vec<Remap>,
) -> Result<Vec<Remap>, SimError> {
    if remaps.is_empty() {
        return Ok(remaps);
    }
    for remap in &mut remaps {
        for (index, flow) in flows.iter().enumerate() {
            let (from, to) = (flow.planned.from, flow.planned.to);
            let peer = if from == remap.vm { to } else { from };
            if remap.vm != from && remap.vm != to {
                continue;
            }
            let Some(way) = fabric.over(remap.vm, remap.vnic, remap.nic, peer) else { continue };
            for (subflow, old) in original_ways(fabric, scenario, flow)?.iter().enumerate() {
                let outward = if from == remap.vm { &old.forward } else { &old.reverse };
                if outward.first() != way.forward.first() {
                    continue;
                }
                let (out, home) = (fabric.route(&way.forward)?, fabric.route(&way.reverse)?);
                let routes = if from == remap.vm { (out, home) } else { (home, out) };
                remap.subflows.push(Moved { flow: index, subflow, routes, path: Some(remap.nic) });
            }
        }
    }
    Ok(remaps)
}

/// The ways a connection's subflows began with; a virtual host draws nothing to choose them.
fn original_ways(fabric: &Fabric, scenario: &Scenario, flow: &Flow) -> Result<Vec<Way>, SimError> {
    let common = &scenario.traffic[flow.planned.traffic].common;
    let allowed = common.path.as_ref().map(|p| p.0.as_slice());
    let mut unused = Streams::new(0).stream("");
    let count = u32::try_from(flow.paths.len()).ok();
    Ok(fabric.ways(flow.planned.from, flow.planned.to, allowed, count, &mut unused)?)
}

/// Moves the subflows of every remap at this moment.
pub(crate) fn remap(setup: &mut Setup, now: Time) {
    let due = setup.remaps.iter().filter(|remap| remap.at == now);
    let mut hosts: Vec<&mut Hosts> = setup.engine.hosts_mut().collect();
    for moved in due.flat_map(|remap| &remap.subflows) {
        let flow = &mut setup.flows[moved.flow];
        setup.directory.reroute(flow.conn, moved.subflow, moved.routes, &mut hosts);
        if let Some(ConnId(answers)) = flow.answers {
            let turned = (moved.routes.1, moved.routes.0);
            setup.directory.reroute(ConnId(answers), moved.subflow, turned, &mut hosts);
        }
        flow.paths[moved.subflow] = moved.path;
    }
}
