//! Counters read at moments of a run, as sums over the parts of time that matter.

use super::setup::Setup;
use crate::net::LinkCounters;
use crate::tcp::ConnId;
use crate::time::Time;

/// With more connections, series per path and traffic entry are left out: reading them would cost more than
/// simulating.
pub(crate) const SERIES_FLOWS: usize = 2_000;

/// Bytes delivered within one part of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) from: Time,
    pub(crate) to: Time,
    /// Per path, measured connections.
    pub(crate) paths: Vec<u64>,
    /// Per path, competing connections.
    pub(crate) competing_paths: Vec<u64>,
    /// Per traffic entry.
    pub(crate) traffic: Vec<u64>,
}

/// What was delivered when.
#[derive(Debug)]
pub(crate) struct Accounts {
    last: Time,
    /// Bytes delivered by each connection so far.
    delivered: Vec<u64>,
    /// Bytes that arrived on each subflow of each connection so far.
    arrived: Vec<Vec<u64>>,
    /// Datagram bytes received by each sender's sink so far.
    datagrams: Vec<u64>,
    /// Bytes of each connection within the window.
    pub(crate) window: Vec<u64>,
    /// Bytes of each datagram sender within the window.
    pub(crate) datagram_window: Vec<u64>,
    /// Every part, if connections are few; otherwise one for the warm-up and one for the rest.
    pub(crate) parts: Vec<Part>,
    /// Counters of each path's queue when the window began.
    pub(crate) links_at_warmup: Vec<LinkCounters>,
    /// RTT distributions when the window began.
    pub(crate) rtts_at_warmup: Option<crate::tcp::RttGroups>,
}

impl Accounts {
    pub(crate) fn new(setup: &Setup) -> Self {
        let arrived = setup.flows.iter().map(|flow| vec![0; flow.paths.len()]).collect();
        Self {
            last: Time::ZERO,
            delivered: vec![0; setup.flows.len()],
            arrived,
            datagrams: vec![0; setup.datagrams.len()],
            window: vec![0; setup.flows.len()],
            datagram_window: vec![0; setup.datagrams.len()],
            parts: Vec::new(),
            links_at_warmup: vec![LinkCounters::default(); setup.fabric.paths.len()],
            rtts_at_warmup: None,
        }
    }

    /// Reads the counters at `now` and books what came since the last reading.
    pub(crate) fn settle(&mut self, setup: &Setup, now: Time) {
        let must = now == setup.warmup || now == setup.end || setup.remaps.iter().any(|r| r.at == now);
        if !must && setup.flows.len() > SERIES_FLOWS {
            return;
        }
        let paths = setup.fabric.paths.len();
        let mut part = Part {
            from: self.last,
            to: now,
            paths: vec![0; paths],
            competing_paths: vec![0; paths],
            traffic: vec![0; setup.labels.len()],
        };
        self.flows(setup, &mut part);
        self.sinks(setup, &mut part);
        if now == setup.warmup {
            let counters = setup.fabric.paths.iter().map(|path| setup.engine.counters(path.queue));
            self.links_at_warmup = counters.collect();
            self.rtts_at_warmup = Some(setup.directory.rtts(setup.hosts()));
        }
        self.last = now;
        self.parts.push(part);
    }

    fn flows(&mut self, setup: &Setup, part: &mut Part) {
        let hosts = setup.hosts();
        let inside = part.from >= setup.warmup;
        for (index, flow) in setup.flows.iter().enumerate() {
            let conns = [Some(flow.conn), flow.answers];
            let bytes: u64 =
                conns.iter().flatten().map(|id: &ConnId| setup.directory.delivered_bytes(*id, &hosts)).sum();
            let new = bytes - self.delivered[index];
            self.delivered[index] = bytes;
            part.traffic[flow.planned.traffic] += new;
            if inside {
                self.window[index] += new;
            }
            let record = setup.directory.flow(flow.conn, &hosts);
            let answers = flow.answers.map(|id| setup.directory.flow(id, &hosts));
            for (subflow, path) in flow.paths.iter().enumerate() {
                let of = |record: &crate::tcp::FlowRecord| record.subflows[subflow].receiver.bytes;
                let bytes = of(&record) + answers.as_ref().map_or(0, of);
                let new = bytes - self.arrived[index][subflow];
                self.arrived[index][subflow] = bytes;
                if let Some(path) = path {
                    let sums = if flow.competing { &mut part.competing_paths } else { &mut part.paths };
                    sums[*path] += new;
                }
            }
        }
    }

    fn sinks(&mut self, setup: &Setup, part: &mut Part) {
        let hosts = setup.hosts();
        for (index, (id, planned)) in setup.datagrams.iter().enumerate() {
            let bytes = setup.directory.datagrams(*id, &hosts).received_bytes;
            let new = bytes - self.datagrams[index];
            self.datagrams[index] = bytes;
            part.traffic[planned.traffic] += new;
            if part.from >= setup.warmup {
                self.datagram_window[index] += new;
            }
        }
    }
}
