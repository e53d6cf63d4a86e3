//! A network's description as what the lab builds.

use super::{OWN_DELAY, refuse};
use crate::Error;
use crate::spec::{Direction, Layout, OfPaths, Path, Routed, RoutedLink, Shape, Sharing, VirtualHost, Wire};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use vmcc_network::{HostId, LinkId, LinkSettings, Network, RoutePair, Topology};
use vmcc_scenario::model;
use vmcc_scenario::model::{Discipline, Loss, Marking, Share};
use vmcc_units::Nanos;

/// Pairs of hosts that send, and how many routes each wants where flows are spread by hash.
pub(super) type Pairs = BTreeMap<(usize, usize), u32>;

pub(super) fn convert(topology: &Topology, pairs: &Pairs) -> Result<(Layout, Vec<Path>), Error> {
    let network = topology.network();
    match topology {
        Topology::ParallelPaths(_) => {
            let paths = network.paths.iter().map(|path| parallel(&network, path));
            Ok((Layout::ParallelPaths, paths.collect::<Result<_, _>>()?))
        }
        Topology::VirtualHost(t) => virtual_host(t, &network),
        Topology::TwoPod(_) => routed(&network, pairs, "topology.nics"),
        Topology::Graph(_) => routed(&network, pairs, "topology.routes"),
        _ => routed(&network, pairs, "traffic"),
    }
}

fn parallel(network: &Network, path: &vmcc_network::Path) -> Result<Path, Error> {
    let direction = |link: LinkId| {
        let settings = &network.port(link).settings;
        let wire = wire(&path.name, settings)?;
        Ok::<_, Error>(Direction { shape: Some(shape(settings, "topology.marking")?), wire })
    };
    // A path is one link there and one back.
    let (out, back) = (path.links[0], path.links[1]);
    Ok(Path { name: path.name.clone(), out: direction(out)?, back: direction(back)? })
}

/// Wire behind the port of a link. netem draws the delay of each packet independently.
fn wire(name: &str, link: &LinkSettings) -> Result<Wire, Error> {
    if !link.jitter.is_zero() && !link.reorder {
        let problem =
            format!("jitter on {name} that keeps the order of packets; `reorder = true` is possible");
        return refuse("topology.jitter", problem);
    }
    let loss = loss(&link.loss, "topology.loss")?;
    Ok(Wire { delay: delay(link.delay), jitter: link.jitter, loss })
}

/// The probability of a loss, which is independent of the last.
fn loss(loss: &Loss, key: &str) -> Result<f64, Error> {
    if loss.probability > 0.0 && loss.burst.is_some_and(|burst| burst.get() > 1) {
        return refuse(format!("{key}.burst"), "losses in bursts");
    }
    Ok(loss.probability)
}

fn delay(delay: Nanos) -> Nanos {
    if delay <= OWN_DELAY { Nanos::ZERO } else { delay }
}

fn shape(link: &LinkSettings, key: &str) -> Result<Shape, Error> {
    if matches!(link.marking, Marking::Red(_)) {
        return refuse(key, "rule \"red\"; ports mark by \"threshold\", \"mq-ecn\" or \"tcn\"");
    }
    let queues = link.queue.weights.len();
    if queues > vmcc_port::MAX_CLASSES {
        let problem = format!("{queues} queues; a port has at most {}", vmcc_port::MAX_CLASSES);
        return refuse("topology.queue.weights", problem);
    }
    Ok(Shape { rate: link.rate, buffer: link.buffer, marking: link.marking, queue: link.queue.clone() })
}

fn virtual_host(t: &model::VirtualHost, network: &Network) -> Result<(Layout, Vec<Path>), Error> {
    let loss = loss(&t.path_loss, "topology.path_loss")?;
    let nic_of_vnic: Vec<usize> = (0..t.vnics()).map(|vnic| t.nic(vnic) as usize).collect();
    // Of a path the first link leaves the NIC; with hard caps, what stands for it is the first vNIC's port.
    let nic = |path: &vmcc_network::Path| network.port(path.links[0]);
    let first = &network.paths[0];
    let sharing = match t.share {
        Share::Hard => {
            let vnic = network.paths.iter().find(|path| path.queue != path.links[0]).unwrap_or(first);
            Sharing::Hard(shape(&network.port(vnic.queue).settings, "topology.marking")?)
        }
        Share::Htb if t.queue.kind != Discipline::Fifo => {
            return refuse("topology.queue", "a NIC's port has one queue per VM where VMs borrow");
        }
        Share::Htb => Sharing::Borrowing(nic(first).guarantees.clone()),
    };
    let layout = VirtualHost { vms: t.vms as usize, nic_of_vnic, sharing };
    let shape = nic_shape(t, &nic(first).settings)?;
    let wire = Wire { delay: delay(t.path_delay), loss, ..Wire::default() };
    let direction = Direction { shape, wire };
    let path = |path: &vmcc_network::Path| Path::alike(path.name.as_str(), direction.clone());
    Ok((Layout::VirtualHost(layout), network.paths.iter().map(path).collect()))
}

