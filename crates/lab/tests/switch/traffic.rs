//! iperf3 and datagrams between hosts of a switch.

use super::{Host, Server};
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

/// Results of one iperf3 run.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// At the receiver.
    pub goodput_bps: f64,
    /// Median over time of the sender's smoothed RTT.
    pub rtt_p50_us: u64,
    pub retransmits: u64,
    /// Bytes that each subflow of an MPTCP connection carried; empty for TCP.
    pub subflow_bytes: Vec<u64>,
}

impl Measured {
    /// From what `iperf3 -J` printed.
    pub fn from_json(text: &str) -> Self {
        let report: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let end = &report["end"];
        let goodput = end["sum_received"]["bits_per_second"].as_f64();
        let intervals = report["intervals"].as_array().cloned().unwrap_or_default();
        let streams = intervals.iter().flat_map(|i| i["streams"].as_array().cloned().unwrap_or_default());
        let mut rtts: Vec<u64> = streams.filter_map(|s| s["rtt"].as_u64()).collect();
        rtts.sort_unstable();
        Self {
            goodput_bps: goodput.unwrap_or_else(|| panic!("iperf3 measured nothing: {text}")),
            rtt_p50_us: rtts.get(rtts.len() / 2).copied().unwrap_or(0),
            retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
            subflow_bytes: Vec::new(),
        }
    }
}

/// Sends from one host to another; `options` are iperf3's.
pub fn transfer(from: &Host, to: &Host, port: u16, options: &str) -> Measured {
    transfers(&[(from, to, port)], options).swap_remove(0)
}

/// Several transfers at once, each to its own TCP port; the answers in the same order.
pub fn transfers(pairs: &[(&Host, &Host, u16)], options: &str) -> Vec<Measured> {
    // All of them first: in an emulated machine starting one takes as long as a transfer.
    let _servers: Vec<Server> =
        pairs.iter().map(|(_, to, port)| Server::start(&to.namespace, *port)).collect();
    let client = |&(from, to, port): &(&Host, &Host, u16)| {
        let client = format!("iperf3 -J -i 0.1 -c {} -p {port} {options}", to.address);
        Measured::from_json(&from.namespace.run(&client))
    };
    thread::scope(|scope| {
        let running: Vec<_> = pairs.iter().map(|pair| scope.spawn(move || client(pair))).collect();
        running.into_iter().map(|r| r.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    })
}

/// Sockets at which datagrams arrive.
pub struct Inbox {
    sockets: Vec<(u16, UdpSocket)>,
}

impl Inbox {
    pub fn open(host: &Host, ports: std::ops::Range<u16>) -> Self {
        let bind = |port| (port, UdpSocket::bind((host.address.as_str(), port)).expect("a free port"));
        let sockets = host.namespace.within(|| ports.map(bind).collect::<Vec<_>>());
        for (_, socket) in &sockets {
            socket.set_nonblocking(true).expect("a socket");
        }
        Self { sockets }
    }

    /// The ports at which `count` datagrams arrived, in order; fewer when nothing arrives for two seconds.
    pub fn receive(&self, count: usize) -> Vec<u16> {
        let mut arrived = Vec::new();
        let mut buffer = [0; 2048];
        let mut quiet = 0;
        while arrived.len() < count && quiet < 2_000 {
            let before = arrived.len();
            for (port, socket) in &self.sockets {
                while socket.recv(&mut buffer).is_ok() {
                    arrived.push(*port);
                }
            }
            quiet = if arrived.len() > before { 0 } else { quiet + 1 };
            thread::sleep(Duration::from_millis(1));
        }
        arrived
    }
}

/// Sends a datagram of 1,400 bytes to each of these ports, back to back.
pub fn send_datagrams(from: &Host, to: &Host, ports: &[u16]) {
    from.namespace.within(|| {
        // A socket waits when some ninety packets of its own are on their way.
        for some in ports.chunks(60) {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            for port in some {
                socket.send_to(&[0; 1400], (to.address.as_str(), *port)).expect("sent");
            }
        }
    });
}
