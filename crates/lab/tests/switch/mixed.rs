//! Hosts without ECN beside ECN connections that hold a standing queue above any threshold.

use super::traffic::{Inbox, transfers};
use super::{Bridge, Host};
use nix::sys::socket::{setsockopt, sockopt};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_system::diag::Diag;

/// ECN connections at a port of 10 Mbit/s.
const ECN_CONNECTIONS: usize = 3;
const DATAGRAMS: usize = 100;
const CONNECTIONS: usize = 20;
const LISTENER: u16 = 5300;
const INBOX: u16 = 5301;
const DISCARD: u16 = 9;
const FLOOD_BPS: u32 = 20_000_000;
const FLOOD_BUFFER: usize = 64 << 20;
/// More than the flood loses before the port acts on it.
const FLOOD_DROPS: u64 = 5_000;
/// Bytes of ECN connections after which they run, and have left the timeouts behind that the flood caused before it was
/// found.
const RECOVERED_BYTES: u64 = 500_000;
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Fair share of the ECN connections together beside one flood, bytes per second.
const ECN_FAIR: f64 = 10e6 / 8.0 * (ECN_CONNECTIONS as f64 / (ECN_CONNECTIONS as f64 + 1.0));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Datagrams without ECN at twice the port's rate.
#[derive(Debug, Clone, Copy)]
struct Flood {
    payload_bytes: usize,
    /// Source ports, in turn.
    flows: usize,
}

const USUAL: Flood = Flood { payload_bytes: 1400, flows: 1 };
/// A buffer of 1,000 packets is full long before its bytes are many.
const SMALL: Flood = Flood { payload_bytes: 458, flows: 1 };
/// Each of them below a sixteenth of the port's rate where they share it.
const MANY: Flood = Flood { payload_bytes: 1400, flows: 16 };

/// Results of hosts without ECN at one port.
#[derive(Debug)]
struct Passed {
    /// Goodput of an ECN connection over that of a connection without ECN.
    ratio: f64,
    lost_datagrams: usize,
    established: usize,
    repeated_syns: u64,
}

/// Opens connections, one after the other; how many are established.
fn connect(from: &Host, to: &Host) -> usize {
    let address = (to.address.as_str(), LISTENER);
    let listener = to.namespace.within(|| TcpListener::bind(address).expect("a free port"));
    let target = listener.local_addr().expect("an address");
    from.namespace.within(|| {
        let open = |_: &usize| {
            thread::sleep(Duration::from_millis(200));
            TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).is_ok()
        };
        (0..CONNECTIONS).filter(open).count()
    })
}

/// Sends small datagrams at a low rate.
fn trickle(from: &Host, to: &Host) {
    from.namespace.within(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for _ in 0..DATAGRAMS {
            socket.send_to(&[0; 200], (to.address.as_str(), INBOX)).expect("sent");
            thread::sleep(Duration::from_millis(50));
        }
    });
}

/// Bytes that a host's connections to a TCP port have brought there.
fn acknowledged(host: &Host, to_port: u16) -> u64 {
    let all = host.namespace.within(|| Diag::open().unwrap().subflows().unwrap());
    all.iter().filter(|s| s.established && s.remote.port() == to_port).map(|s| s.bytes_acked).sum()
}

/// ECN connections, one without ECN, datagrams and new connections through one port.
fn mixed(backend: &str, rate: &str, ecn_connections: usize, settings: &str) -> Passed {
    let bridge = Bridge::new(4);
    let [ecn, legacy, other, sink] = &bridge.hosts[..] else { panic!("four hosts") };
    for host in [legacy, other] {
        host.namespace.sysctl("ipv4/tcp_ecn", "0");
    }
    let port = bridge.attach(3, &format!("rate = '{rate}'\nbackend = '{backend}'\n{settings}"));
    let inbox = Inbox::open(sink, INBOX..INBOX + 1);
    let passed = thread::scope(|scope| {
        let bulk = [(ecn, 5201, ecn_connections), (legacy, 5202, 1)];
        let running = bulk.map(|(host, to_port, connections)| {
            let options = format!("-t 30 -C cubic -P {connections}");
            scope.spawn(move || transfers(&[(host, sink, to_port)], &options))
        });
        let sent = || bulk.map(|(host, to_port, _)| acknowledged(host, to_port));
        while sent().iter().any(|bytes| *bytes < 200_000) {
            assert!(!running[0].is_finished(), "the transfer ended before the others began");
            thread::sleep(Duration::from_millis(10));
        }
        let before = sent();
        let opened = scope.spawn(|| connect(other, sink));
        trickle(other, sink);
        let [with, without] = [0, 1].map(|kind| (sent()[kind] - before[kind]) as f64);
        assert!(running.iter().all(|run| !run.is_finished()), "all traffic is there to the end");
        Passed {
            lost_datagrams: DATAGRAMS - inbox.receive(DATAGRAMS).len(),
            established: opened.join().unwrap(),
            repeated_syns: other.tcp_counter("RetransSegs"),
            ratio: with / ecn_connections as f64 / without,
        }
    });
    println!("{rate} {ecn_connections} {settings:?} {passed:?} {:?}", port.detach().unwrap().classes);
    passed
}

