//! The structures of kernel/qdisc_shared.h and `struct port_queue`, to bytes and back.

use super::super::QueueCounters;
use crate::port::plan::Plan;
use vmcc_port::MAX_CLASSES;
use vmcc_units::Limit;

/// Bytes of `struct qdisc_config`.
pub(super) const CONFIG_BYTES: usize = CLASSES_AT + MAX_CLASSES * CLASS_BYTES;
/// Packets that one queue can hold, `QDISC_SLOTS`.
pub(super) const SLOTS: u64 = 4096;
/// `QDISC_MAJOR`.
const MAJOR: u32 = 1;

const CLASSES_AT: usize = 32;
const CLASS_BYTES: usize = 32;
const FRACTION_BITS: u32 = 20;
/// What may leave at once after an idle time, at the rate; at least two frames. Timers on a busy machine are late by some tenths of a
/// millisecond, in an emulated one by more; a bucket that is full before its timer fires loses capacity.
const BURST_NS: u64 = 2_000_000;

/// `skb->priority` of a class's packets.
pub(super) fn class_id(class: usize) -> u32 {
    MAJOR << 16 | u32::try_from(class + 1).unwrap_or(u32::MAX)
}

/// Nanoseconds per byte in 1/2^20; zero, which stands for no limit, only for rates that no link has.
fn byte_ns(bytes_per_s: u64) -> u64 {
    let cost = (1_000_000_000_u128 << FRACTION_BITS) / u128::from(bytes_per_s.max(1));
    u64::try_from(cost).unwrap_or(u64::MAX)
}

fn burst_ns(plan: &Plan) -> u64 {
    (2 * plan.frame_bytes * 1_000_000_000 / plan.rate.max(1)).max(BURST_NS)
}

/// `struct qdisc_config`; `open` lets every packet leave at once.
pub(super) fn config(plan: &Plan, open: bool) -> [u8; CONFIG_BYTES] {
    let mut out = [0; CONFIG_BYTES];
    let rate = if plan.capped { byte_ns(plan.rate) } else { 0 };
    put_longs(&mut out, 0, &[rate, burst_ns(plan)]);
    let strict = plan.classes.iter().any(|class| class.priority > 0);
    let classes = u32::try_from(plan.classes.len()).unwrap_or(0);
    put_words(&mut out, 16, &[classes, u32::from(strict), narrow(plan.frame_bytes), u32::from(open)]);
    for index in 0..MAX_CLASSES {
        let at = CLASSES_AT + index * CLASS_BYTES;
        // Classes that are gone may still hold packets: those leave as class 0's would.
        let class = plan.classes.get(index).unwrap_or(&plan.classes[0]);
        let capped = class.ceiling < plan.rate;
        let (bytes, packets) = match class.limit {
            Limit::Bytes(bytes) => (bytes.get().max(1), SLOTS),
            Limit::Packets(packets) => (0, packets.get().min(SLOTS)),
        };
        let ceiling = if capped { byte_ns(class.ceiling) } else { 0 };
        // In turns a class has its right by its quantum.
        let right = if strict && plan.guarantees { byte_ns(class.right) } else { 0 };
        put_longs(&mut out, at, &[bytes, ceiling, right]);
        put_words(&mut out, at + 24, &[narrow(packets), class.quantum]);
    }
    out
}

/// `struct port_queue`.
pub(super) fn counters(bytes: &[u8]) -> QueueCounters {
    let long = |index: usize| {
        let word = bytes.get(8 * index..8 * index + 8).and_then(|b| b.try_into().ok());
        word.map_or(0, u64::from_ne_bytes)
    };
    QueueCounters {
        backlog_bytes: long(0),
        backlog_packets: long(1),
        drops_full: long(3),
        drops_other: long(4),
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn put_longs(out: &mut [u8], at: usize, values: &[u64]) {
    for (slot, value) in out[at..].chunks_exact_mut(8).zip(values) {
        slot.copy_from_slice(&value.to_ne_bytes());
    }
}

fn put_words(out: &mut [u8], at: usize, values: &[u32]) {
    for (slot, value) in out[at..].chunks_exact_mut(4).zip(values) {
        slot.copy_from_slice(&value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_per_byte_is_exact_enough_and_never_zero_for_a_link() {
        assert_eq!(byte_ns(12_500_000), 80 << 20, "100 Mbit/s");
        assert_eq!(byte_ns(12_500_000_000), 83_886, "100 Gbit/s: 0.08 ns");
        assert_eq!(byte_ns(0), 1_000_000_000 << 20, "no division by zero");
    }

    #[test]
    fn class_ids_count_from_one() {
        assert_eq!(class_id(0), 0x1_0001);
        assert_eq!(class_id(7), 0x1_0008);
    }
}
