//! Queues of one network namespace: token bucket with a bounded FIFO, netem delay, and their counters.

use crate::Connection;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;

// Numbers from the kernel's user interface, linux/pkt_sched.h.
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TCA_OPTIONS: u16 = 2;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// The clock that `struct tc_ratespec` and `struct tc_tbf_qopt` count in runs at 15.625 MHz.
const PSCHED_TICKS_PER_SECOND: u64 = 15_625_000;

const ROOT_HANDLE: TcHandle = TcHandle { major: 1, minor: 0 };
const ONLY_CLASS: TcHandle = TcHandle { major: 1, minor: 1 };

/// A rate limiter with one bounded FIFO behind it.
#[derive(Debug, Clone, Copy)]
pub struct Shaper {
    /// Bytes per second, Ethernet header included.
    pub rate_bytes_per_s: u64,
    /// What may leave back to back after an idle time.
    pub burst_bytes: u32,
    /// Bytes that may wait.
    pub limit_bytes: u32,
    /// Bound in packets instead of bytes.
    pub limit_pkt: Option<u32>,
}

/// Counters of the queue at a port's root, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Packets that left.
    pub sent_pkt: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Bytes that wait now.
    pub backlog_bytes: u64,
    /// Packets that wait now.
    pub backlog_pkt: u64,
}

/// Traffic control, in the network namespace of the thread that opened it.
pub struct Qdiscs(Connection<RouteNetlinkMessage>);

impl Qdiscs {
    /// Opens a connection; it stays in the namespace that the calling thread is in now.
    ///
    /// # Errors
    /// The system refuses a netlink socket.
    pub fn open() -> io::Result<Self> {
        Connection::open(NETLINK_ROUTE).map(Self)
    }

    /// Makes `shaper` the root queue of the port.
    pub fn add_shaper(&mut self, port: u32, shaper: &Shaper) -> io::Result<()> {
        self.add(port, TcHandle::ROOT, ROOT_HANDLE, "tbf", tbf_options(shaper))?;
        match shaper.limit_pkt {
            Some(limit) => {
                let limit = DefaultNla::new(TCA_OPTIONS, limit.to_ne_bytes().to_vec());
                self.add(port, ONLY_CLASS, TcHandle::UNSPEC, "pfifo", TcAttribute::Other(limit))
            }
            None => Ok(()),
        }
    }

    /// Delays what leaves the port by `delay_us`; `NotFound` when the kernel has no netem.
    pub fn add_delay(&mut self, port: u32, delay_us: u32, limit_pkt: u32) -> io::Result<()> {
        let mut qopt = Vec::with_capacity(24);
        let latency_ticks = u64::from(delay_us) * PSCHED_TICKS_PER_SECOND / 1_000_000;
        let latency_ticks = u32::try_from(latency_ticks).unwrap_or(u32::MAX);
        // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter.
        for field in [latency_ticks, limit_pkt, 0, 0, 0, 0] {
            qopt.extend_from_slice(&field.to_ne_bytes());
        }
        let options = TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, qopt));
        self.add(port, TcHandle::ROOT, ROOT_HANDLE, "netem", options)
    }

    fn add(
        &mut self,
        port: u32,
        parent: TcHandle,
        handle: TcHandle,
        kind: &str,
        options: TcAttribute,
    ) -> io::Result<()> {
        let mut message = TcMessage::default();
        message.header.index = index(port)?;
        message.header.parent = parent;
        message.header.handle = handle;
        message.attributes = vec![TcAttribute::Kind(kind.to_owned()), options];
        self.0.execute(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Counters of the port's root queue.
    pub fn stats(&mut self, port: u32) -> io::Result<QueueStats> {
        let mut message = TcMessage::default();
        message.header.index = index(port)?;
        let answers = self.0.dump(RouteNetlinkMessage::GetQueueDiscipline(message))?;
        let wanted = index(port)?;
        let root = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc)
                if qdisc.header.index == wanted && qdisc.header.parent == TcHandle::ROOT =>
            {
                Some(qdisc)
            }
            _ => None,
        });
        root.map(|qdisc| queue_stats(&qdisc)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn index(port: u32) -> io::Result<i32> {
    i32::try_from(port).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn queue_stats(qdisc: &TcMessage) -> QueueStats {
    let mut stats = QueueStats::default();
    let groups = qdisc.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Stats2(group) => Some(group),
        _ => None,
    });
    for part in groups.flatten() {
        match part {
            TcStats2::Basic(basic) => {
                stats.sent_bytes = basic.bytes;
                stats.sent_pkt = u64::from(basic.packets);
            }
            TcStats2::Queue(queue) => {
                stats.drops = u64::from(queue.drops);
                stats.backlog_bytes = u64::from(queue.backlog);
                stats.backlog_pkt = u64::from(queue.qlen);
            }
            _ => {}
        }
    }
    stats
}

