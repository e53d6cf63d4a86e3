//! vmcc system: facts of a Linux host, and the folders of its state. Nothing here needs BPF.
//!
//! | | |
//! |---|---|
//! | [`diag`] | TCP and MPTCP sockets, as the kernel knows them |
//! | [`mptcp`] | obstacles that keep MPTCP connections with one path, and those that fell back to TCP |
//! | [`namespaces`], [`netns`] | network namespaces: listed by name, entered, told apart |
//! | [`cpu_steal`] | steal time, throttled cgroups, and retransmission timeouts |
//! | [`probe`] | checks of what this kernel can do: their form, and what several crates try with |
//! | [`Folder`] | a state directory that only root can change |
//! | [`KernelError`], [`remedy()`] | a refused operation, and its remedy where a resource ran out |

pub mod cpu_steal;
pub mod diag;
mod error;
mod folder;
pub mod mptcp;
pub mod namespaces;
pub mod netns;
pub mod probe;

pub use error::{KernelError, error_chain, os_error, remedy};
pub use folder::Folder;
