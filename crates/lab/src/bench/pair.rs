//! Two network namespaces joined by unshaped veth paths.
//!
//! The namespaces have no name, so that nothing is left behind however the process ends.

use crate::bench::transfer::{self, Meter, Observer};
use crate::topology::in_namespace;
use crate::{Error, Netns};
use sha2::{Digest, Sha256};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_netlink::{Links, MAX_LIMIT, PathManager};

/// The first TCP port of transfers.
const FIRST_PORT: u16 = 5401;
const PREFIX_LEN: u8 = 24;
const SERVER: u8 = 2;

/// Client and server with some paths between them: port `p0` and up at each, 10.77.`path`.1 at the client, .2 at the
/// server.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) client: Netns,
    pub(super) server: Netns,
    paths: usize,
    next_port: u16,
}

/// Result of a transfer: bytes sent, and seconds until the receiver had all of them.
pub(super) struct Transfer {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

/// The name of a path's port, at both ends.
pub(super) fn port_of(path: usize) -> String {
    format!("p{path}")
}

/// The server's address on a path.
pub(super) fn server_on(path: usize) -> Ipv4Addr {
    address(path, SERVER)
}

fn address(path: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, u8::try_from(path).unwrap_or(u8::MAX), host)
}

impl Pair {
    /// Builds it for MPTCP; `paths` from 1 to 8.
    pub(super) fn multipath(paths: usize) -> Result<Self, Error> {
        let pair = Self::plain(paths)?;
        for (side, signals) in [(&pair.client, 0..0), (&pair.server, 1..paths)] {
            in_namespace(side, "setting the MPTCP endpoints of", move || {
                let mut manager = PathManager::open()?;
                manager.set_limits(MAX_LIMIT, MAX_LIMIT)?;
                signals.into_iter().try_for_each(|path| manager.signal(server_on(path)))
            })?;
            side.sysctl("net.mptcp.enabled", "1")?;
        }
        Ok(pair)
    }

    /// Builds it for TCP on each path alone; `paths` from 1 to 200.
    pub(super) fn plain(paths: usize) -> Result<Self, Error> {
        let (client, server) = (Netns::unnamed("client")?, Netns::unnamed("server")?);
        let peer = server.raw_fd();
        in_namespace(&client, "making ports in", move || {
            let mut links = Links::open()?;
            (0..paths).try_for_each(|path| links.add_veth(&port_of(path), &port_of(path), Some(peer)))
        })?;
        for (side, host) in [(&client, 1), (&server, SERVER)] {
            give_addresses(side, paths, host)?;
            side.sysctl("net.ipv4.tcp_rmem", "4096 131072 16777216")?;
            side.sysctl("net.ipv4.tcp_wmem", "4096 131072 16777216")?;
        }
        Ok(Self { client, server, paths, next_port: FIRST_PORT })
    }

    fn sides(&self) -> [&Netns; 2] {
        [&self.client, &self.server]
    }

    /// Packets of wire size only, at both ends of `path`.
    pub(super) fn no_offload(&self, path: usize) -> Result<(), Error> {
        self.sides().into_iter().try_for_each(|side| {
            in_namespace(side, "switching off segmentation offload in", move || {
                vmcc_netlink::disable_segmentation_offload(&port_of(path))
            })
        })
    }

    /// One packet at a time: TCP makes trains of them even without offloads, which come apart below the queue.
    pub(super) fn no_trains(&self, path: usize) -> Result<(), Error> {
        self.sides().into_iter().try_for_each(|side| {
            let port = side.port_index(&port_of(path))?;
            in_namespace(side, "sending single packets in", move || Links::open()?.limit_segments(port, 1))
        })
    }

    /// Switches ECN of new connections on or off, at both ends.
    pub(super) fn ecn(&self, on: bool) -> Result<(), Error> {
        let value = if on { "1" } else { "0" };
        self.sides().into_iter().try_for_each(|side| side.sysctl("net.ipv4.tcp_ecn", value))
    }

