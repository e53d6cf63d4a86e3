//! What the privileged tests share: two network namespaces joined by veth paths, and transfers between them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use sha2::{Digest, Sha256};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Tests register algorithms under fixed names: one at a time, in this process and on this machine.
pub fn alone() -> (MutexGuard<'static, ()>, File) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::create("/run/vmcc-host-tests.lock").expect("these tests need root");
    file.lock().expect("lock");
    (guard, file)
}

/// Runs a command of iproute2 and shows what it said if it fails.
pub fn run(command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output =
        Command::new(words[0]).args(&words[1..]).output().unwrap_or_else(|e| panic!("{command}: {e}"));
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two namespaces, `client` and `server`, joined by paths 0, 1, ...: port `p0`, `p1`, ... in each, addresses
/// 10.77.`path`.1 at the client and .2 at the server. Removed on drop.
pub struct Net {
    pub client: String,
    pub server: String,
    pub paths: usize,
}

/// How a path is shaped.
#[derive(Clone, Copy)]
pub struct Shape {
    pub rate_mbit: u32,
    pub buffer_kb: u32,
}

impl Net {
    pub fn new(paths: usize, shape: Option<Shape>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let net = Self { client: format!("vmcct{id}c"), server: format!("vmcct{id}s"), paths };
        run(&format!("ip netns add {}", net.client));
        run(&format!("ip netns add {}", net.server));
        for path in 0..paths {
            net.add_path(path, shape);
        }
        for (ns, kind) in [(&net.client, "subflow"), (&net.server, "signal")] {
            run(&format!("ip -n {ns} link set lo up"));
            run(&format!("ip -n {ns} mptcp limits set subflow 8 add_addr_accepted 8"));
            if kind == "signal" {
                for path in 1..paths.min(8) {
                    run(&format!("ip -n {ns} mptcp endpoint add 10.77.{path}.2 dev p{path} signal"));
                }
            }
            net.sysctl(ns, "net/mptcp/enabled", "1");
            net.sysctl(ns, "net/ipv4/tcp_rmem", "4096 131072 16777216");
            net.sysctl(ns, "net/ipv4/tcp_wmem", "4096 131072 16777216");
        }
        net
    }

    fn add_path(&self, path: usize, shape: Option<Shape>) {
        let (c, s) = (&self.client, &self.server);
        run(&format!("ip -n {c} link add p{path} type veth peer name p{path} netns {s}"));
        for (ns, host) in [(c, 1), (s, 2)] {
            run(&format!("ip -n {ns} addr add 10.77.{path}.{host}/24 dev p{path}"));
            run(&format!("ip -n {ns} link set p{path} up"));
            if let Some(shape) = shape {
                // One segment per packet: bursts of joined segments distort short queues.
                run(&format!("ip -n {ns} link set p{path} gso_max_segs 1"));
                let tc = format!("tc -n {ns} qdisc add dev p{path}");
                run(&format!("{tc} root handle 1: htb default 1"));
                let rate = shape.rate_mbit;
                run(&format!(
                    "tc -n {ns} class add dev p{path} parent 1: classid 1:1 htb rate {rate}mbit burst 15k cburst 15k"
                ));
                run(&format!("{tc} parent 1:1 bfifo limit {}kb", shape.buffer_kb));
            }
        }
    }

    /// The namespace file of `ns`.
    pub fn file(ns: &str) -> PathBuf {
        PathBuf::from(format!("/run/netns/{ns}"))
    }

    pub fn sysctl(&self, ns: &str, name: &str, value: &str) {
        within(ns, || {
            std::fs::write(format!("/proc/sys/{name}"), value)
                .unwrap_or_else(|e| panic!("{name}={value}: {e}"));
        });
    }

    /// The default algorithm of both ends.
    pub fn select(&self, kernel_name: &str) {
        for ns in [&self.client, &self.server] {
            self.sysctl(ns, "net/ipv4/tcp_congestion_control", kernel_name);
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for ns in [&self.client, &self.server] {
            let _ = Command::new("ip").args(["netns", "del", ns]).output();
        }
    }
}

/// Runs `action` on a thread inside the namespace.
pub fn within<T: Send>(ns: &str, action: impl FnOnce() -> T + Send) -> T {
    let file = File::open(Net::file(ns)).unwrap_or_else(|e| panic!("{ns}: {e}"));
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).expect("enter namespace");
            action()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// What a transfer carries over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Tcp,
    Mptcp,
}

fn socket(over: Over) -> Socket {
    let protocol = if over == Over::Mptcp { Protocol::from(262) } else { Protocol::TCP };
    Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)).expect("socket")
}

pub fn listen(over: Over, port: u16) -> Socket {
    let listener = socket(over);
    listener.set_reuse_address(true).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into()).unwrap();
    listener.listen(1024).unwrap();
    listener
}

pub fn connect(over: Over, port: u16) -> Socket {
    let client = socket(over);
    client.connect(&SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), port).into()).expect("connect");
    client
}

/// What was sent, and how long until the receiver had all of it.
pub struct Transfer {
    pub bytes: u64,
    pub seconds: f64,
}

/// A pattern that repeats with no period that a transport could mistake: bytes of a xorshift generator.
fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(1 << 20);
    while bytes.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Sends from client to server until `enough` says so (asked once per megabyte, with the bytes sent so far), and
/// compares SHA-256 of both ends.
pub fn transfer(net: &Net, over: Over, port: u16, mut enough: impl FnMut(u64) -> bool + Send) -> Transfer {
    let listener = within(&net.server, || listen(over, port));
    let started = Instant::now();
    let receiver = thread::spawn(move || {
        let (socket, _) = listener.accept().expect("accept");
        let mut stream = TcpStream::from(std::os::fd::OwnedFd::from(socket));
        let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0_u64, vec![0; 1 << 18]);
        loop {
            match stream.read(&mut buffer).expect("receive") {
                0 => break,
                n => {
                    hash.update(&buffer[..n]);
                    bytes += n as u64;
                }
            }
        }
        (hash.finalize(), bytes, Instant::now())
    });
    let (sent_hash, sent) = within(&net.client, || {
        let mut stream = TcpStream::from(std::os::fd::OwnedFd::from(connect(over, port)));
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        let block = pattern();
        let (mut hash, mut sent) = (Sha256::new(), 0_u64);
        while !enough(sent) {
            stream.write_all(&block).expect("send");
            hash.update(&block);
            sent += block.len() as u64;
        }
        (hash.finalize(), sent)
    });
    let (received_hash, received, done) = receiver.join().expect("receiver");
    assert_eq!(sent, received, "bytes");
    assert_eq!(sent_hash, received_hash, "SHA-256");
    Transfer { bytes: sent, seconds: (done - started).as_secs_f64() }
}
