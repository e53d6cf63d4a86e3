//! A scenario's events as changes of links, off times of hosts, and vNICs that move.

use std::collections::BTreeMap;

use vmcc_network::RoutePair;
use vmcc_scenario::Scenario;
use vmcc_scenario::model::{DescheduleEvent, EventKind, First};

use crate::build::{Fabric, loss, span};
use crate::engine::Engine;
use crate::error::SimError;
use crate::hosts::{Hosts, OffTimes, Periods, ResumeConfig};
use crate::net::LinkChange;
use crate::rng::{Stream, Streams};
use crate::time::Time;
use crate::transport::{Ends, RouteChange, Transport};

/// A vNIC that moves.
#[derive(Debug)]
pub(crate) struct Remap {
    at: Time,
    vm: usize,
    vnic: usize,
    nic: usize,
}

/// Subflows that take other routes from a moment on.
#[derive(Debug)]
pub(crate) struct RouteChanges {
    pub(crate) at: Time,
    /// The number of each one's kind among the run's.
    pub(super) moved: Vec<(usize, RouteChange)>,
}

/// Off times of hosts by node, and their state when they resume.
pub(crate) type OffTimesByNode = BTreeMap<u32, Vec<OffTimes>>;

/// Plans all events; answers when hosts are off, and the remaps, whose routes are not known yet.
pub(crate) fn plan(
    scenario: &Scenario,
    fabric: &mut Fabric,
    streams: &Streams,
) -> Result<(Vec<Remap>, OffTimesByNode), SimError> {
    let (mut remaps, mut off_times) = (Vec::new(), OffTimesByNode::new());
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
                remaps.push(Remap { at, vm, vnic, nic });
            }
            EventKind::Deschedule(e) => {
                let node = fabric.node(fabric.host(&e.host)?).0;
                let end = e.until.unwrap_or(scenario.duration).min(scenario.duration);
                let earlier = scenario.event[..index].iter().filter(
                    |other| matches!(&other.kind, EventKind::Deschedule(other) if other.host == e.host),
                );
                let name = format!("event/deschedule/{}/{}", e.host, earlier.count());
                let periods = periods(e, || streams.stream(&name));
                let end = Time::ZERO + span(end);
                let ring = e.ring.map_or(usize::MAX, |ring| ring.get() as usize);
                let resume = ResumeConfig { ring, packets_first: e.first == First::Packets };
                let times = OffTimes { at, end, on: span(e.on), off: span(e.off), periods, resume };
                off_times.entry(node).or_default().push(times);
            }
            EventKind::Throttle(e) => {
                return Err(SimError::Unsupported {
                    what: format!("a quota of processor time of {}", e.host),
                    remedy: "use `--engine kernel`, or `deschedule` for a VM that is off as a whole",
                });
            }
            // `run::subflows` has these.
            EventKind::SetBackup(_)
            | EventKind::ClearBackup(_)
            | EventKind::CloseSubflow(_)
            | EventKind::OpenSubflow(_) => {}
        }
    }
    remaps.sort_by_key(|remap| remap.at);
    Ok((remaps, off_times))
}

fn periods(event: &DescheduleEvent, stream: impl FnOnce() -> Stream) -> Periods {
    if event.random {
        return Periods::Random(stream());
    }
    let pairs: Vec<_> = event.recorded.iter().map(|pair| (span(pair.0), span(pair.1))).collect();
    if pairs.is_empty() { Periods::Fixed } else { Periods::Recorded(pairs.into(), 0) }
}

fn change(fabric: &mut Fabric, at: Time, name: &str, change: LinkChange) -> Result<(), SimError> {
    for link in fabric.named_links(name) {
        fabric.net.change(at, link, change)?;
    }
    Ok(())
}

/// The moves of each remap.
pub(crate) fn routes(
    fabric: &mut Fabric,
    scenario: &Scenario,
    transports: &[Box<dyn Transport<Hosts>>],
    remaps: &[Remap],
) -> Result<Vec<RouteChanges>, SimError> {
    let ends: Vec<Vec<Ends>> = transports.iter().map(|transport| transport.ends()).collect();
    let mut all = Vec::new();
    for remap in remaps {
        let mut moves = RouteChanges { at: remap.at, moved: Vec::new() };
        for (kind, ends) in ends.iter().enumerate() {
            for (index, ends) in ends.iter().enumerate() {
                let moved = moved(fabric, scenario, remap, (index, *ends))?;
                moves.moved.extend(moved.into_iter().map(|moved| (kind, moved)));
            }
        }
        all.push(moves);
    }
    Ok(all)
}

/// The subflows between two hosts that a remap moves.
fn moved(
    fabric: &mut Fabric,
    scenario: &Scenario,
    remap: &Remap,
    (index, ends): (usize, Ends),
) -> Result<Vec<RouteChange>, SimError> {
    let mut all = Vec::new();
    if remap.vm != ends.from && remap.vm != ends.to {
        return Ok(all);
    }
    let sends = ends.from == remap.vm;
    let peer = if sends { ends.to } else { ends.from };
    let Some(route_pair) = fabric.via_nic(remap.vm, remap.vnic, remap.nic, peer) else { return Ok(all) };
    for (number, old) in original_routes(fabric, scenario, ends)?.iter().enumerate() {
        let outward = if sends { &old.forward } else { &old.reverse };
        if outward.first() != route_pair.forward.first() {
            continue;
        }
        let (out, home) = (fabric.route(&route_pair.forward)?, fabric.route(&route_pair.reverse)?);
        let routes = if sends { (out, home) } else { (home, out) };
        all.push(RouteChange { ends: index, subflow: number, routes, path: Some(remap.nic), at: remap.at });
    }
    Ok(all)
}

/// The routes with which two hosts began; a virtual host draws nothing to choose them.
fn original_routes(fabric: &Fabric, scenario: &Scenario, ends: Ends) -> Result<Vec<RoutePair>, SimError> {
    let common = &scenario.traffic[ends.traffic].common;
    let allowed = common.path.as_ref().map(|p| p.0.as_slice());
    let mut unused = Streams::new(0).stream("");
    let count = u32::try_from(ends.subflows).ok();
    Ok(fabric.route_pairs(ends.from, ends.to, allowed, count, &mut unused)?)
}

/// Applies the moves of this moment.
pub(super) fn apply(
    moves: &[RouteChanges],
    now: Time,
    transports: &mut [Box<dyn Transport<Hosts>>],
    engine: &mut Engine<Hosts>,
) {
    let due = moves.iter().filter(|moves| moves.at == now);
    let mut hosts: Vec<&mut Hosts> = engine.hosts_mut().collect();
    for (kind, moved) in due.flat_map(|moves| &moves.moved) {
        transports[*kind].reroute(moved, &mut hosts);
    }
}
