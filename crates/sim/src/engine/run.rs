//! A whole run: one shard, or several in parallel.

use std::sync::Arc;

use crate::engine::parallel::{self, Bounds, Lookahead};
use crate::engine::partition::Partition;
use crate::engine::shard::Shard;
use crate::engine::{ClassSample, Ctx, Endpoints, QueueSample};
use crate::net::{LinkCounters, MAX_SHARDS, NetError, NetSpec, Network, Totals, owned_routes};
use crate::packet::LinkId;
use crate::rng::Streams;
use crate::time::Time;
use crate::wheel::{Wheel, WheelShape};

/// A network with hosts, running.
#[derive(Debug)]
pub struct Engine<E> {
    pub(crate) shards: Vec<Shard<E>>,
    lookahead: Lookahead,
    reached: Time,
    started: bool,
    /// Shards run one after the other on one thread, because threads wait more than they work.
    alone: bool,
}

impl<E: Endpoints> Engine<E> {
    /// Joins a network and its hosts; `hosts[s]` holds those of shard `s`. Links draw loss, jitter and RED
    /// from `streams`.
    ///
    /// # Errors
    /// [`NetError::Partition`] if the partition, network and hosts do not fit together,
    /// [`NetError::NoLookahead`] if a link without delay joins two shards.
    pub fn new(
        spec: &NetSpec,
        partition: &Partition,
        streams: &Streams,
        hosts: Vec<E>,
    ) -> Result<Engine<E>, NetError> {
        let shards = partition.shards();
        let fits = partition.shard_of().len() == spec.nodes() as usize;
        if !fits || shards != hosts.len() || shards > MAX_SHARDS {
            return Err(NetError::Partition {
                given: partition.shard_of().len(),
                shards,
                nodes: spec.nodes() as usize,
                hosts: hosts.len(),
            });
        }
        let lookahead = Lookahead::new(spec, partition)?;
        let link = |id: LinkId| &spec.links()[id.0 as usize];
        let owner = |id| partition.owner(link(id));
        let routes = owned_routes(spec, owner, |id| partition.far_end(link(id)));
        let shape = wheel_shape(spec, shards);
        let make = |(s, hosts)| {
            let net = Network::new(spec, Arc::clone(&routes), s as u32, shards, streams);
            let wheel = Wheel::new(shape);
            let controls = Vec::new();
            let mut ctx = Ctx {
                now: Time::ZERO,
                wheel,
                net,
                timer_events: 0,
                controls,
                samples: Vec::new(),
                class_samples: Vec::new(),
            };
            ctx.plan(spec, |link| usize::from(owner(link)) == s);
            Shard { ctx, hosts, events: 0 }
        };
        let shards = hosts.into_iter().enumerate().map(make).collect();
        Ok(Engine { shards, lookahead, reached: Time::ZERO, started: false, alone: false })
    }

    /// Handles all events before `end`, each shard on its own thread. May be called again with a later
    /// `end`.
    pub fn run_until(&mut self, end: Time) {
        while !self.run_part(end, Bounds { most: u64::MAX, cancel: None }) {}
    }

    /// True once its shards have fallen back to one thread.
    #[cfg(test)]
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Has its shards run on one thread.
    #[cfg(test)]
    pub(crate) fn fall_back(&mut self) {
        self.alone = true;
    }

    /// Handles events before `end`, as many as `bounds` let it, so that a run in which time hardly passes can be stopped.
    /// Whether it handled all; if not, the next call goes on.
    pub(crate) fn run_part(&mut self, end: Time, bounds: Bounds<'_>) -> bool {
        if !std::mem::replace(&mut self.started, true) {
            for shard in &mut self.shards {
                shard.hosts.start(&mut shard.ctx);
            }
        }
        let done = match &mut self.shards[..] {
            [only] => {
                let done = only.run_part(end, bounds.most);
                if done {
                    self.reached = end;
                }
                done
            }
            several if self.alone => {
                let span = (self.reached, end);
                self.reached = parallel::run_alone(several, &self.lookahead, span, bounds.most);
                self.reached >= end
            }
            several => {
                let span = (self.reached, end);
                (self.reached, self.alone) = parallel::run(several, &self.lookahead, span, bounds);
                self.reached >= end
            }
        };
        self.check_conservation();
        done
    }

    /// Every packet sent was delivered, dropped with a reason, or is in the network.
    fn check_conservation(&self) {
        if cfg!(debug_assertions) {
            let t = self.totals();
            assert_eq!(t.sent, t.delivered + t.dropped + t.in_flight, "packets are not conserved: {t:?}");
        }
    }

    /// Queue samples taken since the last call, by time, then link.
    pub fn take_samples(&mut self) -> Vec<QueueSample> {
        let mut all: Vec<QueueSample> =
            self.shards.iter_mut().flat_map(|s| std::mem::take(&mut s.ctx.samples)).collect();
        all.sort_by_key(|s| (s.at, s.link));
        all
    }

    /// Samples of links with several queues taken since the last call, by time, link and queue.
    pub fn take_class_samples(&mut self) -> Vec<ClassSample> {
        let mut all: Vec<ClassSample> =
            self.shards.iter_mut().flat_map(|s| std::mem::take(&mut s.ctx.class_samples)).collect();
        all.sort_by_key(|s| (s.at, s.link, s.class));
        all
    }

    /// Sums over all shards.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for shard in &self.shards {
            sum.add(&shard.ctx.net.totals(self.reached));
            sum.events += shard.events;
            sum.timer_events += shard.ctx.timer_events;
        }
        sum
    }

    /// Counters of `link`.
    pub fn counters(&self, link: LinkId) -> LinkCounters {
        let mut sum = LinkCounters::default();
        for shard in &self.shards {
            sum.add(&shard.ctx.net.counters(link, self.reached));
        }
        sum
    }

    /// Bytes waiting at `link`, without the packet in service.
    pub(crate) fn backlog_bytes(&self, link: LinkId) -> u64 {
        self.shards.iter().map(|shard| shard.ctx.net.backlog_bytes(link.0, self.reached)).sum()
    }

    /// The hosts of each shard, to be changed between two calls of [`Engine::run_until`].
    pub(crate) fn hosts_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.shards.iter_mut().map(|s| &mut s.hosts)
    }

    /// Has the hosts of a shard act at `at`, up to which all events are handled.
    pub(crate) fn act(&mut self, shard: usize, at: Time, act: impl FnOnce(&mut E, &mut Ctx)) {
        let shard = &mut self.shards[shard];
        shard.ctx.now = at;
        act(&mut shard.hosts, &mut shard.ctx);
    }

    /// The hosts of each shard.
    pub fn hosts(&self) -> impl Iterator<Item = &E> {
        self.shards.iter().map(|s| &s.hosts)
    }
}

/// A wheel for this network under full load.
fn wheel_shape(spec: &NetSpec, shards: usize) -> WheelShape {
    let mut per_s = 0.0;
    let mut horizon = crate::time::Span::ZERO;
    for link in spec.links() {
        per_s += link.rate_bps as f64 / 12_000.0;
        horizon = horizon.max(link.delay + link.queue.longest_wait(link.rate_bps));
    }
    WheelShape::fit(per_s / shards as f64, horizon)
}
