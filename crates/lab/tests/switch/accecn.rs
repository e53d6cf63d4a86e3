//! AccECN (RFC 9768) of a VM whose packets pass marking ports at its taps: what a port marks is what both ends count.

use super::vm::{ADDRESS, MEASURED};
use super::{Namespace, run};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_system::diag::{Diag, EcnFeedback, Subflow};

const LISTENER: u16 = 5310;
const TRANSFER_BYTES: usize = 4_000_000;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_secs(120);

/// Addresses of the VM's two ends.
const ENDS: [&str; 2] = [ADDRESS, "10.79.0.101"];

/// Marks of one direction, as its ends count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counted {
    /// By the sender, from the ACE field and the option.
    pub echoed_pkt: u32,
    /// By the receiver.
    pub arrived_pkt: u32,
    pub delivered_pkt: u32,
    pub retransmitted_pkt: u32,
}

/// Program of a VM: two namespaces, an interface in each, data in both directions of one connection between them. Prints the
/// marks that were counted.
pub fn run_in_vm() -> ! {
    run("modprobe virtio_net");
    let ends = [0, 1].map(end);
    let listener = ends[1].within(|| TcpListener::bind((ENDS[1], LISTENER)).unwrap());
    let one = ends[0].within(|| connect(LISTENER));
    let (other, _) = listener.accept().unwrap();
    thread::scope(|scope| {
        for stream in [&one, &other] {
            scope.spawn(move || (&*stream).write_all(&vec![7; TRANSFER_BYTES]).unwrap());
            scope.spawn(move || (&*stream).read_exact(&mut vec![0; TRANSFER_BYTES]).unwrap());
        }
    });
    let [a, b] = ends.each_ref().map(acknowledged);
    assert_eq!([a.ecn_feedback, b.ecn_feedback], [EcnFeedback::AccEcn; 2]);
    let counted = [(&a, &b), (&b, &a)].map(|(from, to)| Counted {
        echoed_pkt: from.delivered_ce_pkt,
        arrived_pkt: to.received_ce_pkt.expect("a kernel with AccECN"),
        delivered_pkt: from.delivered_pkt,
        retransmitted_pkt: from.retransmitted_pkt,
    });
    println!("{MEASURED}{}", serde_json::to_string(&counted).expect("JSON"));
    // Until the machine is switched off.
    loop {
        thread::park();
    }
}

fn end(number: usize) -> Namespace {
    while !Path::new(&format!("/sys/class/net/eth{number}")).exists() {
        thread::sleep(POLL_INTERVAL);
    }
    let namespace = Namespace::new("e");
    let name = &namespace.0;
    run(&format!("ip link set eth{number} netns {name} name e0"));
    run(&format!("ip -n {name} addr add {}/24 dev e0", ENDS[number]));
    run(&format!("ip -n {name} link set e0 up"));
    namespace.within(|| {
        std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").unwrap();
        std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "3").unwrap();
    });
    namespace
}

/// The ports of the switch may not forward yet.
fn connect(port: u16) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect((ENDS[1], port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < TIMEOUT, "{error}"),
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// A namespace's only connection, once all that it sent is acknowledged.
fn acknowledged(namespace: &Namespace) -> Subflow {
    let begun = Instant::now();
    loop {
        let all = namespace.within(|| Diag::open().unwrap().subflows().unwrap());
        if let Some(found) = all.into_iter().find(|s| s.bytes_acked >= TRANSFER_BYTES as u64) {
            return found;
        }
        assert!(begun.elapsed() < TIMEOUT, "the transfer is not acknowledged");
        thread::sleep(POLL_INTERVAL);
    }
}