/// The options of a TBF. The rate travels as 64 bits beside `struct tc_tbf_qopt`, the burst in bytes: both
/// override the struct's own fields, whose units depend on the clock above.
fn tbf_options(shaper: &Shaper) -> TcAttribute {
    let burst_ticks =
        u64::from(shaper.burst_bytes) * PSCHED_TICKS_PER_SECOND / shaper.rate_bytes_per_s.max(1);
    let rate32 = u32::try_from(shaper.rate_bytes_per_s).unwrap_or(u32::MAX);
    let mut parms = Vec::with_capacity(36);
    push_ratespec(&mut parms, rate32);
    push_ratespec(&mut parms, 0);
    for field in [shaper.limit_bytes, u32::try_from(burst_ticks).unwrap_or(u32::MAX), 0] {
        parms.extend_from_slice(&field.to_ne_bytes());
    }
    let inner = [
        DefaultNla::new(TCA_TBF_PARMS, parms),
        DefaultNla::new(TCA_TBF_BURST, shaper.burst_bytes.to_ne_bytes().to_vec()),
        DefaultNla::new(TCA_TBF_RATE64, shaper.rate_bytes_per_s.to_ne_bytes().to_vec()),
    ];
    // RATE64 is read only for rates that do not fit 32 bits.
    let used = if rate32 == u32::MAX { &inner[..] } else { &inner[..2] };
    TcAttribute::Options(used.iter().cloned().map(TcOption::Other).collect())
}

/// struct tc_ratespec: cell_log, linklayer, overhead (u16), cell_align (i16), mpu (u16), rate.
fn push_ratespec(out: &mut Vec<u8>, rate_bytes_per_s: u32) {
    out.extend_from_slice(&[0, if rate_bytes_per_s == 0 { 0 } else { TC_LINKLAYER_ETHERNET }]);
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(&rate_bytes_per_s.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable;

    #[test]
    fn tbf_options_have_the_kernels_layout() {
        let shaper = Shaper {
            rate_bytes_per_s: 12_500_000,
            burst_bytes: 6_250,
            limit_bytes: 150_000,
            limit_pkt: None,
        };
        let TcAttribute::Options(options) = tbf_options(&shaper) else { panic!("not options") };
        let mut bytes = vec![0; options.as_slice().buffer_len()];
        options.as_slice().emit(&mut bytes);
        // 4 + 36 bytes of parameters, 4 + 4 of burst; no 64-bit rate below 2^32 bytes per second.
        assert_eq!(bytes.len(), 48);
        assert_eq!(bytes[12..16], 12_500_000_u32.to_ne_bytes());
        assert_eq!(bytes[28..32], 150_000_u32.to_ne_bytes());
        assert_eq!(bytes[32..36], 7812_u32.to_ne_bytes(), "0.5 ms in ticks of 64 ns");
    }

    #[test]
    fn rates_beyond_32_bits_travel_in_their_own_attribute() {
        let shaper = Shaper {
            rate_bytes_per_s: 5_000_000_000,
            burst_bytes: 9_000,
            limit_bytes: 1_000_000,
            limit_pkt: None,
        };
        let TcAttribute::Options(options) = tbf_options(&shaper) else { panic!("not options") };
        assert_eq!(options.len(), 3);
    }
}
