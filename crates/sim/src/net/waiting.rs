//! What waits in a plain FIFO: the sizes of its packets, in order.
//!
//! A packet that is being sent waits no longer, as in the kernel: its queue has given it to the device. Which
//! packet that is depends on the sizes of those behind it, so these are kept: a bit each, the last in the link's own cache
//! line, while there are two sizes and not too many packets (full segments and ACKs, mostly); else apart. How long the link
//! is busy bounds what waits; only near limit and threshold must somebody know exactly, and then those are forgotten whose
//! transmission has begun.

use std::collections::VecDeque;

use super::link::{Buffer, Link};

/// No packets, in [`Link::recent`] and [`Buffer::older`].
const NONE: u64 = 1;
/// Most packets that [`Buffer::older`] holds.
const OLDER: u32 = 127;
/// So many are forgotten at once.
const MANY: u32 = 16;

/// Packets of any sizes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Long {
    sizes: VecDeque<u16>,
    bytes: u64,
    /// Their time on the wire.
    wire_ps: u64,
}

impl Long {
    fn push(&mut self, size: u16, wire_ps: u64) {
        self.sizes.push_back(size);
        self.bytes += u64::from(size);
        self.wire_ps += wire_ps;
    }
}

/// The last packets by their bits.
#[derive(Clone, Copy)]
struct Newest {
    packets: u32,
    /// Of those, of the second size.
    second: u32,
}

impl Newest {
    /// Sum over the packets, by size.
    fn sum(self, each: [u64; 2]) -> u64 {
        u64::from(self.packets - self.second) * each[0] + u64::from(self.second) * each[1]
    }

    fn bytes(self, link: &Link) -> u64 {
        self.sum(link.sizes.map(u64::from))
    }
}

/// The last packets of a link, a bit each.
#[derive(Clone, Copy)]
struct Bits {
    newer: u64,
    newer_packets: u32,
    older: u128,
    older_packets: u32,
}

impl Bits {
    /// The last `packets` of them.
    fn newest(self, packets: u32) -> Newest {
        let newer = self.newer & !(u64::MAX << packets.min(self.newer_packets));
        let older = self.older & !(u128::MAX << packets.saturating_sub(self.newer_packets));
        Newest { packets, second: newer.count_ones() + older.count_ones() }
    }

    /// 1 if the one that so many came after has the second size.
    fn second(self, age: u32) -> u32 {
        match age.checked_sub(self.newer_packets) {
            None => (self.newer >> age) as u32 & 1,
            Some(age) => (self.older >> age) as u32 & 1,
        }
    }
}

impl Link {
    /// Whether an arrival at a plain FIFO may reach limit or threshold, so that it must be judged.
    #[inline(always)]
    pub(crate) fn is_near(&self, size: u16, now_ps: u64) -> bool {
        self.busy_until.max(now_ps) - now_ps + self.wire_ps(size) > self.sure_ps
    }

    /// An arrival that the backlog's time does not decide: whether it meets a backlog above the threshold; `None`: no room.
    #[inline(never)]
    pub(crate) fn judge(&mut self, buffer: &mut Buffer, size: u16, now_ps: u64) -> Option<bool> {
        let waiting = match &mut buffer.long {
            _ if self.busy_until <= now_ps => 0,
            Some(long) if self.is_apart() => self.settled(long, now_ps),
            _ => self.settle(buffer, now_ps).bytes(self),
        };
        let is_room = waiting + u64::from(size) <= u64::from(buffer.limit_bytes);
        is_room.then_some(waiting > u64::from(buffer.mark_bytes))
    }

