//! Networks that cannot be built.

use std::collections::{BTreeMap, BTreeSet};

use vmcc_units::{BitsPerSec, Bytes};

use super::{Check, fault, fault_with, link, require};
use crate::model::{
    Discipline, Dumbbell, FatTree, Graph, ParallelPaths, Route, Routing, Scenario, Share, Topology, TwoPod,
    VirtualHost,
};

/// Keeps a typing error from filling memory.
const MAX_COUNT: u32 = 65_536;

pub(super) fn check(scenario: &Scenario) -> Check {
    let mtu = scenario.host.mtu;
    match &scenario.topology {
        Topology::ParallelPaths(t) => parallel_paths(t, mtu),
        Topology::Dumbbell(t) => dumbbell(t, mtu),
        Topology::VirtualHost(t) => virtual_host(t, mtu),
        Topology::TwoPod(t) => two_pod(t, mtu),
        Topology::FatTree(t) => fat_tree(t, mtu),
        Topology::Graph(t) => graph(t, mtu),
    }
}

fn count(value: u32, key: &str) -> Check {
    require((1..=MAX_COUNT).contains(&value), &format!("topology.{key}"), &format!("from 1 to {MAX_COUNT}"))
}

fn unique(names: &[String], path: impl Fn(usize) -> String) -> Check {
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let usable = !name.is_empty()
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        require(usable, &path(index), "a name is 1 to 64 letters, digits, `-`, `_` or `.`")?;
        require(seen.insert(name), &path(index), &format!("another one is called `{name}`"))?;
    }
    Ok(())
}

fn parallel_paths(t: &ParallelPaths, mtu: Bytes) -> Check {
    let list = (1..=64).contains(&t.paths.0.len());
    require(list, "topology.paths", "from 1 to 64 paths are possible")?;
    unique(&t.paths.0.iter().map(|p| p.name.clone()).collect::<Vec<_>>(), |i| {
        format!("topology.paths[{i}].name")
    })?;
    for (index, (_, settings)) in t.links().into_iter().enumerate() {
        // A fault in a value that the path does not set itself is the topology's.
        let own = &t.paths.0[index];
        let owned = |key: &str| match key {
            "rate" => own.rate.is_some(),
            "delay" => own.delay.is_some(),
            "buffer" => own.buffer.is_some(),
            "marking" => own.marking.is_some(),
            "loss" => own.loss.is_some(),
            "jitter" => own.jitter.is_some(),
            _ => false,
        };
        link::settings(&settings, mtu, "").map_err(|mut bad| {
            let rest = bad.path.trim_start_matches('.').to_owned();
            let key = rest.split('.').next().unwrap_or_default();
            let section = if owned(key) { format!("topology.paths[{index}]") } else { "topology".into() };
            bad.path = format!("{section}.{rest}");
            bad
        })?;
    }
    Ok(())
}

fn dumbbell(t: &Dumbbell, mtu: Bytes) -> Check {
    count(t.pairs, "pairs")?;
    link::settings(&t.bottleneck(), mtu, "topology")?;
    if let Some(rate) = t.access_rate {
        link::rate(rate, "topology.access_rate")?;
    }
    link::delay(t.access_delay, "topology.access_delay")?;
    link::buffer(t.access_buffer, mtu, "topology.access_buffer")
}

