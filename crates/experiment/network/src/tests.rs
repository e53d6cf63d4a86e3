//! Every kind says the same by name as by number.

use std::collections::BTreeSet;

use crate::{Area, HostId, LinkId, Network, NodeId, RoutePair, Topology};

const KINDS: [&str; 12] = [
    r#"{"kind":"parallel-paths","paths":3,"rate":"1gbit","delay":"1us"}"#,
    r#"{"kind":"dumbbell","pairs":2,"rate":"1gbit","delay":"1us"}"#,
    r#"{"kind":"virtual-host","vms":2,"nics":2,"clients":2,"vm_rate":"1gbit","path_rate":"10gbit","path_delay":"1us"}"#,
    r#"{"kind":"virtual-host","vms":3,"nics":2,"vnics":3,"share":"htb","vm_rate":"1gbit","path_rate":"10gbit","path_delay":"1us"}"#,
    r#"{"kind":"two-pod","rate":"1gbit","delay":"1us","server_limit":"1gbit"}"#,
    r#"{"kind":"two-pod","nics":3,"rate":"1gbit","delay":"1us"}"#,
    r#"{"kind":"fat-tree","k":4,"rate":"1gbit","delay":"1us"}"#,
    GRAPH,
    r#"{"kind":"leaf-spine","leaves":3,"spines":2,"hosts_per_leaf":2,"rate":"1gbit","delay":"1us"}"#,
    r#"{"kind":"graph","hosts":["a","b"],"routing":"explicit","routes":[{"via":["a","s","b"]},{"via":["a","t","b"]}],
        "links":[{"from":"a","to":"s","rate":"1gbit","delay":"1ms"},{"from":"s","to":"b","rate":"1gbit","delay":"1ms"},
        {"from":"a","to":"t","rate":"1gbit","delay":"1ms"},{"from":"t","to":"b","rate":"2gbit","delay":"1ms"}]}"#,
    ASYMMETRIC,
    r#"{"kind":"dumbbell","pairs":2,"rate":"1gbit","delay":"1us","reverse":{"rate":"10mbit","delay":"3us"}}"#,
];

const ASYMMETRIC: &str = r#"{"kind":"parallel-paths","rate":"1gbit","delay":"1us","reverse":{"rate":"10mbit","loss":0.5},
    "paths":[{"name":"x","reverse":{"delay":"5us"}},{"name":"y","loss":0.25,"reverse":{"rate":"20mbit","loss":0}}]}"#;

const GRAPH: &str = r#"{"kind":"graph","hosts":["a","b"],"links":[{"from":"a","to":"s","rate":"1gbit","delay":"1ms"},
    {"from":"s","to":"u","rate":"1gbit","delay":"1ms"},{"from":"s","to":"v","rate":"1gbit","delay":"1ms"},
    {"from":"u","to":"b","rate":"1gbit","delay":"1ms"},{"from":"v","to":"b","rate":"1gbit","delay":"1ms"},
    {"from":"s","to":"w","rate":"1gbit","delay":"1ms"},{"from":"w","to":"v","rate":"1gbit","delay":"1ms"}]}"#;

fn topology(text: &str) -> Topology {
    let topology: Topology = serde_json::from_str(text).unwrap();
    topology.as_kind().check(vmcc_units::Bytes::new(1500)).unwrap();
    topology
}

fn all() -> impl Iterator<Item = (Topology, Network)> {
    KINDS.iter().map(|text| topology(text)).map(|t| (t.clone(), t.network()))
}

fn hosts(network: &Network) -> impl Iterator<Item = HostId> + use<> {
    (0..network.hosts.len() as u32).map(HostId)
}

/// From one node to the other, link by link, no node twice.
fn joins(network: &Network, links: &[LinkId], from: NodeId, to: NodeId) {
    let mut at = from;
    let mut seen = BTreeSet::from([from]);
    for link in links {
        let link = &network.links[link.index()];
        assert_eq!(link.from, at, "{network:?}");
        at = link.to;
        assert!(seen.insert(at), "twice at {}", network.nodes[at.index()]);
    }
    assert_eq!(at, to);
}

