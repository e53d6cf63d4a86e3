//! Interface of the engine to hosts, and the state of a shard's network.

use crate::engine::timer::{Timer, TimerId};
use crate::net::{Change, LinkCounters, NetSpec, Network, Probe};
use crate::packet::{LinkId, Packet, Sack};
use crate::time::Time;
use crate::wheel::{EventKey, Kind, Wheel};

/// Action of a control event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    Change(Change),
    Sample(Probe),
}

/// State of a queue at an instant, before anything else happens in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSample {
    /// Time of the sample.
    pub at: Time,
    /// Link of the queue.
    pub link: LinkId,
    /// Bytes waiting.
    pub backlog_bytes: u64,
    /// Counters since the start.
    pub counters: LinkCounters,
}

/// State of one of several queues of a link at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSample {
    /// Time of the sample.
    pub at: Time,
    /// Link of the queue.
    pub link: LinkId,
    /// The queue's number.
    pub class: u8,
    /// Bytes waiting.
    pub backlog_bytes: u64,
    /// Above how many bytes it marks, if it does by length.
    pub threshold_bytes: Option<u64>,
}

/// A shard's clock, event queue and network, as hosts see it.
#[derive(Debug)]
pub struct Ctx {
    pub(crate) now: Time,
    pub(crate) wheel: Wheel,
    pub(crate) net: Network,
    pub(crate) timer_events: u64,
    pub(crate) controls: Vec<Control>,
    pub(crate) samples: Vec<QueueSample>,
    pub(crate) class_samples: Vec<ClassSample>,
}

impl Ctx {
    /// The current instant.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sends a packet without SACK ranges or payload along its route.
    #[inline]
    pub fn send(&mut self, packet: Packet) {
        debug_assert!(!packet.has(Packet::SACK | Packet::PAYLOAD));
        let id = self.net.admit(packet);
        self.net.first_hop(id, self.now, &mut self.wheel);
    }

    /// Sends a packet that carries SACK ranges; sets [`Packet::SACK`].
    #[inline]
    pub fn send_with_sack(&mut self, mut packet: Packet, sack: &Sack) {
        packet.flags |= Packet::SACK;
        let id = self.net.admit(packet);
        self.net.set_sack(id, sack);
        self.net.first_hop(id, self.now, &mut self.wheel);
    }

    /// Sends a packet with the bytes that it carries; sets [`Packet::PAYLOAD`]. They are copied to where those of an earlier packet
    /// were. Its size on the wire is the packet's own.
    pub fn send_with_payload(&mut self, mut packet: Packet, payload: &[u8]) {
        debug_assert!(!packet.has(Packet::SACK) && payload.len() <= usize::from(packet.size_bytes));
        packet.flags |= Packet::PAYLOAD;
        let id = self.net.admit(packet);
        self.net.payloads.put(id, payload);
        self.net.first_hop(id, self.now, &mut self.wheel);
    }

    /// Arms `timer` for `at` (now, if that has passed), replacing its previous deadline. Moving a
    /// deadline later is one store.
    #[inline]
    pub fn arm(&mut self, timer: &mut Timer, id: TimerId, at: Time) {
        timer.deadline = at;
        if at < timer.queued {
            self.queue_timer(timer, id);
        }
    }

    /// To be called on the timer's event. `true`: the deadline has come, the timer is now disarmed.
    /// `false`: it was moved or canceled; its event has been put back if one is needed.
    #[inline]
    pub fn expired(&mut self, timer: &mut Timer, id: TimerId) -> bool {
        if timer.queued != self.now {
            return false; // superseded by an earlier event
        }
        timer.queued = Time::NEVER;
        if timer.deadline <= self.now {
            timer.deadline = Time::NEVER;
            return true;
        }
        if timer.is_armed() {
            self.queue_timer(timer, id);
        }
        false
    }

    /// Schedules the changes and samples of the links that this shard owns.
    pub(crate) fn plan(&mut self, spec: &NetSpec, owns: impl Fn(LinkId) -> bool) {
        let changes = spec.changes.iter().map(|c| (c.at, c.link, Control::Change(*c)));
        let probes = spec.probes.iter().map(|p| (Time::ZERO, p.link, Control::Sample(*p)));
        for (at, link, control) in changes.chain(probes) {
            let index = self.controls.len() as u32;
            self.controls.push(control);
            if owns(link) {
                self.wheel.push(at, EventKey::new(Kind::Control, index), 0, 0);
            }
        }
    }

    /// Handles control event `index`.
    pub(crate) fn control(&mut self, index: u32) {
        match self.controls[index as usize] {
            Control::Change(change) => {
                self.net.change(change.link.0, &change.change, self.now, &mut self.wheel);
            }
            Control::Sample(Probe { link, every }) => {
                let backlog_bytes = self.net.backlog_bytes(link.0, self.now);
                let counters = self.net.counters(link, self.now);
                self.samples.push(QueueSample { at: self.now, link, backlog_bytes, counters });
                for (class, (backlog_bytes, threshold_bytes)) in (0..).zip(self.net.classes(link.0)) {
                    let at = self.now;
                    let sample = ClassSample { at, link, class, backlog_bytes, threshold_bytes };
                    self.class_samples.push(sample);
                }
                self.wheel.push(self.now + every, EventKey::new(Kind::Control, index), 0, 0);
            }
        }
    }

    fn queue_timer(&mut self, timer: &mut Timer, id: TimerId) {
        timer.queued = timer.deadline.max(self.now);
        self.wheel.push(timer.queued, EventKey::new(Kind::Timer, id.0), 0, 0);
    }
}
