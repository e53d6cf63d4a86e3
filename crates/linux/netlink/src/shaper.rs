//! Queues without classes: a token bucket with a bounded FIFO, and netem's delay.

use crate::htb::Existing;
use crate::options::{nested, push_ratespec, ticks, time_ns, words};
use crate::tc::{ROOT, RTM_NEWQDISC, Tc, TrafficControl};
use netlink_packet_core::DefaultNla;
use std::io;
use vmcc_units::{BitsPerSec, Limit, Packets};

// Numbers from the kernel's user interface, linux/pkt_sched.h.
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

const HANDLE: u32 = 0x1_0000;
const ONLY_CLASS: u32 = HANDLE | 1;
/// The kernel picks one.
const ANY_HANDLE: u32 = 0;

/// A rate limiter with one bounded FIFO behind it.
#[derive(Debug, Clone, Copy)]
pub struct Shaper {
    /// Rate, Ethernet header included.
    pub rate: BitsPerSec,
    /// Burst after an idle time, in bytes.
    pub burst_bytes: u32,
    /// Bytes that may wait.
    pub limit_bytes: u32,
    /// Bound in packets instead of bytes.
    pub limit_pkt: Option<u32>,
}

/// Impairment of packets by netem.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Delay of each packet.
    pub delay_us: u32,
    /// Variation of the delay, uniformly and each by itself: packets overtake each other.
    pub jitter_us: u32,
    /// The probability with which each is lost.
    pub loss: f64,
    /// Packets that may be held.
    pub limit_pkt: u32,
}

impl Shaper {
    fn fifo(&self) -> Option<Limit> {
        self.limit_pkt.map(|count| Limit::Packets(Packets::new(count.into())))
    }
}

impl TrafficControl {
    /// Makes `shaper` the root queue of the port.
    ///
    /// # Errors
    /// The kernel refuses: `NotFound` when it has no TBF, `AlreadyExists` when the port has a root queue.
    pub fn add_shaper(&mut self, port: u32, shaper: &Shaper) -> io::Result<()> {
        self.0.execute(tbf(port, shaper), Existing::Refuse.flags())?;
        shaper.fifo().map_or(Ok(()), |limit| self.add_fifo(port, ONLY_CLASS, ANY_HANDLE, limit))
    }

    /// Changes a shaper that [`TrafficControl::add_shaper`] made, while packets wait in it; what is beyond a smaller
    /// limit is dropped.
    ///
    /// # Errors
    /// `InvalidInput` when one limit is in packets and the other in bytes: another kind of queue cannot be changed to.
    /// Else the kernel refuses: `NotFound` when there is no such shaper.
    pub fn change_shaper(&mut self, port: u32, shaper: &Shaper) -> io::Result<()> {
        // The kernel hands a TBF's limit on to the FIFO behind it, in whatever that one counts. A FIFO that the TBF
        // made itself, in bytes, is not listed.
        let in_packets = self.queues(port)?.iter().any(|queue| queue.parent == ONLY_CLASS);
        if in_packets != shaper.limit_pkt.is_some() {
            let why = "a shaper's limit stays in packets, or in bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.0.execute(tbf(port, shaper), 0)?;
        shaper.fifo().map_or(Ok(()), |limit| self.change_fifo(port, ONLY_CLASS, ANY_HANDLE, limit))
    }

    /// Delays what leaves the port, and loses some of it.
    ///
    /// # Errors
    /// The kernel refuses: `NotFound` when it has no netem, `AlreadyExists` when the port has a root queue.
    pub fn add_impairment(&mut self, port: u32, impairment: &Impairment) -> io::Result<()> {
        // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter.
        let Impairment { delay_us, jitter_us, loss, limit_pkt } = *impairment;
        let [latency, jitter] = [delay_us, jitter_us].map(|time_us| ticks(u128::from(time_us) * 1000));
        // A probability is a share of 2^32 - 1.
        let loss = (loss.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
        let options = words(&[latency, limit_pkt, loss, 0, 0, jitter]);
        let message = Tc::new(RTM_NEWQDISC, port, ROOT, HANDLE).kind("netem").options(options);
        self.0.execute(message, Existing::Refuse.flags())
    }
}

fn tbf(port: u32, shaper: &Shaper) -> Tc {
    Tc::new(RTM_NEWQDISC, port, ROOT, HANDLE).kind("tbf").options(tbf_options(shaper))
}

/// `struct tc_tbf_qopt` (rate, peak rate, limit, buffer, mtu). A rate that does not fit there travels as 64 bits
/// beside it, and the burst also in bytes, which overrides the struct's.
fn tbf_options(shaper: &Shaper) -> Vec<u8> {
    let (rate, burst_bytes) = (shaper.rate.bytes_per_sec(), shaper.burst_bytes);
    let mut parms = Vec::with_capacity(36);
    push_ratespec(&mut parms, rate);
    let buffer = ticks(time_ns(burst_bytes.into(), rate));
    // No peak rate: not even a link layer, three words in all.
    parms.extend(words(&[0, 0, 0, shaper.limit_bytes, buffer, 0]));
    let mut inner = vec![
        DefaultNla::new(TCA_TBF_PARMS, parms),
        DefaultNla::new(TCA_TBF_BURST, burst_bytes.to_ne_bytes().to_vec()),
    ];
    if rate >= u32::MAX.into() {
        inner.push(DefaultNla::new(TCA_TBF_RATE64, rate.to_ne_bytes().to_vec()));
    }
    nested(&inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::NlasIterator;

    #[test]
    fn tbf_options_have_the_kernels_layout() {
        let shaper = Shaper {
            rate: BitsPerSec::new(100_000_000),
            burst_bytes: 6_250,
            limit_bytes: 150_000,
            limit_pkt: None,
        };
        let bytes = tbf_options(&shaper);
        // 4 + 36 bytes of parameters, 4 + 4 of burst; no 64-bit rate below 2^32 bytes per second.
        assert_eq!(bytes.len(), 48);
        assert_eq!(bytes[12..16], 12_500_000_u32.to_ne_bytes());
        assert_eq!(bytes[28..32], 150_000_u32.to_ne_bytes());
        assert_eq!(bytes[32..36], 7812_u32.to_ne_bytes(), "0.5 ms in ticks of 64 ns");
    }

    #[test]
    fn rates_beyond_32_bits_use_the_64_bit_attribute() {
        let shaper = Shaper {
            rate: BitsPerSec::new(40_000_000_000),
            burst_bytes: 9_000,
            limit_bytes: 1_000_000,
            limit_pkt: None,
        };
        assert_eq!(NlasIterator::new(&tbf_options(&shaper)[..]).filter_map(Result::ok).count(), 3);
    }
}
