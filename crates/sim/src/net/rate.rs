//! Time that bytes take at a rate, as links count it: picoseconds per byte, Q16.

use crate::time::Span;

/// Fractional bits of the time per byte.
const RATE_SHIFT: u32 = 16;

/// Picoseconds per byte of a rate in bits per second, Q16, rounded to nearest.
pub(crate) fn ps_per_byte_q16(rate_bps: u64) -> u64 {
    let numerator = 8_000_000_000_000u128 << RATE_SHIFT;
    ((numerator + u128::from(rate_bps / 2)) / u128::from(rate_bps)) as u64
}

/// Time of one packet, ps. `size` is at most 65535 and the rate at least 2 kbit/s: no overflow.
#[inline]
pub(crate) fn packet_ps(size: u16, ps_per_byte_q16: u64) -> u64 {
    (u64::from(size) * ps_per_byte_q16) >> RATE_SHIFT
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

/// Bytes that are sent within `span`; saturates.
pub(crate) fn bytes_within(span: Span, ps_per_byte_q16: u64) -> u64 {
    let bytes = (u128::from(span.ps()) << RATE_SHIFT) / u128::from(ps_per_byte_q16.max(1));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
