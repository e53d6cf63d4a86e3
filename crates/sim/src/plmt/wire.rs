//! The wire as the carriers' TCP sees it: its packets and timers have numbers of their own.

use crate::endpoint::{Purpose, Wire, kind};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::tcp::{self, Connections};
use crate::time::Time;
use vmcc_cc::Group;

/// Distance of the carriers' purposes from those of other connections.
const SHIFT: u32 = Purpose::PLMT_TCP.0 - Purpose::TCP.0;

/// The timer of TCP that an id of the run means; none of a session's own.
pub(super) fn tcp_timer(id: TimerId) -> Option<TimerId> {
    let (purpose, index) = Purpose::of(id);
    (purpose >= Purpose::PLMT_TCP).then(|| Purpose(purpose.0 - SHIFT).id(index))
}

fn run_timer(id: TimerId) -> TimerId {
    let (purpose, index) = Purpose::of(id);
    Purpose(purpose.0 + SHIFT).id(index)
}

/// True if Linux runs this timer of a carrier in its TIMER softirq.
pub(crate) fn runs_in_softirq(id: TimerId) -> bool {
    tcp_timer(id).is_some_and(tcp::runs_in_softirq)
}

/// The carriers' TCP during one event of an end.
pub(super) struct Net<'a, W> {
    pub(super) tcp: &'a mut Connections,
    pub(super) wire: &'a mut W,
    /// Windows of the end's carriers, which coupled algorithms read; none of a single carrier.
    pub(super) group: Option<Box<Group>>,
}

impl<W: Wire> Net<'_, W> {
    pub(super) fn now(&self) -> Time {
        self.wire.now()
    }

    /// Lends connection `conn` the group while `act` runs.
    pub(super) fn with<T>(
        &mut self,
        conn: u32,
        act: impl FnOnce(&mut Connections, &mut CarrierWire<'_, W>) -> T,
    ) -> T {
        std::mem::swap(&mut self.tcp.conns[conn as usize].group, &mut self.group);
        let result = act(self.tcp, &mut CarrierWire(self.wire));
        std::mem::swap(&mut self.tcp.conns[conn as usize].group, &mut self.group);
        result
    }
}

pub(super) struct CarrierWire<'a, W>(pub(super) &'a mut W);

fn marked(packet: Packet) -> Packet {
    Packet { kind: kind::PLMT, ..packet }
}

impl<W: Wire> Wire for CarrierWire<'_, W> {
    #[inline]
    fn now(&self) -> Time {
        self.0.now()
    }

    #[inline]
    fn send(&mut self, packet: Packet) {
        self.0.send(marked(packet));
    }

    #[inline]
    fn send_with_sack(&mut self, packet: Packet, sack: &Sack) {
        self.0.send_with_sack(marked(packet), sack);
    }

    fn send_with_payload(&mut self, packet: Packet, payload: &[u8]) {
        self.0.send_with_payload(marked(packet), payload);
    }

    #[inline]
    fn arm(&mut self, timer: &mut Timer, id: TimerId, at: Time) {
        self.0.arm(timer, run_timer(id), at);
    }

    #[inline]
    fn expired(&mut self, timer: &mut Timer, id: TimerId) -> bool {
        self.0.expired(timer, run_timer(id))
    }
}
