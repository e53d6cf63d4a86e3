//! What a finished run shows: counters, samples and times, for [`vmcc_metrics`] to make figures of.

use std::collections::BTreeMap;

use vmcc_metrics::observed::{
    Class, Connection, Counters, Entry, Job, Moment, Observed, Part, Path, Response, Sample, Subflow,
};
use vmcc_scenario::model::EventKind;

use super::accounts::{Accounts, SERIES_FLOWS};
use super::setup::{Flow, Setup};
use crate::tcp::{App, FlowRecord, Hosts, RttGroups, SubflowRecord};
use crate::time::Time;

pub(super) fn observe(setup: &mut Setup, accounts: &Accounts) -> Observed {
    let samples = (setup.engine.take_samples(), setup.engine.take_class_samples());
    let setup: &Setup = setup;
    let paths = (0..setup.fabric.paths.len()).map(|path| path_of(setup, accounts, path, &samples)).collect();
    Observed {
        window: (at(setup.warmup), at(setup.end)),
        interval_ps: setup.interval.ps(),
        entries: entries(setup, accounts),
        paths,
        connections: connections(setup, accounts),
        responses: responses(setup),
        parts: accounts.parts.iter().map(part).collect(),
        parts_per_interval: setup.flows.len() <= SERIES_FLOWS,
        dropped_pkt: Some(setup.engine.totals().dropped),
        cpu_s: None,
        rtts: rtts(setup, accounts),
    }
}

fn at(time: Time) -> Moment {
    Moment(time.ps())
}

/// A moment that may never have come.
fn reached(time: Time) -> Option<Moment> {
    (time != Time::NEVER).then(|| at(time))
}

fn entries(setup: &Setup, accounts: &Accounts) -> Vec<Entry> {
    let one = |(traffic, label): (usize, &String)| {
        let entry = &setup.scenario.traffic[traffic];
        let sinks = setup.datagrams.iter().zip(&accounts.datagram_window);
        let bytes: u64 = sinks.filter(|((_, p), _)| p.traffic == traffic).map(|(_, bytes)| bytes).sum();
        let moment = |time| at(Time::ZERO + crate::lower::span(time));
        Entry {
            label: label.clone(),
            competing: entry.is_competing(),
            start: moment(entry.common.start),
            stop: entry.common.stop.map_or(at(setup.end), moment),
            datagram_bytes: bytes as f64,
        }
    };
    setup.labels.iter().enumerate().map(one).collect()
}

fn part(part: &super::accounts::Part) -> Part {
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
    let named = &setup.fabric.paths[path];
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

fn connections(setup: &Setup, accounts: &Accounts) -> Vec<Connection> {
    let hosts = setup.hosts();
    let mut samples = samples(&hosts, &numbers(setup));
    let one = |(index, flow): (usize, &Flow)| {
        let record = setup.directory.flow(flow.conn, &hosts);
        let answers = flow.answers.map(|id| setup.directory.flow(id, &hosts));
        let directions: Vec<&FlowRecord> = std::iter::once(&record).chain(&answers).collect();
        let subflow = |(number, path): (usize, &Option<usize>)| {
            let both: Vec<&SubflowRecord> = directions.iter().map(|r| &r.subflows[number]).collect();
            let samples = samples.remove(&(index, number)).unwrap_or_default();
            Subflow { number, path: *path, samples, ..subflow(&both) }
        };
        Connection {
            entry: flow.planned.traffic,
            sender: flow.planned.from,
            from: flow.planned.from_name.clone(),
            to: flow.planned.to_name.clone(),
            cc: flow.cc.clone(),
            job: job(flow.planned.app),
            start: at(record.start),
            stop: at(flow.planned.stop),
            established: record.established != Time::NEVER,
            received: reached(record.received),
            delivered_bytes: directions.iter().map(|r| r.delivered_bytes).sum(),
            window_bytes: accounts.window[index] as f64,
            rtts: Some(usize::from(flow.group)),
            subflows: flow.paths.iter().enumerate().map(subflow).collect(),
        }
    };
    setup.flows.iter().enumerate().map(one).collect()
}

fn job(app: App) -> Job {
    match app {
        App::Sized { bytes } => Job::Transfer(bytes),
        App::RequestResponse { response_bytes, .. } => Job::Requests(response_bytes),
        App::Bulk | App::OnOff { .. } => Job::Endless,
    }
}

/// A subflow's counters, both directions of its connection together.
fn subflow(both: &[&SubflowRecord]) -> Subflow {
    let sum = |counter: fn(&SubflowRecord) -> u64| Some(both.iter().map(|record| counter(record)).sum());
    Subflow {
        established: both.first().is_some_and(|record| record.established || record.closed),
        counters: Counters {
            retransmits: sum(|s| s.sender.retransmits),
            timeouts: sum(|s| u64::from(s.sender.timeouts)),
            ce_marks: sum(|s| s.receiver.ce_marked),
            echoed_ce: None,
        },
        ..Subflow::default()
    }
}

/// The connections' numbers, by the simulator's.
fn numbers(setup: &Setup) -> BTreeMap<u32, usize> {
    setup.flows.iter().enumerate().map(|(index, flow)| (flow.conn.0, index)).collect()
}

/// Samples by connection and subflow, by time: in an order that does not depend on shards.
fn samples(hosts: &[&Hosts], numbers: &BTreeMap<u32, usize>) -> BTreeMap<(usize, usize), Vec<Sample>> {
    let mut samples: BTreeMap<(usize, usize), Vec<Sample>> = BTreeMap::new();
    for sample in hosts.iter().flat_map(|shard| shard.samples()) {
        let Some(index) = numbers.get(&sample.conn.0) else { continue };
        samples.entry((*index, usize::from(sample.subflow))).or_default().push(Sample {
            at: at(sample.at),
            srtt_8us: sample.srtt_8us,
            cwnd_pkt: sample.cwnd_pkt,
            acked: u64::from(sample.acked_pkt),
        });
    }
    samples.values_mut().for_each(|of_subflow| of_subflow.sort_by_key(|sample| sample.at));
    samples
}

/// Answered requests, in an order that does not depend on shards.
fn responses(setup: &Setup) -> Vec<Response> {
    let numbers = numbers(setup);
    let hosts = setup.hosts();
    let all = hosts.iter().flat_map(|shard| shard.responses());
    let one = |response: &crate::tcp::Response| {
        let connection = *numbers.get(&response.conn.0)?;
        Some(Response { connection, asked: at(response.asked), answered: at(response.answered) })
    };
    let mut responses: Vec<Response> = all.filter_map(one).collect();
    responses.sort_by_key(|response| (response.answered, response.connection, response.asked));
    responses
}

/// RTT samples by group. What was counted before the window is part of what was counted in all.
fn rtts(setup: &Setup, accounts: &Accounts) -> Vec<hdrhistogram::Histogram<u64>> {
    let all: RttGroups = setup.directory.rtts(setup.hosts());
    let within = |group: u16| {
        let mut histogram = all.group(group)?.clone();
        if let Some(early) = accounts.rtts_at_warmup.as_ref().and_then(|rtts| rtts.group(group)) {
            let _ = histogram.subtract(early);
        }
        Some(histogram)
    };
    (0..u16::MAX).map_while(within).collect()
}