    /// Makes `kernel_name` the congestion control of new connections, at both ends.
    pub(super) fn select(&self, kernel_name: &str) -> Result<(), Error> {
        let key = "net.ipv4.tcp_congestion_control";
        self.sides().into_iter().try_for_each(|side| side.sysctl(key, kernel_name))
    }

    /// Number of paths.
    pub(super) fn paths(&self) -> usize {
        self.paths
    }

    /// TCP connections over `path` to `port`: the client's and the server's ends.
    pub(super) fn connect(
        &self,
        path: usize,
        port: u16,
        count: usize,
    ) -> Result<Vec<(TcpStream, TcpStream)>, Error> {
        let to = SocketAddr::from((server_on(path), port));
        let listening = self.server.run(move || TcpListener::bind(to));
        let listener = listening.map_err(|e| Error::kernel("listening at", to.to_string(), e))?;
        let one = move |_| -> io::Result<_> {
            let client = TcpStream::connect_timeout(&to, transfer::TIMEOUT)?;
            Ok((client, listener.accept()?.0))
        };
        let connected = self.client.run(move || (0..count).map(one).collect::<io::Result<_>>());
        connected.map_err(|e| Error::kernel("connecting to", to.to_string(), e))
    }

    /// Sends over MPTCP for about `duration` and compares the SHA-256 of what was sent and received.
    pub(super) fn transfer(&mut self, duration: Duration) -> Result<Transfer, Error> {
        let (sent, received, seconds) =
            self.send_and_receive(duration, (Sha256::new(), 0), (Sha256::new(), 0))?;
        let ((sent_hash, sent), (received_hash, received)) = (sent, received);
        if sent != received || sent_hash.finalize() != received_hash.finalize() {
            let cause = format!("what arrived ({received} bytes) is not what was sent ({sent} bytes)");
            return Err(transfer::damaged(cause));
        }
        Ok(Transfer { bytes: sent, seconds })
    }

    /// Bits per second that arrive over MPTCP from `warmup` on, for about `duration`. Nothing is done with the
    /// data, so that the kernel's share of the work is as large as it can be.
    pub(super) fn throughput(&mut self, warmup: Duration, duration: Duration) -> Result<f64, Error> {
        let meter = Meter::from(Instant::now() + warmup);
        let (_, meter, _) = self.send_and_receive(warmup + duration, (), meter)?;
        meter.bits_per_second()
    }

    fn send_and_receive<S: Observer, R: Observer>(
        &mut self,
        duration: Duration,
        sender: S,
        receiver: R,
    ) -> Result<(S, R, f64), Error> {
        let to = SocketAddr::from((server_on(0), self.next_port));
        self.next_port += 1;
        let failed = |action: &'static str| move |e| Error::kernel(action, to.to_string(), e);
        let listening = self.server.run(move || transfer::listen(to.port()));
        let listener = listening.map_err(failed("listening at"))?;
        let started = Instant::now();
        let receiver = thread::spawn(move || transfer::receive(&listener, receiver));
        let sent = self.client.run(move || transfer::send(to, duration, sender));
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // A sender that failed makes the receiver fail as well; the first cause is the sender's.
        let sent = sent.map_err(failed("sending to"))?;
        let (received, done) = received.map_err(failed("receiving at"))?;
        Ok((sent, received, (done - started).as_secs_f64()))
    }
}

fn give_addresses(side: &Netns, paths: usize, host: u8) -> Result<(), Error> {
    let ports = (0..paths).map(|path| Ok((side.port_index(&port_of(path))?, address(path, host))));
    let ports = ports.collect::<Result<Vec<_>, Error>>()?;
    in_namespace(side, "giving addresses to the ports of", move || {
        let mut links = Links::open()?;
        links.bring_up(1, None)?;
        for (port, address) in ports {
            links.add_address(port, address, PREFIX_LEN)?;
            links.bring_up(port, None)?;
        }
        Ok(())
    })
}
