//! vmcc bpf: loads algorithms and other programs into a running kernel, and reads what they keep.
//!
//! All BPF programs are compiled here; `vmcc-port` serves ports with some of them. Network namespaces, links and traffic belong to
//! `vmcc-lab`.
//!
//! | | |
//! |---|---|
//! | [`Loaded`] | an algorithm in the kernel: parameters, connections, lifetime |
//! | [`compile()`] | a user's own algorithm as programs for the kernel |
//! | [`list`], [`set_params`], [`take_down`], [`clean`], [`PinLock`] | algorithms that any process has loaded |
//! | [`cgroup`] | what the connections of a cgroup are given |
//! | [`upgrade`] | TCP sockets of a cgroup that become MPTCP sockets |
//! | [`close_requests`] | requests of algorithms to close paths |
//! | [`lingering()`] | algorithms that were taken down and that connections still use |
//! | [`reassign`] | changes the congestion control of running connections |
//! | [`probe`] | what this kernel can do, found out by trying |
//! | [`observe`] | windows at each segment, under any congestion control |
//! | [`states`] | what algorithms keep of each socket |
//! | [`sharing`] | which paths share a bottleneck, as far as their algorithm knows |
//! | [`bench`] | what an algorithm costs |
//! | [`objects`], [`shared`] | the compiled programs, and the types that they share with Rust |
//! | [`replay`] | recorded events through the BPF build, for comparison with the native one |

mod accounts;
mod acl;
mod activity;
pub mod bench;
mod bpffs;
pub mod cgroup;
mod clang;
pub mod close_requests;
mod compile;
mod counters;
#[cfg(test)]
mod elapsed;
mod error;
mod gc;
mod group_table;
mod ids;
mod lingering;
mod load;
#[cfg(test)]
mod marking;
pub mod objects;
pub mod observe;
pub mod probe;
pub mod reassign;
mod registry;
pub mod replay;
pub mod shared;
pub mod sharing;
pub mod states;
pub mod upgrade;

pub use accounts::Shortage;
pub use acl::restrict;
pub use bpffs::PinLock;
pub use compile::{CompileError, compile};
pub use counters::Counters;
pub use error::{ControlError, LoadError};
pub use gc::{GC_MIN_AGE, collect_garbage};
pub use group_table::{Connection, SlotView};
pub use lingering::{Lingering, lingering};
pub use load::{Loaded, room};
pub use registry::{Status, clean, list, parameter_table, set_params, take_down, take_down_of};
