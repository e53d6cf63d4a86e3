//! Reading the facts. Nothing needs root; without it endpoints, MPTCP connections and firewall rules are unknown.
//!
//! | | |
//! |---|---|
//! | `host` | kernel, processors, sysctls, MPTCP, firewall |
//! | `nics` | interfaces, their rates, routes by source address |
//! | `probe` | connections to a port of the peer |
//! | `sockets` | running connections |
//! | [`watch()`], `pattern` | the application, from running connections |

mod host;
mod nics;
mod pattern;
mod probe;
mod sockets;
mod watch;

pub use watch::{Watch, watch};

use crate::facts::{Application, Facts, MptcpState, Path, Peer};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use vmcc_netlink::Links;
use vmcc_system::diag::{Diag, DiagError, Subflow};

/// Addresses of a peer that are looked at.
const MAX_REMOTES: usize = 8;
/// Ports of FTP, whose servers close the listening socket of a data connection after `accept`: its connections keep one path
/// (docs/evidence/applications.md).
const FTP_PORTS: [u16; 2] = [20, 21];

/// Request for facts.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Name or address of the peer.
    pub peer: Option<String>,
    /// TCP port of the peer, to which connections are opened.
    pub port: Option<u16>,
    /// Rates of interfaces that are known better than the driver knows them, by name.
    pub rates_bps: BTreeMap<String, u64>,
    /// The application, as far as it is known.
    pub application: Application,
}

/// Error of gathering facts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// A name without an address.
    #[error("{name}: no address: {source}")]
    Name {
        /// The name.
        name: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A rate of an interface that is not there.
    #[error("{nic}: no interface with an address has this name; those that have one: {known}")]
    Nic {
        /// The name.
        nic: String,
        /// Those that are there.
        known: String,
    },
    /// The kernel does not list interfaces or routes.
    #[error("cannot read interfaces and routes: {0}")]
    Route(#[source] io::Error),
    /// The kernel does not list sockets.
    #[error(transparent)]
    Sockets(#[from] DiagError),
}

impl GatherError {
    /// True if the request is at fault, not the host.
    pub fn is_bad_request(&self) -> bool {
        matches!(self, Self::Name { .. } | Self::Nic { .. })
    }

    /// Remedy, where there is one.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Name { .. } => {
                Some("check the name, and that this host can look names up; an address does without that")
            }
            Self::Nic { .. } => Some("name an interface of `ip address`"),
            Self::Route(_) => None,
            Self::Sockets(_) => Some("boot a kernel with CONFIG_INET_DIAG"),
        }
    }
}

/// Reads the facts of the calling thread's network namespace. With a port, it opens connections to it and sends one empty line.
///
/// # Errors
/// The peer has no address, or the kernel does not list interfaces, routes or sockets.
pub fn gather(request: &Request) -> Result<Facts, GatherError> {
    let remotes = request.peer.as_ref().map_or_else(|| Ok(Vec::new()), |name| resolve(name))?;
    let mut links = Links::open().map_err(GatherError::Route)?;
    let mut found = nics::read(&mut links, &remotes).map_err(GatherError::Route)?;
    for (name, rate) in &request.rates_bps {
        let known = found.nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", ");
        let nic = found.nics.iter_mut().find(|nic| nic.name == *name);
        let nic = nic.ok_or_else(|| GatherError::Nic { nic: name.clone(), known })?;
        nic.rate_bps = Some(*rate);
    }
    let mptcp = host::mptcp();
    let peer = match &request.peer {
        Some(name) => Some(peer(name, request.port, &remotes, &mut found.paths, mptcp.state)?),
        None => None,
    };
    let mut application = request.application.clone();
    application.closes_listener |= request.port.is_some_and(|port| FTP_PORTS.contains(&port));
    Ok(Facts {
        host: host::host(),
        mptcp,
        nics: found.nics,
        first_nic: found.first_nic,
        paths: found.paths,
        peer,
        application,
    })
}

/// The peer, and what its connections say of the paths.
fn peer(
    name: &str,
    port: Option<u16>,
    remotes: &[IpAddr],
    paths: &mut [Path],
    state: MptcpState,
) -> Result<Peer, GatherError> {
    // Before our own connections are there.
    let all = Diag::open()?.subflows()?;
    let with_peer = |one: &&Subflow| one.established && remotes.contains(&one.remote.ip().to_canonical());
    let running: Vec<&Subflow> = all.iter().filter(with_peer).collect();
    let probed = port.map(|port| probe::run(paths, remotes, port, state));
    for path in paths.iter_mut() {
        path.rtt_us =
            probed.as_ref().and_then(|probed| probed.rtts_us.get(&(path.local, path.remote)).copied());
    }
    sockets::add_measured(paths, &running);
    Ok(Peer {
        name: name.to_owned(),
        addresses: remotes.to_vec(),
        port,
        probe: probed.and_then(|probed| probed.outcome),
        connections: sockets::counts(&running),
    })
}

/// Addresses of a name in the resolver's order, each once.
fn resolve(name: &str) -> Result<Vec<IpAddr>, GatherError> {
    let addresses = match name.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => {
            let failed = |source| GatherError::Name { name: name.to_owned(), source };
            (name, 0).to_socket_addrs().map_err(failed)?.map(|at: SocketAddr| at.ip()).collect()
        }
    };
    let mut known = Vec::new();
    for address in addresses.into_iter().map(|address| address.to_canonical()) {
        if !known.contains(&address) && known.len() < MAX_REMOTES {
            known.push(address);
        }
    }
    let none = || io::Error::new(io::ErrorKind::NotFound, "the answer has none");
    if known.is_empty() {
        return Err(GatherError::Name { name: name.to_owned(), source: none() });
    }
    Ok(known)
}
