//! A shard's part of the network at run time.

use std::sync::Arc;

use prefetch_index::prefetch_index;

use crate::net::buffer::{Backlog, Buffer};
use crate::net::impair::Impairment;
use crate::net::link::Link;
use crate::net::payload::Payloads;
use crate::net::queue::QueuedPacket;
use crate::net::rate::packet_ps;
use crate::net::red::{Red, Verdict};
use crate::net::scheduler::{Action, Enqueued, LinkScheduler, needs_scheduler};
use crate::net::spec::{END, LinkChange, LinkSpec, NetSpec, QueueSpec};
use crate::packet::{LinkId, Packet, Sack};
use crate::rng::Streams;
use crate::time::{Span, Time};
use crate::wheel::{EventKey, Kind, Wheel};

/// Entry of the run-time route array: link id, shard that owns the link, and [`AT_HOST`] at the end of a
/// route, where the owner is that of the host.
const OWNER_SHIFT: u32 = 24;
const MAX_OWNER: u32 = 0x7f;
const MAX_LINK: u32 = (1 << OWNER_SHIFT) - 1;

/// Most shards.
pub(crate) const MAX_SHARDS: usize = MAX_OWNER as usize + 1;

/// The run-time form of the routes.
pub(crate) fn owned_routes(
    spec: &NetSpec,
    owner: impl Fn(LinkId) -> u8,
    host: impl Fn(LinkId) -> u8,
) -> Arc<[u32]> {
    let mut last = LinkId(0);
    let entry = |&link: &u32| {
        if link == END {
            return AT_HOST | u32::from(host(last)) << OWNER_SHIFT;
        }
        last = LinkId(link);
        link | u32::from(owner(last)) << OWNER_SHIFT
    };
    spec.routes.iter().map(entry).collect()
}

/// Set in an event's target when the packet has arrived at an endpoint.
pub(crate) const AT_HOST: u32 = 1 << 31;
/// Set in addition when the packet is a pure ACK.
pub(crate) const ACK_ONLY: u32 = 1 << 30;
/// The rest is the endpoint.
pub(crate) const MAX_ENDPOINT: u32 = ACK_ONLY - 1;

/// Reason for a packet drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum DropReason {
    /// The queue was full.
    Tail = 0,
    /// RED's early drop.
    Early = 1,
    /// Random loss.
    Loss = 2,
    /// The link was down.
    Down = 3,
}

/// Number of drop reasons.
pub(crate) const DROP_REASONS: usize = 4;

/// Counters of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets sent: the link's packet-hops.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets marked.
    pub marks: u64,
    /// Packets dropped, by [`DropReason`].
    pub drops: [u64; DROP_REASONS],
}

/// Totals of a run. `sent = delivered + dropped + in_flight` always holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets given to the network by hosts.
    pub sent: u64,
    /// Packets given to hosts.
    pub delivered: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets still in the network.
    pub in_flight: u64,
    /// Link traversals.
    pub packet_hops: u64,
    /// Events handled.
    pub events: u64,
    /// Of those, host timers.
    pub timer_events: u64,
    /// Packets marked.
    pub marks: u64,
}

impl LinkCounters {
    pub(crate) fn add(&mut self, other: &LinkCounters) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.marks += other.marks;
        for (sum, n) in self.drops.iter_mut().zip(other.drops) {
            *sum += n;
        }
    }
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Totals) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.in_flight += other.in_flight;
        self.packet_hops += other.packet_hops;
        self.events += other.events;
        self.timer_events += other.timer_events;
        self.marks += other.marks;
    }
}

/// The target of a packet at the end of its route.
#[inline(always)]
fn at_host(packet: &Packet) -> u32 {
    debug_assert!(packet.to <= MAX_ENDPOINT);
    let ack = if packet.flags & (Packet::DATA | Packet::ACK) == Packet::ACK { ACK_ONLY } else { 0 };
    AT_HOST | ack | packet.to
}

/// Moves a packet one hop on along its route: where it arrives next, and that shard.
#[inline(always)]
fn next_stop(packet: &mut Packet, routes: &[u32]) -> (u32, u32) {
    packet.route.0 += 1;
    let next = routes[packet.route.0 as usize];
    let target = if next & AT_HOST != 0 { at_host(packet) } else { next & MAX_LINK };
    (target, next >> OWNER_SHIFT & MAX_OWNER)
}

/// Packets on their way to another shard, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct Crossings {
    arrivals: Vec<(Time, EventKey, u32)>,
    packets: Vec<Packet>,
    /// Of the packets that have them.
    sacks: Vec<Sack>,
    payloads: Vec<Vec<u8>>,
}

