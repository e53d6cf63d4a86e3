//! Hosts without ECN beside ECN connections that hold a standing queue above any threshold.

use super::traffic::{Inbox, transfers};
use super::{Bridge, Host};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

/// What one iperf3 opens at most.
const MAX_STREAMS: usize = 128;
const FIRST_PORT: u16 = 5201;
const DATAGRAMS: usize = 100;
const CONNECTIONS: usize = 20;
const LISTENER: u16 = 5300;
const INBOX: u16 = 5301;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What hosts without ECN got at one port.
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

/// Goodput of one of `connections` from one host to another.
fn bulk(from: &Host, to: &Host, first_port: u16, connections: usize) -> f64 {
    let sum: f64 = thread::scope(|scope| {
        let runs: Vec<_> = (0..connections.div_ceil(MAX_STREAMS))
            .zip(first_port..)
            .map(|(run, to_port)| {
                let streams = (connections - run * MAX_STREAMS).min(MAX_STREAMS);
                let options = format!("-t 10 -O 4 -C cubic -P {streams}");
                scope.spawn(move || transfers(&[(from, to, to_port)], &options)[0].goodput_bps)
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).sum()
    });
    sum / connections as f64
}

/// ECN connections, one without ECN, datagrams and new connections through one port.
fn mixed(backend: &str, rate: &str, connections: usize, settings: &str) -> Passed {
    let bridge = Bridge::new(4);
    let [ecn, legacy, other, sink] = &bridge.hosts[..] else { panic!("four hosts") };
    for host in [legacy, other] {
        host.namespace.sysctl("ipv4/tcp_ecn", "0");
    }
    let port = bridge.attach(3, &format!("rate = '{rate}'\nbackend = '{backend}'\n{settings}"));
    let inbox = Inbox::open(sink, INBOX..INBOX + 1);
    let passed = thread::scope(|scope| {
        let with = scope.spawn(|| bulk(ecn, sink, FIRST_PORT + 1, connections));
        let without = scope.spawn(|| bulk(legacy, sink, FIRST_PORT, 1));
        while port.stats().unwrap().classes[0].packets < 500 {
            assert!(!with.is_finished(), "the transfer ended before the others began");
            thread::sleep(Duration::from_millis(10));
        }
        let opened = scope.spawn(|| connect(other, sink));
        trickle(other, sink);
        Passed {
            lost_datagrams: DATAGRAMS - inbox.receive(DATAGRAMS).len(),
            established: opened.join().unwrap(),
            repeated_syns: other.tcp_counter("RetransSegs"),
            ratio: with.join().unwrap() / without.join().unwrap(),
        }
    });
    println!("{rate} {connections}: {settings:?} {passed:?} {:?}", port.detach().unwrap().classes);
    passed
}

/// The same traffic at a port that marks and at one with tail drop, in the same seconds.
fn beside_tail_drop(backend: &str, rate: &str, connections: usize) -> [Passed; 2] {
    thread::scope(|scope| {
        ["marking = { rule = 'mq-ecn' }", "not_ect = 'queue'\noverload = 1.0\nmarking = { rule = 'none' }"]
            .map(|settings| scope.spawn(move || mixed(backend, rate, connections, settings)))
            .map(|running| running.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
    })
}

/// The table of docs/marking-evidence.md.
pub fn table(backend: &str) {
    for rate in ["10mbit", "100mbit"] {
        for connections in [1, 3, 6, 32, 128, 512] {
            let [marked, tail_drop] = beside_tail_drop(backend, rate, connections);
            println!("| {rate} | {connections} | {marked:?} | {tail_drop:?} |");
        }
    }
}

/// Beside a port with tail drop in the same seconds: datagrams and SYNs are lost no more often than there, and CUBIC
/// without ECN has its share.
pub fn ecn_connections_leave_others_their_share(backend: &str) {
    let [marked, tail_drop] = beside_tail_drop(backend, "10mbit", 3);
    assert_eq!(marked.established, CONNECTIONS, "{marked:?}");
    assert!(marked.repeated_syns <= tail_drop.repeated_syns.max(1), "{marked:?} {tail_drop:?}");
    assert!(marked.lost_datagrams <= tail_drop.lost_datagrams + DATAGRAMS / 100, "{marked:?} {tail_drop:?}");
    assert!((0.5..2.0).contains(&marked.ratio), "{marked:?} {tail_drop:?}");
}
