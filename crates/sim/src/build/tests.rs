use rand_xoshiro::rand_core::Rng;
use vmcc_network::RoutePair;
use vmcc_scenario::{Document, Overrides};

use super::{Fabric, FabricError};
use crate::rng::Streams;

fn fabric(topology: &str) -> Result<Fabric, FabricError> {
    let text = format!("title='t'\nduration='1s'\n[topology]\n{topology}\n[[traffic]]\nkind='bulk'\n");
    let plan = Document::parse("t", &text).and_then(|d| d.plan(&Overrides::default())).unwrap();
    Fabric::build(&plan.cases[0].scenario)
}

const GRAPH: &str = "kind='graph'\nhosts=['a','b']\nlinks=[{from='a',to='s',rate='1gbit',delay='1ms'},
    {from='s',to='u',rate='1gbit',delay='1ms'},{from='s',to='v',rate='1gbit',delay='1ms'},
    {from='u',to='b',rate='1gbit',delay='1ms'},{from='v',to='b',rate='1gbit',delay='1ms'},
    {from='s',to='w',rate='1gbit',delay='1ms'},{from='w',to='v',rate='1gbit',delay='1ms'}]";

/// Every route is a chain of links from one host to the other; adding it as a route checks that.
fn route_pairs(fabric: &mut Fabric, from: &str, to: &str, count: Option<u32>) -> Vec<RoutePair> {
    let (from, to) = (fabric.host(from).unwrap(), fabric.host(to).unwrap());
    let mut ecmp = Streams::new(1).stream("test");
    ecmp.next_u64();
    let route_pairs = fabric.route_pairs(from, to, None, count, &mut ecmp).unwrap();
    for pair in &route_pairs {
        fabric.route(&pair.forward).unwrap();
        fabric.route(&pair.reverse).unwrap();
        let links = fabric.net.links();
        let ends =
            |l: &[crate::packet::LinkId]| (links[l[0].0 as usize].from, links[l[l.len() - 1].0 as usize].to);
        assert_eq!(ends(&pair.forward), (fabric.node(from), fabric.node(to)));
        assert_eq!(ends(&pair.reverse), (fabric.node(to), fabric.node(from)));
    }
    route_pairs
}

#[test]
fn every_topology_joins_its_hosts_in_both_directions() {
    let vm = "kind='virtual-host'\nvms=2\nnics=2\nclients=2\nvm_rate='1gbit'\npath_rate='10gbit'\npath_delay='1us'";
    let pods = "kind='two-pod'\nrate='1gbit'\ndelay='1us'\nserver_limit='1gbit'";
    let bell = "kind='dumbbell'\npairs=2\nrate='1gbit'\ndelay='1us'";
    let cases = [
        ("kind='parallel-paths'\npaths=3\nrate='1gbit'\ndelay='1us'", "client", "server", 3, 1),
        (bell, "left0", "right1", 1, 3),
        (bell, "left0", "left1", 1, 2),
        (vm, "vm1", "client1", 2, 3),
        (vm, "vm0", "vm1", 2, 2),
        (pods, "p0s0", "p1s3", 2, 4),
        (pods, "p0s0", "p0s1", 2, 3),
        ("kind='fat-tree'\nk=4\nrate='1gbit'\ndelay='1us'", "h0", "h15", 1, 6),
        (GRAPH, "a", "b", 1, 3),
    ];
    for (topology, from, to, count, hops) in cases {
        let mut fabric = fabric(topology).unwrap();
        for (from, to) in [(from, to), (to, from)] {
            let found = route_pairs(&mut fabric, from, to, None);
            assert_eq!(found.len(), count, "{topology}");
            assert_eq!(found[0].forward.len(), hops, "{topology}: {from} to {to}");
        }
    }
}

#[test]
fn graph_spreads_flows_over_its_shortest_paths_only() {
    let mut fabric = fabric(GRAPH).unwrap();
    let found = route_pairs(&mut fabric, "a", "b", Some(8));
    let distinct: std::collections::BTreeSet<_> = found.iter().map(|pair| pair.forward.clone()).collect();
    assert_eq!(distinct.len(), 2);
    assert!(found.iter().all(|pair| pair.forward.len() == 3));
}

#[test]
fn invalid_topologies_are_refused() {
    let red = "kind='dumbbell'\npairs=1\nrate='1gbit'\ndelay='1us'\nqueue={kind='drr',weights=[1,1]}\n\
               marking={rule='red',min='10pkt',max='20pkt'}";
    assert!(matches!(fabric(red), Err(FabricError::Unsupported { .. })));
}
