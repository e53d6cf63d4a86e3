//! Many MPTCP connections that are open and say nothing.

use super::pair::{Pair, server_on};
use super::transfer::{self, damaged};
use crate::{Error, Netns};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::resume_unwind;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vmcc_system::diag::Diag;

const PORT: u16 = 5400;
const PATHS: usize = 2;
/// Descriptors for everything else.
const SPARE_FILES: u64 = 256;
/// Timeout for the last second subflow to join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Two namespaces of their own, and connections between them with two subflows each.
pub struct IdleConnections {
    pair: Pair,
    ends: Vec<Socket>,
    /// Ends with this.
    server: Option<Server>,
}

/// The other ends, in a thread with a table of open files of its own: a process may have as many in each, so that a
/// connection takes one of those that are allowed, not two.
struct Server {
    end: Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl IdleConnections {
    /// The namespaces, without a connection.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { pair: Pair::multipath(PATHS)?, ends: Vec::new(), server: None })
    }

    /// Namespace in which the connections are opened.
    pub fn client(&self) -> &Netns {
        &self.pair.client
    }

    /// Opens connections under a congestion control, and waits until each has both subflows.
    ///
    /// # Errors
    /// The kernel refuses, or the limit of open files is too low.
    pub fn connect(&mut self, kernel_name: &str, count: usize) -> Result<(), Error> {
        allow_files(count)?;
        self.pair.select(kernel_name)?;
        let to = SocketAddr::from((server_on(0), PORT));
        let failed = |e| Error::kernel("connecting to", to.to_string(), e);
        let server = self.pair.server.run(move || Server::start(count)).map_err(failed)?;
        let all = self.pair.client.run(move || (0..count).map(|_| one(to)).collect::<io::Result<Vec<_>>>());
        // What went wrong there is why it went wrong here.
        if all.is_err() && server.thread.is_finished() {
            return server.join().map_err(failed);
        }
        (self.ends, self.server) = (all.map_err(failed)?, Some(server));
        let began = Instant::now();
        while self.subflows(kernel_name)? < count * PATHS {
            if began.elapsed() > JOIN_TIMEOUT {
                return Err(damaged(format!(
                    "not all of {count} connections have {PATHS} subflows after a minute"
                )));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(())
    }

    /// The client's, under this congestion control.
    fn subflows(&self, kernel_name: &str) -> Result<usize, Error> {
        let listed = self.pair.client.run(|| Diag::open()?.subflows());
        let all = listed.map_err(|e| damaged(e.to_string()))?;
        Ok(all.iter().filter(|s| s.algorithm == kernel_name && s.remote.port() == PORT).count())
    }
}

fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
    socket.set_read_timeout(Some(transfer::TIMEOUT))?;
    Ok(socket)
}

/// At every address: subflows join at another one than the first.
fn listen() -> io::Result<Socket> {
    let listener = socket()?;
    listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
    listener.listen(128)?;
    Ok(listener)
}

impl Server {
    /// In the network namespace of the calling thread.
    fn start(count: usize) -> io::Result<Self> {
        let ((end, ended), (report, listening)) = (channel(), channel());
        let thread = thread::Builder::new().name("server".to_owned()).spawn(move || {
            let listener = unshare(CloneFlags::CLONE_FILES).map_err(io::Error::from).and_then(|()| listen());
            let listener = listener?;
            // Somebody waits for it.
            let _ = report.send(());
            let all = (0..count).map(|_| accepted(&listener)).collect::<io::Result<Vec<_>>>()?;
            // Until nobody could say so any more.
            let _ = ended.recv();
            drop((listener, all));
            Ok(())
        })?;
        let server = Self { end, thread };
        match listening.recv() {
            Ok(()) => Ok(server),
            Err(_) => server.join().and(Err(io::Error::other("no listener"))),
        }
    }

    fn join(self) -> io::Result<()> {
        drop(self.end);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for IdleConnections {
    fn drop(&mut self) {
        // Nothing is asked of it any more.
        self.ends.clear();
        let _ = self.server.take().map(Server::join);
    }
}

/// A connection that has carried a byte each way: only then may subflows join.
fn one(to: SocketAddr) -> io::Result<Socket> {
    let mut client = socket()?;
    client.connect_timeout(&to.into(), transfer::TIMEOUT)?;
    client.write_all(b"x")?;
    client.read_exact(&mut [0])?;
    Ok(client)
}

/// Its other end.
fn accepted(listener: &Socket) -> io::Result<Socket> {
    let mut server = listener.accept()?.0;
    server.read_exact(&mut [0])?;
    server.write_all(b"x")?;
    Ok(server)
}

fn allow_files(count: usize) -> Result<(), Error> {
    let wanted = count as u64 + SPARE_FILES;
    let failed = |e: nix::Error| Error::Measurement {
        what: format!("opening {count} connections, each a file"),
        cause: format!("{wanted} open files are not allowed: {e}"),
        remedy: format!("`ulimit -Hn {wanted}` as root (CAP_SYS_RESOURCE), or ask for fewer"),
    };
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, wanted.max(now), most.max(wanted)).map_err(failed)
}