impl Crossings {
    pub(crate) fn len(&self) -> usize {
        self.arrivals.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Moves all of `later` behind these.
    pub(crate) fn append(&mut self, later: &mut Crossings) {
        self.arrivals.append(&mut later.arrivals);
        self.packets.append(&mut later.packets);
        self.sacks.append(&mut later.sacks);
        self.payloads.append(&mut later.payloads);
    }
}

/// Counters that change rarely.
#[derive(Clone, Copy, Debug, Default)]
struct RareCounters {
    marks: u64,
    drops: [u64; DROP_REASONS],
}

impl RareCounters {
    /// Marks an ECN-capable packet; others pass.
    fn mark(&mut self, packet: &mut Packet) {
        if packet.has(Packet::ECT) && !packet.has(Packet::CE) {
            packet.flags |= Packet::CE;
            self.marks += 1;
        }
    }
}

/// Packet whose transmission time RED's average decays by while the port idles.
const RED_SLOT_BYTES: u16 = 1500;

impl SlowPath {
    /// None for a plain FIFO that never changes.
    fn new(spec: &NetSpec, id: u32, link: &LinkSpec, streams: &Streams) -> Option<SlowPath> {
        let changes = || spec.changes.iter().filter(|c| c.link.0 == id).map(|c| &c.change);
        let lossy = link.loss.is_some() || changes().any(|c| matches!(c, LinkChange::Loss(_)));
        // A change applies to what has not left yet, which a departure fixed on arrival would not know.
        let scheduler = needs_scheduler(&link.queue) || changes().next().is_some();
        let stream = |what| {
            let number = || id.to_string();
            streams.stream(&format!("link/{}/{what}", link.name.clone().unwrap_or_else(number)))
        };
        let red = match &link.queue {
            QueueSpec::Red(red) => Some(Red::new(*red, stream("red"))),
            _ => None,
        };
        let impairment = (lossy || link.jitter.is_some())
            .then(|| Impairment::new(link.loss, link.jitter, stream("loss"), stream("jitter")));
        let entry = SlowPath { red, scheduler: scheduler.then(|| LinkScheduler::new(link)), impairment };
        let plain = entry.red.is_none() && entry.scheduler.is_none() && entry.impairment.is_none();
        (!plain).then_some(entry)
    }
}

/// Optional features of a link that is not plain.
#[derive(Clone, Debug)]
struct SlowPath {
    red: Option<Red>,
    scheduler: Option<LinkScheduler>,
    impairment: Option<Impairment>,
}

/// Links, routes and packets of a shard. Link ids are global: each shard has the whole (small) table and
/// uses the links whose queue it owns.
#[derive(Debug)]
pub(crate) struct Network {
    links: Vec<Link>,
    buffers: Vec<Buffer>,
    rare: Vec<RareCounters>,
    /// Index of each link that is not plain.
    slow_path_of: Vec<u32>,
    slow_path: Vec<SlowPath>,
    routes: Arc<[u32]>,
    packets: Vec<Packet>,
    sacks: Vec<Sack>,
    pub(crate) payloads: Payloads,
    free: Vec<u32>,
    shard: u32,
    pub(crate) outbox: Vec<Crossings>,
    sent: u64,
    delivered: u64,
    dropped: u64,
}

impl Network {
    /// Shard `shard` of `shards`; `routes` are shared by all and name the owner of each link.
    pub(crate) fn new(
        spec: &NetSpec,
        routes: Arc<[u32]>,
        shard: u32,
        shards: usize,
        streams: &Streams,
    ) -> Network {
        let buffers: Vec<Buffer> = spec.links.iter().map(Buffer::new).collect();
        let mut slow_path_of = vec![u32::MAX; buffers.len()];
        let mut slow_path = Vec::new();
        for (id, link) in spec.links.iter().enumerate() {
            if let Some(entry) = SlowPath::new(spec, id as u32, link, streams) {
                slow_path_of[id] = slow_path.len() as u32;
                slow_path.push(entry);
            }
        }
        let plain = slow_path_of.iter().map(|&index| index == u32::MAX);
        let links = spec.links.iter().zip(&buffers).zip(plain);
        Network {
            links: links.map(|((link, buffer), plain)| Link::new(link, buffer, plain)).collect(),
            rare: vec![RareCounters::default(); buffers.len()],
            buffers,
            slow_path_of,
            slow_path,
            routes,
            packets: Vec::new(),
            sacks: Vec::new(),
            payloads: Payloads::default(),
            free: Vec::new(),
            shard,
            outbox: (0..shards).map(|_| Crossings::default()).collect(),
            sent: 0,
            delivered: 0,
            dropped: 0,
        }
    }

