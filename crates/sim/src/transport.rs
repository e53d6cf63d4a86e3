//! A kind of endpoint in a run of a scenario.
//!
//! Two halves. A [`crate::endpoint::Table`] holds all endpoints of the kind in one shard and handles their packets and timers: calls
//! are static, and [`crate::hosts`] joins the tables of all kinds. A [`Transport`] is what a run knows of the kind: it was made from
//! the scenario's entries, is read while the run goes on, follows what moves, and says at the end what was seen. Hosts are a type
//! parameter, of which a kind knows that its own table is in them.
//!
//! To add one: CONTRIBUTING, "Adding a transport".

use rand_xoshiro::rand_core::Rng;
use vmcc_metrics::observed::{Job, Moment, Observed};
use vmcc_network::{Path, RoutePair};
use vmcc_scenario::model::{Protocol, SubflowEvent};
use vmcc_scenario::{ResolvedCase, Scenario};

use crate::build::{Fabric, span};
use crate::engine::Ctx;
use crate::error::SimError;
use crate::packet::RouteId;
use crate::rng::Streams;
use crate::time::{Span, Time};
use crate::traffic::{App, Planned};

/// Inputs for making endpoints of a kind.
pub(crate) struct BuildContext<'a> {
    pub(crate) case: &'a ResolvedCase,
    pub(crate) scenario: &'a Scenario,
    pub(crate) fabric: &'a mut Fabric,
    pub(crate) streams: &'a Streams,
    /// Shard of each node.
    pub(crate) shard_of: &'a [u8],
    /// Names of the entries of traffic.
    pub(crate) labels: &'a [String],
    /// Names of their random draws.
    pub(crate) identities: &'a [String],
    /// Warnings for the user.
    pub(crate) warnings: &'a mut Vec<String>,
}

impl BuildContext<'_> {
    /// The routes of a connection, one per path: one of TCP, else as many as its entry or the hosts have.
    pub(crate) fn route_pairs(&self, planned: &Planned) -> Result<Vec<RoutePair>, SimError> {
        let (entry, host) = (&self.scenario.traffic[planned.traffic], &self.scenario.host);
        let several = entry.common.subflows.or(host.subflows);
        let count = if entry.protocol(host) == Protocol::Tcp { Some(1) } else { several };
        let allowed = entry.common.path.as_ref().map(|path| path.0.as_slice());
        let mut ecmp = self.streams.stream(&format!("{}/ecmp", planned.stream));
        Ok(self.fabric.route_pairs(planned.from, planned.to, allowed, count, &mut ecmp)?)
    }

    /// Everything random of a connection's end.
    pub(crate) fn seed(&self, planned: &Planned, end: &str) -> [u8; 32] {
        let mut stream = self.streams.stream(&format!("{}/{end}", planned.stream));
        let mut seed = [0; 32];
        stream.fill_bytes(&mut seed);
        seed
    }
}

/// Reductions of a subflow whose time is kept.
pub(crate) const MAX_REDUCTIONS: usize = 2_000;

/// RTT and window samples of one run, about.
const SAMPLES: u64 = 1_000_000;

/// Interval between samples when this number of subflows is sampled.
pub(crate) fn sample_every(scenario: &Scenario, subflows: usize) -> Span {
    let steps = (SAMPLES / (subflows.max(1) as u64)).clamp(10, 1_000);
    Span::from_ps((span(scenario.duration).ps() / steps).max(Span::from_us(100).ps()))
}

/// The metrics' word for a simulated time.
pub(crate) fn at(time: Time) -> Moment {
    Moment(time.ps())
}

/// The metrics' word for what an application does.
pub(crate) fn job(app: &App) -> Job {
    match *app {
        App::Sized { bytes } => Job::Transfer(bytes),
        App::RequestResponse { .. } | App::Fetches { .. } => Job::Requests,
        App::Paced { bytes: Some(bytes), .. } => Job::Transfer(bytes),
        App::Bulk | App::Paced { bytes: None, .. } | App::OnOff { .. } | App::Carrier => Job::Endless,
    }
}

