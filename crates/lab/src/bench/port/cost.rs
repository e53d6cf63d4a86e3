//! Cost of a port per packet: of its programs, by the kernel's statistics, and of a packet from `sendto` to the receiver's socket.

use super::{FIRST_TCP_PORT, SHORT_LOOK, WARMUP, attach, classes, network};
use crate::Error;
use crate::bench::flood::Flood;
use crate::bench::pair::{Pair, server_on};
use serde::Serialize;
use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_bpf::bench::Statistics;
use vmcc_port::Backend;
use vmcc_port::RunTime;

/// Upper bound of the rate at which programs are measured, in bit/s. The rate is half of what the machine carries.
const MAX_BPS: f64 = 1e9;
/// So high that no datagram ever waits.
const NO_CAP_IN_THE_WAY: &str = "rate = '40gbit'";
const FIXED: &str = "marking = { rule = 'threshold', at = '100kB' }";
const MEASURED: &str = "marking = { rule = 'mq-ecn', lambda = 1.0 }";
/// Tens of thousands of packets.
const PROGRAMS_LOOK: Duration = Duration::from_secs(1);
const BATCHES: usize = 31;
const DATAGRAMS: usize = 1_000;
const DATAGRAM: [u8; 1_400] = [0; 1_400];
/// ECT(0), as an ECN sender's.
const ECN_CAPABLE: u32 = 2;

/// Cost of a port per packet.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// In each call of each program: the kernel's reading of its clock.
    pub statistics_ns: f64,
    /// The cap at which programs were measured.
    pub rate_bps: u64,
    /// Its programs.
    pub programs: Vec<Programs>,
    /// From `sendto` to the receiver.
    #[serde(rename = "ways")]
    pub end_to_end: Vec<EndToEnd>,
}

/// Nanoseconds per packet, statistics included.
#[derive(Debug, Serialize)]
pub struct Programs {
    /// Classes and marking.
    pub configuration: &'static str,
    /// Backend: `htb` or `bpf`.
    pub backend: &'static str,
    /// Packets sent.
    pub packets: u64,
    /// The program that sees what leaves.
    pub tc_out_ns: f64,
    /// The program that sees what arrives.
    pub tc_in_ns: f64,
    /// `None`: the kernel's own queues.
    pub qdisc: Option<Qdisc>,
}

/// Nanoseconds per packet of a queueing discipline in BPF.
#[derive(Debug, Serialize)]
pub struct Qdisc {
    /// Of the call that takes it.
    pub enqueue_ns: f64,
    /// Of all calls per packet.
    pub dequeue_ns: f64,
    /// Those that found nothing that may leave yet among them.
    pub dequeue_calls: f64,
}

/// From `sendto` to the receiver's full socket, in the sender's context.
#[derive(Debug, Serialize)]
pub struct EndToEnd {
    /// Backend, classes and marking.
    pub configuration: String,
    /// Median of the batches.
    pub ns_per_packet: f64,
    /// Of the batches.
    pub lower_quartile: f64,
    /// Of the batches.
    pub upper_quartile: f64,
}

/// A configuration, and the classes that send.
struct Setting {
    name: &'static str,
    text: String,
    senders: u16,
}

fn settings() -> Vec<Setting> {
    let eight = format!("queue = 'drr'\n{}", classes(&[1; 8]));
    let one = |name, marking: &str| Setting { name, text: marking.to_owned(), senders: 1 };
    let all = |name, marking: &str| Setting { name, text: format!("{marking}\n{eight}"), senders: 8 };
    vec![
        one("one class, a fixed threshold", FIXED),
        one("one class, MQ-ECN by the measured RTT", MEASURED),
        all("eight classes by filters, a fixed threshold", FIXED),
        all("eight classes by filters, MQ-ECN by the measured RTT", MEASURED),
        all("eight classes by filters, virtual queues", &format!("phantom = 0.95\n{FIXED}")),
    ]
}

pub(super) fn measure(progress: &mut dyn FnMut(&str)) -> Result<Cost, Error> {
    let statistics = Statistics::enable()?;
    let statistics_ns = statistics.overhead_ns()?;
    drop(statistics);
    let backends: &[_] = match vmcc_port::usable(Backend::Bpf) {
        Ok(()) => &["htb", "bpf"],
        Err(_) => &["htb"],
    };
    let rate_bps = affordable_bps()?;
    let mut cost = Cost { statistics_ns, rate_bps, programs: Vec::new(), end_to_end: Vec::new() };
    for backend in backends {
        for setting in settings() {
            progress(&format!("cost of the programs: {backend}, {}", setting.name));
            cost.programs.push(programs(&setting, backend, rate_bps)?);
        }
    }
    progress("cost of a packet's whole way");
    cost.end_to_end = end_to_end(backends)?;
    Ok(cost)
}

/// No trains of packets, so that a call of a program is a packet.
fn single_packets() -> Result<Pair, Error> {
    let network = network(1, false)?;
    network.no_trains(0)?;
    Ok(network)
}

