//! Parts of the settings of different queues.

use netlink_packet_core::{DefaultNla, Emitable, NlasIterator};

// Numbers from the kernel's user interface, linux/pkt_sched.h.
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// Times travel in units of the packet scheduler's clock, which runs at 15.625 MHz.
const PSCHED_TICK_NS: u128 = 64;

/// `struct tc_ratespec`: `cell_log`, `linklayer`, `overhead` (u16), `cell_align` (i16), `mpu` (u16), rate. The rate
/// here saturates; a 64-bit attribute counts then.
pub(crate) fn push_ratespec(out: &mut Vec<u8>, rate_bytes_per_s: u64) {
    out.extend_from_slice(&[0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&u32::try_from(rate_bytes_per_s).unwrap_or(u32::MAX).to_ne_bytes());
}

/// Time that `bytes` take at a rate, in nanoseconds.
pub(crate) fn time_ns(bytes: u64, rate_bytes_per_s: u64) -> u128 {
    u128::from(bytes) * 1_000_000_000 / u128::from(rate_bytes_per_s.max(1))
}

/// Whole ticks of the scheduler's clock.
pub(crate) fn ticks(ns: u128) -> u32 {
    u32::try_from(ns / PSCHED_TICK_NS).unwrap_or(u32::MAX)
}

/// Ticks of the scheduler's clock, a tick begun being one; at least one.
pub(crate) fn ticks_begun(ns: u128) -> u32 {
    ticks(ns + PSCHED_TICK_NS - 1).max(1)
}

/// Fields of a struct.
pub(crate) fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Attributes, as the value of the attribute that holds them.
pub(crate) fn nested(inner: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; inner.buffer_len()];
    inner.emit(&mut bytes);
    bytes
}

/// The first word of `bytes`.
pub(crate) fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// The value of the first attribute of this kind in `bytes`.
pub(crate) fn inner(bytes: &[u8], kind: u16) -> Option<Vec<u8>> {
    const TYPE_MASK: u16 = 0x3fff;
    let mut attributes = NlasIterator::new(bytes).filter_map(Result::ok);
    attributes.find(|nla| nla.kind() & TYPE_MASK == kind).map(|nla| nla.value().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_saturate_and_are_never_zero() {
        let ticks = |bytes, rate| ticks_begun(time_ns(bytes, rate));
        assert_eq!(ticks(0, 1), 1);
        assert_eq!(ticks(u64::MAX, 1), u32::MAX);
        assert_eq!(ticks(1500, 0), u32::MAX);
    }
}
