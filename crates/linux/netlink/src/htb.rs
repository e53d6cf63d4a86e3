//! Linux's hierarchical token bucket and the FIFO queues below its classes.

use crate::filter::{
    ETH_P_ALL, KIND, MATCH_ALL, RTM_GETTFILTER, RTM_NEWTFILTER, TCA_BPF_CLASSID, TCA_BPF_FD, TCA_BPF_OPS,
    TCA_BPF_OPS_LEN,
};
use crate::options::{inner, nested, push_ratespec, ticks_begun, time_ns, word, words};
use crate::tc::{ROOT, RTM_DELTCLASS, RTM_NEWQDISC, RTM_NEWTCLASS, TCA_OPTIONS, Tc, TrafficControl};
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NlasIterator};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use vmcc_units::{BitsPerSec, Limit};

// Numbers from the kernel's user interface, linux/pkt_sched.h.
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
/// Priority and handle of the filter of an HTB queue's fallback.
const FALLBACK: u32 = 1;
const HTB_VERSION: u32 = 3;
/// Divisor of a rate for a class without a quantum; ours all have one.
const RATE_TO_QUANTUM: u32 = 10;

/// One class of an HTB queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HtbClass {
    /// `major << 16 | minor`.
    pub id: u32,
    /// The class or queue above it.
    pub parent: u32,
    /// Guaranteed rate, link-layer header included.
    pub rate: BitsPerSec,
    /// Rate up to which it may borrow.
    pub ceiling: BitsPerSec,
    /// Burst at `rate` after an idle time, in bytes.
    pub burst_bytes: u64,
    /// The same at `ceiling`.
    pub ceil_burst_bytes: u64,
    /// Quantum per round among classes that borrow, in bytes.
    pub quantum_bytes: u32,
    /// 0 (served first) to 7.
    pub priority: u32,
}

/// Treatment of an existing object by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Refuse.
    Refuse,
    /// Replace it or change it.
    Replace,
}

impl Existing {
    pub(crate) fn flags(self) -> u16 {
        NLM_F_CREATE | if self == Self::Refuse { NLM_F_EXCL } else { NLM_F_REPLACE }
    }
}

impl TrafficControl {
    /// Makes an HTB queue the root of the port; packets without a class go to the class `default_minor`.
    ///
    /// # Errors
    /// The kernel refuses: `NotFound` when it has no HTB.
    pub fn add_htb(&mut self, port: u32, handle: u32, default_minor: u32) -> io::Result<()> {
        self.0.execute(htb(port, ROOT, handle, default_minor), Existing::Replace.flags())
    }

    /// Makes an HTB queue the queue of a class.
    ///
    /// # Errors
    /// The kernel refuses; `AlreadyExists` when `handle` is taken.
    pub fn add_inner_htb(
        &mut self,
        port: u32,
        parent: u32,
        handle: u32,
        default_minor: u32,
    ) -> io::Result<()> {
        self.0.execute(htb(port, parent, handle, default_minor), Existing::Refuse.flags())
    }

    /// Packets that name no class of the HTB queue `handle` go to `class` from now on: unlike the queue's default, this
    /// can change. The class cannot be removed while it is so. `program` may return another class for some of them; -1
    /// is `class`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_htb_fallback(
        &mut self,
        port: u32,
        handle: u32,
        class: u32,
        program: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut inner = vec![DefaultNla::new(TCA_BPF_CLASSID, class.to_ne_bytes().to_vec())];
        match program {
            Some(program) => {
                inner.push(DefaultNla::new(TCA_BPF_FD, program.as_raw_fd().to_ne_bytes().to_vec()));
            }
            None => inner.extend([
                DefaultNla::new(TCA_BPF_OPS_LEN, 1_u16.to_ne_bytes().to_vec()),
                DefaultNla::new(TCA_BPF_OPS, MATCH_ALL.to_vec()),
            ]),
        }
        // Always the same one: it is made, or changed.
        let mut message = Tc::new(RTM_NEWTFILTER, port, handle, FALLBACK);
        message.info = FALLBACK << 16 | u32::from(ETH_P_ALL.to_be());
        self.0.execute(message.kind(KIND).options(nested(&inner)), NLM_F_CREATE)
    }

    /// Fallback class that [`TrafficControl::set_htb_fallback`] has set; `None` if it is not there (any more).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn htb_fallback(&mut self, port: u32, handle: u32) -> io::Result<Option<u32>> {
        let answers = self.0.dump(Tc::new(RTM_GETTFILTER, port, handle, 0))?;
        let ours =
            answers.iter().filter(|a| a.port == port && (a.info >> 16, a.handle) == (FALLBACK, FALLBACK));
        let class = |answer: &Tc| word(&inner(&answer.value(TCA_OPTIONS)?, TCA_BPF_CLASSID)?);
        Ok(ours.filter_map(class).next())
    }

    /// Adds a class, or changes it while packets wait in it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_htb_class(&mut self, port: u32, class: &HtbClass) -> io::Result<()> {
        let message =
            Tc::new(RTM_NEWTCLASS, port, class.parent, class.id).kind("htb").options(class_options(class));
        self.0.execute(message, NLM_F_CREATE)
    }

    /// Removes a class, its queue and the packets in it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete_class(&mut self, port: u32, id: u32) -> io::Result<()> {
        self.0.execute(Tc::new(RTM_DELTCLASS, port, 0, id), 0)
    }

    /// Makes a FIFO the queue of a class.
    ///
    /// # Errors
    /// The kernel refuses; `AlreadyExists` when `handle` is taken.
    pub fn add_fifo(&mut self, port: u32, parent: u32, handle: u32, limit: Limit) -> io::Result<()> {
        self.0.execute(fifo(port, parent, handle, limit), Existing::Refuse.flags())
    }

    /// Changes the limit of a FIFO; what is beyond it is dropped.
    ///
    /// # Errors
    /// The kernel refuses; another unit (bytes, packets) is another kind of queue and cannot be changed to.
    pub fn change_fifo(&mut self, port: u32, parent: u32, handle: u32, limit: Limit) -> io::Result<()> {
        self.0.execute(fifo(port, parent, handle, limit), 0)
    }
}