fn virtual_host(t: &VirtualHost, mtu: Bytes) -> Check {
    count(t.vms, "vms")?;
    count(t.clients, "clients")?;
    require((1..=64).contains(&t.nics), "topology.nics", "from 1 to 64 NICs are possible")?;
    require((1..=64).contains(&t.vnics()), "topology.vnics", "from 1 to 64 vNICs are possible")?;
    if let Some(map) = &t.nic_of_vnic {
        let complete = map.len() == t.vnics() as usize;
        require(
            complete,
            "topology.nic_of_vnic",
            &format!("expected one NIC for each of the {} vNICs", t.vnics()),
        )?;
        for (index, nic) in map.iter().enumerate() {
            let message = format!("there are {} NICs, counted from 0", t.nics);
            require(*nic < t.nics, &format!("topology.nic_of_vnic[{index}]"), &message)?;
        }
    }
    if let Some(weights) = &t.weights {
        let complete = weights.len() == t.vms as usize && weights.iter().all(|w| (1..=1_000_000).contains(w));
        require(complete, "topology.weights", &format!("expected {} weights from 1 to 1000000", t.vms))?;
    }
    link::rate(t.vm_rate, "topology.vm_rate")?;
    link::rate(t.path_rate, "topology.path_rate")?;
    link::delay(t.path_delay, "topology.path_delay")?;
    link::buffer(t.buffer, mtu, "topology.buffer")?;
    link::buffer(t.path_buffer, mtu, "topology.path_buffer")?;
    link::queue(&t.queue, "topology.queue")?;
    link::loss(&t.path_loss, "topology.path_loss")?;
    let vnic_rate = BitsPerSec::new(t.vm_rate.get() / u64::from(t.vnics()));
    link::rate(vnic_rate, "topology.vm_rate")?;
    link::shares(&t.queue, vnic_rate, "topology.queue")?;
    link::marking(&t.marking, vnic_rate, t.buffer, mtu, "topology.marking")?;
    link::marking(&t.path_marking, t.path_rate, t.path_buffer, mtu, "topology.path_marking")?;
    if t.share == Share::Htb {
        let own = t.queue.kind == Discipline::Fifo;
        require(own, "topology.queue", "share = \"htb\" has a queue per VM already; leave `queue` out")?;
        let leaves = t.vms <= 250;
        require(leaves, "topology.vms", "share = \"htb\" is possible for at most 250 VMs")?;
        let promised = t.vm_rate.checked_mul(u64::from(t.vms));
        let capacity = t.path_rate.checked_mul(u64::from(t.nics));
        let kept = promised.zip(capacity).is_some_and(|(p, c)| p <= c);
        require(
            kept,
            "topology.vm_rate",
            "share = \"htb\" guarantees this to every VM, more than all NICs have",
        )?;
    }
    Ok(())
}

fn two_pod(t: &TwoPod, mtu: Bytes) -> Check {
    count(t.servers_per_pod, "servers_per_pod")?;
    require((1..=64).contains(&t.nics), "topology.nics", "from 1 to 64 NICs are possible")?;
    link::settings(&t.port(), mtu, "topology")?;
    for (limit, key) in
        [(t.core_rate, "core_rate"), (t.nic_limit, "nic_limit"), (t.server_limit, "server_limit")]
    {
        if let Some(rate) = limit {
            link::rate(rate, &format!("topology.{key}"))?;
        }
    }
    if t.core_rate.is_none() {
        let core = t.rate.checked_mul(u64::from(t.servers_per_pod));
        let core = core.ok_or_else(|| fault("topology.rate", "the core's rate overflows 64 bits"))?;
        link::rate(core, "topology.core_rate")?;
    }
    let useful = t.nic_limit.is_none_or(|limit| limit <= t.rate);
    require(useful, "topology.nic_limit", "a limit above the NIC's own rate limits nothing")
}

fn fat_tree(t: &FatTree, mtu: Bytes) -> Check {
    let even = t.k.is_multiple_of(2) && (2..=64).contains(&t.k);
    require(even, "topology.k", "k is an even number from 2 to 64")?;
    link::settings(&t.port(), mtu, "topology")
}

