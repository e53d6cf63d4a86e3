//! One record per connection and per answered request.

use super::{goodput, rtt, transfers};
use crate::FlowRecord;
use crate::observed::{Connection, Counters, Job, Moment, Observed, Response};
use std::collections::BTreeSet;

/// Every connection, then every request.
pub(super) fn records(seen: &Observed) -> Vec<FlowRecord> {
    let own_rtts = own_rtts(seen);
    let connections = (0..seen.connections.len()).map(|index| connection(seen, index, own_rtts));
    connections.chain(seen.responses.iter().map(|response| request(seen, response))).collect()
}

/// True if every connection has RTT samples of its own.
fn own_rtts(seen: &Observed) -> bool {
    let groups: BTreeSet<_> = seen.connections.iter().filter_map(|connection| connection.rtts).collect();
    groups.len() == seen.connections.iter().filter(|connection| connection.rtts.is_some()).count()
}

fn connection(seen: &Observed, index: usize, own_rtts: bool) -> FlowRecord {
    let one = &seen.connections[index];
    let sum = |counter: fn(&Counters) -> Option<u64>| {
        one.subflows.iter().map(|subflow| counter(&subflow.counters)).sum::<Option<u64>>()
    };
    let size_bytes = match one.job {
        Job::Transfer(bytes) => Some(bytes),
        Job::Endless | Job::Requests => None,
    };
    let end = seen.window.1;
    // An endless connection that was stopped has ended there.
    let ended = one.received.unwrap_or(one.stop);
    let secs = ended.min(end).secs_since(one.start);
    let life = (secs > 0.0).then(|| one.delivered_bytes as f64 * 8.0 / secs);
    let rtt = if own_rtts || one.endless() { rtt::dist(seen, std::iter::once(one)) } else { None };
    FlowRecord {
        start_us: one.start.us(),
        end_us: (ended <= end).then(|| ended.us()),
        size_bytes,
        delivered_bytes: one.delivered_bytes,
        completed: size_bytes.is_some() && one.received.is_some(),
        measured: measured(seen, one) && (size_bytes.is_none() || one.start >= seen.window.0),
        goodput_bps: if size_bytes.is_some() { life } else { goodput::rate(seen, one) },
        fct_us: transfers::completion(one),
        rtt_mean_us: rtt.map(|rtt| rtt.mean),
        rtt_p50_us: rtt.map(|rtt| rtt.p50),
        rtt_p99_us: rtt.map(|rtt| rtt.p99),
        retransmits: sum(|counters| counters.retransmits),
        timeouts: sum(|counters| counters.timeouts),
        ce_marks: sum(|counters| counters.ce_marks),
        ..named(seen, index)
    }
}

/// One request with its answer. What is counted per connection stands in the connection's record.
fn request(seen: &Observed, response: &Response) -> FlowRecord {
    let connection = &seen.connections[response.connection];
    FlowRecord {
        start_us: response.asked.us(),
        end_us: response.answered.map(Moment::us),
        size_bytes: Some(response.bytes),
        delivered_bytes: response.answered.map_or(0, |_| response.bytes),
        completed: response.answered.is_some(),
        measured: measured(seen, connection) && response.asked >= seen.window.0,
        fct_us: response.answered.map(|answered| answered.us_since(response.asked)),
        ..named(seen, response.connection)
    }
}

/// Fields that are the same in every record of a connection.
fn named(seen: &Observed, index: usize) -> FlowRecord {
    let one = &seen.connections[index];
    let established = one.subflows.iter().filter(|subflow| subflow.was_established());
    FlowRecord {
        flow: index as u64,
        traffic: seen.entries[one.entry].label.clone(),
        from: one.from.to_string(),
        to: one.to.to_string(),
        cc: one.cc.to_string(),
        subflows: established.map(|subflow| subflow.number).collect::<BTreeSet<_>>().len() as u32,
        ..FlowRecord::default()
    }
}

fn measured(seen: &Observed, connection: &Connection) -> bool {
    !seen.entries[connection.entry].competing
}
