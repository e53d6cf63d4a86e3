//! A network, described once: what is joined to what, how fast, with which queues, and which routes join its hosts.
//!
//! A [`Topology`] is what a scenario says; each kind has one file in `kinds`. [`Topology::network`] gives the
//! [`Network`]: nodes, links, named cables and paths, hosts, and the routes between them. Engines build from that and nothing
//! else: the simulator into its ports and source routes, the lab into namespaces and routing rules.
//!
//! ```
//! use vmcc_network::{HostId, Topology};
//!
//! let text = r#"{ "kind": "dumbbell", "pairs": 2, "rate": "1gbit", "delay": "1ms" }"#;
//! let topology: Topology = serde_json::from_str(text)?;
//! let network = topology.network();
//! let pairs = network.routes.between(HostId(0), HostId(3), 1, &mut || 0);
//! let cables: Vec<&str> = pairs[0].forward.iter().map(|link| network.cable_of(*link)).collect();
//! assert_eq!(cables, ["left0", "bottleneck", "right1"]);
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod check;
mod describe;
mod kinds;
mod port;
mod reroute;
mod settings;
#[cfg(test)]
mod tests;
mod unloaded;

pub use describe::{
    Area, Areas, Builder, Draw, Guarantee, Host, HostId, IsDown, Link, LinkId, Network, NoRoutes, NodeId,
    Path, PathId, Port, PortId, RoutePair, RouteTable, Routes,
};
pub use kinds::*;
pub use port::{Loss, Queue};
pub use reroute::{Never, Reroute};
pub use settings::{LinkSettings, Reverse};
pub use unloaded::{Framing, Lead, Unloaded};
pub use vmcc_config::{Discipline, LambdaRule, Marking, RedRule, ThresholdRule};
