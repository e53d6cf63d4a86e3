//! Unresponsive datagrams: constant rate while on, silence while off (UDP background traffic).
//!
//! The gap between two packets is on-time: what is left of it when an on period ends runs on in the next, so that bursts of any
//! length have the rate on average.
//!
//! Not modelled: any reaction to loss, reordering at the receiver.

use crate::endpoint::{Purpose, Wire, kind};
use crate::engine::Timer;
use crate::packet::{Packet, RouteId};
use crate::time::{Span, Time};
use crate::traffic::DatagramSpec;

const PS_PER_S: u128 = 1_000_000_000_000;

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
        let bits = u128::from(spec.size_bytes) * 8 * PS_PER_S;
        let gap = Span::from_ps(u64::try_from(bits / u128::from(spec.rate_bps.max(1))).unwrap_or(u64::MAX));
        let period_ends = if spec.on == Span::ZERO { Time::NEVER } else { spec.start + spec.on };
        Sender { to, gap, period_ends, timer: Timer::new(), spec }
    }

    pub(crate) fn host(&self) -> u32 {
        self.spec.sender
    }

    pub(crate) fn route(&self) -> RouteId {
        self.spec.route
    }

    pub(crate) fn reroute(&mut self, route: RouteId) {
        self.spec.route = route;
    }

    pub(crate) fn start<W: Wire>(&mut self, wire: &mut W, index: u32) {
        wire.arm(&mut self.timer, Purpose::DATAGRAM.id(index), self.spec.start);
    }

    pub(crate) fn on_timer<W: Wire>(&mut self, wire: &mut W, index: u32) {
        let now = wire.now();
        if now >= self.spec.stop {
            return;
        }
        wire.send(Packet {
            sent: now,
            to: self.to,
            route: self.spec.route,
            size_bytes: self.spec.size_bytes,
            kind: kind::DATAGRAM,
            class: self.spec.class,
            ..Packet::default()
        });
        if let Some(next) = self.next_after(now) {
            wire.arm(&mut self.timer, Purpose::DATAGRAM.id(index), next);
        }
    }

    /// Time of the next packet; `None` if the sender stops before.
    fn next_after(&mut self, now: Time) -> Option<Time> {
        let [mut next, gap] = [now.ps(), self.gap.ps()].map(u128::from);
        if self.period_ends == Time::NEVER {
            next += gap;
        } else {
            let [on, off, mut ends] =
                [self.spec.on.ps(), self.spec.off.ps(), self.period_ends.ps()].map(u128::from);
            if next >= ends {
                // Its host was descheduled: the pattern has gone on meanwhile.
                ends += (next - ends) / (on + off) * (on + off) + on + off;
                next = next.max(ends - on);
            }
            next += gap;
            if next >= ends {
                // Whole periods may pass before the rest of the gap is over.
                let left = next - ends;
                let begins = ends + off + left / on * (on + off);
                next = begins + left % on;
                ends = begins + on;
            }
            self.period_ends = Time::from_ps(u64::try_from(ends).unwrap_or(u64::MAX));
        }
        let next = u64::try_from(next).ok().map(Time::from_ps)?;
        (next < self.spec.stop).then_some(next)
    }
}
