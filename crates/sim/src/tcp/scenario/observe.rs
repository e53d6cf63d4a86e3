//! Observations of connections at the end of a run.

use std::collections::BTreeMap;

use vmcc_metrics::observed::{
    Closed, Connection, Counters, End, LimitedTimes, Moment, Observed, Response, Sample, Subflow,
};

use super::{Flow, Flows, PastPath};
use crate::tcp::{App, Closing, ConnId, ConnRecord, Connections, Object, SubflowRecord};
use crate::time::{Span, Time};
use crate::transport::{at, job};

pub(super) fn observe(flows: &Flows, hosts: &[&Connections], observed: &mut Observed) {
    let (first, groups) = (observed.connections.len(), observed.rtts.len());
    let connections = connections(flows, hosts, groups, observed.window.1);
    if observed.connections.is_empty() {
        observed.connections = connections;
    } else {
        observed.connections.extend(connections);
    }
    observed.responses.extend(responses(flows, hosts, first));
    observed.rtts.extend(rtts(flows, hosts));
}

/// A moment that may never have come.
fn reached(time: Time) -> Option<Moment> {
    (time != Time::NEVER).then(|| at(time))
}

fn connections(all: &Flows, hosts: &[&Connections], groups: usize, end: Moment) -> Vec<Connection> {
    let mut samples = samples(all, hosts);
    let mut left: BTreeMap<(usize, usize), Vec<&PastPath>> = BTreeMap::new();
    for past in &all.past_paths {
        left.entry((past.flow, past.subflow)).or_default().push(past);
    }
    let one = |(index, flow): (usize, &Flow)| {
        let (record, app) = (all.directory.flow(flow.conn, hosts), all.directory.app(flow.conn, hosts));
        let directions: Vec<ConnRecord> = flow.directions().map(|id| all.directory.flow(id, hosts)).collect();
        let subflows = all.paths_of(flow).enumerate().flat_map(|(number, path)| {
            let samples = samples.remove(&(index, number)).unwrap_or_default();
            let whole = Subflow { number, path, samples, ..of(&directions, number) };
            by_path(whole, left.get(&(index, number)).map_or(&[], Vec::as_slice))
        });
        // One subflow would take the room of four.
        let mut subflows: Vec<Subflow> = subflows.collect();
        subflows.shrink_to_fit();
        Connection {
            entry: flow.traffic as usize,
            sender: flow.from as usize,
            from: all.hosts[flow.from as usize].clone(),
            to: all.hosts[flow.to as usize].clone(),
            cc: flow.cc.clone(),
            job: job(app),
            start: at(record.start),
            stop: at(flow.stop),
            unloaded: flow.unloaded.clone(),
            established: record.established != Time::NEVER,
            received: reached(record.received),
            delivered_bytes: directions.iter().take(flow.carrying().count()).map(|r| r.delivered_bytes).sum(),
            window_bytes: all.delivered.window[index] as f64,
            stalled_us: stalled_us(flow, app, &record, end),
            reinjected_bytes: Some(directions.iter().map(|r| r.reinjected_bytes()).sum()),
            limits: Some(limits(all, flow, end, hosts)),
            held_bytes: directions.iter().map(|r| r.held_bytes).max(),
            rtts: Some(groups + flow.group as usize),
            subflows,
        }
    };
    all.flows.iter().enumerate().map(one).collect()
}

/// Of one that has something to send from its start to its end: the pauses of others are no stalls.
fn stalled_us(flow: &Flow, app: &App, record: &ConnRecord, end: Moment) -> Option<f64> {
    let end = match app {
        App::Bulk => at(flow.stop).min(end),
        App::Sized { .. } => at(record.received).min(end),
        App::Paced { .. }
        | App::OnOff { .. }
        | App::RequestResponse { .. }
        | App::Fetches { .. }
        | App::Carrier => {
            return None;
        }
    };
    let last = if record.delivered_at == Time::NEVER { record.start } else { record.delivered_at };
    let before = record.stalled.ps() as f64 / 1e6;
    (at(record.start) < end).then(|| before.max(end.us_since(at(last))))
}

