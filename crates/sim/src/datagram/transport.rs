//! The datagrams of a scenario: made, read, observed.

use super::sender::{DatagramSpec, Sender};
use crate::hosts::{HostError, Hosts, check, shard_of};
use crate::run::SimError;
use crate::traffic::{PlannedDatagrams, plan_datagrams};
use crate::transport::{BuildContext, Ends, Part, RouteChange, Routed, Transport};
use vmcc_metrics::observed::Observed;

/// A sender as a run knows it.
#[derive(Debug)]
struct Source {
    traffic: usize,
    from: usize,
    to: usize,
    /// Shard and index of the sender.
    sender: (usize, usize),
    /// Shard and index of the sink.
    sink: (usize, usize),
    /// Bytes that have arrived so far, and behind the warm-up.
    arrived: u64,
    window: u64,
}

#[derive(Debug, Default)]
struct Sources(Vec<Source>);

/// Senders and sinks of the entries that send datagrams.
pub(crate) fn make(ctx: &mut BuildContext<'_>, hosts: &mut [Hosts]) -> Result<Box<dyn Transport>, SimError> {
    let mut sources = Sources::default();
    for planned in plan_datagrams(ctx.scenario, ctx.fabric, ctx.streams)? {
        let (sender, sink) = add(ctx.shard_of, hosts, planned.spec).map_err(|source| {
            let traffic = ctx.labels[planned.traffic].clone();
            SimError::Host { traffic, source }
        })?;
        let PlannedDatagrams { traffic, from, to, .. } = planned;
        sources.0.push(Source { traffic, from, to, sender, sink, arrived: 0, window: 0 });
    }
    Ok(Box::new(sources))
}

/// Shard and index in its table.
type Place = (usize, usize);

/// Creates a sender and its sink; where they are.
fn add(shards: &[u8], hosts: &mut [Hosts], spec: DatagramSpec) -> Result<(Place, Place), HostError> {
    let (from, to) = (shard_of(shards, spec.sender)?, shard_of(shards, spec.receiver)?);
    check("rate_bps", spec.rate_bps, spec.rate_bps > 0, "at least 1 bit/s")?;
    check("size_bytes", spec.size_bytes.into(), spec.size_bytes > 0, "at least 1 byte")?;
    let sinks = &mut hosts[usize::from(to)].datagrams.sinks;
    sinks.push(0);
    let sink = sinks.len() - 1;
    let senders = &mut hosts[usize::from(from)].datagrams.senders;
    senders.push(Sender::new(spec, sink as u32));
    Ok(((usize::from(from), senders.len() - 1), (usize::from(to), sink)))
}

impl Transport for Sources {
    /// Datagrams join nobody: they keep their route when vNICs move.
    fn ends(&self) -> Vec<Ends> {
        Vec::new()
    }

    fn routed(&self, hosts: &[Hosts]) -> Vec<Routed> {
        let one = |(ends, source): (usize, &Source)| {
            let Source { traffic, from, to, sender: (shard, index), .. } = *source;
            let routes = (hosts[shard].datagrams.senders[index].route(), None);
            Routed { ends, subflow: 0, traffic, from, to, routes, path: None }
        };
        self.0.iter().enumerate().map(one).collect()
    }

    fn reroute(&mut self, moved: &RouteChange, hosts: &mut [&mut Hosts]) {
        let (shard, index) = self.0[moved.ends].sender;
        hosts[shard].datagrams.senders[index].reroute(moved.routes.0);
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