/// The link behind a NIC. With hard caps it is shaped only where the VMs together could fill it, or where it
/// marks: otherwise no queue builds there. With borrowing it is where the VMs meet.
fn nic_shape(t: &model::VirtualHost, nic: &LinkSettings) -> Result<Option<Shape>, Error> {
    if t.share == Share::Htb {
        if t.path_marking != Marking::None {
            return refuse("topology.path_marking", "the NIC's port marks for the VMs that borrow there");
        }
        return shape(nic, "topology.marking").map(Some);
    }
    let fed = u128::from(t.vm_rate.get()) * u128::from(t.vms);
    if fed <= u128::from(t.path_rate.get()) && t.path_marking == Marking::None {
        return Ok(None);
    }
    shape(nic, "topology.path_marking").map(Some)
}

/// Hosts and switches that route. What the number of a pair's routes comes from is called `subnets_key`.
fn routed(network: &Network, pairs: &Pairs, subnets_key: &'static str) -> Result<(Layout, Vec<Path>), Error> {
    let name = |host: &vmcc_network::Host| host.node.index();
    let links = (0..).map(LinkId).take(network.links.len());
    let uses = Uses::of(network);
    let routed = Routed {
        nodes: network.nodes.clone(),
        node_of_host: network.hosts.iter().map(name).collect(),
        links: links.map(|link| routed_link(network, link, &uses)).collect::<Result<_, _>>()?,
        subnets_key,
        routes: routes(network, pairs)?,
    };
    // What they do to packets is their links' business.
    let none = Direction { shape: None, wire: Wire::default() };
    let path = |path: &vmcc_network::Path| Path::alike(path.name.as_str(), none.clone());
    Ok((Layout::Routed(routed), network.paths.iter().map(path).collect()))
}

/// Names and paths that a network gives its links, by link.
#[derive(Default)]
struct Uses<'a> {
    names: BTreeMap<LinkId, &'a str>,
    paths: BTreeMap<LinkId, OfPaths>,
}

impl<'a> Uses<'a> {
    fn of(network: &'a Network) -> Self {
        let mut uses = Self::default();
        for (name, links) in &network.cables {
            for link in links {
                uses.names.entry(*link).or_insert(name);
            }
        }
        for (number, path) in network.paths.iter().enumerate() {
            uses.paths.entry(path.queue).or_default().stands_for.push(number);
            for link in &path.links {
                uses.paths.entry(*link).or_default().carries.push(number);
            }
        }
        uses
    }
}

fn routed_link(network: &Network, id: LinkId, uses: &Uses<'_>) -> Result<RoutedLink, Error> {
    let (link, settings) = (&network.links[id.index()], &network.port(id).settings);
    let name = match uses.names.get(&id) {
        None => format!("{}-{}", network.nodes[link.from.index()], network.nodes[link.to.index()]),
        Some(name) => (*name).to_owned(),
    };
    Ok(RoutedLink {
        from: link.from.index(),
        to: link.to.index(),
        shape: shape(settings, "topology.marking")?,
        wire: wire(&name, settings)?,
        paths: uses.paths.get(&id).cloned().unwrap_or_default(),
        name,
    })
}

/// The routes of each pair of hosts, in both directions. Choices are hashes of the hosts' names, as those of a switch
/// that hashes addresses.
fn routes(network: &Network, pairs: &Pairs) -> Result<BTreeMap<(usize, usize), Vec<RoutePair>>, Error> {
    let mut routes = BTreeMap::new();
    for (&(from, to), &count) in pairs {
        if routes.contains_key(&(from, to)) {
            continue;
        }
        let host = |host: usize| HostId(u32::try_from(host).unwrap_or(u32::MAX));
        let back = pairs.get(&(to, from)).copied().unwrap_or(0);
        let mut number = 0_u32;
        let mut draw = || {
            number += 1;
            let mut hasher = DefaultHasher::new();
            (network.host_name(host(from)), network.host_name(host(to)), number).hash(&mut hasher);
            hasher.finish() as u32
        };
        let found = network.routes.between(host(from), host(to), count.max(back) as usize, &mut draw);
        if found.is_empty() {
            let (from, to) = (network.host_name(host(from)), network.host_name(host(to)));
            return Err(Error::spec("traffic", format!("there is no path from {from} to {to}")));
        }
        routes.insert((to, from), found.iter().cloned().map(RoutePair::reversed).collect());
        routes.insert((from, to), found);
    }
    Ok(routes)
}