/// A rate at which the port, not the machine, is what packets wait for.
fn affordable_bps() -> Result<u64, Error> {
    let network = single_packets()?;
    let flood = Flood::start(&network, 0, FIRST_TCP_PORT, 4)?;
    thread::sleep(SHORT_LOOK);
    let (from, before) = (Instant::now(), flood.received());
    thread::sleep(SHORT_LOOK);
    let carried = (flood.received() - before) as f64 * 8.0 / from.elapsed().as_secs_f64();
    Ok((carried / 2.0).clamp(1e6, MAX_BPS) as u64)
}

fn programs(setting: &Setting, backend: &'static str, rate_bps: u64) -> Result<Programs, Error> {
    let network = single_packets()?;
    let text = format!("rate = '{rate_bps}bit'\nbackend = '{backend}'\n{}", setting.text);
    let port = attach(&network, 0, &text)?;
    let per_class = 8 / usize::from(setting.senders);
    let floods = (0..setting.senders).map(|c| Flood::start(&network, 0, FIRST_TCP_PORT + c, per_class));
    let _floods = floods.collect::<Result<Vec<_>, _>>()?;
    thread::sleep(WARMUP);
    let run_times = || port.run_times();
    let _statistics = Statistics::enable()?;
    let before = run_times()?;
    thread::sleep(PROGRAMS_LOOK);
    let after = run_times()?;
    let took = |before: RunTime, after: RunTime| (after.ns - before.ns, after.calls - before.calls);
    let per = |(ns, _): (u64, u64), packets: u64| ns as f64 / packets.max(1) as f64;
    let out = took(before.leaving, after.leaving);
    let arriving = took(before.arriving, after.arriving);
    let enqueue = before.enqueue.zip(after.enqueue).map(|(before, after)| took(before, after));
    let dequeue = before.dequeue.zip(after.dequeue).map(|(before, after)| took(before, after));
    let qdisc = enqueue.zip(dequeue).map(|(enqueue, dequeue)| Qdisc {
        enqueue_ns: per(enqueue, enqueue.1),
        dequeue_ns: per(dequeue, enqueue.1),
        dequeue_calls: dequeue.1 as f64 / enqueue.1.max(1) as f64,
    });
    Ok(Programs {
        configuration: setting.name,
        backend,
        packets: out.1,
        tc_out_ns: per(out, out.1),
        tc_in_ns: per(arriving, arriving.1),
        qdisc,
    })
}

/// Cost from `sendto` to the receiver's socket, with a port and without; the difference is the cost of the port. It includes
/// the kernel's own queues and the calls of the programs, which the kernel's statistics leave out.
fn end_to_end(backends: &[&str]) -> Result<Vec<EndToEnd>, Error> {
    let mut wanted = vec![("no port".to_owned(), None)];
    for backend in backends {
        for setting in settings().iter().filter(|setting| setting.text.starts_with(FIXED)) {
            let text = format!("{NO_CAP_IN_THE_WAY}\nbackend = '{backend}'\n{}", setting.text);
            wanted.push((format!("{backend}, {}", setting.name), Some(text)));
        }
    }
    let mut ready = Vec::new();
    for (_, text) in &wanted {
        let network = single_packets()?;
        let port = text.as_ref().map(|text| attach(&network, 0, text)).transpose()?;
        let sockets = datagrams(&network)?;
        ready.push((sockets, port, network));
    }
    // In turns: what else runs on the machine changes from second to second.
    let mut batches = vec![Vec::new(); ready.len()];
    for _ in 0..BATCHES {
        for (((sender, _), ..), batches) in ready.iter().zip(&mut batches) {
            batches.push(batch(sender)?);
        }
    }
    Ok(wanted.into_iter().zip(batches).map(|((name, _), batches)| EndToEnd::new(name, batches)).collect())
}

/// Nanoseconds per datagram.
fn batch(sender: &UdpSocket) -> Result<f64, Error> {
    let from = Instant::now();
    for _ in 0..DATAGRAMS {
        sender.send(&DATAGRAM).map_err(|e| Error::kernel("sending", "a datagram", e))?;
    }
    Ok(from.elapsed().as_nanos() as f64 / DATAGRAMS as f64)
}

impl EndToEnd {
    fn new(configuration: String, mut batches: Vec<f64>) -> Self {
        batches.sort_by(f64::total_cmp);
        let at = |quarter: usize| batches[(batches.len() - 1) * quarter / 4];
        Self { configuration, ns_per_packet: at(2), lower_quartile: at(1), upper_quartile: at(3) }
    }
}

/// A sender, and a receiver that nobody reads: soon it is full, and every datagram costs the same.
fn datagrams(network: &Pair) -> Result<(UdpSocket, UdpSocket), Error> {
    let to = SocketAddr::from((server_on(0), FIRST_TCP_PORT + 7));
    let failed = |e| Error::kernel("opening", "a socket for datagrams", e);
    let receiver = network.server.run(move || UdpSocket::bind(to)).map_err(failed)?;
    let sender = network.client.run(move || -> std::io::Result<UdpSocket> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.set_tos_v4(ECN_CAPABLE)?;
        let socket = UdpSocket::from(socket);
        socket.connect(to)?;
        Ok(socket)
    });
    Ok((sender.map_err(failed)?, receiver))
}