fn htb(port: u32, parent: u32, handle: u32, default_minor: u32) -> Tc {
    // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
    let glob = words(&[HTB_VERSION, RATE_TO_QUANTUM, default_minor, 0, 0]);
    let options = nested(&[DefaultNla::new(TCA_HTB_INIT, glob)]);
    Tc::new(RTM_NEWQDISC, port, parent, handle).kind("htb").options(options)
}

fn fifo(port: u32, parent: u32, handle: u32, limit: Limit) -> Tc {
    let (kind, limit) = match limit {
        Limit::Bytes(bytes) => ("bfifo", bytes.get()),
        Limit::Packets(count) => ("pfifo", count.get()),
    };
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Tc::new(RTM_NEWQDISC, port, parent, handle).kind(kind).options(words(&[limit]))
}

/// `struct tc_htb_opt`, with the rates also as 64 bits.
fn class_options(class: &HtbClass) -> Vec<u8> {
    let (rate, ceiling) = (class.rate.bytes_per_sec(), class.ceiling.bytes_per_sec());
    let mut parms = Vec::with_capacity(44);
    push_ratespec(&mut parms, rate);
    push_ratespec(&mut parms, ceiling);
    // Bursts travel as the time that they take.
    let buffer = ticks_begun(time_ns(class.burst_bytes, rate));
    let ceil_buffer = ticks_begun(time_ns(class.ceil_burst_bytes, ceiling));
    // buffer, cbuffer, quantum, level (the kernel's own), prio.
    parms.extend(words(&[buffer, ceil_buffer, class.quantum_bytes, 0, class.priority]));
    nested(&[
        DefaultNla::new(TCA_HTB_PARMS, parms),
        DefaultNla::new(TCA_HTB_RATE64, rate.to_ne_bytes().to_vec()),
        DefaultNla::new(TCA_HTB_CEIL64, ceiling.to_ne_bytes().to_vec()),
    ])
}

/// Rate and ceiling of a class from its settings as the kernel gives them.
pub fn htb_rates(options: &[u8]) -> Option<(BitsPerSec, BitsPerSec)> {
    const TYPE_MASK: u16 = 0x3fff;
    let value = |kind: u16| {
        let mut attributes = NlasIterator::new(options).filter_map(Result::ok);
        attributes.find(|nla| nla.kind() & TYPE_MASK == kind).map(|nla| nla.value().to_vec())
    };
    let parms = value(TCA_HTB_PARMS)?;
    // A `struct tc_ratespec` for each; the 64-bit attribute is there where that is too small.
    let rate = |at: usize, wide: u16| {
        let wide = value(wide).and_then(|bytes| bytes.first_chunk().copied()).map(u64::from_ne_bytes);
        let narrow = parms.get(at..at + 4)?.first_chunk().copied().map(u32::from_ne_bytes);
        wide.or(narrow.map(u64::from)).map(|bytes| BitsPerSec::new(bytes.saturating_mul(8)))
    };
    Some((rate(8, TCA_HTB_RATE64)?, rate(20, TCA_HTB_CEIL64)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: HtbClass = HtbClass {
        id: 0x10010,
        parent: 0x10001,
        rate: BitsPerSec::new(100_000_000),
        ceiling: BitsPerSec::new(100_000_000_000),
        burst_bytes: 12_500,
        ceil_burst_bytes: 12_500_000,
        quantum_bytes: 1514,
        priority: 3,
    };

    #[test]
    fn class_options_have_the_kernels_layout() {
        let bytes = class_options(&CLASS);
        assert_eq!(bytes.len(), 4 + 44 + 2 * 12);
        assert_eq!(bytes[12..16], 12_500_000_u32.to_ne_bytes());
        assert_eq!(bytes[24..28], u32::MAX.to_ne_bytes(), "beyond 32 bits: the 64-bit attribute counts");
        assert_eq!(bytes[28..32], 15_625_u32.to_ne_bytes(), "1 ms in ticks of 64 ns");
        assert_eq!(bytes[36..40], 1514_u32.to_ne_bytes());
        assert_eq!(bytes[44..48], 3_u32.to_ne_bytes());
        assert_eq!(bytes[64..72], 12_500_000_000_u64.to_ne_bytes());
        assert_eq!(htb_rates(&bytes), Some((CLASS.rate, CLASS.ceiling)));
        for length in 0..bytes.len() {
            let _ = htb_rates(&bytes[..length]);
        }
    }
}
