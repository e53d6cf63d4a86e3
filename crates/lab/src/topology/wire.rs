//! Veth pairs and bridges.

use crate::{Error, netns::Netns};
use std::io;
use std::net::Ipv4Addr;
use vmcc_netlink::{Links, disable_segmentation_offload};

const PREFIX_LEN: u8 = 24;

/// A port of a bridge, to be made.
#[derive(Debug, Clone)]
pub(super) struct Leg<'a> {
    pub(super) at: &'a Netns,
    pub(super) port: String,
    /// The bridge that it is a port of.
    pub(super) bridge: Option<String>,
    /// True if it routes.
    routes: bool,
}

/// Both ends of every routed link have this hardware address (locally administered): who sends to its own address
/// reaches the other end, and nobody needs to ask.
pub(super) const ROUTED: [u8; 6] = [0x02, 0x76, 0x6d, 1, 0, 0];

impl<'a> Leg<'a> {
    pub(super) fn new(at: &'a Netns, port: impl Into<String>, bridge: impl Into<String>) -> Self {
        Self { at, port: port.into(), bridge: Some(bridge.into()), routes: false }
    }

    /// One that hands on nothing.
    pub(super) fn loose(at: &'a Netns, port: impl Into<String>) -> Self {
        Self { at, port: port.into(), bridge: None, routes: false }
    }

    pub(super) fn routed(at: &'a Netns, port: impl Into<String>) -> Self {
        Self { at, port: port.into(), bridge: None, routes: true }
    }
}

/// Settings of a host's end of a cable.
#[derive(Debug, Clone, Default)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) addresses: Vec<Ipv4Addr>,
    /// Its hardware address; `None`: the kernel's choice.
    pub(super) hardware: Option<[u8; 6]>,
    /// True if the leg at the other end routes.
    pub(super) routed: bool,
}

pub(crate) fn in_namespace<F>(namespace: &Netns, action: &'static str, job: F) -> Result<(), Error>
where
    F: FnOnce() -> io::Result<()> + Send + 'static,
{
    let done = namespace.run(job);
    done.map_err(|e| Error::kernel(action, format!("namespace {}", namespace.name()), e))
}

/// Switches off IPv6, whose own packets would count; a kernel without IPv6 has nothing to switch off.
pub(crate) fn no_ipv6(namespace: &Netns) -> Result<(), Error> {
    match namespace.sysctl("net.ipv6.conf.all.disable_ipv6", "1") {
        Err(Error::Kernel { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

pub(super) fn add_bridge(at: &Netns, name: &str) -> Result<(), Error> {
    let own = name.to_owned();
    in_namespace(at, "making a bridge in", move || Links::open()?.add_bridge(&own))?;
    bring_up(at, name, None)
}

/// Makes a pair of ports that joins two bridges.
pub(super) fn join(left: &Leg<'_>, right: &Leg<'_>) -> Result<(), Error> {
    let (name, peer, fd) = (left.port.clone(), right.port.clone(), right.at.raw_fd());
    in_namespace(left.at, "making a port in", move || Links::open()?.add_veth(&name, &peer, Some(fd)))?;
    connect(left)?;
    connect(right)
}

/// Errors of a kernel without threaded NAPI, and of a container that may not enable it.
const CANNOT: [io::ErrorKind; 3] =
    [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];

/// Makes a pair of ports between a bridge and a host. The host receives in a kernel thread: congestion control then never
/// runs in a softirq that interrupted whatever was running, which one vendor's kernel does not let every process bear
/// (`docs/reference/kernels.md`).
pub(super) fn plug(leg: &Leg<'_>, end: &Netns, interface: Interface) -> Result<(), Error> {
    let (port, peer, fd) = (leg.port.clone(), interface.name.clone(), end.raw_fd());
    in_namespace(leg.at, "making a port in", move || Links::open()?.add_veth(&port, &peer, Some(fd)))?;
    connect(leg)?;
    let name = interface.name.clone();
    let index = settle(end, interface)?;
    in_namespace(end, "having a thread receive in", move || {
        match Links::open()?.receive_in_thread(index, &name) {
            Err(e) if CANNOT.contains(&e.kind()) => Ok(()),
            done => done,
        }
    })
}

/// Gives a host's interface what it shall have; its number.
pub(super) fn settle(end: &Netns, interface: Interface) -> Result<u32, Error> {
    let index = end.port_index(&interface.name)?;
    in_namespace(end, "giving an address to a port of", move || {
        disable_segmentation_offload(&interface.name)?;
        let mut links = Links::open()?;
        if let Some(hardware) = interface.hardware {
            links.set_hardware_address(index, hardware)?;
        }
        if interface.routed {
            links.without_arp(index)?;
        }
        for address in interface.addresses {
            links.add_address(index, address, PREFIX_LEN)?;
        }
        links.bring_up(index, None)
    })?;
    Ok(index)
}

/// Makes a port one of its bridge, or a router's, and switches it on. Segments that a host's kernel had merged would pass queues
/// as one.
fn connect(leg: &Leg<'_>) -> Result<(), Error> {
    let port = leg.port.clone();
    in_namespace(leg.at, "switching off segmentation offload in", move || {
        disable_segmentation_offload(&port)
    })?;
    if leg.routes {
        let index = leg.at.port_index(&leg.port)?;
        in_namespace(leg.at, "setting up a router's port in", move || {
            let mut links = Links::open()?;
            links.set_hardware_address(index, ROUTED)?;
            links.without_arp(index)
        })?;
    }
    bring_up(leg.at, &leg.port, leg.bridge.as_deref())
}

/// Switches a port on, as one of `bridge` if that is given. It leaves the bridge that it is at.
pub(super) fn bring_up(at: &Netns, port: &str, bridge: Option<&str>) -> Result<(), Error> {
    let index = at.port_index(port)?;
    let bridge = bridge.map(|bridge| at.port_index(bridge)).transpose()?;
    in_namespace(at, "bringing up a port of", move || Links::open()?.bring_up(index, bridge))
}
