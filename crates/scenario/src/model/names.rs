//! The names a topology gives to its hosts, paths and links.

use wildmatch::WildMatch;

use super::topology::{Graph, Routing, Topology, TwoPod, VirtualHost, path_name};
use super::traffic::{Traffic, TrafficKind};

fn numbered(prefix: &str, count: u32) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

impl VirtualHost {
    /// `client`, or `client0`, `client1`, ...
    pub fn client_names(&self) -> Vec<String> {
        if self.clients == 1 { vec!["client".into()] } else { numbered("client", self.clients) }
    }
}

impl TwoPod {
    /// The servers of a pod (0 or 1).
    pub fn server_names(&self, pod: u32) -> Vec<String> {
        numbered(&format!("p{pod}s"), self.servers_per_pod)
    }
}

impl Graph {
    /// The names of the explicit routes, in order.
    pub fn route_names(&self) -> Vec<String> {
        let name =
            |(i, route): (usize, &super::topology::Route)| route.name.clone().unwrap_or_else(|| path_name(i));
        self.routes.iter().enumerate().map(name).collect()
    }
}

impl Topology {
    /// The kind as the language names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ParallelPaths(_) => "parallel-paths",
            Self::Dumbbell(_) => "dumbbell",
            Self::VirtualHost(_) => "virtual-host",
            Self::TwoPod(_) => "two-pod",
            Self::FatTree(_) => "fat-tree",
            Self::Graph(_) => "graph",
        }
    }

    /// Every host that can send and receive, in a fixed order.
    pub fn hosts(&self) -> Vec<String> {
        match self {
            Self::ParallelPaths(_) => vec!["client".into(), "server".into()],
            Self::Dumbbell(t) => [numbered("left", t.pairs), numbered("right", t.pairs)].concat(),
            Self::VirtualHost(t) => [numbered("vm", t.vms), t.client_names()].concat(),
            Self::TwoPod(t) => [t.server_names(0), t.server_names(1)].concat(),
            Self::FatTree(t) => numbered("h", t.hosts()),
            Self::Graph(t) => t.hosts.clone(),
        }
    }

    /// The senders of traffic that names none.
    fn default_senders(&self) -> Vec<String> {
        match self {
            Self::ParallelPaths(_) => vec!["client".into()],
            Self::Dumbbell(t) => numbered("left", t.pairs),
            Self::VirtualHost(t) => numbered("vm", t.vms),
            Self::TwoPod(t) => t.server_names(0),
            Self::FatTree(_) => self.hosts(),
            Self::Graph(t) => t.hosts.iter().take(1).cloned().collect(),
        }
    }

    /// The receivers of traffic that names none.
    fn default_receivers(&self) -> Vec<String> {
        match self {
            Self::ParallelPaths(_) => vec!["server".into()],
            Self::Dumbbell(t) => numbered("right", t.pairs),
            Self::VirtualHost(t) => t.client_names(),
            Self::TwoPod(t) => t.server_names(1),
            Self::FatTree(_) => self.hosts(),
            Self::Graph(t) => t.hosts.iter().skip(1).cloned().collect(),
        }
    }

    /// The paths that traffic may be confined to and that results are reported for.
    pub fn paths(&self) -> Vec<String> {
        match self {
            Self::ParallelPaths(t) => t.paths.0.iter().map(|path| path.name.clone()).collect(),
            Self::Dumbbell(_) => vec!["bottleneck".into()],
            Self::VirtualHost(t) => (0..t.nics as usize).map(path_name).collect(),
            Self::TwoPod(t) => (0..t.nics as usize).map(path_name).collect(),
            Self::FatTree(_) => Vec::new(),
            Self::Graph(t) => t.route_names(),
        }
    }

    /// Every name that an event may give as its link: links, and paths where that differs.
    pub fn links(&self) -> Vec<String> {
        match self {
            Self::ParallelPaths(_) => self.paths(),
            Self::Dumbbell(t) => {
                [vec!["bottleneck".into()], numbered("left", t.pairs), numbered("right", t.pairs)].concat()
            }
            Self::VirtualHost(_) => self.paths(),
            Self::TwoPod(t) => two_pod_links(t),
            Self::FatTree(t) => fat_tree_links(t.k),
            Self::Graph(t) => t.links.iter().map(super::topology::GraphLink::label).collect(),
        }
    }

    /// The hosts that send an entry of traffic, and those that receive it, in the topology's order.
    ///
    /// A pattern that matches no host contributes none; validation refuses it.
    pub fn endpoints(&self, traffic: &Traffic) -> (Vec<String>, Vec<String>) {
        let common = &traffic.common;
        // A load is a load of every host where any host reaches any other.
        let everybody = matches!(self, Self::Graph(t) if t.routing == Routing::Ecmp)
            && matches!(traffic.kind, TrafficKind::Poisson(_));
        let or_all = |hosts: Vec<String>| if everybody { self.hosts() } else { hosts };
        let from = common.from.as_ref().map(|p| self.matching(&p.0));
        let to = common.to.as_ref().map(|p| self.matching(&p.0));
        (
            from.unwrap_or_else(|| or_all(self.default_senders())),
            to.unwrap_or_else(|| or_all(self.default_receivers())),
        )
    }

    /// The hosts that match any of the patterns.
    pub fn matching(&self, patterns: &[String]) -> Vec<String> {
        let patterns: Vec<WildMatch> = patterns.iter().map(|p| WildMatch::new(p)).collect();
        self.hosts().into_iter().filter(|host| patterns.iter().any(|p| p.matches(host))).collect()
    }
}

fn two_pod_links(t: &TwoPod) -> Vec<String> {
    let servers = t.server_names(0).into_iter().chain(t.server_names(1));
    let nics: Vec<String> =
        servers.flat_map(|server| (0..t.nics).map(move |nic| format!("{server}.{nic}"))).collect();
    [numbered("core", t.nics), nics].concat()
}

/// `h3` is the link of host 3; `p0e1-p0a0` joins edge switch 1 and aggregation switch 0 of pod 0; `p0a0-c1`
/// joins an aggregation switch and core switch 1.
fn fat_tree_links(k: u32) -> Vec<String> {
    let half = k / 2;
    let mut links = numbered("h", k.saturating_mul(k).saturating_mul(k) / 4);
    for pod in 0..k {
        for upper in 0..half {
            links.extend((0..half).map(|edge| format!("p{pod}e{edge}-p{pod}a{upper}")));
            links.extend((0..half).map(|i| format!("p{pod}a{upper}-c{}", upper * half + i)));
        }
    }
    links
}
