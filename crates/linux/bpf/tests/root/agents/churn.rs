//! Does an MPTCP connection carry its bytes while its paths come and go? Needs root: without it these tests fail.
//!
//! A detector of the kernel's own faults: nothing of vmcc is loaded unless it is asked for. Both ends know every byte
//! of the stream by its place in it, so that the first wrong one is found where it is.
//!
//! ```text
//! VMCC_CHURN_TRANSFERS=100 VMCC_CHURN_ALGORITHM=reno cargo test ... --test root -- --nocapture churn::root_
//! ```

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_system::diag::Diag;
use vmcc_testkit::paths::{Net, Over, Shape, connect, listen};

const PATHS: usize = 3;
const SENDING: Duration = Duration::from_secs(4);
const CHUNK_BYTES: usize = 1 << 16;
/// A connection whose paths are all gone for so long is given up.
const DEAD_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// The stream from its byte `from` on; `from` is a multiple of eight.
fn fill(from: u64, buffer: &mut [u8]) {
    for (i, word) in (from / 8..).zip(buffer.chunks_mut(8)) {
        let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(z ^ (z >> 31)).to_ne_bytes()[..word.len()]);
    }
}

/// Compares what arrives with the stream.
#[derive(Default)]
struct Checker {
    bytes: u64,
    wrong_at: Option<u64>,
}

impl Checker {
    fn take(&mut self, arrived: &[u8]) {
        let start = self.bytes / 8 * 8;
        let skip = usize::try_from(self.bytes - start).expect("less than eight");
        let mut expected = vec![0; (skip + arrived.len()).next_multiple_of(8)];
        fill(start, &mut expected);
        let differs = expected[skip..].iter().zip(arrived).position(|(a, b)| a != b);
        if let (None, Some(at)) = (self.wrong_at, differs) {
            self.wrong_at = Some(self.bytes + at as u64);
        }
        self.bytes += arrived.len() as u64;
    }
}

/// Outcome of a transfer.
struct Outcome {
    sent: u64,
    arrived: u64,
    wrong_at: Option<u64>,
    /// The connection broke, which churn may do; it is no wrong byte.
    broken: Option<ErrorKind>,
    faults: usize,
    most_subflows: usize,
}

impl Outcome {
    /// A byte that is not the stream's, or a stream that ends early as if it were whole.
    fn is_wrong(&self) -> bool {
        self.wrong_at.is_some() || (self.broken.is_none() && self.arrived != self.sent)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.wrong_at, self.is_wrong(), self.broken) {
            (Some(at), ..) => format!("WRONG from byte {at} on"),
            (None, true, _) => "WRONG: it ended early".to_owned(),
            (None, false, Some(kind)) => format!("broken ({kind:?})"),
            (None, false, None) => "right".to_owned(),
        };
        let Self { sent, arrived, faults, most_subflows, .. } = self;
        write!(
            f,
            "{verdict}: {arrived} of {sent} bytes, {faults} faults, up to {most_subflows} subflows at the sender"
        )
    }
}

/// One fault after the other on paths 1 and up, until told to stop: endpoints that go and come, links that do.
fn churn(net: &Net, mut seed: u64, stop: &AtomicBool) -> usize {
    let mut faults = 0;
    while !stop.load(Ordering::Relaxed) {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = seed >> 33;
        let path = 1 + draw as usize % (PATHS - 1);
        let (client, server) = (&net.client, &net.server);
        let act = |command: String| {
            // Deleting what is gone and adding what is there are refused, as they should be.
            let _ = Command::new("ip").args(command.split_whitespace()).output();
        };
        match draw >> 8 & 3 {
            0 => act(format!("-n {server} mptcp endpoint delete id {path}")),
            1 => act(format!("-n {server} mptcp endpoint add 10.77.{path}.2 id {path} dev p{path} signal")),
            2 => act(format!("-n {client} link set p{path} down")),
            _ => {
                act(format!("-n {client} link set p{path} up"));
                act(format!("-n {client} mptcp endpoint add 10.77.{path}.1 id {path} dev p{path} subflow"));
            }
        }
        faults += 1;
        thread::sleep(Duration::from_millis(20 + (draw >> 16) % 100));
    }
    faults
}

