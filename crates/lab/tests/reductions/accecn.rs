//! AccECN (RFC 9768), on kernels that can report it: the receiver counts marks, whatever its algorithm.

use super::row::Row;
use super::{Ends, PORT, Run, load};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_bpf::Loaded;
use vmcc_cc::Algorithm;
use vmcc_port::Port;
use vmcc_system::diag::{Diag, EcnFeedback, Subflow};
use vmcc_testkit::netns::run;
use vmcc_testkit::port::{Pair, config};

const MARKING: &str = "rate = '20mbit'\nmarking = { rule = 'threshold', at = '30kB' }\n";
const TRANSFER_BYTES: usize = 2_000_000;
const ACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(60);
const SOCKETS_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Every value of `tcp_ecn`, and the feedback that an ordinary peer with it agrees to.
const FEEDBACK: [(&str, EcnFeedback); 6] = [
    ("0", EcnFeedback::None),
    ("1", EcnFeedback::Rfc3168),
    ("2", EcnFeedback::Rfc3168),
    ("3", EcnFeedback::AccEcn),
    ("4", EcnFeedback::AccEcn),
    ("5", EcnFeedback::AccEcn),
];
/// Tolerance of a figure under AccECN, relative to the one with RFC 3168.
const TOLERANCE: f64 = 0.05;
const COMPARED_RUN_SECONDS: u64 = 12;

/// Both ends of a transfer, once all of it is acknowledged.
struct Transferred {
    sender: Subflow,
    receiver: Subflow,
}

fn listed(select: impl Fn(&Subflow) -> bool) -> Option<Subflow> {
    Diag::open().unwrap().subflows().unwrap().into_iter().find(select)
}

fn transfer(pair: &Pair) -> Transferred {
    let listener = pair.b.within(|| TcpListener::bind(("10.78.0.2", PORT)).unwrap());
    let mut to = pair.a.within(|| TcpStream::connect(("10.78.0.2", PORT)).unwrap());
    let (mut from, _) = listener.accept().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| from.read_exact(&mut vec![0; TRANSFER_BYTES]).unwrap());
        to.write_all(&vec![7; TRANSFER_BYTES]).unwrap();
    });
    let acknowledged = |s: &Subflow| s.remote.port() == PORT && s.bytes_acked >= TRANSFER_BYTES as u64;
    let begun = Instant::now();
    let sender = loop {
        if let Some(sender) = pair.a.within(|| listed(acknowledged)) {
            break sender;
        }
        assert!(begun.elapsed() < ACKNOWLEDGED_TIMEOUT, "the transfer is not acknowledged");
        thread::sleep(SOCKETS_POLL_INTERVAL);
    };
    let receiver = pair.b.within(|| listed(|s| s.local.port() == PORT)).expect("open still");
    Transferred { sender, receiver }
}

fn needing_ecn() -> impl Iterator<Item = Loaded> {
    Algorithm::all()
        .filter(|algorithm| algorithm.info().needs_ecn)
        .map(|algorithm| load(algorithm.info().name))
}

