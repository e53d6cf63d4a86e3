//! Connections under our algorithms, with what is known of each path.

use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use vmcc_host::diag::{MptcpDiag, Subflow, Whole};
use vmcc_host::states::{State, States};
use vmcc_netlink::Links;

/// A connection of this network namespace: of MPTCP with its subflows, or plain TCP, which is its only one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Connection {
    /// What MPTCP calls it at this end; `None` for plain TCP.
    pub token: Option<u32>,
    /// Its congestion control.
    pub algorithm: String,
    /// Payload received in order over all subflows, where the kernel says (Linux 6.5, IPv4).
    pub received_bytes: Option<u64>,
    /// Payload that was sent again because a subflow had not delivered it; likewise.
    pub retransmitted_bytes: Option<u64>,
    /// Its paths.
    pub paths: Vec<Path>,
}

/// A path of a connection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Path {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The interface that it is bound to, or that has its address.
    pub device: Option<String>,
    /// Whether it carries data only when no other is left.
    pub backup: bool,
    /// Congestion window.
    pub cwnd_pkt: u32,
    /// Smoothed round-trip time; 0 before the first sample.
    pub srtt_us: u32,
    /// DCTCP's estimate of the marked share, of algorithms that have one.
    pub alpha: Option<f64>,
    /// The share of delivered packets whose ACK echoed a mark; `None` before any.
    pub ece_share: Option<f64>,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Delivery rate as last measured.
    pub delivery_rate_bps: u64,
}

/// What is asked besides the sockets; without any of it less is known.
#[derive(Default)]
struct Known {
    states: Vec<State>,
    wholes: Vec<Whole>,
    devices: BTreeMap<u32, String>,
    owners: BTreeMap<IpAddr, u32>,
}

impl Known {
    fn ask() -> Self {
        let states = States::open().and_then(|states| states.read()).unwrap_or_default();
        let wholes = MptcpDiag::open().and_then(|mut diag| diag.connections()).unwrap_or_default();
        let Ok(mut links) = Links::open() else { return Self { states, wholes, ..Self::default() } };
        let devices =
            links.list().unwrap_or_default().into_iter().map(|port| (port.index, port.name)).collect();
        let addresses = links.addresses().unwrap_or_default();
        let owners = addresses.into_iter().map(|found| (found.address, found.port)).collect();
        Self { states, wholes, devices, owners }
    }

    fn path(&self, socket: &Subflow) -> Path {
        let bound = Some(socket.interface).filter(|index| *index != 0);
        let index = bound.or_else(|| self.owners.get(&socket.local.ip()).copied());
        let state = self.states.iter().find(|state| state.cookie == socket.cookie);
        let delivered = f64::from(socket.delivered_pkt);
        Path {
            local: socket.local,
            remote: socket.remote,
            device: index.and_then(|index| self.devices.get(&index).cloned()),
            backup: socket.mptcp.is_some_and(|mptcp| mptcp.backup),
            cwnd_pkt: socket.cwnd_pkt,
            srtt_us: socket.srtt_us,
            alpha: state.and_then(|state| state.algorithm.alpha(&state.path)),
            ece_share: (delivered > 0.0).then(|| f64::from(socket.delivered_ce_pkt) / delivered),
            bytes_acked: socket.bytes_acked,
            delivery_rate_bps: socket.delivery_rate_bps,
        }
    }
}

/// The connections that these sockets are the paths of, those of MPTCP first.
pub(crate) fn connections(sockets: &[Subflow]) -> Vec<Connection> {
    if sockets.is_empty() { Vec::new() } else { grouped(sockets, &Known::ask()) }
}

fn grouped(sockets: &[Subflow], known: &Known) -> Vec<Connection> {
    let mut by_token: BTreeMap<u32, Vec<&Subflow>> = BTreeMap::new();
    let mut plain = Vec::new();
    for socket in sockets {
        match socket.mptcp {
            Some(mptcp) => by_token.entry(mptcp.token_local).or_default().push(socket),
            None => plain.push((None, vec![socket])),
        }
    }
    let multipath = by_token.into_iter().map(|(token, paths)| (Some(token), paths));
    multipath.chain(plain).map(|(token, paths)| connection(token, &paths, known)).collect()
}

fn connection(token: Option<u32>, paths: &[&Subflow], known: &Known) -> Connection {
    // Its ends are those of its first subflow.
    let is_of =
        |whole: &&Whole| paths.iter().any(|path| (path.local, path.remote) == (whole.local, whole.remote));
    let whole = token.and_then(|_| known.wholes.iter().find(is_of));
    Connection {
        token,
        algorithm: paths.first().map(|path| path.algorithm.clone()).unwrap_or_default(),
        received_bytes: whole.and_then(|whole| whole.received_bytes),
        retransmitted_bytes: whole.and_then(|whole| whole.retransmitted_bytes),
        paths: paths.iter().map(|path| known.path(path)).collect(),
    }
}
