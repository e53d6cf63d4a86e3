//! Conservative parallel execution: each shard on its own thread, never ahead of what it may still receive.
//!
//! A packet that crosses from shard t to shard s travels at least the shortest propagation delay of the
//! links between them, L(t,s). A shard that has handled all its events before T therefore sends nothing
//! that arrives before T + L. Each shard publishes its T; each works up to the minimum of T + L over the
//! others, takes in what has arrived, and publishes again (Chandy and Misra, CACM 24(4), 1981, with shared
//! clocks in place of null messages). Events are ordered by time and cause, not by when they were handed
//! over, so the results do not depend on the interleaving of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::engine::Endpoints;
use crate::engine::run::Partition;
use crate::engine::shard::Shard;
use crate::net::{Crossings, END, LinkChange, NetError, NetSpec};
use crate::time::{Span, Time};

/// Steps in which a shard works through the time it may: a shard that is a little slow for a moment does not
/// stop the others, which may be up to L ahead of what it has published.
const STEPS: u64 = 4;

/// Turns of the waiting loop before the processor is offered to others.
const SPINS: u32 = 200;

/// `L(from, to)` for all pairs of shards; [`Span::MAX`] where no link joins them.
#[derive(Clone, Debug)]
pub(crate) struct Lookahead {
    shards: usize,
    spans: Vec<Span>,
}

impl Lookahead {
    pub(crate) fn new(spec: &NetSpec, partition: &Partition) -> Result<Lookahead, NetError> {
        let shards = partition.shards();
        let mut spans = vec![Span::MAX; shards * shards];
        let delays = least_delays(spec);
        for route in spec.routes.split(|&link| link == END) {
            for (i, &id) in route.iter().enumerate() {
                let link = &spec.links()[id as usize];
                let next = route.get(i + 1).map(|&next| partition.owner(&spec.links()[next as usize]));
                let (from, to) = (partition.owner(link), next.unwrap_or(partition.far_end(link)));
                // What stays in a shard limits nobody.
                if from == to {
                    continue;
                }
                if delays[id as usize] == Span::ZERO {
                    return Err(NetError::NoLookahead { link: id });
                }
                let span = &mut spans[usize::from(from) * shards + usize::from(to)];
                *span = delays[id as usize].min(*span);
            }
        }
        Ok(Lookahead { shards, spans })
    }

    /// The shortest to or from shard `me`.
    fn shortest_of(&self, me: usize) -> Span {
        let of_pair = |other| self.between(me, other).min(self.between(other, me));
        (0..self.shards).map(of_pair).min().unwrap_or(Span::MAX)
    }

    fn between(&self, from: usize, to: usize) -> Span {
        self.spans[from * self.shards + to]
    }
}

/// The shortest delay each link ever has.
fn least_delays(spec: &NetSpec) -> Vec<Span> {
    let mut delays: Vec<Span> = spec.links().iter().map(|l| l.delay).collect();
    for change in &spec.changes {
        if let LinkChange::Delay(delay) = change.change {
            let least = &mut delays[change.link.0 as usize];
            *least = delay.min(*least);
        }
    }
    delays
}

/// A value that is polled by other threads: alone on its cache lines.
#[repr(align(128))]
struct Clock(AtomicU64);

/// What the threads share.
struct Exchange<'a> {
    lookahead: &'a Lookahead,
    /// Per shard: all events before this instant are done and their packets handed over, ps.
    done: Vec<Clock>,
    /// By sender, then receiver.
    mail: Vec<Vec<Mutex<Crossings>>>,
    /// A thread has panicked, or handled as many events as it may: the others stop.
    stopped: AtomicBool,
    bounds: Bounds<'a>,
}

/// What ends a part of a run before its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    /// Events that a shard handles at most.
    pub(crate) most: u64,
    /// Several shards, which wait for each other without handling any, read this meanwhile.
    pub(crate) cancel: Option<&'a AtomicBool>,
}

