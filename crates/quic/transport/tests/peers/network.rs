//! Datagrams under way between client and server, and the NAT in front of the client.

use std::collections::VecDeque;
use std::net::SocketAddr;
use vmcc_transport::{Ecn, Route};

/// Addresses of each end.
pub(crate) const ADDRESSES: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) route: Route,
    pub(crate) ecn: Ecn,
    pub(crate) bytes: Vec<u8>,
    /// Its receiver cannot decrypt it.
    pub(crate) damaged: bool,
}

impl Datagram {
    pub(crate) fn new(route: Route, ecn: Ecn, bytes: &[u8]) -> Datagram {
        Datagram { route, ecn, bytes: bytes.to_vec(), damaged: false }
    }
}

pub(crate) fn address(end: usize, index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, end as u8, index as u8], [5000, 443][end]))
}

/// Two queues without loss or delay of their own, and the client's public addresses.
#[derive(Debug)]
pub(crate) struct Network {
    /// To client and server.
    pub(crate) inbound: [VecDeque<Datagram>; 2],
    public: [SocketAddr; ADDRESSES],
    mappings: u16,
    pub(crate) sent: u64,
}

impl Network {
    pub(crate) fn new() -> Network {
        Network {
            inbound: Default::default(),
            public: [0, 1, 2].map(|index| address(0, index)),
            mappings: 0,
            sent: 0,
        }
    }

    /// The NAT forgets an address of the client's, which has another port from now on.
    pub(crate) fn rebind(&mut self, index: usize) {
        self.mappings += 1;
        self.public[index].set_port(10_000 + self.mappings);
    }

    /// Sends what an end has to send; what the NAT or the server does not know is lost.
    pub(crate) fn send(&mut self, from: usize, datagram: Datagram) {
        self.sent += 1;
        let Datagram { route: Route { local, remote }, .. } = datagram;
        let own = |end, wanted| (0..ADDRESSES).find(|&index| address(end, index) == wanted);
        let route = match from {
            0 => {
                assert!(own(1, remote).is_some(), "the client sends to {remote}");
                let index = own(0, local).expect("the client sends from an address of its own");
                Route { local: remote, remote: self.public[index] }
            }
            _ => {
                assert!(own(1, local).is_some(), "the server sends from {local}");
                let Some(index) = self.public.iter().position(|&public| public == remote) else { return };
                Route { local: address(0, index), remote: local }
            }
        };
        self.inbound[1 - from].push_back(Datagram { route, ..datagram });
    }
}
