//! A shard's part of the network at run time.

use std::sync::Arc;

use prefetch_index::prefetch_index;

use crate::engine::wheel::{EventKey, Kind, Wheel};
use crate::net::link::{Link, Treatment};
use crate::net::spec::{END, NetSpec};
use crate::packet::{LinkId, Packet, Sack};
use crate::time::Time;

/// Set in an event's target when the packet has arrived at an endpoint.
pub(crate) const AT_HOST: u32 = 1 << 31;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Drop {
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
pub const DROP_REASONS: usize = 4;

/// What happened on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets sent: the link's packet-hops.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets marked.
    pub marks: u64,
    /// Packets dropped, by [`Drop`].
    pub drops: [u64; DROP_REASONS],
}

/// What happened in a run. `sent = delivered + dropped + in_flight` always holds.
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

/// A packet on its way to another shard.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    pub(crate) at: Time,
    pub(crate) key: EventKey,
    pub(crate) target: u32,
    pub(crate) packet: Packet,
    pub(crate) sack: Sack,
}

/// Counters that change rarely.
#[derive(Clone, Copy, Debug, Default)]
struct Rare {
    marks: u64,
    drops: [u64; DROP_REASONS],
}

/// Links, routes and packets of a shard. Link ids are global: each shard has the whole (small) table and
/// uses the links whose queue it owns.
#[derive(Debug)]
pub(crate) struct Network {
    links: Vec<Link>,
    rare: Vec<Rare>,
    routes: Arc<[u32]>,
    packets: Vec<Packet>,
    sacks: Vec<Sack>,
    free: Vec<u32>,
    shard: u8,
    outbox: Vec<Vec<Crossing>>,
    sent: u64,
    delivered: u64,
    dropped: u64,
}

impl Network {
    pub(crate) fn new(spec: &NetSpec, routes: Arc<[u32]>, shard: u8, shard_of: &[u8]) -> Network {
        let shards = shard_of.iter().max().map_or(1, |&s| usize::from(s) + 1);
        let links: Vec<Link> = spec.links.iter().map(|l| Link::new(l, shard_of[l.to.0 as usize])).collect();
        Network {
            rare: vec![Rare::default(); links.len()],
            links,
            routes,
            packets: Vec::new(),
            sacks: Vec::new(),
            free: Vec::new(),
            shard,
            outbox: vec![Vec::new(); shards],
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
    #[inline]
    pub(crate) fn first_hop(&mut self, id: u32, now: Time, wheel: &mut Wheel) {
        let link = self.routes[self.packets[id as usize].route.0 as usize];
        self.arrive(id, link, now, wheel);
    }

    /// Packet `id` arrives at the queue of link `at`.
    #[inline]
    pub(crate) fn arrive(&mut self, id: u32, at: u32, now: Time, wheel: &mut Wheel) {
        let link = &mut self.links[at as usize];
        let packet = &mut self.packets[id as usize];
        match link.treatment {
            Treatment::Plain => {}
        }
        let wire = link.wire_ps(packet.size_bytes);
        let start = link.busy_until.max(now.ps());
        let backlog = start - now.ps();
        if backlog + wire > link.limit {
            return self.discard(id, at, Drop::Tail);
        }
        if backlog > link.mark && packet.flags & Packet::ECT != 0 {
            packet.flags |= Packet::CE;
            self.rare[at as usize].marks += 1;
        }
        link.busy_until = start + wire;
        link.packets += 1;
        link.bytes += u64::from(packet.size_bytes);
        let arrival = Time::from_ps(start + wire + link.delay);
        self.forward(id, at, arrival, wheel);
    }

    /// Schedules the arrival of packet `id` at the far end of link `from`.
    #[inline]
    fn forward(&mut self, id: u32, from: u32, arrival: Time, wheel: &mut Wheel) {
        let packet = &mut self.packets[id as usize];
        packet.route.0 += 1;
        let next = self.routes[packet.route.0 as usize];
        let target = if next == END { AT_HOST | packet.to } else { next };
        let key = EventKey::new(Kind::Arrival, from);
        let to_shard = self.links[from as usize].to_shard;
        if to_shard == self.shard {
            wheel.push(arrival, key, id, target);
        } else {
            self.cross(id, arrival, key, target, to_shard);
        }
    }

    #[inline(never)]
    fn cross(&mut self, id: u32, at: Time, key: EventKey, target: u32, to_shard: u8) {
        let (packet, sack) = (self.packets[id as usize], self.sacks[id as usize]);
        self.free.push(id);
        self.outbox[usize::from(to_shard)].push(Crossing { at, key, target, packet, sack });
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
    fn discard(&mut self, id: u32, at: u32, why: Drop) {
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

    /// Counters of one link; zero in shards that do not own it.
    pub(crate) fn counters(&self, link: LinkId) -> LinkCounters {
        let (hot, rare) = (&self.links[link.0 as usize], &self.rare[link.0 as usize]);
        LinkCounters { packets: hot.packets, bytes: hot.bytes, marks: rare.marks, drops: rare.drops }
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            sent: self.sent,
            delivered: self.delivered,
            dropped: self.dropped,
            in_flight: (self.packets.len() - self.free.len()) as u64,
            packet_hops: self.links.iter().map(|l| l.packets).sum(),
            marks: self.rare.iter().map(|r| r.marks).sum(),
            ..Totals::default()
        }
    }
}
