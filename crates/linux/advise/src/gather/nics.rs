//! Interfaces with addresses, and the routes from each address to the peer.

use crate::facts::{self, Nic, Route};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use vmcc_netlink::{HostAddress, Links, PortInfo, RouteQuery, link_speed};

/// Link-layer type of loopback interfaces (`ARPHRD_LOOPBACK`).
const LOOPBACK: u16 = 772;
/// Kinds of software devices whose packets leave by another interface, or not at all.
const NO_UPLINKS: [&str; 12] =
    ["dummy", "tun", "wireguard", "ipip", "sit", "gre", "gretap", "vxlan", "geneve", "ifb", "vrf", "nlmon"];
const BRIDGE: &str = "bridge";
/// Kinds of software devices that lead out of a bridge.
const UPLINKS: [&str; 3] = ["bond", "vlan", "team"];
/// Pairs of addresses that are looked at.
const MAX_ADDRESS_PAIRS: usize = 256;

/// Interfaces, TCP's path and all pairs of addresses.
pub(super) struct Found {
    pub(super) nics: Vec<Nic>,
    pub(super) first_nic: Option<String>,
    pub(super) paths: Vec<facts::Path>,
}

pub(super) fn read(links: &mut Links, remotes: &[IpAddr]) -> io::Result<Found> {
    let mut ports = links.list()?;
    ports.sort_by_key(|port| port.index);
    let addresses = links.addresses()?;
    let names: BTreeMap<u32, String> = ports.iter().map(|port| (port.index, port.name.clone())).collect();
    let first = match remotes.first() {
        Some(to) => links.route(&RouteQuery { to: *to, from: None, bound_to: None })?.map(|found| found.port),
        None => None,
    };
    let counts = |port: &&PortInfo| {
        port.link_layer != LOOPBACK && (Some(port.index) == first || leads_out(port, &ports))
    };
    let mut paths = Vec::new();
    let mut nics = Vec::new();
    for port in ports.iter().filter(counts) {
        let own: Vec<IpAddr> = of_port(&addresses, port).collect();
        if own.is_empty() {
            continue;
        }
        for (local, remote) in pairs(&own, remotes) {
            if port.running && paths.len() < MAX_ADDRESS_PAIRS {
                let route = route(links, port, local, remote, &names)?;
                let nic = port.name.clone();
                paths.push(facts::Path { nic, local, remote, route, rtt_us: None, retransmitted: None });
            }
        }
        nics.push(nic(port, own, &names));
    }
    let first_nic = match (first, remotes.is_empty()) {
        (Some(port), _) => names.get(&port).cloned(),
        // Without a peer the lowest index stands for TCP's path.
        (None, true) => nics.first().map(|nic| nic.name.clone()),
        (None, false) => None,
    };
    Ok(Found { nics, first_nic, paths })
}

/// Leaves out tunnels, and bridges of containers and VMs alone, such as `docker0`.
fn leads_out(port: &PortInfo, ports: &[PortInfo]) -> bool {
    let is_uplink =
        |one: &PortInfo| one.on_bus || one.kind.as_deref().is_some_and(|kind| UPLINKS.contains(&kind));
    match port.kind.as_deref() {
        Some(BRIDGE) => ports.iter().any(|one| is_uplink(one) && one.controller == Some(port.index)),
        Some(kind) => !NO_UPLINKS.contains(&kind),
        None => true,
    }
}

fn of_port<'a>(addresses: &'a [HostAddress], port: &PortInfo) -> impl Iterator<Item = IpAddr> + use<'a> {
    let index = port.index;
    addresses.iter().filter(move |one| one.port == index && one.usable).map(|one| one.address)
}

/// Pairs of one family.
fn pairs<'a>(locals: &'a [IpAddr], remotes: &'a [IpAddr]) -> impl Iterator<Item = (IpAddr, IpAddr)> + 'a {
    let of = move |local: &'a IpAddr| remotes.iter().map(move |remote| (*local, *remote));
    locals.iter().flat_map(of).filter(|(local, remote)| local.is_ipv4() == remote.is_ipv4())
}

fn nic(port: &PortInfo, addresses: Vec<IpAddr>, names: &BTreeMap<u32, String>) -> Nic {
    let lower = port.lower.and_then(|index| names.get(&index).cloned());
    // Devices that are only software report a number that means nothing; parts of one report that device's.
    let known = port.on_bus || lower.is_some();
    let rate_bps = known.then(|| link_speed(&port.name).ok().flatten()).flatten();
    Nic { name: port.name.clone(), running: port.running, addresses, rate_bps, lower }
}

/// By the tables for any socket with this source address; else by those for one that is bound to the interface, as subflows of an
/// endpoint with a device are.
fn route(
    links: &mut Links,
    port: &PortInfo,
    local: IpAddr,
    remote: IpAddr,
    names: &BTreeMap<u32, String>,
) -> io::Result<Route> {
    let query = RouteQuery { to: remote, from: Some(local), bound_to: None };
    let free = links.route(&query)?;
    if let Some(found) = free.filter(|found| found.port == port.index) {
        return Ok(Route::Own { gateway: found.gateway });
    }
    let bound = links.route(&RouteQuery { bound_to: Some(port.index), ..query })?;
    Ok(match (bound.filter(|found| found.port == port.index), free) {
        (Some(bound), _) => Route::Bound { gateway: bound.gateway },
        (None, Some(other)) => Route::Other {
            nic: names.get(&other.port).cloned().unwrap_or_else(|| format!("interface {}", other.port)),
            gateway: other.gateway,
        },
        (None, None) => Route::None,
    })
}
