//! The datagrams of a scenario: made, read, observed.

use super::sender::{DatagramSpec, Sender};
use crate::hosts::{HostError, Hosts, check, shard_of};
use crate::run::SimError;
use crate::traffic::plan_datagrams;
use crate::transport::{Ends, Making, Part, Transport};
use vmcc_metrics::observed::Observed;

/// A sender as a run knows it.
#[derive(Debug)]
struct Source {
    traffic: usize,
    /// Shard and index of the sink.
    sink: (usize, usize),
    /// Bytes that have arrived so far, and behind the warm-up.
    arrived: u64,
    window: u64,
}

#[derive(Debug, Default)]
struct Sources(Vec<Source>);

/// Senders and sinks of the entries that send datagrams.
pub(crate) fn make(making: &mut Making<'_>, hosts: &mut [Hosts]) -> Result<Box<dyn Transport>, SimError> {
    let mut sources = Sources::default();
    for planned in plan_datagrams(making.scenario, making.fabric, making.streams)? {
        let sink = add(making.shard_of, hosts, planned.spec).map_err(|source| {
            let traffic = making.labels[planned.traffic].clone();
            SimError::Host { traffic, source }
        })?;
        sources.0.push(Source { traffic: planned.traffic, sink, arrived: 0, window: 0 });
    }
    Ok(Box::new(sources))
}

/// Creates a sender and its sink; where the sink is.
fn add(shards: &[u8], hosts: &mut [Hosts], spec: DatagramSpec) -> Result<(usize, usize), HostError> {
    let (from, to) = (shard_of(shards, spec.sender)?, shard_of(shards, spec.receiver)?);
    check("rate_bps", spec.rate_bps, spec.rate_bps > 0, "at least 1 bit/s")?;
    check("size_bytes", spec.size_bytes.into(), spec.size_bytes > 0, "at least 1 byte")?;
    let sinks = &mut hosts[usize::from(to)].datagrams.sinks;
    sinks.push(0);
    let sink = sinks.len() - 1;
    hosts[usize::from(from)].datagrams.senders.push(Sender::new(spec, sink as u32));
    Ok((usize::from(to), sink))
}

impl Transport for Sources {
    /// Datagrams join nobody: they keep their way, whatever moves.
    fn ends(&self) -> Vec<Ends> {
        Vec::new()
    }

    fn settle(&mut self, hosts: &[&Hosts], part: &mut Part) {
        for source in &mut self.0 {
            let (shard, sink) = source.sink;
            let bytes = hosts[shard].datagrams.sinks[sink];
            let new = bytes - std::mem::replace(&mut source.arrived, bytes);
            part.traffic[source.traffic] += new;
            if part.inside {
                source.window += new;
            }
        }
    }

    fn observe(&self, _hosts: &[&Hosts], observed: &mut Observed) {
        for source in &self.0 {
            observed.entries[source.traffic].datagram_bytes += source.window as f64;
        }
    }
}
