//! Two network namespaces joined by veth paths, and transfers between them by TCP and MPTCP.

use crate::netns::{Namespace, join, run};
use sha2::{Digest, Sha256};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Tests register algorithms under fixed names: one at a time, in this process and on this machine.
pub fn alone() -> (MutexGuard<'static, ()>, File) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::create("/run/vmcc-bpf-tests.lock").expect("these tests need root");
    file.lock().expect("lock");
    (guard, file)
}

/// Two namespaces, `client` and `server`, joined by paths 0, 1, ...: port `p0`, `p1`, ... in each, addresses
/// 10.77.`path`.1 at the client and .2 at the server. Removed on drop.
#[derive(Debug)]
pub struct Net {
    /// Opens connections.
    pub client: Namespace,
    /// Accepts them.
    pub server: Namespace,
    /// Number of paths.
    pub paths: usize,
}

/// Subflows of an MPTCP connection: the first, and as many more as every kernel takes.
pub const MAX_MPTCP_PATHS: usize = 9;

/// Shaping of a path.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Of Ethernet frames.
    pub rate_mbit: u32,
    /// Queue's limit.
    pub buffer_kb: u32,
}

impl Net {
    /// Joined by `paths` paths, each shaped in both directions.
    pub fn new(paths: usize, shape: Option<Shape>) -> Self {
        let net = Self { client: Namespace::new("c"), server: Namespace::new("s"), paths };
        for path in 0..paths {
            net.add_path(path, shape);
        }
        for (ns, kind) in [(&net.client, "subflow"), (&net.server, "signal")] {
            run(&format!("ip -n {ns} mptcp limits set subflow 8 add_addr_accepted 8"));
            if kind == "signal" {
                for path in 1..paths.min(MAX_MPTCP_PATHS) {
                    run(&format!("ip -n {ns} mptcp endpoint add 10.77.{path}.2 dev p{path} signal"));
                }
            }
            ns.sysctl("mptcp/enabled", "1");
            ns.sysctl("ipv4/tcp_rmem", "4096 131072 16777216");
            ns.sysctl("ipv4/tcp_wmem", "4096 131072 16777216");
        }
        net
    }

    fn add_path(&self, path: usize, shape: Option<Shape>) {
        let (c, s) = (&self.client, &self.server);
        join(c, s, &format!("p{path}"), &format!("10.77.{path}"));
        for ns in [c, s] {
            if let Some(wanted) = shape {
                self::shape(ns, &format!("p{path}"), wanted);
            }
        }
    }

    /// The default algorithm of both ends.
    pub fn select(&self, kernel_name: &str) {
        for ns in [&self.client, &self.server] {
            ns.sysctl("ipv4/tcp_congestion_control", kernel_name);
        }
    }
}

/// Shapes what leaves by `port`.
pub fn shape(ns: &Namespace, port: &str, shape: Shape) {
    // One segment per packet: bursts of joined segments distort short queues.
    run(&format!("ip -n {ns} link set {port} gso_max_segs 1"));
    let tc = format!("tc -n {ns} qdisc add dev {port}");
    run(&format!("{tc} root handle 1: htb default 1"));
    let rate = shape.rate_mbit;
    run(&format!(
        "tc -n {ns} class add dev {port} parent 1: classid 1:1 htb rate {rate}mbit burst 15k cburst 15k"
    ));
    run(&format!("{tc} parent 1:1 bfifo limit {}kb", shape.buffer_kb));
}

/// Transport protocol of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// TCP.
    Tcp,
    /// Multipath TCP.
    Mptcp,
}

fn socket(over: Over) -> Socket {
    let protocol = if over == Over::Mptcp { Protocol::MPTCP } else { Protocol::TCP };
    Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)).expect("socket")
}

/// A socket that listens at `port` of every address.
pub fn listen(over: Over, port: u16) -> Socket {
    let listener = socket(over);
    listener.set_reuse_address(true).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into()).unwrap();
    listener.listen(1024).unwrap();
    listener
}

/// A connection to `port` of the server's first address.
pub fn connect(over: Over, port: u16) -> Socket {
    let client = socket(over);
    client.connect(&SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), port).into()).expect("connect");
    client
}

/// Bytes sent, and time until the receiver had all of them.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Sent and received.
    pub bytes: u64,
    /// From the first connection attempt on.
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
    let listener = net.server.within(|| listen(over, port));
    let started = Instant::now();
    let receiver = thread::spawn(move || {
        let (socket, _) = listener.accept().expect("accept");
        let mut stream = TcpStream::from(std::os::fd::OwnedFd::from(socket));
        // Where a test has failed and left no path, nothing comes any more.
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
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
    let (sent_hash, sent) = net.client.within(|| {
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
