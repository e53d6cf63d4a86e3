//! The neighbour table: link-layer addresses of hosts on the same link (ARP, Neighbor Discovery).

use crate::Links;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::IpAddr;

/// An entry of the neighbour table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface.
    pub port: u32,
    /// Its network-layer address.
    pub address: IpAddr,
    /// The kernel has learnt where to send (`NUD_VALID`, but not `NUD_PERMANENT`, which is configured).
    pub valid: bool,
    /// It has answered lately (`NUD_REACHABLE`).
    pub reachable: bool,
}

impl Links {
    /// The neighbour table of every interface, without multicast and broadcast entries.
    ///
    /// # Errors
    /// As [`Links::list`].
    pub fn neighbours(&mut self) -> io::Result<Vec<Neighbour>> {
        let answers = self.0.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
        Ok(answers.iter().filter_map(|answer| neighbour(&answer.0)).collect())
    }

    /// Has the kernel resolve a neighbour now, unless it is known to be reachable. Who receives the request learns the
    /// sender's link-layer address from it.
    ///
    /// # Errors
    /// The kernel refuses, as when the interface is down.
    pub fn solicit(&mut self, port: u32, address: IpAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        let (family, address) = match address {
            IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
            IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
        };
        message.header.family = family;
        message.header.ifindex = port;
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(address));
        self.execute(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
    }
}

fn neighbour(message: &RouteNetlinkMessage) -> Option<Neighbour> {
    let RouteNetlinkMessage::NewNeighbour(found) = message else { return None };
    let address = found.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    })?;
    use NeighbourState::{Delay, Probe, Reachable, Stale};
    let state = found.header.state;
    Some(Neighbour {
        port: found.header.ifindex,
        address,
        valid: matches!(state, Reachable | Stale | Delay | Probe),
        reachable: matches!(state, Reachable),
    })
    .filter(|found| !found.address.is_multicast())
}
