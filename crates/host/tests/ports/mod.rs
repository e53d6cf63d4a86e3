//! What the tests of ports share: two namespaces joined by a veth pair, and traffic between them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Runs a command and shows what it said if it fails; its output.
pub fn run(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output =
        Command::new(words[0]).args(&words[1..]).output().unwrap_or_else(|e| panic!("{command}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command}: {err} {out}");
    out.into_owned()
}

/// Two namespaces, `a` and `b`, joined by port `p0` in each: 10.78.0.1 and fd78::1 at a, .2 and ::2 at b. Segmentation
/// is left to no device; TCP makes short trains of packets all the same, which come apart below the queue. Removed on
/// drop.
pub struct Pair {
    pub a: String,
    pub b: String,
}

impl Pair {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("vmccp{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let pair = Self { a: format!("{id}a"), b: format!("{id}b") };
        run(&format!("ip netns add {}", pair.a));
        run(&format!("ip netns add {}", pair.b));
        run(&format!("ip -n {} link add p0 type veth peer name p0 netns {}", pair.a, pair.b));
        for (ns, host) in [(&pair.a, 1), (&pair.b, 2)] {
            run(&format!("ip -n {ns} addr add 10.78.0.{host}/24 dev p0"));
            run(&format!("ip -n {ns} addr add fd78::{host}/64 dev p0 nodad"));
            run(&format!("ip -n {ns} link set p0 up"));
            run(&format!("ip -n {ns} link set lo up"));
            within(ns, || vmcc_netlink::disable_segmentation_offload("p0").unwrap());
            sysctl(ns, "net/ipv4/tcp_congestion_control", "reno");
            sysctl(ns, "net/ipv4/tcp_ecn", "1");
        }
        pair
    }

    /// The namespace file of the sending side.
    pub fn netns(&self) -> PathBuf {
        netns_file(&self.a)
    }

    /// What `tc` shows of the sending port's queues.
    pub fn queues(&self) -> String {
        run(&format!("tc -n {} qdisc show dev p0", self.a))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for ns in [&self.a, &self.b] {
            let _ = Command::new("ip").args(["netns", "del", ns]).output();
        }
    }
}

pub fn netns_file(ns: &str) -> PathBuf {
    PathBuf::from(format!("/run/netns/{ns}"))
}

pub fn sysctl(ns: &str, name: &str, value: &str) {
    within(ns, || {
        std::fs::write(format!("/proc/sys/{name}"), value).unwrap_or_else(|e| panic!("{name}={value}: {e}"));
    });
}

/// Runs `action` on a thread inside the namespace.
pub fn within<T: Send>(ns: &str, action: impl FnOnce() -> T + Send) -> T {
    let file = File::open(netns_file(ns)).unwrap_or_else(|e| panic!("{ns}: {e}"));
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).expect("enter namespace");
            action()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// An iperf3 server in namespace `b`, one test; ends by itself or with this.
pub struct Server(std::process::Child);

impl Server {
    pub fn start(pair: &Pair, port: u16) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &pair.b, "iperf3", "-s", "-1", "-p", &port.to_string()]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let server = Self(command.spawn().expect("iperf3"));
        // Listening is seen from inside; a connection would use up the one test.
        while !run(&format!("ip netns exec {} ss -Hltn sport = :{port}", pair.b)).contains("LISTEN") {
            thread::sleep(std::time::Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an iperf3 client measured, in bits per second at the receiver.
pub fn iperf(pair: &Pair, port: u16, options: &str) -> f64 {
    let _server = Server::start(pair, port);
    client(pair, port, options)
}

/// The client alone.
pub fn client(pair: &Pair, port: u16, options: &str) -> f64 {
    let to = if options.contains("-6") { "fd78::2" } else { "10.78.0.2" };
    let text = run(&format!("ip netns exec {} iperf3 -J -c {to} -p {port} {options}", pair.a));
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate")
}

/// The shortest RTT that TCP has seen on connections to `port`, at either end, in nanoseconds (`ss`); waits for one.
/// Panics when none appears.
pub fn socket_min_rtt_ns(pair: &Pair, port: u16) -> u64 {
    for _ in 0..500 {
        let ends = [&pair.a, &pair.b].map(|ns| {
            run(&format!(
                "ip netns exec {ns} ss -Htin state established ( sport = :{port} or dport = :{port} )"
            ))
        });
        let words = ends.iter().flat_map(|text| text.split_whitespace());
        let values = words.filter_map(|word| word.strip_prefix("minrtt:")?.parse::<f64>().ok());
        if let Some(shortest) = values.min_by(f64::total_cmp) {
            return (shortest * 1e6) as u64;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("no connection to port {port} was seen");
}

/// A configuration from TOML.
pub fn config(text: &str) -> vmcc_port::PortConfig {
    toml::from_str(text).unwrap_or_else(|e| panic!("{e}"))
}