/// Runs all shards from `from` to `end`, or as far as `bounds` let them; the instant before which all events are done.
pub(crate) fn run<E: Endpoints>(
    shards: &mut [Shard<E>],
    lookahead: &Lookahead,
    (from, end): (Time, Time),
    bounds: Bounds<'_>,
) -> Time {
    let exchange = Exchange {
        lookahead,
        done: shards.iter().map(|_| Clock(AtomicU64::new(from.ps()))).collect(),
        mail: shards.iter().map(|_| shards.iter().map(|_| Mutex::default()).collect()).collect(),
        stopped: AtomicBool::new(false),
        bounds,
    };
    for (me, shard) in shards.iter_mut().enumerate() {
        exchange.hand_over(me, &mut shard.ctx.net.outbox); // what `Endpoints::start` has sent
    }
    std::thread::scope(|scope| {
        for (me, shard) in shards.iter_mut().enumerate() {
            let exchange = &exchange;
            scope.spawn(move || work(me, shard, exchange, from, end));
        }
    });
    let mut arrived = Crossings::default();
    for (me, shard) in shards.iter_mut().enumerate() {
        exchange.take_in(me, shard, &mut arrived);
    }
    let done = exchange.done.iter().map(|clock| Time::from_ps(clock.0.load(Ordering::Acquire)));
    done.min().unwrap_or(end)
}

fn work<E: Endpoints>(me: usize, shard: &mut Shard<E>, exchange: &Exchange<'_>, from: Time, end: Time) {
    let _alarm = Alarm(&exchange.stopped);
    let mut arrived = Crossings::default();
    let mut reached = from;
    let mut left = exchange.bounds.most;
    let step = exchange.lookahead.shortest_of(me).div(STEPS).max(Span::from_ps(1));
    while reached < end {
        let Some(safe) = exchange.wait(me, reached, end) else { return };
        let safe = safe.min(reached + step);
        exchange.take_in(me, shard, &mut arrived);
        let before = shard.events;
        let all = shard.run_part(safe, left);
        left -= shard.events - before;
        exchange.hand_over(me, &mut shard.ctx.net.outbox);
        if !all {
            exchange.stopped.store(true, Ordering::Relaxed);
            return;
        }
        exchange.done[me].0.store(safe.ps(), Ordering::Release);
        reached = safe;
    }
}

impl Exchange<'_> {
    fn is_stopped(&self) -> bool {
        let cancel = self.bounds.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        cancel || self.stopped.load(Ordering::Relaxed)
    }

    /// Waits until shard `me` may go beyond `reached`; how far. None if all are to stop.
    fn wait(&self, me: usize, reached: Time, end: Time) -> Option<Time> {
        for turn in 0u32.. {
            if self.is_stopped() {
                return None;
            }
            let others = (0..self.done.len()).filter(|&s| s != me);
            let horizon = others.map(|s| {
                Time::from_ps(self.done[s].0.load(Ordering::Acquire)) + self.lookahead.between(s, me)
            });
            let safe = horizon.min().unwrap_or(end).min(end);
            if safe > reached {
                return Some(safe);
            }
            if turn % SPINS == SPINS - 1 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        None
    }

    fn hand_over(&self, me: usize, outbox: &mut [Crossings]) {
        for (to, packets) in outbox.iter_mut().enumerate().filter(|(_, p)| !p.is_empty()) {
            let mut mail = self.mail[me][to].lock().unwrap_or_else(|e| e.into_inner());
            if mail.is_empty() { std::mem::swap(&mut *mail, packets) } else { mail.append(packets) }
        }
    }

    /// Shard `me` takes in what the others have handed over; `buffer` is empty before and after.
    fn take_in<E>(&self, me: usize, shard: &mut Shard<E>, buffer: &mut Crossings) {
        for mail in self.mail.iter().map(|to| &to[me]) {
            std::mem::swap(&mut *mail.lock().unwrap_or_else(|e| e.into_inner()), buffer);
            shard.take_in(buffer);
        }
    }
}