fn graph(t: &Graph, mtu: Bytes) -> Check {
    require(!t.links.is_empty(), "topology.links", "a graph needs links")?;
    let size = t.links.len() <= MAX_COUNT as usize && t.hosts.len() <= MAX_COUNT as usize;
    require(size, "topology.links", &format!("at most {MAX_COUNT} links and hosts"))?;
    require(t.hosts.len() >= 2, "topology.hosts", "a graph needs at least two hosts")?;
    unique(&t.hosts, |i| format!("topology.hosts[{i}]"))?;
    unique(&t.links.iter().map(|l| l.label()).collect::<Vec<_>>(), |i| format!("topology.links[{i}]"))?;
    let mut neighbors: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (index, edge) in t.links.iter().enumerate() {
        let path = format!("topology.links[{index}]");
        require(edge.from != edge.to, &format!("{path}.to"), "a link joins two different nodes")?;
        link::settings(&edge.settings(), mtu, &path)?;
        neighbors.entry(&edge.from).or_default().insert(&edge.to);
        let fresh = neighbors.entry(&edge.to).or_default().insert(&edge.from);
        // Two links between the same nodes would make `via` ambiguous.
        let clear = fresh || t.routing == Routing::Ecmp;
        require(
            clear,
            &path,
            "another link joins the same nodes; explicit routes could not tell them apart",
        )?;
    }
    for (index, host) in t.hosts.iter().enumerate() {
        if !neighbors.contains_key(host.as_str()) {
            let message = format!("no link ends at host `{host}`");
            let help = crate::error::did_you_mean(host, neighbors.keys().copied());
            return Err(fault_with(format!("topology.hosts[{index}]"), message, help));
        }
    }
    routes(t, &neighbors)
}

fn routes(t: &Graph, neighbors: &BTreeMap<&str, BTreeSet<&str>>) -> Check {
    match t.routing {
        Routing::Ecmp => {
            require(t.routes.is_empty(), "topology.routes", "routes need routing = \"explicit\"")
        }
        Routing::Explicit => {
            require(!t.routes.is_empty(), "topology.routes", "routing = \"explicit\" needs routes")?;
            unique(&t.route_names(), |i| format!("topology.routes[{i}].name"))?;
            t.routes.iter().enumerate().try_for_each(|(index, r)| route(t, r, index, neighbors))
        }
    }
}

fn route(t: &Graph, route: &Route, index: usize, neighbors: &BTreeMap<&str, BTreeSet<&str>>) -> Check {
    let at = |i: usize| format!("topology.routes[{index}].via[{i}]");
    require(
        route.via.len() >= 2,
        &format!("topology.routes[{index}].via"),
        "a route has at least two nodes",
    )?;
    let last = route.via.len() - 1;
    let mut seen = BTreeSet::new();
    for (i, node) in route.via.iter().enumerate() {
        if !neighbors.contains_key(node.as_str()) {
            let help = crate::error::did_you_mean(node, neighbors.keys().copied());
            return Err(fault_with(at(i), format!("the graph has no node `{node}`"), help));
        }
        require(seen.insert(node), &at(i), &format!("the route passes `{node}` twice: a cycle"))?;
        let is_host = t.hosts.contains(node);
        let is_end = i == 0 || i == last;
        require(is_host == is_end, &at(i), "a route leads from a host over switches to a host")?;
        if let Some(before) = i.checked_sub(1).map(|b| route.via[b].as_str()) {
            let joined = neighbors.get(before).is_some_and(|n| n.contains(node.as_str()));
            require(joined, &at(i), &format!("no link joins `{before}` and `{node}`"))?;
        }
    }
    Ok(())
}

/// Whether a graph has a way from one host to another, hosts themselves not forwarding.
pub(super) fn reachable(t: &Graph, from: &str) -> BTreeSet<String> {
    let hosts: BTreeSet<&str> = t.hosts.iter().map(String::as_str).collect();
    if t.routing == Routing::Explicit {
        let ends = |r: &Route| match (r.via.first(), r.via.last()) {
            (Some(a), Some(b)) if a == from => Some(b.clone()),
            (Some(a), Some(b)) if b == from => Some(a.clone()),
            _ => None,
        };
        return t.routes.iter().filter_map(ends).collect();
    }
    let mut neighbors: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for edge in &t.links {
        neighbors.entry(&edge.from).or_default().push(&edge.to);
        neighbors.entry(&edge.to).or_default().push(&edge.from);
    }
    let mut found = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(node) = waiting.pop() {
        for next in neighbors.get(node).into_iter().flatten() {
            if found.insert((*next).to_owned()) && !hosts.contains(next) {
                waiting.push(next);
            }
        }
    }
    found
}
