//! One link's hot state: a cache line.

use crate::net::spec::{Limit, LinkSpec, QueueSpec, Threshold};
use crate::time::Span;

/// Fractional bits of the time per byte.
const RATE_SHIFT: u32 = 16;

/// [`Link::aux`] of a FIFO without impairments, whose departures are known on arrival.
const PLAIN: u32 = u32::MAX;

/// Hot state of a link.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Link {
    /// When the last packet accepted so far has left, in ps.
    pub(crate) busy_until: u64,
    /// When the packet before the first that is kept as waiting has left, in ps; of plain FIFOs in which packets wait.
    pub(crate) service_end: u64,
    /// Picoseconds per byte, Q16.
    pub(crate) ps_per_byte_q16: u64,
    /// Propagation delay, ps.
    pub(crate) delay: u64,
    /// Bytes accepted.
    pub(crate) bytes: u64,
    /// Packets accepted: packet-hops.
    pub(crate) packets: u64,
    /// Bytes that wait at most at a plain FIFO, the packet in service not counted: some may have been sent since
    /// somebody had to know.
    pub(crate) waiting_bytes: u32,
    /// Most bytes that wait, the arriving packet included.
    pub(crate) limit_bytes: u32,
    /// Waiting bytes above which to mark.
    pub(crate) mark_bytes: u32,
    /// Index into the table of unusual links, or [`PLAIN`].
    pub(crate) aux: u32,
}

const _: () = assert!(size_of::<Link>() == 64);

impl Link {
    pub(crate) fn new(spec: &LinkSpec) -> Link {
        let ps_per_byte_q16 = ps_per_byte_q16(spec.rate_bps);
        let (limit, mark) = match &spec.queue {
            QueueSpec::Fifo { limit, mark } => (*limit, *mark),
            QueueSpec::Red(red) => (red.limit, None),
            QueueSpec::Classes { .. } | QueueSpec::Shaper { .. } => (Limit::Unlimited, None),
        };
        let limit_bytes = match limit {
            Limit::Bytes(bytes) => u32::try_from(bytes).unwrap_or(u32::MAX),
            Limit::Packets(_) | Limit::Unlimited => u32::MAX,
        };
        let mark_bytes =
            mark.map_or(u32::MAX, |mark| u32::try_from(mark.in_bytes(ps_per_byte_q16)).unwrap_or(u32::MAX));
        Link {
            busy_until: 0,
            service_end: 0,
            ps_per_byte_q16,
            delay: spec.delay.ps(),
            bytes: 0,
            packets: 0,
            waiting_bytes: 0,
            limit_bytes,
            mark_bytes,
            aux: PLAIN,
        }
    }

    /// Whether this is a FIFO without impairments; [`Link::aux`] tells which unusual link it is otherwise.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.aux == PLAIN
    }

    /// Time on the wire, ps. `size` is at most 65535 and the rate at least 2 kbit/s: no overflow.
    #[inline]
    pub(crate) fn wire_ps(&self, size: u16) -> u64 {
        (u64::from(size) * self.ps_per_byte_q16) >> RATE_SHIFT
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