/// Makes the endpoints of a kind for the entries that are its own, and puts them into their table of each shard's hosts.
pub(crate) type BuildEndpoints<H> =
    fn(&mut BuildContext<'_>, &mut [H]) -> Result<Box<dyn Transport<H>>, SimError>;

/// Two hosts that exchange traffic, over this many subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Index of the traffic entry.
    pub(crate) traffic: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) subflows: usize,
}

/// A subflow in use, and its routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed {
    /// As in [`RouteChange`].
    pub(crate) ends: usize,
    pub(crate) subflow: usize,
    /// Index of the traffic entry.
    pub(crate) traffic: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// There, and back where anything goes back.
    pub(crate) routes: (RouteId, Option<RouteId>),
    pub(crate) path: Option<usize>,
}

/// A subflow that takes other links from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteChange {
    /// Which of [`Transport::ends`], or of [`Transport::routed`].
    pub(crate) ends: usize,
    /// Which of its subflows.
    pub(crate) subflow: usize,
    /// There and back.
    pub(crate) routes: (RouteId, RouteId),
    /// The path that it is on now.
    pub(crate) path: Option<usize>,
    /// Time of the move.
    pub(crate) at: Time,
}

/// A change of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubflowChange {
    /// True makes the subflow a backup: it is used only where no regular subflow can be (RFC 8684 section 3.3.8). The sender
    /// applies the change at once, as if its own host had requested it.
    Backup(bool),
    /// It carries nothing any more.
    Close,
    /// After it was closed, it is opened again.
    Open,
}

/// A change of some subflows at one moment.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) at: Time,
    pub(crate) which: SubflowEvent,
    pub(crate) change: SubflowChange,
}

/// Bytes delivered within one part of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) from: Time,
    pub(crate) to: Time,
    /// True if it is after the warm-up.
    pub(crate) inside: bool,
    /// Per path, measured connections.
    pub(crate) paths: Vec<u64>,
    /// Per path, competing connections.
    pub(crate) competing_paths: Vec<u64>,
    /// Per traffic entry.
    pub(crate) traffic: Vec<u64>,
}

impl Part {
    /// Counts what a connection has delivered on a path.
    pub(crate) fn add_on_path(&mut self, path: Option<usize>, competing: bool, bytes: u64) {
        let sums = if competing { &mut self.competing_paths } else { &mut self.paths };
        if let Some(path) = path {
            sums[path] += bytes;
        }
    }
}

/// A kind of endpoint in a run, whose table is part of each shard's hosts `H`.
pub(crate) trait Transport<H> {
    /// Pairs of connected hosts, in a fixed order. Their number decides how fine the series are.
    fn ends(&self) -> Vec<Ends>;

    /// Moments at which counters have to be read besides the usual ones.
    fn cuts(&self) -> Vec<Time> {
        Vec::new()
    }

    /// Checks that the run's records are not too many to keep in memory.
    fn check(&self, _hosts: &[&H]) -> Result<(), SimError> {
        Ok(())
    }

    /// Reads what was delivered since the last time.
    fn settle(&mut self, _hosts: &[&H], _part: &mut Part) {}

    /// The warm-up is over: what was counted until now does not count.
    fn warmed_up(&mut self, _hosts: &[&H]) {}

    /// All subflows in use, in a fixed order.
    fn routed(&self, hosts: &[H]) -> Vec<Routed>;

    /// A subflow has moved.
    fn reroute(&mut self, _moved: &RouteChange, _hosts: &mut [&mut H]) {}

    /// True if an event of subflows applies to at least one, `paths` being the network's.
    fn has_subflow(&self, _which: &SubflowEvent, _paths: &[Path]) -> bool {
        false
    }

    /// Changes the subflows that an event means and that send from this shard.
    fn manage(&self, _managed: &Managed, _paths: &[Path], _shard: usize, _on: (&mut H, &mut Ctx)) {}

    /// Events per shard up to `end` that only took samples.
    fn samples(&self, _end: Time) -> u64 {
        0
    }

    /// Adds what was seen of these endpoints to what the run observed. Entries and paths are there already.
    fn observe(&self, hosts: &[&H], observed: &mut Observed);
}
