//! Links and addresses of one network namespace.

use crate::Connection;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

/// The MTU of a port that does not say.
const ETHERNET_MTU: u32 = 1500;

/// One interface.
#[derive(Debug, Clone)]
pub struct PortInfo {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it sends in one packet, without the link-layer header, in bytes.
    pub mtu: u32,
    /// Whether it is a device on a bus (PCI, virtio), and not only software: then its speed means something. The
    /// kernel says so since Linux 5.14.
    pub on_bus: bool,
}

/// Route netlink, in the network namespace of the thread that opened it.
pub struct Links(pub(crate) Connection<RouteNetlinkMessage>);

impl Links {
    /// Opens a connection; it stays in the namespace that the calling thread is in now.
    ///
    /// # Errors
    /// The system refuses a netlink socket.
    pub fn open() -> io::Result<Self> {
        Connection::open(NETLINK_ROUTE).map(Self)
    }

    /// Makes a pair of connected ports; `peer_name` appears in the namespace behind `peer_namespace`.
    pub fn add_veth(&mut self, name: &str, peer_name: &str, peer_namespace: Option<RawFd>) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes.push(LinkAttribute::IfName(peer_name.to_owned()));
        peer.attributes.extend(peer_namespace.map(LinkAttribute::NetNsFd));
        let data = LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)));
        self.create(name, vec![LinkInfo::Kind(InfoKind::Veth), data])
    }

    /// Makes a bridge, without spanning tree.
    pub fn add_bridge(&mut self, name: &str) -> io::Result<()> {
        self.create(name, vec![LinkInfo::Kind(InfoKind::Bridge)])
    }

    pub(crate) fn execute(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.0.execute(message, flags)
    }

    fn create(&mut self, name: &str, info: Vec<LinkInfo>) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)];
        self.0.execute(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Switches a port on, first making it a port of a bridge if `bridge` is given.
    pub fn bring_up(&mut self, port: u32, bridge: Option<u32>) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes.extend(bridge.map(LinkAttribute::Controller));
        self.0.execute(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Gives a port an address; the kernel adds the route to its network.
    pub fn add_address(&mut self, port: u32, address: Ipv4Addr, prefix_len: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix_len;
        message.header.index = port;
        let address = IpAddr::V4(address);
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.0.execute(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Every port of the namespace.
    pub fn list(&mut self) -> io::Result<Vec<PortInfo>> {
        let answers = self.0.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        Ok(answers.into_iter().filter_map(port_info).collect())
    }
}

fn port_info(message: RouteNetlinkMessage) -> Option<PortInfo> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })?;
    let mtu = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    let on_bus = link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::ParentDevName(_)));
    Some(PortInfo { index: link.header.index, name, mtu: mtu.unwrap_or(ETHERNET_MTU), on_bus })
}
