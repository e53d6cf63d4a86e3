//! Hardware addresses and routes to single hosts.

use crate::Links;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::Ipv4Addr;

impl Links {
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