/// Limits of the direction that carries its payload: of requests and answers, the larger ones.
fn limits(all: &Flows, flow: &Flow, end: Moment, hosts: &[&Connections]) -> LimitedTimes {
    let us = |span: Span| span.ps() as f64 / 1e6;
    let writes = matches!(
        all.directory.app(flow.conn, hosts),
        App::RequestResponse { request_bytes, response_bytes, .. } if request_bytes > response_bytes
    );
    let carrying = flow.answers.filter(|_| !writes).unwrap_or(flow.conn);
    let times = all.directory.limits(carrying, Time::from_ps(end.0), hosts);
    LimitedTimes {
        congestion_us: us(times.congestion),
        receive_window_us: us(times.receive_window),
        send_buffer_us: us(times.send_buffer),
        application_us: us(times.application),
    }
}

/// Reason for each close of a subflow, and whether it is open.
pub(super) fn lives(seen: &Subflow) -> (Vec<Closed>, bool) {
    let last = match seen.end {
        End::Closed(why) if seen.established => Some(why),
        _ => None,
    };
    (seen.earlier.iter().copied().chain(last).collect(), seen.established && last.is_none())
}

/// A subflow that has left paths, as what it was on each of them; the last is where it is now.
fn by_path(whole: Subflow, left: &[&PastPath]) -> Vec<Subflow> {
    let number = whole.number;
    let (closed, open) = lives(&whole);
    // One that was open as it left its last path continues on the next.
    let (mut before_closed, mut continues, closed_at) = (0, false, whole.closed_at);
    let mut samples = whole.samples.into_iter().peekable();
    let mut reductions = whole.reductions.into_iter().peekable();
    let mut before = Counters {
        ce_marks: Some(0),
        timeouts: Some(0),
        retransmits: Some(0),
        undone: Some(0),
        echoed_ce: None,
    };
    let mut parts = Vec::new();
    for past in left {
        let until = at(past.until);
        let samples = std::iter::from_fn(|| samples.next_if(|sample| sample.at < until)).collect();
        let reductions = std::iter::from_fn(|| reductions.next_if(|&at| at < until)).collect();
        let counters = since(&past.counters, &before);
        let closed_until = past.closed.clamp(before_closed, closed.len());
        let earlier = closed[before_closed..closed_until].to_vec();
        let (path, established, end) = (past.path, past.open, End::Moved);
        let closed_at = None;
        parts.push(Subflow {
            number,
            path,
            established,
            earlier,
            continues,
            end,
            closed_at,
            counters,
            reductions,
            samples,
        });
        (before, before_closed, continues) = (past.counters, closed_until, past.open);
    }
    let counters = since(&whole.counters, &before);
    let (path, reductions, samples) = (whole.path, reductions.collect(), samples.collect());
    let (earlier, end) = (closed[before_closed..].to_vec(), End::WithConnection);
    parts.push(Subflow {
        number,
        path,
        established: open,
        earlier,
        continues,
        end,
        closed_at,
        counters,
        reductions,
        samples,
    });
    parts
}

/// Counts after `before`.
fn since(all: &Counters, before: &Counters) -> Counters {
    let less = |of: fn(&Counters) -> Option<u64>| of(all).zip(of(before)).map(|(all, before)| all - before);
    Counters {
        retransmits: less(|c| c.retransmits),
        timeouts: less(|c| c.timeouts),
        undone: less(|c| c.undone),
        ce_marks: less(|c| c.ce_marks),
        echoed_ce: less(|c| c.echoed_ce),
    }
}

/// Record of a subflow so far.
pub(super) fn subflow(all: &Flows, flow: &Flow, number: usize, hosts: &[&Connections]) -> Subflow {
    let records: Vec<ConnRecord> = flow.directions().map(|id| all.directory.flow(id, hosts)).collect();
    of(&records, number)
}

/// A subflow's counters, both directions of its connection together.
pub(crate) fn of(directions: &[ConnRecord], number: usize) -> Subflow {
    let both: Vec<&SubflowRecord> = directions.iter().map(|record| &record.subflows[number]).collect();
    let sum = |counter: fn(&SubflowRecord) -> u64| Some(both.iter().map(|record| counter(record)).sum());
    // Events close both directions at once.
    let earlier = both.iter().map(|record| &record.earlier).max_by_key(|earlier| earlier.len());
    Subflow {
        established: both.iter().any(|record| record.opened),
        earlier: earlier.into_iter().flatten().copied().map(closed).collect(),
        end: match both.iter().find_map(|record| record.closed) {
            Some(why) => End::Closed(closed(why)),
            None => End::WithConnection,
        },
        // Of connections that ask, the other direction carries the answers.
        closed_at: both.iter().filter_map(|record| reached(record.closed_at)).min(),
        counters: Counters {
            retransmits: sum(|s| s.sender.retransmits),
            timeouts: sum(|s| u64::from(s.sender.timeouts)),
            undone: sum(|s| u64::from(s.sender.undone + s.sender.spurious_timeouts)),
            ce_marks: sum(|s| s.receiver.ce_marked),
            echoed_ce: None,
        },
        reductions: both[0].reduced_at.iter().copied().map(at).collect(),
        ..Subflow::default()
    }
}

