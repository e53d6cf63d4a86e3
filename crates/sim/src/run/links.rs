//! Links of multi-stage networks, by tier and, where they are few, one by one: read once per interval of the series.

use std::collections::BTreeMap;

use vmcc_metrics::observed::{Links, LinksSample, Moment};
use vmcc_scenario::model::EventKind;

use super::setup::Setup;
use crate::net::LinkCounters;
use crate::packet::LinkId;
use crate::time::Time;

/// With more links than this, only tiers are reported over time.
const MAX_SERIES_LINKS: usize = 64;

/// Links that are read.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) links: Vec<Links>,
    /// Of each of them.
    members: Vec<Vec<LinkId>>,
    /// Counters of every link when they were read last, and when that was.
    last: Vec<LinkCounters>,
    read_at: Time,
}

impl Watched {
    pub(crate) fn new(setup: &Setup) -> Self {
        let network = &setup.fabric.network;
        let mut tiers: BTreeMap<String, Vec<LinkId>> = BTreeMap::new();
        for link in (0..network.links.len() as u32).map(LinkId) {
            if let Some(tier) = network.tier(link) {
                tiers.entry(tier).or_default().push(link);
            }
        }
        let few = network.links.len() <= MAX_SERIES_LINKS;
        let single: Vec<LinkId> = if few { tiers.values().flatten().copied().collect() } else { Vec::new() };
        let mut watched =
            Self { last: vec![LinkCounters::default(); network.links.len()], ..Self::default() };
        for (tier, members) in tiers {
            watched.add(
                setup,
                Links { name: format!("tier.{tier}"), tier: Some(tier), ..Links::default() },
                members,
            );
        }
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for link in single {
            let name = link_name(setup, link);
            let same = names.entry(name.clone()).or_default();
            *same += 1;
            let name = if *same > 1 { format!("{name}.{same}") } else { name };
            watched.add(setup, Links { name, ..Links::default() }, vec![link]);
        }
        watched
    }

    fn add(&mut self, setup: &Setup, links: Links, members: Vec<LinkId>) {
        let changes = setup.scenario.event.iter().any(|event| matches!(event.kind, EventKind::SetRate(_)));
        let rate = |link: &LinkId| setup.fabric.net.links()[link.0 as usize].rate_bps as f64;
        let rate_bps = (!changes).then(|| members.iter().map(rate).sum());
        self.links.push(Links { count: members.len(), rate_bps, ..links });
        self.members.push(members);
    }

    /// Reads all links at the end of an interval of the series, or of the run.
    pub(crate) fn read(&mut self, setup: &Setup, now: Time) {
        let ends = now == setup.end || now.ps().is_multiple_of(setup.interval.ps().max(1));
        if self.links.is_empty() || !ends {
            return;
        }
        let links = || (0..self.last.len() as u32).map(LinkId);
        let counters: Vec<LinkCounters> = links().map(|link| setup.engine.counters(link)).collect();
        let queues: Vec<u64> = links().map(|link| setup.engine.backlog_bytes(link)).collect();
        for (links, members) in self.links.iter_mut().zip(&self.members) {
            let mut sample = LinksSample {
                from: Moment(self.read_at.ps()),
                to: Moment(now.ps()),
                sent_range_bytes: (u64::MAX, 0),
                ..LinksSample::default()
            };
            for link in members.iter().map(|link| link.0 as usize) {
                add(&mut sample, queues[link], &self.last[link], &counters[link]);
            }
            links.samples.push(sample);
        }
        (self.last, self.read_at) = (counters, now);
    }
}

fn add(sample: &mut LinksSample, queue_bytes: u64, before: &LinkCounters, after: &LinkCounters) {
    let sent = after.bytes - before.bytes;
    let drops = |counters: &LinkCounters| counters.drops.iter().sum::<u64>();
    sample.queue_bytes += queue_bytes;
    sample.max_queue_bytes = sample.max_queue_bytes.max(queue_bytes);
    sample.sent_bytes += sent;
    sample.sent_range_bytes = (sample.sent_range_bytes.0.min(sent), sample.sent_range_bytes.1.max(sent));
    sample.dropped_pkt += drops(after) - drops(before);
    sample.marked_pkt += after.marks - before.marks;
}

fn link_name(setup: &Setup, link: LinkId) -> String {
    let network = &setup.fabric.network;
    let ends = &network.links[link.0 as usize];
    format!("link.{}-{}", network.nodes[ends.from.index()], network.nodes[ends.to.index()])
}
