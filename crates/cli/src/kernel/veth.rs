//! Two network namespaces joined by unshaped veth paths, for checks and benchmarks of the kernel programs.
//!
//! The namespaces have no name: they live as long as the threads inside them, so that nothing is left behind
//! however the process ends.

use sha2::{Digest, Sha256};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// `IPPROTO_MPTCP` of <linux/in.h>.
const MPTCP: i32 = 262;
/// Nothing on one machine may take longer between two bytes.
const TIMEOUT: Duration = Duration::from_secs(30);
const BLOCK_BYTES: usize = 1 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace, entered by one thread.
struct Side {
    jobs: Sender<Job>,
    /// Of the thread; names the namespace for `ip link ... netns`.
    thread_id: i32,
}

impl Side {
    fn new() -> Result<Self, String> {
        let (jobs, queue) = channel::<Job>();
        let (report, entered) = channel();
        thread::spawn(move || {
            let result = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
            // The receiver waits just below.
            let _ = report.send(result.map(|()| nix::unistd::gettid().as_raw()));
            queue.into_iter().for_each(|job| job());
        });
        match entered.recv() {
            Ok(Ok(thread_id)) => Ok(Self { jobs, thread_id }),
            Ok(Err(error)) => Err(format!("cannot make a network namespace: {error}")),
            Err(_) => Err("the thread of a network namespace died".to_owned()),
        }
    }

    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let (report, result) = channel();
        let boxed: Job = Box::new(move || {
            let _ = report.send(job());
        });
        let dead = || "the thread of a network namespace died".to_owned();
        self.jobs.send(boxed).map_err(|_| dead())?;
        result.recv().map_err(|_| dead())
    }

    fn commands(&self, lines: Vec<String>) -> Result<(), String> {
        self.run(move || lines.iter().try_for_each(|line| command(line)))?
    }

    fn sysctl(&self, name: &str, value: &str) -> Result<(), String> {
        let (path, value) = (format!("/proc/sys/{name}"), value.to_owned());
        self.run(move || fs::write(&path, &value).map_err(|e| format!("{path}={value}: {e}")))?
    }
}

/// A command of iproute2.
fn command(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or("ip");
    let output = Command::new(program).args(words).output().map_err(|e| format!("{program}: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{line}: {}", said.trim())) }
}

/// Client and server with `paths` veth pairs between them: 10.77.`path`.1 at the client, .2 at the server.
pub(crate) struct Veth {
    client: Side,
    server: Side,
    paths: usize,
    port: u16,
}

/// What was sent, and how long until the receiver had all of it.
pub(crate) struct Transfer {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

impl Veth {
    /// Builds it for MPTCP; `paths` from 1 to 8.
    pub(crate) fn new(paths: usize) -> Result<Self, String> {
        Self::build(paths, true)
    }

    /// Builds it for TCP on each path alone; `paths` from 1 to 200.
    pub(crate) fn plain(paths: usize) -> Result<Self, String> {
        Self::build(paths, false)
    }

    fn build(paths: usize, mptcp: bool) -> Result<Self, String> {
        let (client, server) = (Side::new()?, Side::new()?);
        let peer = server.thread_id;
        client.commands(
            (0..paths).map(|p| format!("ip link add p{p} type veth peer name p{p} netns {peer}")).collect(),
        )?;
        for (side, host) in [(&client, 1), (&server, 2)] {
            let mut lines = vec!["ip link set lo up".to_owned()];
            if mptcp {
                lines.push("ip mptcp limits set subflow 8 add_addr_accepted 8".to_owned());
            }
            for path in 0..paths {
                lines.push(format!("ip addr add 10.77.{path}.{host}/24 dev p{path}"));
                lines.push(format!("ip link set p{path} up"));
                if mptcp && host == 2 && path > 0 {
                    lines.push(format!("ip mptcp endpoint add 10.77.{path}.2 dev p{path} signal"));
                }
            }
            side.commands(lines)?;
            if mptcp {
                side.sysctl("net/mptcp/enabled", "1")?;
            }
            side.sysctl("net/ipv4/tcp_rmem", "4096 131072 16777216")?;
            side.sysctl("net/ipv4/tcp_wmem", "4096 131072 16777216")?;
        }
        Ok(Self { client, server, paths, port: 5400 })
    }

