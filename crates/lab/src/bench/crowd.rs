//! Many MPTCP connections that are open and say nothing.

use super::pair::{Pair, server_on};
use super::transfer::{self, damaged};
use crate::{Error, Netns};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vmcc_host::diag::Diag;

const PORT: u16 = 5400;
const PATHS: usize = 2;
/// Descriptors for everything else.
const SPARE_FILES: u64 = 256;
/// How long the last second subflow may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two namespaces of their own, and connections between them with two subflows each.
pub struct Crowd {
    pair: Pair,
    ends: Vec<(Socket, Socket)>,
    /// Where subflows that join arrive.
    listener: Option<Arc<Socket>>,
}

impl Crowd {
    /// The namespaces, without a connection.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { pair: Pair::multipath(PATHS)?, ends: Vec::new(), listener: None })
    }

    /// Where the connections are opened.
    pub fn client(&self) -> &Netns {
        &self.pair.client
    }

    /// Opens connections under a congestion control, and waits until each has both subflows.
    ///
    /// # Errors
    /// The kernel refuses, or so many files may not be open.
    pub fn connect(&mut self, kernel_name: &str, count: usize) -> Result<(), Error> {
        allow_files(count)?;
        self.pair.select(kernel_name)?;
        let to = SocketAddr::from((server_on(0), PORT));
        let failed = |e| Error::kernel("connecting to", to.to_string(), e);
        let listener = Arc::new(self.pair.server.run(listen).map_err(failed)?);
        self.listener = Some(Arc::clone(&listener));
        let all = self
            .pair
            .client
            .run(move || (0..count).map(|_| one(&listener, to)).collect::<io::Result<Vec<_>>>());
        self.ends = all.map_err(failed)?;
        let began = Instant::now();
        while self.subflows(kernel_name)? < count * PATHS {
            if began.elapsed() > PATIENCE {
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
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(transfer::MPTCP)))?;
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

/// A connection that has carried a byte each way: only then may subflows join.
fn one(listener: &Socket, to: SocketAddr) -> io::Result<(Socket, Socket)> {
    let mut client = socket()?;
    client.connect_timeout(&to.into(), transfer::TIMEOUT)?;
    let mut server = listener.accept()?.0;
    client.write_all(b"x")?;
    server.read_exact(&mut [0])?;
    server.write_all(b"x")?;
    client.read_exact(&mut [0])?;
    Ok((client, server))
}

fn allow_files(count: usize) -> Result<(), Error> {
    let wanted = 2 * count as u64 + SPARE_FILES;
    let failed = |e: nix::Error| damaged(format!("{wanted} open files are needed: {e}"));
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, wanted, most.max(wanted)).map_err(failed)
}
