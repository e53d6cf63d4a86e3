//! Interface that endpoints need from an engine: clock, sending, timers.
//!
//! The engine's [`Ctx`] implements it. The scripted pipe of the unit tests does, too: it loses exactly the packets that a
//! test names.

use crate::engine::{Ctx, Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::time::Time;

/// Clock, network and timers; all calls are static.
pub(crate) trait Wire {
    fn now(&self) -> Time;
    fn send(&mut self, packet: Packet);
    fn send_with_sack(&mut self, packet: Packet, sack: &Sack);
    fn send_with_payload(&mut self, packet: Packet, payload: &[u8]);
    fn arm(&mut self, timer: &mut Timer, id: TimerId, at: Time);
    fn expired(&mut self, timer: &mut Timer, id: TimerId) -> bool;
}

impl Wire for Ctx {
    #[inline]
    fn now(&self) -> Time {
        Ctx::now(self)
    }

    #[inline]
    fn send(&mut self, packet: Packet) {
        Ctx::send(self, packet);
    }

    #[inline]
    fn send_with_sack(&mut self, packet: Packet, sack: &Sack) {
        Ctx::send_with_sack(self, packet, sack);
    }

    fn send_with_payload(&mut self, packet: Packet, payload: &[u8]) {
        Ctx::send_with_payload(self, packet, payload);
    }

    #[inline]
    fn arm(&mut self, timer: &mut Timer, id: TimerId, at: Time) {
        Ctx::arm(self, timer, id, at);
    }

    #[inline]
    fn expired(&mut self, timer: &mut Timer, id: TimerId) -> bool {
        Ctx::expired(self, timer, id)
    }
}