/// Tells the other threads when this one unwinds.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, least_delays};
    use crate::engine::{Ctx, Endpoints, Engine, Timer, TimerId};
    use crate::lower::{lower, partition};
    use crate::net::{
        ClassSpec, JitterSpec, Limit, LinkChange, LossSpec, Marking, NetSpec, QueueSpec, RedSpec, Scheduling,
        ShaperClass,
    };
    use crate::packet::{LinkId, Packet, RouteId, Sack};
    use crate::rng::Streams;
    use crate::time::{Span, Time};
    use std::sync::atomic::AtomicBool;
    use vmcc_network::{FatTree, HostId, Kind, Marking as Rule, Queue, ThresholdRule, Tree};
    use vmcc_units::{BitsPerSec, Bytes, Nanos};

    /// Echoes with a window, retries by timer, and keeps a digest of everything it saw.
    #[derive(Clone, Debug)]
    struct Echo {
        route: RouteId,
        peer: u32,
        global: u32,
        window: u32,
        timer: Timer,
        digest: u64,
    }

    #[derive(Debug, Default)]
    struct Echoes(Vec<Echo>);

    impl Echo {
        fn send(&self, ctx: &mut Ctx, seq: u32, flags: u16, size_bytes: u16) {
            let (route, to) = (self.route, self.peer);
            let class = (self.global % 4) as u8;
            ctx.send(Packet { route, to, seq, flags, size_bytes, class, ..Packet::default() });
        }
    }

    impl Endpoints for Echoes {
        fn start(&mut self, ctx: &mut Ctx) {
            for echo in &mut self.0 {
                (0..echo.window).for_each(|seq| echo.send(ctx, seq, Packet::DATA | Packet::ECT, 1500));
                ctx.arm(&mut echo.timer, TimerId(echo.global), ctx.now() + Span::from_us(50));
            }
        }

        fn on_packet(&mut self, ctx: &mut Ctx, packet: &Packet, _sack: &Sack) {
            let echo = &mut self.0[packet.to as usize];
            let saw = ctx.now().ps() ^ u64::from(packet.seq) << 40 ^ u64::from(packet.flags) << 20;
            echo.digest = (echo.digest ^ saw).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            if packet.has(Packet::DATA) {
                echo.send(ctx, packet.seq, Packet::ACK, 64);
            } else {
                echo.send(ctx, packet.seq + 1, Packet::DATA | Packet::ECT, 1500);
            }
            ctx.arm(&mut echo.timer, TimerId(echo.global), ctx.now() + Span::from_us(50));
        }

        fn on_timer(&mut self, ctx: &mut Ctx, id: TimerId) {
            let echo = self.0.iter_mut().find(|e| e.global == id.0).unwrap();
            if ctx.expired(&mut echo.timer, id) {
                echo.digest = echo.digest.wrapping_add(ctx.now().ps());
                echo.send(ctx, 1 << 20, Packet::DATA, 700);
                ctx.arm(&mut echo.timer, id, ctx.now() + Span::from_us(50));
            }
        }
    }

    /// A fat tree with links of every kind, and its hosts.
    fn engine(shards: u32) -> Engine<Echoes> {
        let kind = FatTree {
            k: 4,
            rate: BitsPerSec::new(10_000_000_000),
            delay: Nanos::from_micros(1),
            buffer: vmcc_units::Limit::Bytes(Bytes::new(30_000)),
            marking: Rule::Threshold(ThresholdRule { at: "9kB".parse().unwrap() }),
            queue: Queue::default(),
        };
        let (network, tree) = (kind.network(), kind.tree());
        let mut net = lower(&network, Bytes::new(1500)).unwrap();
        every_kind_of_link(&mut net);
        let partition = partition(&network, &net, &least_delays(&net), shards);
        let shard_of = partition.shard_of();
        let mut hosts: Vec<Echoes> = (0..shards).map(|_| Echoes::default()).collect();
        for flow in 0..64 {
            let (from, to) = (flow % 16, (flow * 5 + 3 + flow / 16) % 16);
            if from != to {
                let hosts_at = |host: u32| usize::from(shard_of[network.hosts[host as usize].node.index()]);
                add_flow(&mut net, &tree, hosts_at, &mut hosts, (flow, from, to));
            }
        }
        for link in [3, 40, 80] {
            net.sample(LinkId(link), Span::from_us(10)).unwrap();
        }
        Engine::new(&net, &partition, &Streams::new(5), hosts).unwrap()
    }

    /// Digests of all ends, counters of all links, of a run in parts of at most so many events per shard; and how many.
    fn outcome(shards: u32, most: u64) -> (String, usize) {
        let mut engine = engine(shards);
        let mut parts = 0;
        for end in [700, 1500].map(|us| Time::ZERO + Span::from_us(us)) {
            while !engine.run_part(end, Bounds { most, cancel: None }) {
                parts += 1;
            }
        }
        let totals = engine.totals();
        assert!(totals.marks > 100 && totals.dropped > 100 && totals.timer_events > 100, "{totals:?}");
        let mut ends: Vec<(u32, u64)> =
            engine.hosts().flat_map(|h| &h.0).map(|e| (e.global, e.digest)).collect();
        ends.sort_unstable();
        let links: Vec<_> = (0..96).map(|l| engine.counters(LinkId(l))).collect();
        let samples = engine.take_samples();
        (format!("{ends:?}\n{links:?}\n{totals:?}\n{samples:?}"), parts)
    }

    /// Every queue, impairment and change somewhere in the tree.
    fn every_kind_of_link(net: &mut NetSpec) {
        let class = |quantum_bytes| ClassSpec { quantum_bytes, limit: Limit::Bytes(15_000), mark: None };
        let classes = |scheduling, marking| QueueSpec::Classes {
            scheduling,
            marking,
            classes: vec![class(1500), class(3000), class(1500)],
        };
        let shaper = ShaperClass {
            parent: None,
            guarantee_bps: 4_000_000_000,
            ceiling_bps: 4_000_000_000,
            burst_bytes: 3000,
            limit: Limit::Packets(20),
            mark: None,
        };
        let kinds = [
            classes(Scheduling::DeficitRoundRobin, Marking::MqEcn { port_threshold_bytes: 9_000 }),
            classes(Scheduling::StrictPriority, Marking::Tcn { sojourn: Span::from_us(5) }),
            QueueSpec::Shaper { classes: vec![shaper] },
            QueueSpec::Red(RedSpec {
                limit: Limit::Bytes(30_000),
                min_bytes: 3_000,
                max_bytes: 15_000,
                max_probability: 0.1,
                weight: 0.1,
                ecn: true,
            }),
        ];
        for (i, link) in (0..96).step_by(5).enumerate() {
            net.links[link].queue = kinds[i % kinds.len()].clone();
        }
        for link in (0..96).step_by(7) {
            net.links[link].loss = Some(LossSpec::Bernoulli(0.01));
            net.links[link].jitter = Some(JitterSpec { max: Span::from_us(3), keep_order: false });
        }
        let changes = [
            (300, LinkChange::Down),
            (350, LinkChange::Pause),
            (400, LinkChange::Up),
            (500, LinkChange::Rate { rate_bps: 1_000_000_000 }),
            (600, LinkChange::Delay(Span::from_ns(900))),
            (900, LinkChange::Loss(Some(LossSpec::Bernoulli(0.1)))),
        ];
        for link in [9, 33, 65] {
            for (us, change) in changes {
                net.change(Time::ZERO + Span::from_us(us), LinkId(link), change).unwrap();
            }
        }
    }

    fn add_flow(
        net: &mut NetSpec,
        tree: &Tree,
        shard: impl Fn(u32) -> usize,
        hosts: &mut [Echoes],
        (flow, from, to): (u32, u32, u32),
    ) {
        let (a, b) = (shard(from), shard(to));
        let index_a = hosts[a].0.len() as u32;
        let index_b = if a == b { index_a + 1 } else { hosts[b].0.len() as u32 };
        let end = |route, peer, global, window| Echo {
            route,
            peer,
            global,
            window,
            timer: Timer::new(),
            digest: 0,
        };
        let mut route = |from, to| {
            let links = tree.path(HostId(from), HostId(to), flow);
            net.route(&links.iter().map(|link| LinkId(link.0)).collect::<Vec<_>>()).unwrap()
        };
        let (there, back) = (route(from, to), route(to, from));
        hosts[a].0.push(end(there, index_b, 2 * flow, 12));
        hosts[b].0.push(end(back, index_a, 2 * flow + 1, 0));
    }

    #[test]
    fn any_number_of_threads_gives_identical_results() {
        let (one, _) = outcome(1, u64::MAX);
        for shards in [2, 3, 4] {
            assert!(outcome(shards, u64::MAX).0 == one, "{shards} threads differ from one");
        }
    }

    #[test]
    fn parts_of_a_run_end_after_so_many_events_on_any_number_of_threads() {
        let (one, _) = outcome(1, u64::MAX);
        for shards in [1, 2, 4] {
            let (same, parts) = outcome(shards, 1000);
            assert!(parts > 10, "{shards} threads: {parts} parts");
            assert!(same == one, "{shards} threads in parts differ from one");
        }
    }

    #[test]
    fn threads_that_wait_for_each_other_hear_who_cancels() {
        let (mut engine, cancel) = (engine(2), AtomicBool::new(true));
        let end = Time::ZERO + Span::from_us(700);
        assert!(!engine.run_part(end, Bounds { most: u64::MAX, cancel: Some(&cancel) }));
        assert_eq!(engine.totals().events, 0);
    }

    #[test]
    fn a_shard_steps_by_its_own_delays() {
        let spans = [(0, 1, 5), (1, 0, 3), (1, 2, 900), (2, 1, 700)];
        let mut lookahead = super::Lookahead { shards: 3, spans: vec![Span::MAX; 9] };
        for (from, to, us) in spans {
            lookahead.spans[from * 3 + to] = Span::from_us(us);
        }
        let shortest = [0, 1, 2].map(|me| lookahead.shortest_of(me));
        assert_eq!(shortest, [3, 3, 700].map(Span::from_us));
    }
}