#[test]
fn built_hosts_match_the_named_hosts() {
    for (topology, network) in all() {
        let ends = topology.as_kind().ends();
        let built: Vec<_> = hosts(&network).map(|host| network.host_name(host).to_owned()).collect();
        assert_eq!(ends.hosts, built);
        assert!(ends.senders.end <= built.len() && ends.receivers.end <= built.len());
        assert_eq!(topology.paths(), network.paths.iter().map(|p| p.name.clone()).collect::<Vec<_>>());
        let distinct = |names: &[String]| names.iter().collect::<BTreeSet<_>>().len() == names.len();
        assert!(distinct(&network.nodes) && distinct(&topology.links()), "{:?}", topology.links());
    }
}

#[test]
fn every_route_joins_its_hosts_in_both_directions() {
    for (topology, network) in all() {
        for (from, to) in hosts(&network).flat_map(|a| hosts(&network).map(move |b| (a, b))) {
            let mut n = 0;
            let mut draw = || {
                n += 7;
                n
            };
            let pairs = if from == to { Vec::new() } else { network.routes.between(from, to, 3, &mut draw) };
            let sender = topology.as_kind().ends().senders.contains(&from.index());
            let receiver = topology.as_kind().ends().receivers.contains(&to.index());
            assert!(
                from == to || !(sender && receiver) || !pairs.is_empty(),
                "{topology:?}: {from:?} {to:?}"
            );
            let node = |host: HostId| network.hosts[host.index()].node;
            for RoutePair { forward, reverse, .. } in &pairs {
                joins(&network, forward, node(from), node(to));
                joins(&network, reverse, node(to), node(from));
            }
        }
    }
}

#[test]
fn fat_tree_has_all_shortest_paths_and_uses_every_link() {
    let Topology::FatTree(kind) = topology(KINDS[6]) else { panic!("a fat tree") };
    let (network, tree) = (crate::Kind::network(&kind), kind.tree());
    assert_eq!((tree.hosts(), network.links.len(), network.hosts.len()), (16, 96, 16));
    let mut used = BTreeSet::new();
    for (from, to) in hosts(&network).flat_map(|a| hosts(&network).map(move |b| (a, b))) {
        let mut seen = BTreeSet::new();
        for path in (0..tree.paths(from, to)).filter(|_| from != to) {
            let links = tree.path(from, to, path);
            assert_eq!(links.len(), [0, 2, 4, 0, 6][tree.paths(from, to) as usize]);
            used.extend(links.clone());
            assert!(seen.insert(links));
        }
    }
    assert_eq!(used.len(), 96);
    let areas = network.areas.unwrap();
    assert_eq!((areas.count, areas.of_node.len()), (4, network.nodes.len()));
    assert_eq!(areas.of_node.iter().filter(|area| **area == Area::Between).count(), 4);
}

#[test]
fn graph_spreads_flows_over_its_shortest_paths_only() {
    let network = topology(GRAPH).network();
    let mut n = 0;
    let mut draw = || {
        n += 1;
        n / 2
    };
    let pairs = network.routes.between(HostId(0), HostId(1), 8, &mut draw);
    assert!(pairs.iter().all(|pair| pair.forward.len() == 3 && pair.reverse.len() == 3));
    assert_eq!(pairs.iter().map(|pair| pair.forward.clone()).collect::<BTreeSet<_>>().len(), 2);
}

#[test]
fn guarantees_are_at_least_the_minimum_rate() {
    let text = r#"{"kind":"virtual-host","vms":2,"nics":2,"share":"htb","weights":[1000000,1],
        "vm_rate":"80mbit","path_rate":"80mbit","path_delay":"1us"}"#;
    let Topology::VirtualHost(kind) = topology(text) else { panic!("a virtual host") };
    let rates: Vec<u64> = kind.guarantees().iter().map(|g| g.rate.get()).collect();
    // A millionth of 160 Mbit/s over two NICs is 80 bit/s, which nothing can shape.
    assert_eq!(rates, [79_999_920, 2_000]);
}