    /// Runs `job` in the client's namespace.
    pub(crate) fn in_client<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        self.client.run(job)
    }

    /// Runs `job` in the server's namespace.
    pub(crate) fn in_server<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        self.server.run(job)
    }

    /// Packets of wire size only, at both ends of `path`.
    pub(crate) fn no_offload(&self, path: usize) -> Result<(), String> {
        [&self.client, &self.server].iter().try_for_each(|side| {
            let port = format!("p{path}");
            side.run(move || {
                vmcc_netlink::disable_segmentation_offload(&port).map_err(|e| format!("{port}: {e}"))
            })?
        })
    }

    /// One packet at a time: TCP makes trains of them even without offloads, which come apart below the queue.
    pub(crate) fn no_trains(&self, path: usize) -> Result<(), String> {
        let line = format!("ip link set p{path} gso_max_segs 1");
        [&self.client, &self.server].iter().try_for_each(|side| side.commands(vec![line.clone()]))
    }

    /// Whether new connections use ECN, at both ends.
    pub(crate) fn ecn(&self, on: bool) -> Result<(), String> {
        let value = if on { "1" } else { "0" };
        [&self.client, &self.server].iter().try_for_each(|side| side.sysctl("net/ipv4/tcp_ecn", value))
    }

    /// TCP connections over `path` to `port`: the client's and the server's ends.
    pub(crate) fn connect(
        &self,
        path: usize,
        port: u16,
        count: usize,
    ) -> Result<Vec<(TcpStream, TcpStream)>, String> {
        let server = SocketAddr::from((Ipv4Addr::new(10, 77, path as u8, 2), port));
        let listener = self
            .server
            .run(move || TcpListener::bind(server).map_err(|e| format!("listening at {server}: {e}")))??;
        let connect = move || {
            let failed = |e| format!("connecting to {server}: {e}");
            (0..count)
                .map(|_| {
                    let client = TcpStream::connect_timeout(&server, TIMEOUT).map_err(failed)?;
                    Ok((client, listener.accept().map_err(failed)?.0))
                })
                .collect()
        };
        self.client.run(connect)?
    }

    /// Number of paths.
    pub(crate) fn paths(&self) -> usize {
        self.paths
    }

    /// Makes `kernel_name` the congestion control of new connections, at both ends.
    pub(crate) fn select(&self, kernel_name: &str) -> Result<(), String> {
        [&self.client, &self.server]
            .iter()
            .try_for_each(|side| side.sysctl("net/ipv4/tcp_congestion_control", kernel_name))
    }

    /// Sends over MPTCP for about `duration` and compares the SHA-256 of what was sent and received.
    pub(crate) fn transfer(&mut self, duration: Duration) -> Result<Transfer, String> {
        let (sent, received, seconds) =
            self.send_and_receive(duration, (Sha256::new(), 0), (Sha256::new(), 0))?;
        let ((sent_hash, sent), (received_hash, received)) = (sent, received);
        if sent != received || sent_hash.finalize() != received_hash.finalize() {
            return Err(format!("what arrived ({received} bytes) is not what was sent ({sent} bytes)"));
        }
        Ok(Transfer { bytes: sent, seconds })
    }

    /// Bits per second that arrive over MPTCP from `warmup` on, for about `duration`. Nothing is done with the
    /// data, so that the kernel's share of the work is as large as it can be.
    pub(crate) fn throughput(&mut self, warmup: Duration, duration: Duration) -> Result<f64, String> {
        let meter = Meter { from: Instant::now() + warmup, first: None, last: None, bytes: 0 };
        let (_, meter, _) = self.send_and_receive(warmup + duration, (), meter)?;
        meter.bits_per_second()
    }

    fn send_and_receive<S: Observer, R: Observer>(
        &mut self,
        duration: Duration,
        sender: S,
        receiver: R,
    ) -> Result<(S, R, f64), String> {
        self.port += 1;
        let port = self.port;
        let listener = self.server.run(move || listen(port))??;
        let started = Instant::now();
        let receiver = thread::spawn(move || receive(&listener, receiver));
        let sent = self.client.run(move || send(port, duration, sender))?;
        let received = receiver.join().map_err(|_| "the receiver died".to_owned())?;
        // A sender that failed makes the receiver fail as well; the first cause is the sender's.
        let (sent, (received, done)) = (sent?, received?);
        Ok((sent, received, (done - started).as_secs_f64()))
    }
}

