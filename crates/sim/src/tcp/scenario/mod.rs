//! The connections of a scenario: made, read, moved, observed.

mod delivered;
mod make;
mod observe;

pub(crate) use make::{Algorithms, endless, framings, make, tcp_config};
pub(crate) use observe::{observed_sample, of as observed_subflow};

use std::ops::Range;
use std::sync::Arc;

use super::{ConnId, Connections, Directory, RttGroups};
use crate::engine::Ctx;
use crate::error::SimError;
use crate::time::{Span, Time};
use crate::traffic::MAX_FLOWS;
use crate::transport::{Ends, Managed, Part, RouteChange, Routed, Transport};
use delivered::Delivered;
use vmcc_metrics::observed::{Counters, Observed};
use vmcc_network::{Path, Unloaded};
use vmcc_scenario::model::SubflowEvent;

/// One connection as it was made.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Index of its entry of traffic.
    pub(crate) traffic: u32,
    /// Numbers of its hosts.
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) start: Time,
    pub(crate) stop: Time,
    /// It fetches objects: `from` and `to` of the connection are turned.
    pub(crate) fetches: bool,
    /// The connection that was opened.
    pub(crate) conn: ConnId,
    /// The one in the other direction, which carries the answers.
    pub(crate) answers: Option<ConnId>,
    pub(crate) cc: Arc<str>,
    pub(crate) group: u32,
    /// Its first subflow in [`Flows::paths`]; the others follow.
    first: u32,
    subflows: u8,
    pub(crate) competing: bool,
    /// Timing of its transfers on the empty network, on the routes it starts with.
    pub(crate) unloaded: Option<Arc<Unloaded>>,
}

impl Flow {
    /// Both directions. That of what is fetched goes first, from `from` to `to` of the entry as everything else that does.
    fn directions(&self) -> impl Iterator<Item = ConnId> + use<> {
        let both = [Some(self.conn), self.answers];
        let (first, second) = if self.fetches { (both[1], both[0]) } else { (both[0], both[1]) };
        first.into_iter().chain(second)
    }

    /// The directions whose payload counts: requests for objects are not what is delivered.
    fn carrying(&self) -> impl Iterator<Item = ConnId> + use<> {
        self.directions().take(if self.fetches { 1 } else { 2 })
    }

    /// Its subflows in [`Flows::paths`].
    fn subflows(&self) -> Range<usize> {
        self.first as usize..self.first as usize + usize::from(self.subflows)
    }
}

// A run may have a million of them.
const _: () = assert!(size_of::<Flow>() <= 88);

/// All of them.
#[derive(Debug)]
struct Flows {
    directory: Directory,
    flows: Vec<Flow>,
    /// Current path of each subflow, by index into the fabric's paths.
    paths: Vec<Option<u32>>,
    /// Names of the hosts.
    hosts: Vec<Arc<str>>,
    /// Names of the entries of traffic.
    labels: Vec<String>,
    sample_every: Span,
    delivered: Delivered,
    /// RTT distributions when the window began.
    rtts_at_warmup: Option<RttGroups>,
    /// Paths that subflows have left, by time.
    past_paths: Vec<PastPath>,
}

/// A path that a subflow has left, and what was counted until then.
#[derive(Debug)]
struct PastPath {
    flow: usize,
    subflow: usize,
    path: Option<usize>,
    until: Time,
    counters: Counters,
    /// Number of times it had been closed until then, and whether it was open.
    closed: usize,
    open: bool,
}

impl Flows {
    /// Paths of a flow's subflows.
    fn paths_of(&self, flow: &Flow) -> impl ExactSizeIterator<Item = Option<usize>> + use<'_> {
        self.paths[flow.subflows()].iter().map(|path| path.map(|path| path as usize))
    }

    /// Record of the moving subflow on the path that it leaves; `None` if it was never established there or keeps its path.
    fn past_path(&self, moved: &RouteChange, hosts: &[&Connections]) -> Option<PastPath> {
        let (flow, subflow) = (moved.ends, moved.subflow);
        let seen = observe::subflow(self, &self.flows[flow], subflow, hosts);
        let path = self.paths_of(&self.flows[flow]).nth(subflow).flatten();
        let leaves = seen.was_established() && path != moved.path;
        let (closed, open) = observe::lives(&seen);
        let (until, closed) = (moved.at, closed.len());
        leaves.then_some(PastPath { flow, subflow, path, until, counters: seen.counters, closed, open })
    }

    /// The subflows of a connection that an event means, where they are now.
    fn meant(&self, which: &SubflowEvent, flow: &Flow, paths: &[Path]) -> Vec<usize> {
        let label = &self.labels[flow.traffic as usize];
        let is_meant = |(number, path): &(usize, Option<usize>)| match (&which.path, *path) {
            (Some(name), Some(path)) => paths[path].name == *name,
            (Some(_), None) => false,
            (None, _) => which.subflow.is_some_and(|own| own as usize == *number),
        };
        // The only subflow of a connection is the connection.
        let several = flow.subflows > 1;
        let all = several && which.means(label);
        let meant = self.paths_of(flow).enumerate().filter(|one| all && is_meant(one));
        meant.map(|(number, _)| number).collect()
    }
}

