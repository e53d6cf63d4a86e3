//! Configuration of the BPF queueing discipline, from a plan.

use crate::plan::{ClassPlan, Plan};
use crate::serve::program::config::ClassIds;
use vmcc_bpf::shared::qdisc::{
    BUCKET_FRACTION, Class, Config, QDISC_MAJOR, QDISC_PLACED, QDISC_SLOTS, QDISC_SPARSE,
};
use vmcc_units::{BitsPerSec, Limit};

/// Packets that one band of a queue can hold.
pub(super) const SLOTS: u64 = QDISC_SLOTS as u64;
/// Burst after an idle time, in nanoseconds at the rate; at least two frames. Timers on a busy machine are late by some tenths of a
/// millisecond, in an emulated one by more. A bucket that is full before its timer fires loses capacity.
const BURST_NS: u64 = 2_000_000;

/// `skb->priority` of a class's packets.
pub(super) fn ids(class: usize) -> ClassIds {
    let own = QDISC_MAJOR << 16 | u32::try_from(class + 1).unwrap_or(u32::MAX);
    ClassIds { own, sparse: own + QDISC_SPARSE, placed: own + QDISC_PLACED }
}

/// Nanoseconds per byte in 1/2^20; zero, which stands for no limit, only for rates that no link has.
fn byte_ns(rate: BitsPerSec) -> u64 {
    let cost = (1_000_000_000_u128 << BUCKET_FRACTION) / u128::from(rate.bytes_per_sec().max(1));
    u64::try_from(cost).unwrap_or(u64::MAX)
}

fn burst_ns(plan: &Plan) -> u64 {
    (2 * plan.frame_bytes * 1_000_000_000 / plan.rate().bytes_per_sec().max(1)).max(BURST_NS)
}

/// `open` lets every packet leave at once.
pub(super) fn config(plan: &Plan, open: bool) -> Config {
    let strict = plan.classes.iter().any(|class| class.priority > 0);
    // Classes that are gone may still hold packets: those leave as class 0's would.
    let queue = |index: usize| class(plan, plan.classes.get(index).unwrap_or(&plan.classes[0]), strict);
    Config {
        byte_ns_q20: plan.cap.map_or(0, byte_ns),
        burst_ns: burst_ns(plan),
        classes: u32::try_from(plan.classes.len()).unwrap_or(0),
        strict: u32::from(strict),
        mtu_bytes: narrow(plan.frame_bytes),
        open: u32::from(open),
        queue: std::array::from_fn(queue),
    }
}

fn class(plan: &Plan, class: &ClassPlan, strict: bool) -> Class {
    let (limit_bytes, packets) = match class.limit {
        Limit::Bytes(bytes) => (bytes.get().max(1), SLOTS),
        Limit::Packets(packets) => (0, packets.get().min(SLOTS)),
    };
    Class {
        limit_bytes,
        byte_ns_q20: if class.ceiling < plan.rate() { byte_ns(class.ceiling) } else { 0 },
        // In turns a class has its right by its quantum.
        right_ns_q20: if strict && plan.guarantees { byte_ns(class.right) } else { 0 },
        limit_packets: narrow(packets),
        quantum_bytes: class.quantum_bytes,
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_per_byte_is_exact_enough_and_never_zero_for_a_link() {
        assert_eq!(byte_ns(BitsPerSec::new(100_000_000)), 80 << 20, "100 Mbit/s");
        assert_eq!(byte_ns(BitsPerSec::new(100_000_000_000)), 83_886, "100 Gbit/s: 0.08 ns");
        assert_eq!(byte_ns(BitsPerSec::new(0)), 1_000_000_000 << 20, "no division by zero");
    }

    #[test]
    fn class_ids_count_from_one() {
        assert_eq!(ids(0), ClassIds { own: 0x1_0001, sparse: 0x1_0011, placed: 0x1_0021 });
        assert_eq!(ids(7), ClassIds { own: 0x1_0008, sparse: 0x1_0018, placed: 0x1_0028 });
    }
}