    /// Puts a packet into the slab.
    #[inline]
    pub(crate) fn admit(&mut self, packet: Packet) -> u32 {
        self.sent += 1;
        self.store(packet)
    }

    #[inline]
    fn store(&mut self, packet: Packet) -> u32 {
        if let Some(id) = self.free.pop() {
            self.packets[id as usize] = packet;
            return id;
        }
        let id = self.packets.len() as u32;
        self.packets.push(packet);
        self.sacks.push(Sack::EMPTY);
        id
    }

    #[inline]
    pub(crate) fn set_sack(&mut self, id: u32, sack: &Sack) {
        self.sacks[id as usize] = *sack;
    }

    /// Queues a packet at the first link of its route.
    #[inline(never)]
    pub(crate) fn first_hop(&mut self, id: u32, now: Time, wheel: &mut Wheel) {
        let entry = self.routes[self.packets[id as usize].route.0 as usize];
        debug_assert_eq!(entry >> OWNER_SHIFT, self.shard, "a host sends through a port of its own shard");
        self.arrive(id, entry & MAX_LINK, now, wheel);
    }

    /// Packet `id` arrives at the queue of link `at`.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, id: u32, at: u32, now: Time, wheel: &mut Wheel) {
        let link = &mut self.links[at as usize];
        let packet = &mut self.packets[id as usize];
        if !link.enqueue_fast(packet.size_bytes, now.ps()) {
            return self.arrive_near(id, at, now, wheel);
        }
        let arrival = Time::from_ps(link.busy_until + link.delay);
        let (target, to_shard) = next_stop(packet, &self.routes);
        self.travel(id, at, arrival, (target, to_shard), wheel);
    }

    /// Arrival that may reach limit or threshold, of a size that is new to the link, or at a link that is more than a plain
    /// FIFO.
    #[inline(never)]
    fn arrive_near(&mut self, id: u32, at: u32, now: Time, wheel: &mut Wheel) {
        let link = &mut self.links[at as usize];
        if !link.plain {
            return self.arrive_slow_path(id, at, now, wheel);
        }
        let packet = &mut self.packets[id as usize];
        let Some(mark) = link.enqueue(&mut self.buffers[at as usize], packet.size_bytes, now.ps()) else {
            return self.discard(id, at, DropReason::Tail);
        };
        if mark && packet.flags & Packet::ECT != 0 {
            packet.flags |= Packet::CE;
            self.rare[at as usize].marks += 1;
        }
        let arrival = Time::from_ps(link.busy_until + link.delay);
        self.forward(id, at, arrival, wheel);
    }

    /// Arrival at a link that is more than a plain FIFO.
    #[inline(never)]
    fn arrive_slow_path(&mut self, id: u32, at: u32, now: Time, wheel: &mut Wheel) {
        let link = &mut self.links[at as usize];
        let slow_path = &mut self.slow_path[self.slow_path_of[at as usize] as usize];
        let packet = &mut self.packets[id as usize];
        if let Some(red) = &mut slow_path.red {
            let waiting = || link.settle(&mut self.buffers[at as usize].fifo, now.ps()).bytes;
            let backlog = slow_path.scheduler.as_ref().map_or_else(waiting, LinkScheduler::bytes);
            let idle_since = Time::from_ps(link.busy_until);
            if red.arrival(backlog, now, idle_since, link.wire_ps(RED_SLOT_BYTES)) == Verdict::Congested {
                if !(red.ecn() && packet.has(Packet::ECT)) {
                    return self.discard(id, at, DropReason::Early);
                }
                self.rare[at as usize].mark(packet);
            }
        }
        let Some(scheduler) = &mut slow_path.scheduler else { return self.arrive_fifo(id, at, now, wheel) };
        let waiting = QueuedPacket { id, size: packet.size_bytes, since: now };
        match scheduler.enqueue(packet.class, waiting, link.ps_per_byte_q16()) {
            Enqueued::Queued { mark } => {
                if mark {
                    self.rare[at as usize].mark(packet);
                }
                if !scheduler.sending {
                    self.serve(at, now, wheel);
                }
            }
            Enqueued::Full => self.discard(id, at, DropReason::Tail),
            Enqueued::Down => self.discard(id, at, DropReason::Down),
        }
    }