/// The table of connections in each shard's hosts.
fn tables<'a>(hosts: &[&'a impl AsRef<Connections>]) -> Vec<&'a Connections> {
    hosts.iter().map(|&shard| shard.as_ref()).collect()
}

impl<H: AsRef<Connections> + AsMut<Connections>> Transport<H> for Flows {
    fn ends(&self) -> Vec<Ends> {
        let one = |flow: &Flow| Ends {
            traffic: flow.traffic as usize,
            from: flow.from as usize,
            to: flow.to as usize,
            subflows: flow.subflows.into(),
        };
        self.flows.iter().map(one).collect()
    }

    /// Start and stop times of competing connections.
    fn cuts(&self) -> Vec<Time> {
        let competing = self.flows.iter().filter(|flow| flow.competing);
        let mut times: Vec<Time> = competing.flat_map(|flow| [flow.start, flow.stop]).collect();
        times.sort_unstable();
        times.dedup();
        // Many short competing transfers would cut the run into too many parts; their times do not matter then.
        if times.len() > 64 { Vec::new() } else { times }
    }

    /// Answered requests are kept one by one.
    fn check(&self, hosts: &[&H]) -> Result<(), SimError> {
        let answered: usize = hosts.iter().map(|shard| shard.as_ref().responses().len()).sum();
        if answered <= MAX_FLOWS {
            return Ok(());
        }
        let asks = self.flows.iter().find(|flow| flow.answers.is_some());
        let traffic = asks.map(|flow| self.labels[flow.traffic as usize].clone()).unwrap_or_default();
        Err(SimError::TooMany { traffic, most: MAX_FLOWS })
    }

    fn settle(&mut self, hosts: &[&H], part: &mut Part) {
        self.delivered.settle(&self.directory, (&self.flows, &self.paths), &tables(hosts), part);
    }

    fn warmed_up(&mut self, hosts: &[&H]) {
        self.rtts_at_warmup = Some(self.directory.rtts(hosts.iter().copied()));
    }

    fn routed(&self, hosts: &[H]) -> Vec<Routed> {
        let of_flow = |(ends, flow): (usize, &Flow)| {
            let (traffic, from, to) = (flow.traffic as usize, flow.from as usize, flow.to as usize);
            let first = flow.directions().next();
            let one = move |(subflow, path): (usize, Option<usize>)| {
                let (there, back) = self.directory.routes(first?, subflow, hosts);
                Some(Routed { ends, subflow, traffic, from, to, routes: (there, Some(back)), path })
            };
            self.paths_of(flow).enumerate().filter_map(one).collect::<Vec<_>>()
        };
        self.flows.iter().enumerate().flat_map(of_flow).collect()
    }

    fn reroute(&mut self, moved: &RouteChange, hosts: &mut [&mut H]) {
        let tables: Vec<&Connections> = hosts.iter().map(|shard| (**shard).as_ref()).collect();
        self.past_paths.extend(self.past_path(moved, &tables));
        let flow = &self.flows[moved.ends];
        let turned = (moved.routes.1, moved.routes.0);
        for (direction, routes) in flow.directions().zip([moved.routes, turned]) {
            self.directory.reroute(direction, moved.subflow, routes, hosts);
        }
        let place = flow.subflows().start + moved.subflow;
        self.paths[place] = moved.path.map(|path| path as u32);
    }

    fn has_subflow(&self, which: &SubflowEvent, paths: &[Path]) -> bool {
        self.flows.iter().any(|flow| !self.meant(which, flow, paths).is_empty())
    }

    fn manage(&self, managed: &Managed, paths: &[Path], shard: usize, (hosts, ctx): (&mut H, &mut Ctx)) {
        for flow in &self.flows {
            for number in self.meant(&managed.which, flow, paths) {
                let senders = flow.directions().map(|id| self.directory.sender(id));
                for (_, sender) in senders.filter(|(of, _)| *of == shard) {
                    hosts.as_mut().change_subflow(ctx, (sender, number), managed.change);
                }
            }
        }
    }

    fn samples(&self, end: Time) -> u64 {
        (end.ps() - 1) / self.sample_every.ps().max(1)
    }

    fn observe(&self, hosts: &[&H], observed: &mut Observed) {
        observe::observe(self, &tables(hosts), observed);
    }
}
