//! The engine over networks that are simulated, and against other implementations over real ones.

mod arbitrary;
mod coupling;
mod datagrams;
mod ecn;
mod edge_cases;
mod features;
mod interop;
mod late_paths;
mod link;
mod lossy;
mod multipath;
mod net;
mod outages;
mod path_recovery;
mod qlog;
mod reordering;
mod resets;
mod suspect_paths;
mod udp;
