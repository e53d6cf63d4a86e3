//! One link's hot state: a cache line.

use crate::net::spec::{Limit, LinkSpec, QueueSpec, Threshold};
use crate::time::Span;

/// Fractional bits of the time per byte.
const RATE_SHIFT: u32 = 16;

/// How a link treats arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Treatment {
    /// FIFO without impairments: departure known on arrival.
    Plain,
    /// Anything else: [`Link::aux`] tells which entry of the table of unusual links.
    Unusual,
}

/// Hot state of a link. Backlog is kept as time: `busy_until - now`.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Link {
    /// When the last packet accepted so far has left, in ps.
    pub(crate) busy_until: u64,
    /// Picoseconds per byte, Q16.
    pub(crate) ps_per_byte_q16: u64,
    /// Propagation delay, ps.
    pub(crate) delay: u64,
    /// Longest backlog including the arriving packet, ps.
    pub(crate) limit: u64,
    /// Backlog above which to mark, ps.
    pub(crate) mark: u64,
    /// Bytes accepted.
    pub(crate) bytes: u64,
    /// Packets accepted: packet-hops.
    pub(crate) packets: u64,
    /// Index into the tables of unusual links.
    pub(crate) aux: u32,
    pub(crate) treatment: Treatment,
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
        let limit = match limit {
            Limit::Bytes(bytes) => wire_ps(bytes, ps_per_byte_q16),
            Limit::Packets(_) | Limit::Unlimited => u64::MAX,
        };
        let mark = match mark {
            Some(Threshold::Bytes(bytes)) => wire_ps(bytes, ps_per_byte_q16),
            Some(Threshold::Time(span)) => span.ps(),
            None => u64::MAX,
        };
        Link {
            busy_until: 0,
            ps_per_byte_q16,
            delay: spec.delay.ps(),
            limit,
            mark,
            bytes: 0,
            packets: 0,
            aux: 0,
            treatment: Treatment::Plain,
        }
    }

    /// Time on the wire, ps. `size` is at most 65535 and the rate at least 2 kbit/s: no overflow.
    #[inline]
    pub(crate) fn wire_ps(&self, size: u16) -> u64 {
        (u64::from(size) * self.ps_per_byte_q16) >> RATE_SHIFT
    }

    /// Bytes waiting or partly sent at `now`.
    pub(crate) fn backlog_bytes(&self, now: u64) -> u64 {
        let ps = self.busy_until.saturating_sub(now);
        ((u128::from(ps) << RATE_SHIFT) / u128::from(self.ps_per_byte_q16)) as u64
    }
}

/// Picoseconds per byte of a rate in bits per second, Q16, rounded to nearest.
pub(crate) fn ps_per_byte_q16(rate_bps: u64) -> u64 {
    let numerator = 8_000_000_000_000u128 << RATE_SHIFT;
    ((numerator + u128::from(rate_bps / 2)) / u128::from(rate_bps)) as u64
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
