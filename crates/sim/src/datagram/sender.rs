//! Unresponsive datagrams: constant rate while on, silence while off (UDP background traffic).
//!
//! Not modelled: any reaction to loss, reordering at the receiver.

use crate::engine::Timer;
use crate::hosts::{Purpose, Wire, kind};
use crate::packet::{Packet, RouteId};
use crate::time::{Span, Time};

/// A datagram sender to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DatagramSpec {
    /// Node that sends.
    pub(crate) sender: u32,
    /// Node that receives.
    pub(crate) receiver: u32,
    /// Way from one to the other.
    pub(crate) route: RouteId,
    /// First packet.
    pub(crate) start: Time,
    /// No packet at or after this time.
    pub(crate) stop: Time,
    /// Rate while on, in bits on the wire per second; at least 1.
    pub(crate) rate_bps: u64,
    /// Packet on the wire, in bytes; at least 1.
    pub(crate) size_bytes: u16,
    /// Length of an on period; zero never pauses.
    pub(crate) on: Span,
    /// Length of an off period.
    pub(crate) off: Span,
    /// Traffic class in scheduled queues, 0-7.
    pub(crate) class: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct Sender {
    spec: DatagramSpec,
    to: u32,
    gap: Span,
    period_ends: Time,
    pub(crate) timer: Timer,
}

impl Sender {
    pub(crate) fn new(spec: DatagramSpec, to: u32) -> Sender {
        let bits = u128::from(spec.size_bytes) * 8 * 1_000_000_000_000;
        let gap = Span::from_ps(u64::try_from(bits / u128::from(spec.rate_bps.max(1))).unwrap_or(u64::MAX));
        let period_ends = if spec.on == Span::ZERO { Time::NEVER } else { spec.start + spec.on };
        Sender { to, gap, period_ends, timer: Timer::new(), spec }
    }

    pub(crate) fn host(&self) -> u32 {
        self.spec.sender
    }

    pub(crate) fn start<W: Wire>(&mut self, wire: &mut W, index: u32) {
        wire.arm(&mut self.timer, Purpose::DATAGRAM.id(index), self.spec.start);
    }

    pub(crate) fn on_timer<W: Wire>(&mut self, wire: &mut W, index: u32) {
        let now = wire.now();
        if now >= self.spec.stop {
            return;
        }
        let mut next = now + self.gap;
        if now >= self.period_ends {
            next = self.period_ends + self.spec.off;
            self.period_ends = next + self.spec.on;
        } else {
            wire.send(Packet {
                sent: now,
                to: self.to,
                route: self.spec.route,
                size_bytes: self.spec.size_bytes,
                kind: kind::DATAGRAM,
                class: self.spec.class,
                ..Packet::default()
            });
        }
        wire.arm(&mut self.timer, Purpose::DATAGRAM.id(index), next.max(now));
    }
}