/// Sees all data at one end.
trait Observer: Send + 'static {
    fn see(&mut self, data: &[u8]);
}

impl Observer for () {
    fn see(&mut self, _: &[u8]) {}
}

impl Observer for (Sha256, u64) {
    fn see(&mut self, data: &[u8]) {
        self.0.update(data);
        self.1 += data.len() as u64;
    }
}

/// Counts what arrives from a moment on.
struct Meter {
    from: Instant,
    /// The first and the last arrival that counted.
    first: Option<Instant>,
    last: Option<Instant>,
    /// After the first.
    bytes: u64,
}

impl Observer for Meter {
    fn see(&mut self, data: &[u8]) {
        let now = Instant::now();
        if now < self.from {
            return;
        }
        match self.first {
            None => self.first = Some(now),
            Some(_) => self.bytes += data.len() as u64,
        }
        self.last = Some(now);
    }
}

impl Meter {
    fn bits_per_second(&self) -> Result<f64, String> {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last > first => {
                Ok(self.bytes as f64 * 8.0 / (last - first).as_secs_f64())
            }
            _ => Err("nothing arrived after the warm-up".to_owned()),
        }
    }
}

fn socket() -> Result<Socket, String> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP)))
        .map_err(|e| format!("MPTCP socket: {e}"))
}

fn listen(port: u16) -> Result<Socket, String> {
    let failed = |e| format!("listening: {e}");
    let listener = socket()?;
    listener.set_reuse_address(true).map_err(failed)?;
    listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into()).map_err(failed)?;
    listener.listen(8).map_err(failed)?;
    listener.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    Ok(listener)
}

fn receive<R: Observer>(listener: &Socket, mut observer: R) -> Result<(R, Instant), String> {
    let failed = |e| format!("receiving: {e}");
    let (socket, _) = listener.accept().map_err(failed)?;
    let mut stream = TcpStream::from(OwnedFd::from(socket));
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let mut buffer = vec![0; 1 << 18];
    loop {
        match stream.read(&mut buffer).map_err(failed)? {
            0 => return Ok((observer, Instant::now())),
            n => observer.see(&buffer[..n]),
        }
    }
}

fn send<S: Observer>(port: u16, duration: Duration, mut observer: S) -> Result<S, String> {
    let failed = |e| format!("sending: {e}");
    let socket = socket()?;
    let server = SocketAddr::from((Ipv4Addr::new(10, 77, 0, 2), port));
    socket.connect_timeout(&server.into(), TIMEOUT).map_err(failed)?;
    let mut stream = TcpStream::from(OwnedFd::from(socket));
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    let block = pattern();
    let until = Instant::now() + duration;
    while Instant::now() < until {
        stream.write_all(&block).map_err(failed)?;
        observer.see(&block);
    }
    Ok(observer)
}

/// Bytes of a xorshift generator: no period that a transport could mistake.
pub(crate) fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    while bytes.len() < BLOCK_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}
