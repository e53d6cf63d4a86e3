//! The connections of a scenario: made, read, moved, observed.

mod delivered;
mod make;
mod observe;

pub(crate) use make::make;

use super::{ConnId, Directory, RttGroups};
use crate::hosts::Hosts;
use crate::run::SimError;
use crate::time::{Span, Time};
use crate::traffic::{MAX_FLOWS, Planned};
use crate::transport::{Ends, Moved, Part, Transport};
use delivered::Delivered;
use vmcc_metrics::observed::Observed;

/// One connection as it was made.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) planned: Planned,
    pub(crate) conn: ConnId,
    /// The connection that carries the answers.
    pub(crate) answers: Option<ConnId>,
    pub(crate) cc: String,
    pub(crate) group: u16,
    /// Current path of each subflow, by index into the fabric's paths.
    pub(crate) paths: Vec<Option<usize>>,
    pub(crate) competing: bool,
}

/// All of them.
#[derive(Debug)]
struct Flows {
    directory: Directory,
    flows: Vec<Flow>,
    /// Names of the entries of traffic.
    labels: Vec<String>,
    sample_every: Span,
    delivered: Delivered,
    /// RTT distributions when the window began.
    rtts_at_warmup: Option<RttGroups>,
}

impl Flows {
    fn new(directory: Directory, flows: Vec<Flow>, labels: &[String], sample_every: Span) -> Flows {
        let delivered = Delivered::new(&flows);
        Flows { directory, flows, labels: labels.to_vec(), sample_every, delivered, rtts_at_warmup: None }
    }
}

impl Transport for Flows {
    fn ends(&self) -> Vec<Ends> {
        let one = |flow: &Flow| Ends {
            traffic: flow.planned.traffic,
            from: flow.planned.from,
            to: flow.planned.to,
            ways: flow.paths.len(),
        };
        self.flows.iter().map(one).collect()
    }

    /// When competing connections begin and end.
    fn cuts(&self) -> Vec<Time> {
        let competing = self.flows.iter().filter(|flow| flow.competing);
        let mut times: Vec<Time> =
            competing.flat_map(|flow| [flow.planned.start, flow.planned.stop]).collect();
        times.sort_unstable();
        times.dedup();
        // Many short competing transfers would cut the run into too many parts; their times do not matter then.
        if times.len() > 64 { Vec::new() } else { times }
    }

    /// Answered requests are kept one by one.
    fn check(&self, hosts: &[&Hosts]) -> Result<(), SimError> {
        let answered: usize = hosts.iter().map(|shard| shard.tcp.responses().len()).sum();
        if answered <= MAX_FLOWS {
            return Ok(());
        }
        let asks = self.flows.iter().find(|flow| flow.answers.is_some());
        let traffic = asks.map(|flow| self.labels[flow.planned.traffic].clone()).unwrap_or_default();
        Err(SimError::TooMany { traffic, most: MAX_FLOWS })
    }

    fn settle(&mut self, hosts: &[&Hosts], part: &mut Part) {
        self.delivered.settle(&self.directory, &self.flows, hosts, part);
    }

    fn warmed_up(&mut self, hosts: &[&Hosts]) {
        self.rtts_at_warmup = Some(self.directory.rtts(hosts.iter().copied()));
    }

    fn reroute(&mut self, moved: &Moved, hosts: &mut [&mut Hosts]) {
        let flow = &mut self.flows[moved.ends];
        self.directory.reroute(flow.conn, moved.way, moved.routes, hosts);
        if let Some(answers) = flow.answers {
            let turned = (moved.routes.1, moved.routes.0);
            self.directory.reroute(answers, moved.way, turned, hosts);
        }
        flow.paths[moved.way] = moved.path;
    }

    fn samples(&self, end: Time) -> u64 {
        (end.ps() - 1) / self.sample_every.ps().max(1)
    }

    fn observe(&self, hosts: &[&Hosts], observed: &mut Observed) {
        observe::observe(self, hosts, observed);
    }
}
