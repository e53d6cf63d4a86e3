//! Congestion windows of a connection: one per path ([`Coupling::Separate`]), or one of all paths ([`Coupling::Combined`]).
//!
//! Of "combined" mTCP (section 5.2) says that congestion control is performed on the entire flow, and (section 3.1.1) that a loss on any
//! path reduces the window of all. Where it says no more, this is what one connection would do whose packets are striped under it:
//!
//! * The algorithm has one path, and runs in its single-path form: detectors of shared bottlenecks have nothing to compare.
//! * What is in flight on any path counts. A reduction lasts until something is acknowledged, on any path, that was sent after its beginning.
//! * A round ends when as many packets have left the network as had been sent when it began: numbers of several paths have no order.
//! * The round trip that the algorithm hears of is that of the path that was acknowledged. Packets are as small as those of the
//!   path that answers and has the smallest.
//! * What a path that falls silent carries is no longer in flight (section 3.1.2: `pipe` of a path that times out is zero), nor is what asks
//!   whether it lives; what of it was lost is a loss once that is known. A path that is given up gives its bytes back, and that is no loss.
//! * Congestion is persistent where nothing has arrived on any path of what was sent in that time.

use super::window::{Acked, Advice, CcContext, Controller, Window};
use vmcc_cc::{Algorithm, Params};
use vmcc_multipath::Coupling;
use vmcc_units::time::{Span, Time};

/// The windows of a connection, and what each path has of them.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    coupling: Coupling,
    cc: Controller,
    initial_pkt: u32,
    /// By path, or one.
    windows: Vec<Window>,
    shares: Vec<Share>,
    /// Packets that were sent, and those of them that are no longer in flight: what numbers of packets are to one window of several paths.
    sent: u64,
    gone: u64,
}

/// A path's part.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    in_flight: u64,
    /// Bytes of a packet; 0: there is no path.
    mtu: u16,
    silent: bool,
    /// Reductions that losses and marks on it have caused.
    reductions: u64,
    /// Send time of the newest packet that arrived.
    arrived: Time,
    /// Time of its last restart: packets sent before went elsewhere.
    moved_at: Time,
}

impl Windows {
    /// Without paths.
    pub(crate) fn new(coupling: Coupling, initial_pkt: u32, algorithm: Algorithm, params: Params) -> Windows {
        Windows {
            coupling,
            cc: Controller::new(algorithm, params),
            initial_pkt,
            windows: Vec::with_capacity(1),
            shares: Vec::with_capacity(1),
            sent: 0,
            gone: 0,
        }
    }

    /// The paths of the connection form a group, in which an algorithm sees them all; one window for all has no siblings.
    pub(crate) fn set_multipath(&mut self, multipath: bool) {
        self.cc.set_grouped(multipath && !self.is_combined());
    }

    /// Returns true if there is one for all.
    pub(crate) fn is_combined(&self) -> bool {
        self.coupling == Coupling::Combined
    }

    fn index(&self, slot: usize) -> usize {
        if self.is_combined() { 0 } else { slot }
    }

    /// Adds a path in this slot, with packets of this size.
    pub(crate) fn add_path(&mut self, slot: usize, mtu: u16) {
        let (index, fresh) = (self.index(slot), Window::new(self.initial_pkt, mtu));
        match self.windows.get_mut(index) {
            None => self.windows.push(fresh),
            Some(old) if self.coupling == Coupling::Separate => *old = fresh,
            Some(_) => {}
        }
        self.shares.resize(self.shares.len().max(slot + 1), Share::default());
        self.shares[slot] = Share::default();
        self.set_mtu(slot, mtu);
    }

    /// The window that a path's packets count against.
    #[inline]
    pub(crate) fn of(&self, slot: usize) -> &Window {
        &self.windows[self.index(slot)]
    }

    /// Bytes in flight on a path.
    #[inline]
    pub(crate) fn in_flight(&self, slot: usize) -> u64 {
        self.shares[slot].in_flight
    }

    /// Packets in flight on a path, rounded up.
    #[inline]
    pub(crate) fn in_flight_pkt(&self, slot: usize) -> u32 {
        let Share { in_flight, mtu, .. } = self.shares[slot];
        u32::try_from(in_flight.div_ceil(mtu.max(1).into())).unwrap_or(u32::MAX)
    }

    /// Times that losses and marks on a path have reduced its window.
    pub(crate) fn reductions(&self, slot: usize) -> u64 {
        self.shares[slot].reductions
    }

    /// Packets of a path have this size.
    pub(crate) fn set_mtu(&mut self, slot: usize, mtu: u16) {
        self.shares[slot].mtu = mtu;
        match self.coupling {
            Coupling::Separate => self.windows[slot].mtu = mtu,
            Coupling::Combined => self.resize(),
        }
    }

    /// A path that is silent may have no size that passes: it says nothing of the others' packets.
    fn resize(&mut self) {
        let counts = |share: &&Share| share.mtu > 0 && !share.silent;
        let least = self.shares.iter().filter(counts).map(|share| share.mtu).min();
        if let Some(least) = least.filter(|_| self.is_combined()) {
            self.windows[0].mtu = least;
        }
    }

