//! What a host can do, and the state of a shard's network.

use crate::engine::timer::{Timer, TimerId};
use crate::engine::wheel::{EventKey, Kind, Wheel};
use crate::net::Network;
use crate::packet::{Packet, Sack};
use crate::time::Time;

/// A shard's clock, event queue and network, as hosts see it.
#[derive(Debug)]
pub struct Ctx {
    pub(crate) now: Time,
    pub(crate) wheel: Wheel,
    pub(crate) net: Network,
    pub(crate) timer_events: u64,
}

impl Ctx {
    /// The current instant.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sends a packet without SACK ranges along its route.
    #[inline]
    pub fn send(&mut self, packet: Packet) {
        debug_assert!(!packet.has(Packet::SACK));
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

    fn queue_timer(&mut self, timer: &mut Timer, id: TimerId) {
        timer.queued = timer.deadline.max(self.now);
        self.wheel.push(timer.queued, EventKey::new(Kind::Timer, id.0), 0, 0);
    }
}
