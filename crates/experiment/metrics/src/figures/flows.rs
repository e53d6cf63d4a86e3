//! One record per connection and per answered request.

use crate::observed::{Connection, Counters, Job, Moment, Observed, Response};
use crate::reduce::{goodput, rtt, transfers};
use crate::{FlowKind, FlowRecord};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Every connection, then every request.
pub(super) fn records(seen: &Observed) -> Vec<FlowRecord> {
    let own_rtts = own_rtts(seen);
    let labels: Vec<Arc<str>> = seen.entries.iter().map(|entry| entry.label.as_str().into()).collect();
    let connections = (0..seen.connections.len()).map(|index| connection(seen, &labels, index, own_rtts));
    connections.chain(seen.responses.iter().map(|response| request(seen, &labels, response))).collect()
}

/// True if every connection has RTT samples of its own.
fn own_rtts(seen: &Observed) -> bool {
    let groups: BTreeSet<_> = seen.connections.iter().filter_map(|connection| connection.rtts).collect();
    groups.len() == seen.connections.iter().filter(|connection| connection.rtts.is_some()).count()
}

fn connection(seen: &Observed, labels: &[Arc<str>], index: usize, own_rtts: bool) -> FlowRecord {
    let one = &seen.connections[index];
    let sum = |counter: fn(&Counters) -> Option<u64>| {
        one.subflows.iter().map(|subflow| counter(&subflow.counters)).sum::<Option<u64>>()
    };
    let size_bytes = match one.job {
        Job::Transfer(bytes) => Some(bytes),
        Job::Endless | Job::Requests => None,
    };
    let (fct_us, ideal_us) = (transfers::completion(one), size_bytes.and_then(|bytes| one.ideal_us(bytes)));
    let end = seen.window.1;
    // An endless connection that was stopped has ended there.
    let ended = one.received.unwrap_or(one.stop);
    let secs = ended.min(end).secs_since(one.start);
    let life = (secs > 0.0).then(|| one.delivered_bytes as f64 * 8.0 / secs);
    let rtt = if own_rtts || one.endless() { rtt::dist(seen, std::iter::once(one)) } else { None };
    FlowRecord {
        kind: if size_bytes.is_some() { FlowKind::Transfer } else { FlowKind::Connection },
        start_us: one.start.us(),
        end_us: (ended <= end).then(|| ended.us()),
        size_bytes,
        delivered_bytes: one.delivered_bytes,
        completed: size_bytes.is_some() && one.received.is_some(),
        measured: measured(seen, one) && (size_bytes.is_none() || one.start >= seen.window.0),
        goodput_bps: if size_bytes.is_some() { life } else { goodput::rate(seen, one) },
        fct_us,
        ideal_us,
        slowdown: transfers::slowdown(fct_us, ideal_us),
        rtt_mean_us: rtt.map(|rtt| rtt.mean),
        rtt_p50_us: rtt.map(|rtt| rtt.p50),
        rtt_p99_us: rtt.map(|rtt| rtt.p99),
        retransmits: sum(|counters| counters.retransmits),
        timeouts: sum(|counters| counters.timeouts),
        ce_marks: sum(|counters| counters.ce_marks),
        ..named(seen, labels, index)
    }
}

/// One request with its answer. What is counted per connection stands in the connection's record.
fn request(seen: &Observed, labels: &[Arc<str>], response: &Response) -> FlowRecord {
    let connection = &seen.connections[response.connection];
    let fct_us = response.answered.map(|answered| answered.us_since(response.asked));
    let ideal_us = connection.ideal_us(response.bytes);
    FlowRecord {
        kind: FlowKind::Request,
        start_us: response.asked.us(),
        end_us: response.answered.map(Moment::us),
        size_bytes: Some(response.bytes),
        delivered_bytes: response.answered.map_or(0, |_| response.bytes),
        completed: response.answered.is_some(),
        measured: measured(seen, connection) && response.asked >= seen.window.0,
        fct_us,
        ideal_us,
        slowdown: transfers::slowdown(fct_us, ideal_us),
        ..named(seen, labels, response.connection)
    }
}

/// Fields that are the same in every record of a connection.
fn named(seen: &Observed, labels: &[Arc<str>], index: usize) -> FlowRecord {
    let one = &seen.connections[index];
    let established = || one.subflows.iter().filter(|subflow| subflow.was_established());
    let paths: BTreeSet<usize> = established().filter_map(|subflow| subflow.path).collect();
    let names: Vec<&str> = paths.iter().map(|path| seen.paths[*path].name.as_str()).collect();
    FlowRecord {
        flow: index as u64,
        traffic: labels[one.entry].clone(),
        src: one.from.clone(),
        dst: one.to.clone(),
        cc: one.cc.clone(),
        paths: (!names.is_empty()).then(|| names.join(",")),
        subflows: established().map(|subflow| subflow.number).collect::<BTreeSet<_>>().len() as u32,
        ..FlowRecord::default()
    }
}

fn measured(seen: &Observed, connection: &Connection) -> bool {
    !seen.entries[connection.entry].competing
}