    /// A path falls silent, or answers again.
    pub(crate) fn set_silent(&mut self, slot: usize, silent: bool) {
        self.shares[slot].silent = silent;
        self.resize();
    }

    /// This many packets and bytes of a path are no longer in flight.
    pub(crate) fn free(&mut self, slot: usize, packets: u64, bytes: u64) {
        let index = self.index(slot);
        let (share, window) = (&mut self.shares[slot], &mut self.windows[index]);
        let bytes = bytes.min(share.in_flight);
        share.in_flight -= bytes;
        window.in_flight = window.in_flight.saturating_sub(bytes);
        self.gone += packets;
    }

    /// A path is given up, with this many packets in flight.
    pub(crate) fn close(&mut self, slot: usize, packets: u64) {
        self.free(slot, packets, u64::MAX);
        self.shares[slot].mtu = 0;
        self.resize();
        self.cc.remove(slot);
    }

    /// Restarts a path's state for another network; the fate of packets that were sent before is ignored.
    pub(crate) fn restart(&mut self, slot: usize, now: Time) {
        let index = self.index(slot);
        self.windows[index].restart(self.initial_pkt, now);
        self.shares[slot].moved_at = now;
    }

    /// Context in the window's own packet numbers: a combined window counts packets of all paths.
    fn window_context<'a>(&self, at: &CcContext<'a>) -> CcContext<'a> {
        match self.coupling {
            Coupling::Separate => *at,
            Coupling::Combined => CcContext { slot: 0, una: self.gone, next: self.sent, ..*at },
        }
    }

    /// The algorithm begins.
    pub(crate) fn begin(&mut self, at: &CcContext<'_>) {
        let (index, at) = (self.index(at.slot), self.window_context(at));
        self.windows[index].begin(&mut self.cc, &at);
    }

    /// A packet was sent on a path.
    pub(crate) fn on_sent(&mut self, at: &CcContext<'_>, bytes: u64) {
        self.sent += 1;
        self.shares[at.slot].in_flight += bytes;
        let (seen, index) = (self.window_context(at), self.index(at.slot));
        let window = &mut self.windows[index];
        // On a larger path than the window's packets are of, one may be more than one.
        let packets = bytes.div_ceil(window.mtu.into()).max(1);
        let full = u64::from(window.in_flight_pkt()) + packets >= window.cwnd.into();
        let limited = at.waiting && full;
        window.on_sent(&seen, bytes, limited);
    }

    /// An acknowledgment came; what it acknowledges and reveals as lost is free already.
    pub(crate) fn on_ack(&mut self, at: &CcContext<'_>, acked: &Acked) -> Advice {
        let arrived = &mut self.shares[at.slot].arrived;
        *arrived = acked.newest.max(*arrived);
        self.attribute_reductions(at, |window, cc, seen| window.on_ack(cc, seen, acked))
    }

    /// Losses that a timer has revealed.
    pub(crate) fn on_lost(&mut self, at: &CcContext<'_>, newest: Time, packets: u32) {
        self.attribute_reductions(at, |window, cc, seen| window.on_lost(cc, seen, newest, packets));
    }

    /// A packet that was declared lost then has arrived.
    pub(crate) fn on_spurious_loss(&mut self, at: &CcContext<'_>, declared_at: Time) {
        let (seen, index) = (self.window_context(at), self.index(at.slot));
        self.windows[index].on_spurious_loss(&mut self.cc, &seen, declared_at);
    }

    /// Everything on a path is lost that was sent there from the first of these times to the second. Over so long a time that is
    /// persistent congestion (RFC 9002 section 7.6.2).
    pub(crate) fn on_all_lost(&mut self, at: &CcContext<'_>, (oldest, newest): (Time, Time), long: Span) {
        let all = self.shares.iter().enumerate();
        let others =
            all.filter(|(slot, _)| self.is_combined() && *slot != at.slot).map(|(_, own)| own.arrived);
        let from = others.chain([oldest, self.shares[at.slot].moved_at]).max().unwrap_or(oldest);
        if newest.since(from) >= long {
            // What others have in flight, of which nothing is known yet, makes no larger window.
            let out = self.in_flight_pkt(at.slot);
            self.attribute_reductions(at, |window, cc, seen| window.on_persistent_congestion(cc, seen, out));
        }
    }

    /// Attributes reductions to the path that caused them.
    fn attribute_reductions<T>(
        &mut self,
        at: &CcContext<'_>,
        ask: impl FnOnce(&mut Window, &mut Controller, &CcContext<'_>) -> T,
    ) -> T {
        let (seen, index) = (self.window_context(at), self.index(at.slot));
        let window = &mut self.windows[index];
        let before = window.reductions;
        let answer = ask(window, &mut self.cc, &seen);
        self.shares[at.slot].reductions += window.reductions - before;
        answer
    }
}

#[cfg(test)]
mod tests;
