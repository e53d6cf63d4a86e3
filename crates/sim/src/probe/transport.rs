//! The probes of a scenario: made, moved, observed.

use super::{Echo, Prober, Probes, Record, Sending};
use crate::build::span;
use crate::endpoint::MAX_INDEX;
use crate::engine::Timer;
use crate::error::{HostError, SimError, shard_of};
use crate::time::{Span, Time};
use crate::traffic::{MAX_FLOWS, Sender, senders};
use crate::transport::{BuildContext, Ends, RouteChange, Routed, Transport, at};
use vmcc_metrics::observed::{self, Observed};
use vmcc_network::RoutePair;
use vmcc_scenario::model::{Probe, Traffic, TrafficKind};

/// A pair of routes that is probed: shard and index of the client and of the responder.
#[derive(Debug)]
struct Probed {
    asks: (usize, usize),
    answers: (usize, usize),
}

/// Two hosts, and the routes between them.
#[derive(Debug)]
struct Session {
    ends: Ends,
    timeout: Span,
    routes: Vec<Probed>,
}

#[derive(Debug, Default)]
struct Sessions(Vec<Session>);

/// Both ends of the probes of every entry.
pub(crate) fn make<H>(ctx: &mut BuildContext<'_>, hosts: &mut [H]) -> Result<Box<dyn Transport<H>>, SimError>
where
    H: AsRef<Probes> + AsMut<Probes>,
{
    let mut sessions = Sessions::default();
    let scenario = ctx.scenario;
    for (traffic, entry) in scenario.traffic.iter().enumerate() {
        let TrafficKind::Probe(probe) = &entry.kind else { continue };
        let identity = &ctx.identities[traffic];
        let mut requests = 0;
        for sender in senders(scenario, ctx.fabric, entry, identity, ctx.streams)? {
            for (to, to_name) in &sender.receivers {
                let base = format!("traffic/{identity}/{}>{to_name}", sender.name);
                let pair = Pair { traffic, entry, probe, sender: &sender, to: *to, base };
                let session = pair.session(ctx, hosts)?;
                requests += pair.requests(scenario.duration) * session.routes.len() as u64;
                sessions.0.push(session);
                if requests > MAX_FLOWS as u64 {
                    return Err(SimError::TooManyProbes {
                        traffic: ctx.labels[traffic].clone(),
                        most: MAX_FLOWS,
                    });
                }
            }
        }
    }
    Ok(Box::new(sessions))
}

/// Two hosts of an entry.
struct Pair<'a> {
    traffic: usize,
    entry: &'a Traffic,
    probe: &'a Probe,
    sender: &'a Sender,
    to: usize,
    /// Begins the names of its random streams.
    base: String,
}

