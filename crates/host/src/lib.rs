//! vmcc host: what vmcc does to a running kernel.
//!
//! The only crate that talks BPF. Network namespaces, links and traffic belong to `vmcc-lab`.
//!
//! | | |
//! |---|---|
//! | [`Loaded`] | an algorithm in the kernel: parameters, connections, lifetime |
//! | [`list`], [`set_params`], [`take_down`], [`clean`] | what any process has loaded |
//! | [`guard`] | closes paths that an algorithm asks to close |
//! | [`port`] | a port of a virtual switch: service queues that are shaped and mark |
//! | [`diag`] | TCP and MPTCP sockets, as the kernel knows them |
//! | [`probe`] | what this kernel can do, found out by trying |
//! | [`observe`] | windows at each segment, under any congestion control |
//! | [`bench`] | what an algorithm costs |
//! | [`replay`] | recorded events through the BPF build, for comparison with the native one |

pub mod bench;
mod config;
mod counters;
pub mod diag;
mod error;
pub mod guard;
mod load;
mod netns;
mod objects;
pub mod observe;
pub mod port;
pub mod probe;
mod registered;
pub mod replay;
mod table;
mod tcx;

pub use counters::Counters;
pub use error::{ControlError, LoadError};
pub use load::Loaded;
pub use registered::{Status, clean, list, parameter_table, set_params, take_down};
pub use table::{Connection, PathView};
