//! Bytes in flight of each congestion window, and effects of a window's change.

use super::*;

impl Connection {
    /// The algorithm begins on a path.
    pub(super) fn begin_window(&mut self, slot: usize, now: Time) {
        self.windows.begin(&mut self.controller, &self.paths[slot].cc_context(now, slot, false));
    }

    /// Packets leave at the rate that the window allows: those of every path, where it is one.
    pub(super) fn pace(&mut self, slot: usize) {
        let all = self.windows.is_combined();
        let paths = self.paths.iter_mut().enumerate().filter(|(i, _)| all || *i == slot);
        paths.for_each(|(i, path)| path.pace(self.windows.of(i)));
    }

    /// A path's packets have a new size.
    pub(super) fn on_mtu(&mut self, slot: usize) {
        self.windows.set_mtu(slot, self.paths[slot].mtu.size());
        self.pace(slot);
    }

    /// Frees the window of a silent path's data, which others could carry. Their loss is known when the path answers again.
    pub(super) fn free_silent(&mut self, slot: usize) {
        let own = &mut self.paths[slot].space.sent;
        let (next, mut packets, mut bytes) = (own.next(), 0, 0);
        for (_, packet) in own.below(next).filter(|(_, packet)| packet.in_flight() > 0) {
            (packets, bytes) = (packets + 1, bytes + packet.in_flight());
            packet.free = true;
        }
        self.windows.free(slot, packets, bytes);
    }
}

/// Packets and bytes of these that are in flight.
pub(super) fn in_flight(packets: impl Iterator<Item = SentPacket>) -> (u64, u64) {
    let bytes = packets.map(|packet| packet.in_flight()).filter(|bytes| *bytes > 0);
    bytes.fold((0, 0), |(packets, sum), bytes| (packets + 1, sum + bytes))
}