/// The sender's end of a connection to a peer with Reno.
fn connected(pair: &Pair, kernel_name: &str, client_ecn: &str, server_ecn: &str) -> Subflow {
    pair.a.sysctl("ipv4/tcp_congestion_control", kernel_name);
    pair.a.sysctl("ipv4/tcp_ecn", client_ecn);
    pair.b.sysctl("ipv4/tcp_ecn", server_ecn);
    let listener = pair.b.within(|| TcpListener::bind(("10.78.0.2", 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let _client = pair.a.within(|| TcpStream::connect(("10.78.0.2", port)).unwrap());
    let _server = listener.accept().unwrap();
    pair.a.within(|| listed(|s| s.remote.port() == port)).expect("open still")
}

/// The client's `tcp_ecn` does not matter: the algorithm requests AccECN. Without ECN the connection is Reno's.
pub fn any_client_requests_it() {
    let pair = Pair::new();
    for loaded in needing_ecn() {
        let name = loaded.kernel_name();
        for (client_ecn, _) in FEEDBACK {
            for (server_ecn, feedback) in FEEDBACK {
                let sender = connected(&pair, name, client_ecn, server_ecn);
                assert_eq!(sender.ecn_feedback, feedback, "{name}, tcp_ecn {client_ecn} to {server_ecn}");
                let without_ecn = feedback == EcnFeedback::None;
                assert_eq!(sender.algorithm == "reno", without_ecn, "{name}: {}", sender.algorithm);
            }
        }
        println!("{name}: as the server's tcp_ecn says, with each of the client's");
    }
}

/// The peer has Reno. At the defaults, `tcp_ecn` 2, the connection falls back to RFC 3168.
pub fn any_receiver_counts_marks() {
    let loaded = load("dctcp");
    for (server_ecn, feedback) in FEEDBACK {
        let pair = Pair::new();
        pair.a.sysctl("ipv4/tcp_congestion_control", loaded.kernel_name());
        pair.a.sysctl("ipv4/tcp_ecn", "2");
        pair.b.sysctl("ipv4/tcp_ecn", server_ecn);
        let port = Port::attach_in(&pair.netns(), "p0", &config(MARKING)).unwrap_or_else(|e| panic!("{e}"));
        let Transferred { sender, receiver } = transfer(&pair);
        let marked = port.detach().unwrap().classes[0].marked;
        let (echoed, arrived) = (sender.delivered_ce_pkt, receiver.received_ce_pkt.unwrap());
        println!(
            "server {server_ecn}: {feedback:?}, {marked} marked, {arrived} arrived, {echoed} echoed of {}",
            sender.delivered_pkt
        );
        assert_eq!(sender.ecn_feedback, feedback, "server {server_ecn}");
        let left_to_reno = feedback == EcnFeedback::None;
        assert_eq!(sender.algorithm == "reno", left_to_reno, "server {server_ecn}: {}", sender.algorithm);
        match feedback {
            EcnFeedback::None => assert_eq!(echoed, 0),
            EcnFeedback::Rfc3168 => assert!(echoed > 0, "nothing was marked"),
            EcnFeedback::AccEcn => assert!(echoed > 0 && echoed == arrived, "{echoed} of {arrived}"),
        }
    }
}

/// One run to the receiver whose feedback is measured. It acknowledges each packet by itself: delayed ACKs report marks later, but
/// under RFC 3168 not where marks begin and end.
fn compared(kernel_name: &str, receiver: &str, tcp_ecn: &str, feedback: EcnFeedback) -> Run {
    const STEP: &str =
        "rate = '10mbit'\nbackend = 'htb'\nbuffer = '1000pkt'\nmarking = { rule = 'threshold', at = '30kB' }";
    let row = Row::packet_by_packet();
    run(&format!("ip -n {} route change default via 10.79.1.2 quickack 1", row.receiver));
    let ends = Ends { sender: kernel_name, receiver, client_ecn: tcp_ecn, server_ecn: tcp_ecn };
    let run = row.send_between(&ends, STEP, 1, COMPARED_RUN_SECONDS);
    println!("{kernel_name}, {feedback:?}: {run}, {:.3} marked", run.marked_share);
    assert_eq!(run.feedback, Some(feedback), "{kernel_name} to {receiver}");
    run
}

/// Beside RFC 3168 with each mark echoed, which Linux's DCTCP does as a receiver.
pub fn as_with_each_mark_echoed() {
    run("modprobe tcp_dctcp");
    // Else only the initial network namespace may choose it.
    fs::write("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "dctcp reno").expect("a guest's own");
    let mut apart = Vec::new();
    for loaded in needing_ecn() {
        let name = loaded.kernel_name();
        let echoed = compared(name, "dctcp", "1", EcnFeedback::Rfc3168);
        let counted = compared(name, "reno", "3", EcnFeedback::AccEcn);
        for (figure, echoed, counted) in [
            ("reductions", echoed.in_cwr().count() as f64, counted.in_cwr().count() as f64),
            ("marked share", echoed.marked_share, counted.marked_share),
            // Of DCTCP 1 - alpha/2.
            ("ssthresh/cwnd", echoed.mean_ratio(), counted.mean_ratio()),
        ] {
            if (counted / echoed - 1.0).abs() > TOLERANCE {
                apart.push(format!("{name}, {figure}: {counted:.3} instead of {echoed:.3}"));
            }
        }
    }
    assert!(apart.is_empty(), "{apart:#?}");
}