/// Beside a port with tail drop in the same seconds: datagrams and SYNs are lost no more often than there, and CUBIC
/// without ECN has its share.
pub fn ecn_connections_leave_others_their_share(backend: &str) {
    let [marked, tail_drop] = thread::scope(|scope| {
        ["marking = { rule = 'mq-ecn' }", "not_ect = 'queue'\noverload = 1.0\nmarking = { rule = 'none' }"]
            .map(|settings| scope.spawn(move || mixed(backend, "10mbit", ECN_CONNECTIONS, settings)))
            .map(|running| running.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
    });
    assert_eq!(marked.established, CONNECTIONS, "{marked:?}");
    assert!(marked.repeated_syns <= tail_drop.repeated_syns.max(1), "{marked:?} {tail_drop:?}");
    assert!(marked.lost_datagrams <= tail_drop.lost_datagrams + DATAGRAMS / 100, "{marked:?} {tail_drop:?}");
    assert!((0.5..2.0).contains(&marked.ratio), "{marked:?} {tail_drop:?}");
}

/// Round trips far below the time that a loss timeout takes, and queues that ECN connections leave short: one without ECN
/// has its share of a full port.
pub fn few_ecn_connections_leave_others_their_share(backend: &str) {
    let rule = "marking = { rule = 'mq-ecn' }";
    for passed in [1, 3].map(|connections| mixed(backend, "100mbit", connections, rule)) {
        assert!((0.5..2.0).contains(&passed.ratio), "{passed:?}");
    }
}

/// Sends a flood until `stop`.
fn send_flood(flood: Flood, from: &Host, to: &Host, stop: &AtomicBool) {
    let open = |_| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        setsockopt(&socket, sockopt::SndBufForce, &FLOOD_BUFFER).expect("SO_SNDBUFFORCE");
        socket.connect((to.address.as_str(), DISCARD)).expect("an address");
        socket
    };
    from.namespace.within(|| {
        let sockets: Vec<_> = (0..flood.flows).map(open).collect();
        let payload = vec![0; flood.payload_bytes];
        let gap = Duration::from_secs(1) * (flood.payload_bytes as u32 * 8) / FLOOD_BPS;
        let mut due = Instant::now();
        for socket in sockets.iter().cycle() {
            if stop.load(Relaxed) {
                break;
            }
            // Nobody listens: errors are answers to datagrams before.
            let _ = socket.send(&payload);
            due += gap;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    });
}

/// Bytes per second of ECN connections beside a flood, and datagrams of a low rate that are lost.
fn flooded(backend: &str, settings: &str, flood: Flood) -> (f64, usize) {
    let bridge = Bridge::new(4);
    let [ecn, flooder, other, sink] = &bridge.hosts[..] else { panic!("four hosts") };
    let port = bridge.attach(3, &format!("rate = '10mbit'\nbackend = '{backend}'\n{settings}"));
    let inbox = Inbox::open(sink, INBOX..INBOX + 1);
    let stop = AtomicBool::new(false);
    let dropped = || {
        let classes = port.stats().unwrap().classes;
        classes.iter().map(|c| c.drops_overload + c.drops_full).sum::<u64>()
    };
    let found = thread::scope(|scope| {
        let options = format!("-t 50 -C cubic -P {ECN_CONNECTIONS}");
        let running = scope.spawn(move || transfers(&[(ecn, sink, 5201)], &options));
        while acknowledged(ecn, 5201) < RECOVERED_BYTES {
            assert!(!running.is_finished(), "the transfer ended before the flood began");
            thread::sleep(Duration::from_millis(10));
        }
        scope.spawn(|| send_flood(flood, flooder, sink, &stop));
        while dropped() < FLOOD_DROPS {
            assert!(!running.is_finished(), "the transfer ended before the flood was dropped");
            thread::sleep(Duration::from_millis(10));
        }
        let found = Instant::now();
        let wanted = acknowledged(ecn, 5201) + RECOVERED_BYTES;
        while acknowledged(ecn, 5201) < wanted && found.elapsed() < RECOVERY_TIMEOUT {
            thread::sleep(Duration::from_millis(10));
        }
        let (before, begun) = (acknowledged(ecn, 5201), Instant::now());
        trickle(other, sink);
        assert!(!running.is_finished(), "all traffic is there to the end");
        let rate = (acknowledged(ecn, 5201) - before) as f64 / begun.elapsed().as_secs_f64();
        let lost = DATAGRAMS - inbox.receive(DATAGRAMS).len();
        stop.store(true, Relaxed);
        running.join().unwrap();
        (rate, lost)
    });
    println!("{settings:?} {flood:?} {found:?} {:?}", port.detach().unwrap().classes);
    found
}

/// Beside a port with tail drop in the same seconds: ECN connections send several times as much beside a
/// flood without ECN, at least a quarter of their fair share, and low-rate datagrams arrive.
fn leaves_others_their_share(backend: &str, flood: Flood) {
    let [(marked, lost), (tail_drop, _)] = thread::scope(|scope| {
        ["marking = { rule = 'mq-ecn' }", "not_ect = 'queue'\noverload = 1.0\nmarking = { rule = 'none' }"]
            .map(|settings| scope.spawn(move || flooded(backend, settings, flood)))
            .map(|running| running.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
    });
    assert!(
        marked > (4.0 * tail_drop).max(ECN_FAIR / 4.0),
        "{flood:?}: {marked} bytes/s with the rule, {tail_drop} with tail drop"
    );
    assert!(lost <= DATAGRAMS / 50, "{flood:?}: {lost} of {DATAGRAMS} datagrams lost");
}

pub fn datagram_flood_leaves_others_their_share(backend: &str) {
    leaves_others_their_share(backend, USUAL);
}

pub fn small_datagrams_leave_others_their_share(backend: &str) {
    leaves_others_their_share(backend, SMALL);
}

pub fn flood_of_many_flows_leaves_others_their_share(backend: &str) {
    leaves_others_their_share(backend, MANY);
}