    /// Arrival at a FIFO whose wire may lose or delay packets.
    fn arrive_fifo(&mut self, id: u32, at: u32, now: Time, wheel: &mut Wheel) {
        let link = &mut self.links[at as usize];
        let packet = &mut self.packets[id as usize];
        let Some(mark) = link.enqueue(&mut self.buffers[at as usize], packet.size_bytes, now.ps()) else {
            return self.discard(id, at, DropReason::Tail);
        };
        if mark {
            self.rare[at as usize].mark(packet);
        }
        self.launch(id, at, wheel);
    }

    /// A service event of link `at`.
    pub(crate) fn service(&mut self, at: u32, generation: u32, now: Time, wheel: &mut Wheel) {
        let index = self.slow_path_of[at as usize] as usize;
        let Some(scheduler) = self.slow_path.get_mut(index).and_then(|u| u.scheduler.as_mut()) else {
            return;
        };
        if scheduler.generation != generation {
            return; // superseded
        }
        scheduler.sending = false;
        self.serve(at, now, wheel);
    }

    /// Puts the next packet of a scheduler on its free wire.
    fn serve(&mut self, at: u32, now: Time, wheel: &mut Wheel) {
        let link = &mut self.links[at as usize];
        let Some(scheduler) = &mut self.slow_path[self.slow_path_of[at as usize] as usize].scheduler else {
            return;
        };
        let q16 = link.ps_per_byte_q16();
        let action = scheduler.dequeue(now, |size| Span::from_ps(packet_ps(size, q16)));
        let again = match action {
            Action::Idle => return,
            Action::Wait(until) => until,
            Action::Send { packet, .. } => {
                scheduler.sending = true;
                link.busy_until = now.ps() + link.wire_ps(packet.size);
                link.count(packet.size);
                Time::from_ps(link.busy_until)
            }
        };
        scheduler.generation = scheduler.generation.wrapping_add(1);
        wheel.push(again, EventKey::new(Kind::Service, at), scheduler.generation, 0);
        if let Action::Send { packet, mark } = action {
            if mark {
                self.rare[at as usize].mark(&mut self.packets[packet.id as usize]);
            }
            self.launch(packet.id, at, wheel);
        }
    }

    /// A packet whose last bit leaves link `at` at its `busy_until` goes on the wire.
    fn launch(&mut self, id: u32, at: u32, wheel: &mut Wheel) {
        let link = &mut self.links[at as usize];
        let mut arrival = Time::from_ps(link.busy_until + link.delay);
        if let Some(impairment) = &mut self.slow_path[self.slow_path_of[at as usize] as usize].impairment {
            if impairment.loses() {
                return self.discard(id, at, DropReason::Loss);
            }
            arrival = impairment.jittered(arrival);
        }
        self.forward(id, at, arrival, wheel);
    }

    /// Changes a link at run time.
    pub(crate) fn change(&mut self, at: u32, change: &LinkChange, now: Time, wheel: &mut Wheel) {
        let link = &mut self.links[at as usize];
        let Some(slow_path) = self.slow_path.get_mut(self.slow_path_of[at as usize] as usize) else { return };
        match (change, &mut slow_path.scheduler, &mut slow_path.impairment) {
            (LinkChange::Delay(delay), _, _) => link.delay = delay.ps(),
            (LinkChange::Loss(loss), _, Some(impairment)) => impairment.set_loss(*loss),
            (LinkChange::Rate { rate_bps }, _, _) => link.set_rate(*rate_bps),
            (LinkChange::Pause, Some(scheduler), _) => scheduler.pause(),
            (LinkChange::Down, Some(scheduler), _) => {
                for id in scheduler.down() {
                    self.discard(id, at, DropReason::Down);
                }
            }
            (LinkChange::Up, Some(scheduler), _) => {
                scheduler.up();
                if !scheduler.sending {
                    self.serve(at, now, wheel);
                }
            }
            _ => debug_assert!(false, "the link was not built for {change:?}"),
        }
    }

    /// Bytes waiting at a link, without the packet in service.
    pub(crate) fn backlog_bytes(&self, at: u32, now: Time) -> u64 {
        self.scheduler(at).map_or_else(|| self.counted(at, now).bytes, LinkScheduler::bytes)
    }

    /// Packets that were counted as sent and wait: a FIFO counts them when they arrive, a scheduler when they leave.
    fn counted(&self, at: u32, now: Time) -> Backlog {
        match self.scheduler(at) {
            Some(_) => Backlog::default(),
            None => self.links[at as usize].backlog(&self.buffers[at as usize], now.ps()),
        }
    }