impl Pair<'_> {
    fn stop(&self, duration: vmcc_units::Nanos) -> Time {
        Time::ZERO + span(self.entry.common.stop.map_or(duration, |stop| stop.min(duration)))
    }

    /// Approximate number of requests on each route.
    fn requests(&self, duration: vmcc_units::Nanos) -> u64 {
        let lasts = self.stop(duration).since(Time::ZERO + span(self.entry.common.start));
        lasts.ps() / span(self.probe.interval).ps().max(1) + 1
    }

    fn session(
        &self,
        ctx: &mut BuildContext<'_>,
        hosts: &mut [impl AsMut<Probes>],
    ) -> Result<Session, SimError> {
        let (from, to) = (self.sender.host, self.to);
        let mut ecmp = ctx.streams.stream(&format!("{}/ecmp", self.base));
        let allowed = self.entry.common.path.as_ref().map(|p| p.0.as_slice());
        let mut routes = Vec::new();
        for (number, route_pair) in
            ctx.fabric.route_pairs(from, to, allowed, None, &mut ecmp)?.iter().enumerate()
        {
            routes.push(self.probed(ctx, hosts, (number, route_pair))?);
        }
        let ends = Ends { traffic: self.traffic, from, to, subflows: routes.len() };
        Ok(Session { ends, timeout: span(self.probe.timeout), routes })
    }

    /// Creates both ends of one pair of routes.
    fn probed(
        &self,
        ctx: &mut BuildContext<'_>,
        hosts: &mut [impl AsMut<Probes>],
        (number, route_pair): (usize, &RoutePair),
    ) -> Result<Probed, SimError> {
        let host = |source: HostError| SimError::Host { traffic: ctx.labels[self.traffic].clone(), source };
        let shard = |end: usize| {
            let node = ctx.fabric.node(end).0;
            shard_of(ctx.shard_of, node).map(usize::from).map_err(host)
        };
        let (asks, answers) = (shard(self.sender.host)?, shard(self.to)?);
        let (asker, answerer) = (hosts[asks].as_mut().probers.len(), hosts[answers].as_mut().echoes.len());
        if asker.max(answerer) >= MAX_INDEX as usize {
            return Err(host(HostError::Full));
        }
        let (forward, back) = self.sending(ctx, route_pair, (asker as u32, answerer as u32))?;
        let gaps = || ctx.streams.stream(&format!("{}/{number}/gaps", self.base));
        hosts[asks].as_mut().probers.push(Prober {
            sending: forward,
            stop: self.stop(ctx.scenario.duration),
            interval: span(self.probe.interval),
            random: self.probe.random.then(gaps),
            next: Time::ZERO + span(self.entry.common.start),
            path: ctx.fabric.path_of(route_pair),
            timer: Timer::new(),
            sent: Vec::new(),
        });
        hosts[answers].as_mut().echoes.push(Echo { sending: back });
        Ok(Probed { asks: (asks, asker), answers: (answers, answerer) })
    }

    /// Sending parameters of requests and answers, to these entries of the other end's table.
    fn sending(
        &self,
        ctx: &mut BuildContext<'_>,
        route_pair: &RoutePair,
        (asker, answerer): (u32, u32),
    ) -> Result<(Sending, Sending), SimError> {
        let common = &self.entry.common;
        let size = |bytes: vmcc_units::Bytes| u16::try_from(bytes.get()).unwrap_or(u16::MAX);
        let forward = Sending {
            host: ctx.fabric.node(self.sender.host).0,
            to: answerer,
            route: ctx.fabric.route(&route_pair.forward)?,
            size_bytes: size(self.probe.packet),
            class: ctx.fabric.class_of(self.sender.host, common.class),
            ecn: common.ecn.or(ctx.scenario.host.ecn) == Some(true),
        };
        let back = Sending {
            host: ctx.fabric.node(self.to).0,
            to: asker,
            route: ctx.fabric.route(&route_pair.reverse)?,
            size_bytes: size(self.probe.reply.unwrap_or(self.probe.packet)),
            class: ctx.fabric.class_of(self.to, common.class),
            ..forward
        };
        Ok((forward, back))
    }
}

impl<H: AsRef<Probes> + AsMut<Probes>> Transport<H> for Sessions {
    fn ends(&self) -> Vec<Ends> {
        self.0.iter().map(|session| session.ends).collect()
    }

    fn routed(&self, hosts: &[H]) -> Vec<Routed> {
        let of_session = |(ends, session): (usize, &Session)| {
            let Ends { traffic, from, to, .. } = session.ends;
            let one = move |(subflow, probed): (usize, &Probed)| {
                let prober = &hosts[probed.asks.0].as_ref().probers[probed.asks.1];
                let echo = &hosts[probed.answers.0].as_ref().echoes[probed.answers.1];
                let routes = (prober.sending.route, Some(echo.sending.route));
                Routed { ends, subflow, traffic, from, to, routes, path: prober.path }
            };
            session.routes.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        self.0.iter().enumerate().flat_map(of_session).collect()
    }

    fn reroute(&mut self, moved: &RouteChange, hosts: &mut [&mut H]) {
        let probed = &self.0[moved.ends].routes[moved.subflow];
        let (shard, asker) = probed.asks;
        let prober = &mut hosts[shard].as_mut().probers[asker];
        (prober.sending.route, prober.path) = (moved.routes.0, moved.path);
        let (shard, answerer) = probed.answers;
        hosts[shard].as_mut().echoes[answerer].sending.route = moved.routes.1;
    }

    fn observe(&self, hosts: &[&H], observed: &mut Observed) {
        let end = Time::from_ps(observed.window.1.0);
        for session in &self.0 {
            for probed in &session.routes {
                let probes: &Probes = hosts[probed.asks.0].as_ref();
                let one = |record: &Record| seen(session, record, end);
                observed.probes.extend(probes.probers[probed.asks.1].sent.iter().map(one));
            }
        }
    }
}

/// A request, and what became of it in time.
fn seen(session: &Session, record: &Record, end: Time) -> observed::Probe {
    let answer = record.answer.filter(|answer| answer.rtt <= session.timeout);
    observed::Probe {
        entry: session.ends.traffic,
        path: record.path,
        sent: at(record.at),
        answered: answer.map(|answer| at(record.at + answer.rtt)),
        marked: Some(answer.is_some_and(|answer| answer.marked)),
        due: record.at + session.timeout <= end,
    }
}