#[test]
fn switch_names_are_validated_like_host_names() {
    for name in ["../x y", "", "a+b"] {
        let text = format!(
            r#"{{"kind":"graph","hosts":["a","b"],"links":[
            {{"name":"one","from":"a","to":"{name}","rate":"1gbit","delay":"1ms"}},
            {{"name":"two","from":"{name}","to":"b","rate":"1gbit","delay":"1ms"}}]}}"#
        );
        let topology: Topology = serde_json::from_str(&text).unwrap();
        let fault = topology.as_kind().check(vmcc_units::Bytes::new(1500)).expect_err(name);
        assert_eq!(fault.path, "topology.links[0].to");
        assert!(fault.message.starts_with("a name is 1 to 64"), "{fault:?}");
    }
}

#[test]
fn reverse_direction_inherits_unset_values() {
    let network = topology(ASYMMETRIC).network();
    let of = |link: u32| {
        let settings = &network.port(LinkId(link)).settings;
        (settings.rate.get(), settings.delay.get(), settings.loss.probability)
    };
    assert_eq!([of(0), of(1)], [(1_000_000_000, 1_000, 0.0), (10_000_000, 5_000, 0.5)]);
    assert_eq!([of(2), of(3)], [(1_000_000_000, 1_000, 0.25), (20_000_000, 1_000, 0.0)]);
    assert_eq!(network.base_rtt.get(), 6_000);
    assert_eq!(
        network.hosts.iter().map(|host| host.rate.get()).collect::<Vec<_>>(),
        [2_000_000_000, 30_000_000]
    );
}

#[test]
fn fault_of_the_reverse_direction_names_its_key() {
    let path = |text: &str| {
        let topology: Topology = serde_json::from_str(text).unwrap();
        topology.as_kind().check(vmcc_units::Bytes::new(1500)).expect_err(text).path
    };
    let paths = |all: &str, own: &str| {
        path(&format!(
            r#"{{"kind":"parallel-paths","rate":"1gbit","delay":"1us","paths":[{{"name":"x"{own}}}]{all}}}"#
        ))
    };
    assert_eq!(paths(r#","reverse":{"rate":"0mbit"}"#, ""), "topology.reverse.rate");
    assert_eq!(paths("", r#","reverse":{"buffer":"1B"}"#), "topology.paths[0].reverse.buffer");
    let rule = r#""marking":{"rule":"threshold","at":"1ms"}"#;
    // 125 kB do not fit, at the rate back.
    assert_eq!(
        paths(&format!(r#","buffer":"126kB","reverse":{{"rate":"2gbit"}},{rule}"#), ""),
        "topology.marking.at"
    );
    assert_eq!(
        paths(r#","buffer":"126kB","reverse":{"rate":"2gbit"}"#, &format!(",{rule}")),
        "topology.paths[0].marking.at"
    );
    let bell = r#"{"kind":"dumbbell","pairs":1,"rate":"1gbit","delay":"1us","reverse":{"delay":"601s"}}"#;
    assert_eq!(path(bell), "topology.reverse.delay");
}

#[test]
fn threshold_invalid_in_the_reverse_direction_says_so() {
    let bad = |text: &str| {
        let topology: Topology = serde_json::from_str(text).unwrap();
        topology.as_kind().check(vmcc_units::Bytes::new(1500)).expect_err(text)
    };
    let rest = r#""delay":"5ms","buffer":"20kB","marking":{"rule":"threshold","at":"5ms"}"#;
    for kind in [r#""kind":"dumbbell","pairs":1"#, r#""kind":"parallel-paths","paths":1"#] {
        let back = bad(&format!(r#"{{{kind},"rate":"20mbit",{rest},"reverse":{{"rate":"1gbit"}}}}"#));
        assert_eq!(back.path, "topology.marking.at");
        assert!(
            back.message.ends_with("this is 625kB (on the way back, with what `reverse` says)"),
            "{}",
            back.message
        );
        let there = bad(&format!(r#"{{{kind},"rate":"1gbit",{rest},"reverse":{{"rate":"20mbit"}}}}"#));
        assert!(there.message.ends_with("this is 625kB"), "{}", there.message);
    }
}
