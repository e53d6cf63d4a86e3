//! One link's hot state: a cache line.

use crate::net::buffer::Buffer;
use crate::net::rate::{packet_ps, ps_per_byte_q16, wire_ps};
use crate::net::spec::LinkSpec;

/// No packets, in [`Link::recent`].
pub(crate) const NO_RECENT: u64 = 1;

/// Hot state of a link: all that a packet touches which joins a short queue.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Link {
    /// End of the transmission of the last packet accepted so far, in ps.
    pub(crate) busy_until: u64,
    /// Picoseconds per byte, Q16.
    ps_per_byte_q16: u64,
    /// Propagation delay, ps.
    pub(crate) delay: u64,
    /// Backlog, in ps and with the arriving packet, below which neither threshold nor a limit in bytes can be reached, whatever
    /// part of it is in service. Zero unless `plain`, so that one comparison tells both.
    pub(crate) near_ps: u64,
    /// Packets accepted: packet-hops.
    pub(crate) packets: u64,
    /// Sizes of the last packets that had to wait, a bit each below a leading one: the lowest is the last one's index into
    /// `sizes`. Some may have been sent since somebody had to know.
    pub(crate) recent: u64,
    /// Bytes accepted.
    pub(crate) bytes: u64,
    /// The sizes that the bits tell apart; 0: free.
    pub(crate) sizes: [u16; 2],
    /// With fewer packets in `recent`, a limit in packets cannot be reached.
    pub(crate) room: u8,
    /// True if this is a FIFO without impairments: departures are known on arrival.
    pub(crate) plain: bool,
}

const _: () = assert!(size_of::<Link>() == 64);

impl Link {
    /// `buffer` is what holds its packets.
    pub(crate) fn new(spec: &LinkSpec, buffer: &Buffer, plain: bool) -> Link {
        let ps_per_byte_q16 = ps_per_byte_q16(spec.rate_bps);
        let reached = buffer.near_bytes();
        // Each of as many packets as bytes at most takes less than a picosecond more than is counted.
        let sure_ps = wire_ps(reached, ps_per_byte_q16).saturating_sub(reached);
        Link {
            busy_until: 0,
            ps_per_byte_q16,
            delay: spec.delay.ps(),
            near_ps: if plain { sure_ps.saturating_add(1) } else { 0 },
            packets: 0,
            bytes: 0,
            recent: NO_RECENT,
            sizes: [0; 2],
            room: buffer.fifo.room(),
            plain,
        }
    }

    /// Picoseconds per byte, Q16.
    #[inline]
    pub(crate) fn ps_per_byte_q16(&self) -> u64 {
        self.ps_per_byte_q16
    }

    /// From now on, of a link with a scheduler: what a plain one keeps was computed with the rate that it began with.
    pub(crate) fn set_rate(&mut self, rate_bps: u64) {
        debug_assert!(!self.plain);
        self.ps_per_byte_q16 = ps_per_byte_q16(rate_bps);
    }

    /// Time on the wire, ps.
    #[inline]
    pub(crate) fn wire_ps(&self, size: u16) -> u64 {
        packet_ps(size, self.ps_per_byte_q16)
    }

    /// Counts a packet that was accepted.
    #[inline(always)]
    pub(crate) fn count(&mut self, size: u16) {
        self.packets += 1;
        self.bytes += u64::from(size);
    }
}
