//! Counters read at moments of a run, as sums over the parts of time that matter.

use super::links::Watched;
use super::setup::Setup;
use crate::net::LinkCounters;
use crate::time::Time;
use crate::transport::Part;

/// With more connections, series per path and traffic entry are left out: reading them would cost more than
/// simulating.
pub(crate) const MAX_SERIES_FLOWS: usize = 2_000;

/// Deliveries over time.
#[derive(Debug)]
pub(crate) struct Accounts {
    last: Time,
    /// Every part, if connections are few; otherwise one for the warm-up and one for the rest.
    pub(crate) parts: Vec<Part>,
    /// Counters of each path's queue when the window began.
    pub(crate) links_at_warmup: Vec<LinkCounters>,
    /// Links of multi-stage networks.
    pub(crate) watched: Watched,
}

impl Accounts {
    pub(crate) fn new(setup: &Setup) -> Self {
        let links_at_warmup = vec![LinkCounters::default(); setup.fabric.network.paths.len()];
        Self { last: Time::ZERO, parts: Vec::new(), links_at_warmup, watched: Watched::new(setup) }
    }

    /// Reads the counters at `now` and books what came since the last reading.
    pub(crate) fn settle(&mut self, setup: &mut Setup, now: Time) {
        self.watched.read(setup, now);
        let must = now == setup.warmup || now == setup.end || setup.moves.iter().any(|moves| moves.at == now);
        if !must && setup.connections > MAX_SERIES_FLOWS {
            return;
        }
        let paths = setup.fabric.network.paths.len();
        let mut part = Part {
            from: self.last,
            to: now,
            inside: self.last >= setup.warmup,
            paths: vec![0; paths],
            competing_paths: vec![0; paths],
            traffic: vec![0; setup.labels.len()],
        };
        let hosts = setup.engine.hosts().collect::<Vec<_>>();
        for transport in &mut setup.transports {
            transport.settle(&hosts, &mut part);
            if now == setup.warmup {
                transport.warmed_up(&hosts);
            }
        }
        if now == setup.warmup {
            let counters = setup.fabric.network.paths.iter().map(|path| setup.engine.counters(path.queue));
            self.links_at_warmup = counters.collect();
        }
        self.last = now;
        self.parts.push(part);
    }
}