fn closed(why: Closing) -> Closed {
    match why {
        Closing::Shared => Closed::Guard,
        Closing::Timeout => Closed::Timeout,
        Closing::Managed => Closed::PathManager,
    }
}

/// A connection's number, by the simulator's: flows were made in the order of both.
fn number(all: &Flows, conn: ConnId) -> Option<usize> {
    all.flows.binary_search_by_key(&conn, |flow| flow.conn).ok()
}

pub(crate) fn observed_sample(sample: &crate::tcp::Sample) -> Sample {
    Sample {
        at: at(sample.at),
        srtt_8us: sample.srtt_8us,
        cwnd_pkt: sample.cwnd_pkt,
        alpha: sample.alpha,
        acked: u64::from(sample.acked_pkt),
    }
}

/// Samples by connection and subflow, by time: in an order that does not depend on shards.
fn samples(all: &Flows, hosts: &[&Connections]) -> BTreeMap<(usize, usize), Vec<Sample>> {
    let mut samples: BTreeMap<(usize, usize), Vec<Sample>> = BTreeMap::new();
    for sample in hosts.iter().flat_map(|shard| shard.samples()) {
        let Some(index) = number(all, sample.conn) else { continue };
        samples.entry((index, usize::from(sample.subflow))).or_default().push(observed_sample(sample));
    }
    samples.values_mut().for_each(|of_subflow| of_subflow.sort_by_key(|sample| sample.at));
    samples
}

/// Requests, in an order that does not depend on shards.
fn responses(flows: &Flows, hosts: &[&Connections], first: usize) -> Vec<Response> {
    let all = hosts.iter().flat_map(|shard| shard.responses());
    let one = |response: &crate::tcp::Response| {
        let connection = first + number(flows, response.conn)?;
        let (asked, answered) = (at(response.asked), Some(at(response.answered)));
        Some(Response { connection, asked, answered, bytes: response.bytes })
    };
    let mut responses: Vec<Response> = all.filter_map(one).collect();
    responses.sort_by_key(|response| (response.answered, response.connection, response.asked));
    responses.extend(waiting(flows, hosts, first));
    responses
}

/// Requests without an answer, or without the whole of it; those of fetched objects count from when they were wanted.
fn waiting(flows: &Flows, hosts: &[&Connections], first: usize) -> Vec<Response> {
    let of_flow = |(index, flow): (usize, &Flow)| {
        let one = |asked: Time, bytes: u64| Response {
            connection: first + index,
            asked: at(asked),
            answered: None,
            bytes,
        };
        let Some(answers) = flow.answers else { return Vec::new() };
        let answered = flows.directory.responses(answers, hosts);
        match flows.directory.app(flow.conn, hosts) {
            App::Fetches { objects, .. } => {
                let rest = objects.get(answered as usize..).unwrap_or_default();
                rest.iter().map(|object: &Object| one(object.at, object.bytes)).collect()
            }
            App::RequestResponse { response_bytes, .. } => {
                let (asked, asked_at) = flows.directory.requests(flow.conn, hosts);
                (asked > answered).then(|| one(asked_at, *response_bytes)).into_iter().collect()
            }
            App::Bulk | App::Sized { .. } | App::Paced { .. } | App::OnOff { .. } | App::Carrier => {
                Vec::new()
            }
        }
    };
    flows.flows.iter().enumerate().flat_map(of_flow).collect()
}

/// RTT samples by group. What was counted before the window is part of what was counted in all.
fn rtts(flows: &Flows, hosts: &[&Connections]) -> Vec<hdrhistogram::Histogram<u64>> {
    let mut all = flows.directory.rtts(hosts.iter().copied()).into_groups();
    for (group, histogram) in (0..).zip(&mut all) {
        if let Some(early) = flows.rtts_at_warmup.as_ref().and_then(|rtts| rtts.group(group)) {
            let _ = histogram.subtract(early);
        }
    }
    all
}