    /// Waiting bytes and marking threshold of each class of a link with several.
    pub(crate) fn classes(&self, at: u32) -> impl Iterator<Item = (u64, Option<u64>)> {
        let rate = self.links[at as usize].ps_per_byte_q16();
        self.scheduler(at).into_iter().flat_map(move |scheduler| scheduler.classes(rate))
    }

    fn scheduler(&self, at: u32) -> Option<&LinkScheduler> {
        self.slow_path.get(self.slow_path_of[at as usize] as usize)?.scheduler.as_ref()
    }

    /// Schedules the arrival of packet `id` at the far end of link `from`.
    #[inline(always)]
    fn forward(&mut self, id: u32, from: u32, arrival: Time, wheel: &mut Wheel) {
        let stop = next_stop(&mut self.packets[id as usize], &self.routes);
        self.travel(id, from, arrival, stop, wheel);
    }

    /// Packet `id` is on its way to a target in a shard.
    #[inline(always)]
    fn travel(
        &mut self,
        id: u32,
        from: u32,
        arrival: Time,
        (target, to_shard): (u32, u32),
        wheel: &mut Wheel,
    ) {
        let key = EventKey::new(Kind::Arrival, from);
        if to_shard == self.shard {
            wheel.push(arrival, key, id, target);
        } else {
            self.cross(id, arrival, key, target, to_shard);
        }
    }

    #[inline(never)]
    fn cross(&mut self, id: u32, at: Time, key: EventKey, target: u32, to_shard: u32) {
        let packet = self.packets[id as usize];
        let out = &mut self.outbox[to_shard as usize];
        out.arrivals.push((at, key, target));
        out.packets.push(packet);
        if packet.has(Packet::SACK) {
            out.sacks.push(self.sacks[id as usize]);
        } else if packet.has(Packet::PAYLOAD) {
            out.payloads.push(self.payloads.take(id));
        }
        self.free.push(id);
    }

    /// Takes in packets from another shard; empties the buffer.
    pub(crate) fn enter(&mut self, crossings: &mut Crossings, wheel: &mut Wheel) {
        let mut sacks = crossings.sacks.drain(..);
        let mut payloads = crossings.payloads.drain(..);
        for ((at, key, target), packet) in crossings.arrivals.drain(..).zip(crossings.packets.drain(..)) {
            let id = self.store(packet);
            if packet.has(Packet::SACK)
                && let Some(sack) = sacks.next()
            {
                self.sacks[id as usize] = sack;
            } else if packet.has(Packet::PAYLOAD)
                && let Some(payload) = payloads.next()
            {
                self.payloads.hand_over(id, payload);
            }
            wheel.push(at, key, id, target);
        }
    }

    /// Takes a packet that has arrived at its endpoint out of the slab.
    #[inline]
    pub(crate) fn deliver(&mut self, id: u32) -> Packet {
        self.delivered += 1;
        self.free.push(id);
        self.packets[id as usize]
    }

    #[inline]
    pub(crate) fn sack(&self, id: u32) -> Sack {
        self.sacks[id as usize]
    }

    #[cold]
    #[inline(never)]
    fn discard(&mut self, id: u32, at: u32, why: DropReason) {
        self.rare[at as usize].drops[why as usize] += 1;
        self.dropped += 1;
        self.free.push(id);
    }

    /// Brings the cache lines of a coming arrival closer.
    #[inline]
    pub(crate) fn prefetch(&self, id: u32, target: u32) {
        prefetch_index(&self.packets, id as usize);
        if target & AT_HOST == 0 {
            prefetch_index(&self.links, target as usize);
        }
    }

    /// Counters of one link just before `now`; zero in shards that do not own it.
    pub(crate) fn counters(&self, link: LinkId, now: Time) -> LinkCounters {
        let at = link.0 as usize;
        let (hot, rare, waiting) = (&self.links[at], &self.rare[at], self.counted(link.0, now));
        LinkCounters {
            packets: hot.packets - waiting.packets,
            bytes: hot.bytes - waiting.bytes,
            marks: rare.marks,
            drops: rare.drops,
        }
    }

    /// Just before `now`.
    pub(crate) fn totals(&self, now: Time) -> Totals {
        let crossing: usize = self.outbox.iter().map(Crossings::len).sum();
        Totals {
            sent: self.sent,
            delivered: self.delivered,
            dropped: self.dropped,
            in_flight: (self.packets.len() - self.free.len() + crossing) as u64,
            packet_hops: (0..self.links.len()).map(|at| self.counters(LinkId(at as u32), now).packets).sum(),
            marks: self.rare.iter().map(|r| r.marks).sum(),
            ..Totals::default()
        }
    }
}
