//! vmcc host: what vmcc does to a running kernel.
//!
//! The only crate that talks BPF. Network namespaces, links and traffic belong to `vmcc-lab`.
//!
//! | | |
//! |---|---|
//! | [`Loaded`] | an algorithm in the kernel: parameters, connections, lifetime |
//! | [`list`], [`set_params`], [`take_down`], [`clean`], [`PinLock`] | algorithms that any process has loaded |
//! | [`cgroup`] | what the connections of a cgroup are given |
//! | [`upgrade`] | TCP sockets of a cgroup that become MPTCP sockets |
//! | [`close_requests`] | requests of algorithms to close paths |
//! | [`lingering()`] | algorithms that were taken down and that connections still use |
//! | [`reassign`] | changes the congestion control of running connections |
//! | [`namespaces`], [`netns`] | finding network namespaces; doing something in one |
//! | [`port`] | a port of a virtual switch: service queues that are shaped and mark |
//! | [`diag`] | TCP and MPTCP sockets, as the kernel knows them |
//! | [`probe`] | what this kernel can do, found out by trying |
//! | [`observe`] | windows at each segment, under any congestion control |
//! | [`mptcp`] | whether MPTCP connections can have several paths, and those that fell back to TCP |
//! | [`states`] | what algorithms keep of each socket |
//! | [`sharing`] | which paths share a bottleneck, as far as their algorithm knows |
//! | [`cpu_steal`] | steal time, throttled cgroups, and retransmission timeouts |
//! | [`bench`] | what an algorithm costs |
//! | [`replay`] | recorded events through the BPF build, for comparison with the native one |

mod accounts;
mod acl;
pub mod bench;
mod bpffs;
pub mod cgroup;
pub mod close_requests;
mod counters;
pub mod cpu_steal;
pub mod diag;
#[cfg(test)]
mod elapsed;
mod error;
mod gc;
mod group_table;
mod ids;
mod lingering;
mod load;
pub mod mptcp;
pub mod namespaces;
pub mod netns;
mod objects;
pub mod observe;
pub mod port;
pub mod probe;
pub mod reassign;
mod registry;
pub mod replay;
mod shared;
pub mod sharing;
pub mod states;
mod tcx;
pub mod upgrade;

pub use accounts::Shortage;
pub use acl::restrict;
pub use bpffs::PinLock;
pub use counters::Counters;
pub use error::{ControlError, LoadError, remedy};
pub use gc::{GC_MIN_AGE, collect_garbage};
pub use group_table::{Connection, PathView};
pub use lingering::{Lingering, lingering};
pub use load::Loaded;
pub use registry::{Status, clean, list, parameter_table, set_params, take_down, take_down_of};
