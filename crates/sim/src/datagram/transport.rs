//! The datagrams of a scenario: made, read, observed.

use super::Datagrams;
use super::sender::Sender;
use crate::error::{HostError, SimError, check, shard_of};
use crate::traffic::{DatagramSpec, PlannedDatagrams, plan_datagrams};
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
pub(crate) fn make<H>(ctx: &mut BuildContext<'_>, hosts: &mut [H]) -> Result<Box<dyn Transport<H>>, SimError>
where
    H: AsRef<Datagrams> + AsMut<Datagrams>,
{
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
fn add(
    shards: &[u8],
    hosts: &mut [impl AsMut<Datagrams>],
    spec: DatagramSpec,
) -> Result<(Place, Place), HostError> {
    let (from, to) = (shard_of(shards, spec.sender)?, shard_of(shards, spec.receiver)?);
    check("rate_bps", spec.rate_bps, spec.rate_bps > 0, "at least 1 bit/s")?;
    check("size_bytes", spec.size_bytes.into(), spec.size_bytes > 0, "at least 1 byte")?;
    let sinks = &mut hosts[usize::from(to)].as_mut().sinks;
    sinks.push(0);
    let sink = sinks.len() - 1;
    let senders = &mut hosts[usize::from(from)].as_mut().senders;
    senders.push(Sender::new(spec, sink as u32));
    Ok(((usize::from(from), senders.len() - 1), (usize::from(to), sink)))
}

impl<H: AsRef<Datagrams> + AsMut<Datagrams>> Transport<H> for Sources {
    /// Datagrams join nobody: they keep their route when vNICs move.
    fn ends(&self) -> Vec<Ends> {
        Vec::new()
    }

    fn routed(&self, hosts: &[H]) -> Vec<Routed> {
        let one = |(ends, source): (usize, &Source)| {
            let Source { traffic, from, to, sender: (shard, index), .. } = *source;
            let routes = (hosts[shard].as_ref().senders[index].route(), None);
            Routed { ends, subflow: 0, traffic, from, to, routes, path: None }
        };
        self.0.iter().enumerate().map(one).collect()
    }

    fn reroute(&mut self, moved: &RouteChange, hosts: &mut [&mut H]) {
        let (shard, index) = self.0[moved.ends].sender;
        hosts[shard].as_mut().senders[index].reroute(moved.routes.0);
    }

    fn settle(&mut self, hosts: &[&H], part: &mut Part) {
        for source in &mut self.0 {
            let (shard, sink) = source.sink;
            let bytes = hosts[shard].as_ref().sinks[sink];
            let new = bytes - std::mem::replace(&mut source.arrived, bytes);
            part.traffic[source.traffic] += new;
            if part.inside {
                source.window += new;
            }
        }
    }

    fn observe(&self, _hosts: &[&H], observed: &mut Observed) {
        for source in &self.0 {
            observed.entries[source.traffic].datagram_bytes += source.window as f64;
        }
    }
}