    /// Takes a packet for which there is room into a plain FIFO, `at` of those of `buffers`.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, buffers: &mut [Buffer], at: u32, size: u16, now_ps: u64) {
        let second = size != self.sizes[0];
        if size != self.sizes[usize::from(second)] || self.recent.cast_signed() < 0 {
            self.keep_unusual(&mut buffers[at as usize], size, now_ps);
        } else {
            self.keep(second, now_ps);
        }
        self.busy_until = self.busy_until.max(now_ps) + self.wire_ps(size);
    }

    /// One more of a known size, which waits unless the link is free: without a branch, as nobody could predict it.
    #[inline(always)]
    fn keep(&mut self, second: bool, now_ps: u64) {
        let longer = self.recent << 1 | u64::from(second);
        self.recent = if self.busy_until <= now_ps { NONE } else { longer };
    }

    /// Bytes that wait just before `now_ps`.
    pub(crate) fn waiting_bytes(&self, buffer: &Buffer, now_ps: u64) -> u64 {
        // What starts now waited before.
        let Some(before_ps) = now_ps.checked_sub(1) else { return 0 };
        match &buffer.long {
            _ if self.busy_until <= now_ps => 0,
            Some(long) if self.is_apart() => self.settled(&mut long.as_ref().clone(), before_ps),
            _ => self.newest(self.bits(buffer), before_ps).bytes(self),
        }
    }

    /// Whether what waits is kept in [`Buffer::long`]: no packet then has a known size.
    fn is_apart(&self) -> bool {
        self.sizes == [0; 2]
    }

    /// One more for which there is no bit, or of another size than the two.
    #[cold]
    #[inline(never)]
    fn keep_unusual(&mut self, buffer: &mut Buffer, size: u16, now_ps: u64) {
        if self.busy_until <= now_ps {
            self.recent = NONE;
            self.adopt(Newest { packets: 0, second: 0 }, size);
            return;
        }
        if !self.is_apart() {
            let newest = self.settle(buffer, now_ps);
            if self.adopt(newest, size) && self.spill(buffer, newest.packets) {
                return self.keep(size != self.sizes[0], now_ps);
            }
            self.move_apart(buffer, newest.packets);
        }
        let wire_ps = self.wire_ps(size);
        let long = buffer.long.get_or_insert_default();
        if long.sizes.len() == long.sizes.capacity() {
            self.settled(long, now_ps);
        }
        long.push(size, wire_ps);
    }

    /// Makes `size` one of the two, if it is not and one of them is free.
    fn adopt(&mut self, newest: Newest, size: u16) -> bool {
        let free = match self.sizes {
            sizes if sizes.contains(&size) => return true,
            [0, _] => 0,
            _ if newest.second == 0 => 1,
            _ if newest.second == newest.packets => 0,
            _ => return false,
        };
        self.sizes[free] = size;
        true
    }

    /// Makes room for a bit, if there are not too many.
    fn spill(&mut self, buffer: &mut Buffer, packets: u32) -> bool {
        if self.recent.cast_signed() >= 0 {
            return true;
        }
        if packets > OLDER {
            return false;
        }
        let bits = self.bits(buffer);
        let older = bits.older.checked_shl(bits.newer_packets).unwrap_or(0) | u128::from(bits.newer);
        let leading = 1 << packets;
        buffer.older = older & (leading - 1) | leading;
        buffer.older_until = self.busy_until;
        self.recent = NONE;
        true
    }

    fn move_apart(&mut self, buffer: &mut Buffer, packets: u32) {
        let (bits, wire_ps) = (self.bits(buffer), self.sizes.map(|size| self.wire_ps(size)));
        let long = buffer.long.get_or_insert_default();
        long.sizes.clear();
        (long.bytes, long.wire_ps) = (0, 0);
        for age in (0..packets).rev() {
            let which = bits.second(age) as usize;
            long.push(self.sizes[which], wire_ps[which]);
        }
        self.sizes = [0; 2];
    }

    /// Those that are kept.
    fn bits(&self, buffer: &Buffer) -> Bits {
        let newer_packets = self.recent.ilog2();
        let newer = self.recent ^ 1 << newer_packets;
        let mut bits = Bits { newer, newer_packets, older: 0, older_packets: 0 };
        let wire_ps = self.sizes.map(|size| self.wire_ps(size));
        if self.busy_until - bits.newest(newer_packets).sum(wire_ps) == buffer.older_until {
            bits.older_packets = buffer.older.ilog2();
            bits.older = buffer.older ^ 1 << bits.older_packets;
        }
        bits
    }

    /// Forgets the packets whose transmission has begun by `now_ps`; the others.
    fn settle(&mut self, buffer: &mut Buffer, now_ps: u64) -> Newest {
        let bits = self.bits(buffer);
        let newest = self.newest(bits, now_ps);
        if let Some(older) = newest.packets.checked_sub(bits.newer_packets) {
            let leading = 1 << older;
            buffer.older = bits.older & (leading - 1) | leading;
        } else {
            let leading = 1 << newest.packets;
            self.recent = self.recent & (leading - 1) | leading;
            buffer.older = NONE.into();
        }
        newest
    }

    /// The newest whose transmission has not begun at `now_ps`.
    fn newest(&self, bits: Bits, now_ps: u64) -> Newest {
        let wire_ps = self.sizes.map(|size| self.wire_ps(size));
        let many_ps = u64::from(MANY) * wire_ps[0].max(wire_ps[1]);
        let mut left = bits.newest(bits.newer_packets + bits.older_packets);
        let mut start_ps = self.busy_until - left.sum(wire_ps);
        while left.packets >= MANY && start_ps + many_ps <= now_ps {
            left = bits.newest(left.packets - MANY);
            start_ps = self.busy_until - left.sum(wire_ps);
        }
        while left.packets != 0 && start_ps <= now_ps {
            left.packets -= 1;
            let second = bits.second(left.packets);
            left.second -= second;
            start_ps += wire_ps[second as usize];
        }
        left
    }

    /// Bytes of `long` whose transmission has not begun at `now_ps`, after it forgot the rest.
    fn settled(&self, long: &mut Long, now_ps: u64) -> u64 {
        while let Some(&size) = long.sizes.front()
            && self.busy_until - long.wire_ps <= now_ps
        {
            long.sizes.pop_front();
            long.bytes -= u64::from(size);
            long.wire_ps -= self.wire_ps(size);
        }
        long.bytes
    }
}
