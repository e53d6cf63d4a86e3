//! The kinds of networks, one file each. A new one is a file here and a line in each of the two lists below.

mod dumbbell;
mod fat_tree;
mod graph;
mod leaf_spine;
mod parallel_paths;
mod two_pod;
mod virtual_host;

pub use dumbbell::Dumbbell;
pub use fat_tree::{FatTree, Tree};
pub use graph::{Graph, GraphLink, Route, Routing};
pub use leaf_spine::LeafSpine;
pub use parallel_paths::{ParallelPaths, PathSpec, Paths};
pub use two_pod::TwoPod;
pub use virtual_host::{Share, VirtualHost};

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::Serialize;
use vmcc_config::tagged;
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos, Packets};

use crate::check::Check;
use crate::{Network, Queue};

/// The enum over all kinds, and its reading and dispatch.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $name:literal => $kind:ident),+ $(,)?) => {
        /// The network of a scenario.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "kind")]
        pub enum Topology {
            $($(#[$doc])+ #[serde(rename = $name)] $kind($kind)),+
        }

        tagged!(Topology, "kind", "a topology", { $($name => $kind($kind)),+ });

        impl Topology {
            /// The kind, without its name.
            pub fn as_kind(&self) -> &dyn Kind {
                match self {
                    $(Self::$kind(kind) => kind),+
                }
            }

            /// The kind as the language names it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $name),+
                }
            }
        }
    };
}
kinds! {
    /// Two hosts, several disjoint paths.
    "parallel-paths" => ParallelPaths,
    /// Pairs of hosts across one bottleneck link.
    "dumbbell" => Dumbbell,
    /// Virtual machines behind the virtual switch of one host with several NICs.
    "virtual-host" => VirtualHost,
    /// Two pods of servers with two NICs each.
    "two-pod" => TwoPod,
    /// A k-ary fat tree.
    "fat-tree" => FatTree,
    /// Leaf and spine switches.
    "leaf-spine" => LeafSpine,
    /// Free nodes and links.
    "graph" => Graph,
}

/// Interface of every kind of network.
pub trait Kind: fmt::Debug {
    /// The hosts, and which of them send and receive by default.
    fn ends(&self) -> Ends;
    /// The names of the paths that traffic may be confined to and that results are reported for.
    fn paths(&self) -> Vec<String>;
    /// The queues of the ports that traffic can choose between.
    fn queues(&self) -> Vec<&Queue>;
    /// Checks that it can be built with packets of `mtu`.
    ///
    /// # Errors
    /// What cannot, by its key in the scenario.
    fn check(&self, mtu: Bytes) -> Check;
    /// The network. What was not checked may give one that no engine takes.
    fn network(&self) -> Network;

    /// The names of the queues of the port that stands for a path; empty where there is one queue.
    fn path_classes(&self) -> Vec<String> {
        let queues = self.queues().first().map_or(0, |queue| queue.weights.len());
        (0..queues).map(|class| class.to_string()).collect()
    }
    /// Returns true if a load is one of every host, as any host reaches any other.
    fn is_symmetric(&self) -> bool {
        false
    }
    /// The hosts that `from` has a route to. `None`: all.
    fn reachable(&self, _from: &str) -> Option<BTreeSet<String>> {
        None
    }
}

/// The hosts of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// Their names, in a fixed order.
    pub hosts: Vec<String>,
    /// The senders of traffic that names none.
    pub senders: Range<usize>,
    /// The receivers of traffic that names none.
    pub receivers: Range<usize>,
}

impl Ends {
    /// Two sides that send to each other, from the first to the second.
    fn two_sides(left: Vec<String>, right: Vec<String>) -> Self {
        let (middle, all) = (left.len(), left.len() + right.len());
        Self { hosts: [left, right].concat(), senders: 0..middle, receivers: middle..all }
    }

    /// Everybody sends and receives.
    fn all(hosts: Vec<String>) -> Self {
        let all = 0..hosts.len();
        Self { hosts, senders: all.clone(), receivers: all }
    }
}

impl Topology {
    /// Every host that can send and receive, in a fixed order.
    pub fn hosts(&self) -> Vec<String> {
        self.as_kind().ends().hosts
    }

    /// The paths that traffic may be confined to and that results are reported for.
    pub fn paths(&self) -> Vec<String> {
        self.as_kind().paths()
    }

    /// Every name that an event may give as its link.
    pub fn links(&self) -> Vec<String> {
        self.network().cables.into_iter().map(|(name, _)| name).collect()
    }

    /// The network.
    pub fn network(&self) -> Network {
        self.as_kind().network()
    }
}

/// The name of the `index`-th path or route that was not named: `a`, `b`, ..., `z`, `p26`, ...
pub fn path_name(index: usize) -> String {
    match u8::try_from(index) {
        Ok(i) if i < 26 => char::from(b'a' + i).to_string(),
        _ => format!("p{index}"),
    }
}

fn numbered(prefix: &str, count: u32) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

fn default_buffer() -> Limit {
    Limit::Packets(Packets::new(100))
}

fn default_access_buffer() -> Limit {
    Limit::Packets(Packets::new(1000))
}

/// `time` `n` times, saturating.
fn times(time: Nanos, n: u64) -> Nanos {
    Nanos::new(time.get().saturating_mul(n))
}

/// `rate` `n` times, saturating.
fn rate_times(rate: BitsPerSec, n: u64) -> BitsPerSec {
    BitsPerSec::new(rate.get().saturating_mul(n))
}
