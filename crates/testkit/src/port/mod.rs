//! Two namespaces joined by a veth pair or by taps, and traffic between them: what tests of ports send through one.

mod wire;

use crate::netns::{Namespace, Server, join, run};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use wire::Wire;

/// Two namespaces, `a` and `b`, joined by port `p0` in each: 10.78.0.1 and fd78::1 at a, .2 and ::2 at b. Segmentation
/// is left to no device; TCP makes short trains of packets all the same, which come apart below the queue. Removed on
/// drop.
#[derive(Debug)]
pub struct Pair {
    /// The sending side.
    pub a: Namespace,
    /// The receiving side.
    pub b: Namespace,
    wire: Option<Wire>,
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

impl Pair {
    /// Joined by a veth pair.
    pub fn new() -> Self {
        let pair = Self { a: Namespace::new("a"), b: Namespace::new("b"), wire: None };
        join(&pair.a, &pair.b, "p0", "10.78.0");
        pair.set_up();
        pair
    }

    /// Joined by taps; IPv4 packets take `delay` to come back, IPv6 packets none.
    pub fn delayed(delay: Duration) -> Self {
        let mut pair = Self { a: Namespace::new("a"), b: Namespace::new("b"), wire: None };
        pair.wire = Some(Wire::join(&pair.a, &pair.b, "p0", delay));
        for (ns, host) in [(&pair.a, 1), (&pair.b, 2)] {
            run(&format!("ip -n {ns} addr add 10.78.0.{host}/24 dev p0"));
        }
        pair.set_up();
        pair
    }

    fn set_up(&self) {
        for (ns, host) in [(&self.a, 1), (&self.b, 2)] {
            run(&format!("ip -n {ns} addr add fd78::{host}/64 dev p0 nodad"));
            ns.within(|| vmcc_netlink::disable_segmentation_offload("p0").unwrap());
            ns.sysctl("ipv4/tcp_congestion_control", "reno");
            ns.sysctl("ipv4/tcp_ecn", "1");
        }
    }

    /// The namespace file of the sending side.
    pub fn netns(&self) -> PathBuf {
        self.a.file()
    }

    /// Output of `tc` for the sending port's queues.
    pub fn queues(&self) -> String {
        run(&format!("tc -n {} qdisc show dev p0", self.a))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.cut([&self.a, &self.b]);
        }
    }
}

/// Throughput of an iperf3 client, in bits per second at the receiver.
pub fn iperf(pair: &Pair, port: u16, options: &str) -> f64 {
    let _server = Server::start(&pair.b, port);
    client(pair, port, options)
}

/// The client of [`iperf`], for a server that runs already.
pub fn client(pair: &Pair, port: u16, options: &str) -> f64 {
    let to = if options.contains("-6") { "fd78::2" } else { "10.78.0.2" };
    pair.a.iperf(&format!("-c {to} -p {port} {options}"))
}

/// The shortest RTT that TCP has seen on connections to `port`, at either end, in nanoseconds (`ss`); waits for one.
/// Panics when none appears.
pub fn socket_min_rtt_ns(pair: &Pair, port: u16) -> u64 {
    for _ in 0..500 {
        let ends = [&pair.a, &pair.b]
            .map(|ns| ns.run(&format!("ss -Htin state established ( sport = :{port} or dport = :{port} )")));
        let words = ends.iter().flat_map(|text| text.split_whitespace());
        let values = words.filter_map(|word| word.strip_prefix("minrtt:")?.parse::<f64>().ok());
        if let Some(shortest) = values.min_by(f64::total_cmp) {
            return (shortest * 1e6) as u64;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("no connection to port {port} was seen");
}

/// A port's configuration from TOML, without marks where the text names no rule.
pub fn config<T: serde::de::DeserializeOwned>(text: &str) -> T {
    let ports_own = text.split("[[").next().unwrap_or_default();
    let rule = if ports_own.contains("marking") { "" } else { "marking = { rule = 'none' }\n" };
    toml::from_str(&format!("{rule}{text}")).unwrap_or_else(|e| panic!("{e}"))
}
