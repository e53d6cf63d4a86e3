//! Connections under our algorithms, with what is known of each path.

use crate::Error;
use crate::closed::{self, ClosedPath};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use vmcc_bpf::sharing::{Detections, Evidence, Finding};
use vmcc_bpf::states::{Member, State, States, Uncoupled};
use vmcc_netlink::Links;
use vmcc_system::diag::{Diag, EcnFeedback, MptcpConnection, MptcpDiag, Subflow};

/// A connection of this network namespace: of MPTCP with its subflows, or plain TCP, which is its only one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Connection {
    /// MPTCP token at this end; `None` for plain TCP.
    pub token: Option<u32>,
    /// The program that has it in user space; `None` for the kernel's.
    pub program: Option<Program>,
    /// Its congestion control.
    pub algorithm: String,
    /// Payload received in order over all subflows, where the kernel says (Linux 6.5, IPv4).
    pub received_bytes: Option<u64>,
    /// Payload that was sent again because a subflow had not delivered it; likewise.
    pub retransmitted_bytes: Option<u64>,
    /// Its paths.
    pub paths: Vec<Path>,
    /// Those that the agent's guard closed lately.
    pub closed: Vec<ClosedPath>,
}

/// A program with connections of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Name of the program.
    pub name: String,
    /// Its process.
    pub pid: u32,
}

/// A path of a connection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Path {
    /// Socket cookie, which differs even between sockets with the same ends.
    #[serde(skip)]
    pub cookie: [u8; 8],
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The interface that it is bound to, or that has its address.
    pub device: Option<String>,
    /// True if the path carries data only when no other is left.
    pub backup: bool,
    /// True if nothing arrives although something should, where that is known.
    pub silent: bool,
    /// Congestion window.
    pub cwnd_pkt: u32,
    /// Smoothed round-trip time; 0 before the first sample.
    pub srtt_us: u32,
    /// ECN feedback that was negotiated; `None` where it is not known.
    pub ecn_feedback: Option<EcnFeedback>,
    /// DCTCP's estimate of the marked share, of algorithms that have one.
    pub alpha: Option<f64>,
    /// The share of delivered packets whose ACK echoed a mark; `None` before any, and where the counts are known to have
    /// restarted.
    pub ece_share: Option<f64>,
    /// Packets delivered; the kernel's counter wraps at 2^32.
    pub delivered_pkt: u32,
    /// Those of them whose ACK echoed a mark; likewise.
    pub delivered_ce_pkt: u32,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Delivery rate as last measured.
    pub delivery_rate_bps: u64,
    /// Reason for which its algorithm does not couple it with the connection's other paths; `None` if it does.
    pub uncoupled: Option<Uncoupled>,
    /// Findings of its algorithm about it and the connection's other paths.
    pub siblings: Vec<Sibling>,
}

/// Finding about a path and another one of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sibling {
    /// The other one's local end.
    pub local: SocketAddr,
    /// Its remote end.
    pub remote: SocketAddr,
    /// Finding about a shared bottleneck.
    #[serde(flatten)]
    pub finding: Finding,
}

/// Looks at connections, again and again: what costs to begin is begun once.
pub struct Observer {
    diag: Diag,
    wholes: Option<MptcpDiag>,
    states: Option<States>,
    links: Option<Links>,
}

impl Observer {
    /// Of the network namespace that the calling thread is in, now and whenever it looks.
    ///
    /// # Errors
    /// The kernel does not list sockets. Without the rest less is known.
    pub fn open() -> Result<Self, Error> {
        let (states, links) = (States::open().ok(), Links::open().ok());
        Ok(Self { diag: Diag::open()?, wholes: MptcpDiag::open().ok(), states, links })
    }

    /// The sockets under these congestion controls.
    pub(crate) fn sockets(&mut self, algorithms: &[&str]) -> Result<Vec<Subflow>, Error> {
        let mut sockets = self.diag.subflows()?;
        sockets.retain(|socket| algorithms.contains(&socket.algorithm.as_str()));
        Ok(sockets)
    }

    /// The connections that these sockets are the paths of, those of MPTCP first.
    pub(crate) fn connections(
        &mut self,
        sockets: &[Subflow],
        agent: Option<&serde_json::Value>,
    ) -> Vec<Connection> {
        if sockets.is_empty() {
            return Vec::new();
        }
        let mut found = grouped(sockets, &self.known());
        let mut closed = closed::by_token(agent);
        for connection in &mut found {
            connection.closed = connection.token.and_then(|token| closed.remove(&token)).unwrap_or_default();
        }
        found
    }

