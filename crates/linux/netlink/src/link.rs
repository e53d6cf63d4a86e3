//! Links and addresses of one network namespace.

use crate::Connection;
use crate::legible::Answer;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkLayerType, LinkMessage, Prop,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::net::if_::if_nametoindex;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

/// The MTU of a port that does not say.
const ETHERNET_MTU: u32 = 1500;

// From the kernel's user interface, linux/if_link.h. The second is of Linux 6.3, before which the first is for IPv4 too.
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;

/// One interface.
#[derive(Debug, Clone)]
pub struct PortInfo {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Other names that it answers to (`ip link property add altname`), which may be longer.
    pub other_names: Vec<String>,
    /// MTU: bytes of one packet without the link-layer header.
    pub mtu: u32,
    /// Device on a bus (PCI, virtio), and not only software: then its speed means something. The
    /// kernel says so since Linux 5.14.
    pub on_bus: bool,
    /// Its frames are Ethernet's.
    pub ethernet: bool,
    /// Link-layer type of its packets: a number `ARPHRD_...` of the kernel's.
    pub link_layer: u16,
    /// The driver, of a device that is only software: `tun`, `veth`, `wireguard`, ...
    pub kind: Option<String>,
    /// Index of the interface of this namespace that it is a part of: of a VLAN, a macvlan, an ipvlan.
    pub lower: Option<u32>,
    /// Index of the bridge or bond that it is a port of.
    pub controller: Option<u32>,
    /// Administratively up.
    pub up: bool,
    /// It is also operational (`IFF_RUNNING`, RFC 2863): it has a carrier, or its driver knows of none.
    pub running: bool,
}

/// Route netlink, in the network namespace of the thread that opened it.
pub struct Links(pub(crate) Connection<Answer>);

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

    /// Makes a pair of connected ports in this namespace, switched on, with one queue each and without addresses of
    /// IPv6; the numbers of both. The first has the given link-layer address.
    ///
    /// # Errors
    /// The kernel refuses; `AlreadyExists` when a name is taken.
    pub fn add_detour(
        &mut self,
        name: &str,
        back: &str,
        address: [u8; 6],
        mtu: u32,
    ) -> io::Result<(u32, u32)> {
        let end = |name: &str| {
            let mut link = LinkMessage::default();
            link.attributes = vec![
                LinkAttribute::IfName(name.to_owned()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::NumTxQueues(1),
                LinkAttribute::NumRxQueues(1),
            ];
            link
        };
        let mut link = end(name);
        let data = LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(end(back))));
        link.attributes.push(LinkAttribute::Address(address.to_vec()));
        link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), data]));
        self.0.execute(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)?;
        Ok((self.bring_up_bare(name)?, self.bring_up_bare(back)?))
    }

    /// Switches a port on that shall get no addresses of IPv6; its number.
    fn bring_up_bare(&mut self, name: &str) -> io::Result<u32> {
        let index = if_nametoindex(name)?;
        let mut link = LinkMessage::default();
        link.header.index = index;
        let none = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        link.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(none)])];
        // A kernel without IPv6 gives none anyway.
        let _ = self.0.execute(RouteNetlinkMessage::SetLink(link), 0);
        self.bring_up(index, None)?;
        Ok(index)
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

    /// Switches a port off.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_down(&mut self, port: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.header.change_mask = LinkFlags::Up;
        self.0.execute(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Moves a port into another namespace, under this name. It loses its addresses, and is off.
    pub fn move_to(&mut self, port: u32, namespace: RawFd, name: &str) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.attributes = vec![LinkAttribute::NetNsFd(namespace), LinkAttribute::IfName(name.to_owned())];
        self.0.execute(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Keeps a port from being handed trains of more than `most` segments.
    pub fn limit_segments(&mut self, port: u32, most: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.attributes = vec![LinkAttribute::GsoMaxSegs(most)];
        self.0.execute(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Keeps a port that merges received packets (GRO) from making any larger than the wire's.
    pub(crate) fn merge_none(&mut self, port: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        let largest = |kind| LinkAttribute::Other(DefaultNla::new(kind, 1_u32.to_ne_bytes().to_vec()));
        link.attributes = vec![largest(IFLA_GRO_MAX_SIZE), largest(IFLA_GRO_IPV4_MAX_SIZE)];
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

    /// Packets that the port has received and sent; `None` when there is no such port, or the kernel does not tell.
    pub fn packets(&mut self, port: u32) -> io::Result<Option<(u64, u64)>> {
        let answers = self.0.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        Ok(answers.into_iter().find_map(|Answer(answer)| match answer {
            RouteNetlinkMessage::NewLink(link) if link.header.index == port => {
                link.attributes.iter().find_map(|attribute| match attribute {
                    LinkAttribute::Stats64(stats) => Some((stats.rx_packets, stats.tx_packets)),
                    _ => None,
                })
            }
            _ => None,
        }))
    }

    /// Every port of the namespace.
    pub fn list(&mut self) -> io::Result<Vec<PortInfo>> {
        let answers = self.0.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        Ok(answers.into_iter().filter_map(|Answer(answer)| port_info(answer)).collect())
    }

    /// The interface that has this name, or answers to it.
    ///
    /// # Errors
    /// As [`Links::list`].
    pub fn find(&mut self, name: &str) -> io::Result<Option<PortInfo>> {
        let answers_to = |port: &PortInfo| port.name == name || port.other_names.iter().any(|n| n == name);
        Ok(self.list()?.into_iter().find(answers_to))
    }
}

fn port_info(message: RouteNetlinkMessage) -> Option<PortInfo> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })?;
    let other_names = link.attributes.iter().flat_map(|attribute| match attribute {
        LinkAttribute::PropList(properties) => properties.iter().filter_map(other_name).collect(),
        _ => Vec::new(),
    });
    let other_names = other_names.collect();
    let mtu = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    let on_bus = link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::ParentDevName(_)));
    let ethernet = link.header.link_layer_type == LinkLayerType::Ether;
    let elsewhere =
        link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::LinkNetNsId(_)));
    let lower = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Link(index) => Some(*index),
        _ => None,
    });
    let controller = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Controller(index) => Some(*index),
        _ => None,
    });
    let kind = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind.to_string()),
            _ => None,
        }),
        _ => None,
    });
    Some(PortInfo {
        index: link.header.index,
        name,
        other_names,
        mtu: mtu.unwrap_or(ETHERNET_MTU),
        on_bus,
        ethernet,
        link_layer: link.header.link_layer_type.into(),
        // Tunnels without a device have index 0, a veth of one namespace its other end.
        lower: lower.filter(|index| *index != 0 && !elsewhere && kind.as_deref() != Some("veth")),
        controller,
        kind,
        up: link.header.flags.contains(LinkFlags::Up),
        running: link.header.flags.contains(LinkFlags::Up | LinkFlags::Running),
    })
}

fn other_name(property: &Prop) -> Option<String> {
    match property {
        Prop::AltIfName(name) => Some(name.clone()),
        _ => None,
    }
}
