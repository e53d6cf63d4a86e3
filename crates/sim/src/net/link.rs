//! One link's hot state: a cache line.

use crate::net::fifo::{Backlog, FifoState, MAX_RECENT, NO_RECENT};
use crate::net::spec::{Limit, LinkSpec, QueueSpec, Threshold};
use crate::time::Span;

/// Fractional bits of the time per byte.
const RATE_SHIFT: u32 = 16;

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

/// Rarely used state of a link: also one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Buffer {
    /// Most bytes that wait, the arriving packet included; [`NO_LIMIT`]: any.
    limit_bytes: u32,
    /// Waiting bytes above which to mark; [`NO_LIMIT`]: never.
    mark_bytes: u32,
    /// Waiting packets, as of the last exact count.
    pub(crate) fifo: FifoState,
}

const _: () = assert!(size_of::<Buffer>() == 64);

/// A limit or threshold that is never reached.
const NO_LIMIT: u32 = u32::MAX;

impl Buffer {
    pub(crate) fn new(spec: &LinkSpec) -> Buffer {
        let (limit, mark) = match &spec.queue {
            QueueSpec::Fifo { limit, mark } => (*limit, *mark),
            QueueSpec::Red(red) => (red.limit, None),
            QueueSpec::Classes { .. } | QueueSpec::Shaper { .. } => (Limit::Unlimited, None),
        };
        let limit_bytes = match limit {
            Limit::Bytes(bytes) => u32::try_from(bytes).unwrap_or(NO_LIMIT),
            Limit::Packets(_) | Limit::Unlimited => NO_LIMIT,
        };
        let limit_packets = if let Limit::Packets(count) = limit { count } else { NO_LIMIT };
        let in_bytes = |mark: Threshold| mark.in_bytes(ps_per_byte_q16(spec.rate_bps));
        let mark_bytes = mark.map_or(NO_LIMIT, |mark| u32::try_from(in_bytes(mark)).unwrap_or(NO_LIMIT));
        Buffer { limit_bytes, mark_bytes, fifo: FifoState::new(limit_packets) }
    }

    /// No room for a packet of `size` beside the backlog.
    pub(crate) fn is_full(&self, waiting: Backlog, size: u16) -> bool {
        let bytes = waiting.bytes + u64::from(size);
        waiting.packets >= u64::from(self.fifo.limit_packets)
            || (bytes > u64::from(self.limit_bytes) && self.limit_bytes != NO_LIMIT)
    }

    /// An arrival that meets this backlog is marked.
    pub(crate) fn marks(&self, waiting: Backlog) -> bool {
        waiting.bytes > u64::from(self.mark_bytes) && self.mark_bytes != NO_LIMIT
    }
}

impl Link {
    /// `buffer` is what holds its packets.
    pub(crate) fn new(spec: &LinkSpec, buffer: &Buffer, plain: bool) -> Link {
        let ps_per_byte_q16 = ps_per_byte_q16(spec.rate_bps);
        let reached = u64::from(buffer.limit_bytes.min(buffer.mark_bytes));
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
            room: buffer.fifo.limit_packets.min(MAX_RECENT) as u8,
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

    /// Time on the wire, ps. `size` is at most 65535 and the rate at least 2 kbit/s: no overflow.
    #[inline]
    pub(crate) fn wire_ps(&self, size: u16) -> u64 {
        (u64::from(size) * self.ps_per_byte_q16) >> RATE_SHIFT
    }

    /// Counts a packet that was accepted.
    #[inline(always)]
    pub(crate) fn count(&mut self, size: u16) {
        self.packets += 1;
        self.bytes += u64::from(size);
    }
}

/// Picoseconds per byte of a rate in bits per second, Q16, rounded to nearest.
pub(crate) fn ps_per_byte_q16(rate_bps: u64) -> u64 {
    let numerator = 8_000_000_000_000u128 << RATE_SHIFT;
    ((numerator + u128::from(rate_bps / 2)) / u128::from(rate_bps)) as u64
}

impl Threshold {
    /// The most bytes that are not above it.
    pub(crate) fn in_bytes(self, ps_per_byte_q16: u64) -> u64 {
        match self {
            Threshold::Bytes(bytes) => bytes,
            Threshold::Time(span) => {
                let bytes = (u128::from(span.ps()) << RATE_SHIFT) / u128::from(ps_per_byte_q16.max(1));
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Time `bytes` take, ps; saturates.
pub(crate) fn wire_ps(bytes: u64, ps_per_byte_q16: u64) -> u64 {
    let ps = (u128::from(bytes) * u128::from(ps_per_byte_q16)) >> RATE_SHIFT;
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Time `bytes` take at `rate_bps`.
pub(crate) fn wire_time(bytes: u64, rate_bps: u64) -> Span {
    Span::from_ps(wire_ps(bytes, ps_per_byte_q16(rate_bps)))
}