    fn known(&mut self) -> Known {
        let states = self.states.as_ref().and_then(|states| states.read().ok()).unwrap_or_default();
        let wholes = self.wholes.as_mut().and_then(|diag| diag.connections().ok()).unwrap_or_default();
        let mut known = Known {
            states: states.into_iter().map(|state| (state.cookie, state)).collect(),
            wholes: wholes.into_iter().map(|whole| ((whole.local, whole.remote), whole)).collect(),
            detections: Detections::open().ok(),
            ..Known::default()
        };
        if let Some(links) = &mut self.links {
            let named = links.list().unwrap_or_default().into_iter();
            known.devices = named.map(|port| (port.index, port.name)).collect();
            let addresses = links.addresses().unwrap_or_default().into_iter();
            known.owners = addresses.map(|found| (found.address, found.port)).collect();
        }
        known
    }
}

/// Data from other sources than the socket list. Each source is optional.
#[derive(Default)]
struct Known {
    states: HashMap<[u8; 8], State>,
    wholes: HashMap<(SocketAddr, SocketAddr), MptcpConnection>,
    detections: Option<Detections>,
    devices: BTreeMap<u32, String>,
    owners: BTreeMap<IpAddr, u32>,
}

impl Known {
    fn path(&self, socket: &Subflow) -> Path {
        let bound = Some(socket.interface).filter(|index| *index != 0);
        let index = bound.or_else(|| self.owner(socket.local.ip()));
        let state = self.states.get(&socket.cookie);
        Path {
            cookie: socket.cookie,
            local: socket.local,
            remote: socket.remote,
            device: index.and_then(|index| self.devices.get(&index).cloned()),
            backup: socket.mptcp.is_some_and(|mptcp| mptcp.backup),
            silent: false,
            cwnd_pkt: socket.cwnd_pkt,
            srtt_us: socket.srtt_us,
            ecn_feedback: Some(socket.ecn_feedback),
            alpha: state.and_then(|state| state.algorithm.alpha(&state.path)),
            ece_share: share(socket.delivered_ce_pkt, socket.delivered_pkt),
            delivered_pkt: socket.delivered_pkt,
            delivered_ce_pkt: socket.delivered_ce_pkt,
            bytes_acked: socket.bytes_acked,
            bytes_received: socket.bytes_received,
            delivery_rate_bps: socket.delivery_rate_bps,
            uncoupled: state.and_then(|state| state.uncoupled),
            siblings: Vec::new(),
        }
    }

    /// The port that has the address. A socket of IPv6 may have one of IPv4, which no port has written that way.
    fn owner(&self, address: IpAddr) -> Option<u32> {
        self.owners.get(&address.to_canonical()).copied()
    }

    fn member(&self, socket: &Subflow) -> Option<Member> {
        self.states.get(&socket.cookie)?.member
    }

    /// Findings about one of these paths and the others.
    fn siblings(&self, socket: &Subflow, paths: &[&Subflow], evidence: &Evidence) -> Vec<Sibling> {
        let sibling = |other: &&Subflow| {
            let finding = evidence.between(self.member(socket)?, self.member(other)?)?;
            Some(Sibling { local: other.local, remote: other.remote, finding })
        };
        paths.iter().filter_map(sibling).collect()
    }

    fn evidence(&self, paths: &[&Subflow]) -> Option<Evidence> {
        let detections = self.detections.as_ref().filter(|_| paths.len() > 1)?;
        detections.of(self.member(paths[0])?)
    }
}

/// More marked than delivered: the latter has wrapped, unknown how often.
fn share(marked: u32, delivered: u32) -> Option<f64> {
    (delivered > 0 && marked <= delivered).then(|| f64::from(marked) / f64::from(delivered))
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
    let whole =
        token.and_then(|_| paths.iter().find_map(|path| known.wholes.get(&(path.local, path.remote))));
    let evidence = known.evidence(paths);
    let path = |path: &&Subflow| {
        let siblings = evidence.as_ref().map(|evidence| known.siblings(path, paths, evidence));
        Path { siblings: siblings.unwrap_or_default(), ..known.path(path) }
    };
    Connection {
        token,
        program: None,
        algorithm: paths.first().map(|path| path.algorithm.clone()).unwrap_or_default(),
        received_bytes: whole.and_then(|whole| whole.received_bytes),
        retransmitted_bytes: whole.and_then(|whole| whole.retransmitted_bytes),
        paths: paths.iter().map(path).collect(),
        closed: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_above_delivered_gives_no_share() {
        assert_eq!(share(0, 0), None);
        assert_eq!(share(1, 4), Some(0.25));
        assert_eq!(share(4, 4), Some(1.0));
        assert_eq!(share(5, 4), None, "the packets were counted to 2^32");
    }

    #[test]
    fn port_is_parsed_from_mapped_and_plain_addresses() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let owners = [(address("10.0.0.1"), 3), (address("2001:db8::1"), 4)].into_iter().collect();
        let known = Known { owners, ..Known::default() };
        for (text, port) in [("10.0.0.1", 3), ("::ffff:10.0.0.1", 3), ("2001:db8::1", 4)] {
            assert_eq!(known.owner(address(text)), Some(port), "{text}");
        }
        assert_eq!(known.owner(address("::ffff:10.0.0.2")), None);
    }
}
