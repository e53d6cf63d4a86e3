//! One MPTCP connection under vMCC's congestion control, over two interfaces at both ends.

use super::traffic::Measured;
use super::{Host, Server};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use vmcc_bpf::Loaded;
use vmcc_cc::{Algorithm, Params};
use vmcc_netlink::{MAX_LIMIT, PathManager};
use vmcc_port::PortConfig;
use vmcc_system::diag::{Diag, Subflow};

/// Rule of a port that marks, and its threshold.
pub const RULE: &str = "{ rule = 'threshold', at = '15kB' }";
pub const THRESHOLD_BYTES: u64 = 15_000;

/// Each of two ports that mark.
pub fn config(rate: &str, backend: &str) -> PortConfig {
    super::config(&format!("rate = '{rate}'\nmarking = {RULE}\nbackend = '{backend}'\n"))
}

/// Poll interval of the sender's sockets.
const PAUSE: Duration = Duration::from_millis(50);

/// Role of a host in a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Sends,
    Receives,
    Both,
}

/// vMCC in this kernel; gone with this.
pub fn load() -> Loaded {
    let vmcc = Algorithm::by_name("vmcc").expect("the algorithm");
    Loaded::load(vmcc, &Params::defaults(vmcc)).unwrap_or_else(|e| panic!("{e}"))
}

/// Makes a host with two interfaces use both. vMCC is loaded.
pub fn prepare(host: &Host, role: Role) {
    let second = host.second.as_ref().expect("a second interface").address.parse().expect("an address");
    host.namespace.within(|| {
        for (key, value) in [
            // At both ends: the receiver's decides how marks are echoed.
            ("ipv4/tcp_congestion_control", "mp_vmcc"),
            ("mptcp/enabled", "1"),
            // Both interfaces are in one layer-2 network: each answers for its own address only.
            ("ipv4/conf/all/arp_ignore", "1"),
            ("ipv4/conf/all/arp_announce", "2"),
        ] {
            std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap_or_else(|e| panic!("{key}: {e}"));
        }
        let mut manager = PathManager::open().expect("MPTCP");
        // Who only receives does not answer announcements: the sender makes the second subflow.
        let accepted = if role == Role::Receives { 0 } else { MAX_LIMIT };
        manager.set_limits(MAX_LIMIT, accepted).expect("limits");
        if role != Role::Sends {
            manager.signal(second).expect("an endpoint");
        }
    });
}

/// Sends from one prepared host to another.
pub fn transfer(from: &Host, to: &Host, port: u16, seconds: u32) -> Measured {
    let _server = Server::start_multipath(&to.namespace, port);
    send(from, &to.address, port, seconds).unwrap_or_else(|said| panic!("iperf3: {said}"))
}

/// Sends to a server at `to`; what iperf3 said if it does not get through.
pub fn send(from: &Host, to: &str, port: u16, seconds: u32) -> Result<Measured, String> {
    let client = format!("iperf3 -4 -J -c {to} -p {port} -t {seconds} --connect-timeout 2000");
    let words = format!("netns exec {} mptcpize run {client}", from.namespace.0);
    let earlier = from.namespace.within(|| drained(port));
    let ended = AtomicBool::new(false);
    let (report, tracks) = thread::scope(|scope| {
        let watching = scope.spawn(|| from.namespace.within(|| watch(port, &earlier, &ended)));
        let output = Command::new("ip").args(words.split(' ')).output();
        ended.store(true, Ordering::Relaxed);
        let tracks = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (String::from_utf8_lossy(&output.expect("ip").stdout).into_owned(), tracks)
    });
    // Its exit code says nothing.
    if report.contains("\"error\"") || report.is_empty() {
        return Err(report);
    }
    Ok(measured(&Measured::from_json(&report), tracks))
}

/// A subflow over its life.
#[derive(Debug, Default)]
struct Track {
    connection: u32,
    algorithm: String,
    bytes: u64,
    retransmits: u64,
    rtts_us: Vec<u64>,
}

/// This namespace's subflows to a server's port.
fn subflows(port: u16) -> Vec<Subflow> {
    let all = Diag::open().and_then(|mut diag| diag.subflows()).expect("a list of sockets");
    all.into_iter().filter(|socket| socket.remote.port() == port).collect()
}

/// Waits until an earlier transfer has sent what it had in its buffers; sockets that still close after that.
fn drained(port: u16) -> HashSet<SocketAddr> {
    let mut left = HashSet::new();
    for _ in 0..100 {
        left = subflows(port).into_iter().map(|socket| socket.local).collect();
        if left.is_empty() {
            break;
        }
        thread::sleep(PAUSE);
    }
    left
}

/// Looks at the subflows to a server's port until `ended`, but not at `earlier` ones.
fn watch(port: u16, earlier: &HashSet<SocketAddr>, ended: &AtomicBool) -> Vec<Track> {
    let mut tracks: HashMap<SocketAddr, Track> = HashMap::new();
    while !ended.load(Ordering::Relaxed) {
        for socket in subflows(port).into_iter().filter(|socket| !earlier.contains(&socket.local)) {
            let Some(mptcp) = socket.mptcp else { continue };
            let track = tracks.entry(socket.local).or_default();
            track.connection = mptcp.token_local;
            track.algorithm = socket.algorithm;
            track.bytes = socket.bytes_acked;
            track.retransmits = u64::from(socket.retransmitted_pkt);
            track.rtts_us.push(u64::from(socket.srtt_us));
        }
        thread::sleep(PAUSE);
    }
    tracks.into_values().collect()
}

/// Goodput as iperf3 saw it, the rest as the kernel did, which iperf3 cannot ask of a connection of several subflows.
fn measured(iperf: &Measured, tracks: Vec<Track>) -> Measured {
    // iperf3 has a second connection, for its own messages.
    let busiest = tracks.iter().max_by_key(|track| track.bytes).expect("an MPTCP connection").connection;
    let data: Vec<&Track> = tracks.iter().filter(|track| track.connection == busiest).collect();
    for track in &data {
        assert_eq!(track.algorithm, "mp_vmcc", "{track:?}");
    }
    let mut rtts: Vec<u64> = data.iter().flat_map(|track| track.rtts_us.iter().copied()).collect();
    rtts.sort_unstable();
    Measured {
        goodput_bps: iperf.goodput_bps,
        rtt_p50_us: rtts[rtts.len() / 2],
        retransmits: data.iter().map(|track| track.retransmits).sum(),
        subflow_bytes: data.iter().map(|track| track.bytes).collect(),
    }
}

/// Makes a sender and a receiver of two hosts.
pub fn prepare_pair(from: &Host, to: &Host) {
    prepare(from, Role::Sends);
    prepare(to, Role::Receives);
}

/// Not measured: the first transfer of an emulated machine is slow.
pub fn warm_up(from: &Host, to: &Host) {
    transfer(from, to, 5201, 1);
}
