//! Observations of a finished run: counters, samples and times, from which [`vmcc_metrics`] computes figures.

use std::collections::BTreeMap;

use vmcc_metrics::observed::{Class, Entry, Observed, Off, Part, Path};
use vmcc_scenario::model::{EventKind, TrafficKind};

use super::accounts::{Accounts, MAX_SERIES_FLOWS};
use super::setup::Setup;
use crate::hosts::StealStats;
use crate::time::Time;
use crate::transport::at;

pub(super) fn observe(setup: &mut Setup, accounts: &Accounts) -> Observed {
    let samples = (setup.engine.take_samples(), setup.engine.take_class_samples());
    let setup: &Setup = setup;
    let paths = 0..setup.fabric.network.paths.len();
    let paths = paths.map(|path| path_of(setup, accounts, path, &samples)).collect();
    let mut observed = Observed {
        window: (at(setup.warmup), at(setup.end)),
        interval_ps: setup.interval.ps(),
        entries: entries(setup),
        paths,
        links: accounts.watched.links.clone(),
        parts: accounts.parts.iter().map(part).collect(),
        parts_per_interval: setup.connections <= MAX_SERIES_FLOWS,
        dropped_pkt: Some(setup.engine.totals().dropped),
        off: off(setup),
        ..Observed::default()
    };
    let hosts = setup.hosts();
    setup.transports.iter().for_each(|transport| transport.observe(&hosts, &mut observed));
    observed
}

fn entries(setup: &Setup) -> Vec<Entry> {
    let one = |(traffic, label): (usize, &String)| {
        let entry = &setup.scenario.traffic[traffic];
        let moment = |time| at(Time::ZERO + crate::build::span(time));
        Entry {
            label: label.clone(),
            competing: entry.is_competing(),
            start: moment(entry.common.start),
            stop: entry.common.stop.map_or(at(setup.end), moment),
            probes: matches!(entry.kind, TrafficKind::Probe(_)),
            datagram_bytes: 0.0,
        }
    };
    setup.labels.iter().enumerate().map(one).collect()
}

fn part(part: &crate::transport::Part) -> Part {
    let floats = |bytes: &[u64]| bytes.iter().map(|bytes| *bytes as f64).collect();
    Part {
        from: at(part.from),
        to: at(part.to),
        paths: floats(&part.paths),
        competing_paths: floats(&part.competing_paths),
        entries: floats(&part.traffic),
    }
}

type Samples = (Vec<crate::engine::QueueSample>, Vec<crate::engine::ClassSample>);

fn path_of(setup: &Setup, accounts: &Accounts, path: usize, (queues, classes): &Samples) -> Path {
    let named = &setup.fabric.network.paths[path];
    let changes = setup.scenario.event.iter().any(|event| matches!(event.kind, EventKind::SetRate(_)));
    let rate_bps = setup.fabric.net.links()[named.queue.0 as usize].rate_bps as f64;
    let sent = setup.engine.counters(named.queue).bytes - accounts.links_at_warmup[path].bytes;
    let counters = named.links.iter().map(|link| setup.engine.counters(*link));
    let backlog = queues.iter().filter(|sample| sample.link == named.queue);
    let mut own: BTreeMap<u8, Class> = BTreeMap::new();
    for sample in classes.iter().filter(|sample| sample.link == named.queue) {
        let class = own.entry(sample.class).or_default();
        class.queue.push((at(sample.at), sample.backlog_bytes as f64));
        class.threshold.extend(sample.threshold_bytes.map(|bytes| (at(sample.at), bytes as f64)));
    }
    let classes = own.into_iter().map(|(number, class)| Class { name: class_name(setup, number), ..class });
    Path {
        name: named.name.clone(),
        rate_bps: (!changes).then_some(rate_bps),
        sent: Some((sent as f64, setup.end.since(setup.warmup).secs_f64())),
        dropped_pkt: Some(counters.map(|c| c.drops.iter().sum::<u64>()).sum()),
        marked_pkt: Some(named.links.iter().map(|link| setup.engine.counters(*link).marks).sum()),
        not_ect_pkt: None,
        queue: backlog.map(|sample| (at(sample.at), sample.backlog_bytes as f64)).collect(),
        classes: classes.collect(),
    }
}

/// A queue's name in results: the VM where VMs borrow from each other, else its number.
fn class_name(setup: &Setup, class: u8) -> String {
    let names = setup.scenario.topology.as_kind().path_classes();
    names.get(usize::from(class)).cloned().unwrap_or_else(|| class.to_string())
}

/// Hosts that are descheduled, in an order that does not depend on shards.
fn off(setup: &Setup) -> Vec<Off> {
    let mut all: Vec<StealStats> =
        setup.hosts().iter().flat_map(|shard| shard.steal_stats(setup.end)).collect();
    all.sort_by_key(|one| one.host);
    all.into_iter()
        .map(|one| Off {
            host: setup.fabric.host_at(one.host),
            total_us: one.total.ps() as f64 / 1e6,
            lengths_ns: one.lengths,
            times: one.times.iter().map(|(woke, length)| (at(*woke), length.ps() as f64 / 1e6)).collect(),
            stopped_ns: None,
            lost_pkt: Some(one.lost_pkt),
        })
        .collect()
}
