//! Addresses of ports, and routes to single hosts.

use crate::Links;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// An address of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddress {
    /// The port's number.
    pub port: u32,
    /// The address.
    pub address: IpAddr,
    /// Others can reach it now: it is neither link-local nor host-local, and duplicate address detection has passed.
    pub usable: bool,
}

impl Links {
    /// Every address of the namespace, without those that privacy extensions make for a day.
    pub fn addresses(&mut self) -> io::Result<Vec<HostAddress>> {
        let answers = self.0.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        Ok(answers.iter().filter_map(|answer| host_address(&answer.0)).collect())
    }

    /// Gives a port a hardware address; some kinds of port must be off for that.
    pub fn set_hardware_address(&mut self, port: u32, address: [u8; 6]) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.attributes.push(LinkAttribute::Address(address.to_vec()));
        self.execute(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Spares a port from asking for its neighbors' hardware addresses: it takes them for its own.
    pub fn without_arp(&mut self, port: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.header.flags = LinkFlags::Noarp;
        link.header.change_mask = LinkFlags::Noarp;
        self.execute(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Reaches one host directly through `port`, from the address `from`, wherever it was reached before.
    pub fn replace_host_route(&mut self, host: Ipv4Addr, port: u32, from: Ipv4Addr) -> io::Result<()> {
        let mut route = RouteMessage::default();
        route.header.address_family = AddressFamily::Inet;
        route.header.destination_prefix_length = 32;
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        route.header.protocol = RouteProtocol::Static;
        route.header.scope = RouteScope::Link;
        route.header.kind = RouteType::Unicast;
        route.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet(host)),
            RouteAttribute::PrefSource(RouteAddress::Inet(from)),
            RouteAttribute::Oif(port),
        ];
        self.execute(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_REPLACE)
    }
}

fn host_address(message: &RouteNetlinkMessage) -> Option<HostAddress> {
    let RouteNetlinkMessage::NewAddress(found) = message else { return None };
    let address = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| found.attributes.iter().find_map(wanted);
    // On a point-to-point link only the first is this end's.
    let local = address(|a| if let AddressAttribute::Local(ip) = a { Some(*ip) } else { None });
    let own = || address(|a| if let AddressAttribute::Address(ip) = a { Some(*ip) } else { None });
    let flags = found.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    let flags = flags.unwrap_or(AddressFlags::empty());
    let address = local.or_else(own)?;
    // The same bit means `temporary` in IPv6 and `secondary` in IPv4.
    if address.is_ipv6() && flags.contains(AddressFlags::Secondary) {
        return None;
    }
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed | AddressFlags::Deprecated;
    Some(HostAddress {
        port: found.header.index,
        address,
        usable: found.header.scope == AddressScope::Universe && !flags.intersects(unusable),
    })
}