fn send(net: &Net, port: u16, most_subflows: &mut usize) -> (u64, Option<ErrorKind>) {
    net.client.within(|| {
        let mut stream = TcpStream::from(OwnedFd::from(connect(Over::Mptcp, port)));
        stream.set_write_timeout(Some(DEAD_CONNECTION_TIMEOUT)).unwrap();
        let (started, mut sent, mut chunk) = (Instant::now(), 0, vec![0; CHUNK_BYTES]);
        let mut chunks = 0_u32;
        while started.elapsed() < SENDING {
            fill(sent, &mut chunk);
            if let Err(error) = stream.write_all(&chunk) {
                return (sent, Some(error.kind()));
            }
            sent += chunk.len() as u64;
            chunks += 1;
            if chunks.is_multiple_of(4) {
                let all = Diag::open().and_then(|mut diag| diag.subflows()).unwrap_or_default();
                let ours = all.iter().filter(|s| s.remote.port() == port && s.established).count();
                *most_subflows = ours.max(*most_subflows);
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        // Until the receiver has everything: closing earlier may lose what is on its way.
        stream.set_read_timeout(Some(DEAD_CONNECTION_TIMEOUT)).unwrap();
        let ended = stream.read(&mut [0]);
        (sent, ended.err().map(|e| e.kind()))
    })
}

fn receive(listener: &socket2::Socket) -> (Checker, Option<ErrorKind>) {
    let mut stream = TcpStream::from(OwnedFd::from(listener.accept().expect("accept").0));
    stream.set_read_timeout(Some(DEAD_CONNECTION_TIMEOUT)).unwrap();
    let (mut checker, mut buffer) = (Checker::default(), vec![0; CHUNK_BYTES]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (checker, None),
            Ok(n) => checker.take(&buffer[..n]),
            Err(error) => return (checker, Some(error.kind())),
        }
    }
}

fn transfer(algorithm: &str, number: u16) -> Outcome {
    let net = Net::new(PATHS, Some(Shape { rate_mbit: 100, buffer_kb: 150 }));
    net.select(algorithm);
    let port = 5400 + number % 100;
    let listener = net.server.within(|| listen(Over::Mptcp, port));
    let stop = AtomicBool::new(false);
    let mut most_subflows = 0;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&listener));
        let churner = scope.spawn(|| churn(&net, u64::from(number) + 1, &stop));
        let (sent, broken_sender) = send(&net, port, &mut most_subflows);
        stop.store(true, Ordering::Relaxed);
        let (checker, broken_receiver) = receiver.join().expect("receiver");
        Outcome {
            sent,
            arrived: checker.bytes,
            wrong_at: checker.wrong_at,
            broken: broken_receiver.or(broken_sender),
            faults: churner.join().expect("churn"),
            most_subflows,
        }
    })
}

/// Reports what the kernel does; wrong bytes of the kernel's own are no fault of this program. What must hold is that
/// the detector works: transfers run over several paths, which come and go.
#[test]
fn root_bytes_arrive_intact_during_path_churn() {
    let asked = std::env::var("VMCC_CHURN_TRANSFERS").ok().map(|n| n.parse().expect("a number"));
    let algorithm = std::env::var("VMCC_CHURN_ALGORITHM").unwrap_or_else(|_| "reno".to_owned());
    let transfers: u16 = asked.unwrap_or(2);
    let outcomes: Vec<Outcome> = (0..transfers)
        .map(|number| {
            let outcome = transfer(&algorithm, number);
            println!("transfer {number} under {algorithm}: {outcome}");
            outcome
        })
        .collect();
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|o| is(o)).count();
    let (wrong, broken) = (count(Outcome::is_wrong), count(|o| o.broken.is_some()));
    println!("{wrong} of {transfers} transfers were wrong, {broken} broke");
    assert!(outcomes.iter().all(|o| o.faults > 0 && o.arrived > 0), "nothing was tried");
    assert!(outcomes.iter().any(|o| o.most_subflows > 1), "there never was a second path");
}

#[test]
fn wrong_byte_is_located() {
    let mut stream = vec![0; 100_000];
    fill(0, &mut stream);
    for at in [0, 1, 7, 8, 4095, 99_999] {
        let mut arrived = stream.clone();
        arrived[at] ^= 1;
        let mut checker = Checker::default();
        arrived.chunks(777).for_each(|chunk| checker.take(chunk));
        assert_eq!((checker.wrong_at, checker.bytes), (Some(at as u64), 100_000));
    }
    let mut checker = Checker::default();
    stream.chunks(777).for_each(|chunk| checker.take(chunk));
    assert_eq!(checker.wrong_at, None);
    // A stretch that arrives twice, or not at all.
    for (from, to) in [(1000, 2000), (2000, 1000)] {
        let mut checker = Checker::default();
        checker.take(&stream[..from]);
        checker.take(&stream[to..to + 500]);
        assert_eq!(checker.wrong_at, Some(from as u64), "{from} to {to}");
    }
}
