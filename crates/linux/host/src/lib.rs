//! vmcc host: what vmcc does to a running kernel.
//!
//! The only crate that talks BPF. Network namespaces, links and traffic belong to `vmcc-lab`.
//!
//! | | |
//! |---|---|
//! | [`Loaded`] | an algorithm in the kernel: parameters, connections, lifetime |
//! | [`list`], [`set_params`], [`take_down`], [`clean`], [`Turn`] | what any process has loaded |
//! | [`cgroup`] | what the connections of a cgroup are given |
//! | [`upgrade`] | TCP sockets of a cgroup that become MPTCP sockets |
//! | [`guard`] | closes paths that an algorithm asks to close |
//! | [`lingering()`] | algorithms that were taken down and that connections still use |
//! | [`live`] | changing the congestion control of connections that run |
//! | [`netns`] | doing something in another network namespace |
//! | [`port`] | a port of a virtual switch: service queues that are shaped and mark |
//! | [`diag`] | TCP and MPTCP sockets, as the kernel knows them |
//! | [`probe`] | what this kernel can do, found out by trying |
//! | [`observe`] | windows at each segment, under any congestion control |
//! | [`several_paths`] | whether MPTCP connections can have several paths, and those that fell back to TCP |
//! | [`states`] | what algorithms keep of each socket |
//! | [`sharing`] | which paths share a bottleneck, as far as their algorithm knows |
//! | [`taken`] | processor time that this machine did not get, and what TCP made of it |
//! | [`bench`] | what an algorithm costs |
//! | [`replay`] | recorded events through the BPF build, for comparison with the native one |

mod accounts;
pub mod bench;
mod bpffs;
pub mod cgroup;
mod counters;
pub mod diag;
#[cfg(test)]
mod elapsed;
mod error;
pub mod guard;
mod ids;
mod lingering;
pub mod live;
mod load;
pub mod netns;
mod objects;
pub mod observe;
pub mod port;
pub mod probe;
mod reclaim;
mod registered;
pub mod replay;
mod restrict;
pub mod several_paths;
mod shared;
pub mod sharing;
pub mod states;
mod table;
pub mod taken;
mod tcx;
pub mod upgrade;

pub use accounts::Shortage;
pub use bpffs::Turn;
pub use counters::Counters;
pub use error::{ControlError, LoadError, remedy};
pub use lingering::{Lingering, lingering};
pub use load::Loaded;
pub use reclaim::{RECLAIM_AGE, reclaim};
pub use registered::{Status, clean, list, parameter_table, set_params, take_down, take_down_of};
pub use restrict::restrict;
pub use table::{Connection, PathView};
