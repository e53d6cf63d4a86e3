//! vmcc host: what vmcc does to a running kernel.
//!
//! The only crate that talks BPF: it loads the algorithms ([`Loaded`]), marks on ports, probes what a kernel can do
//! and reads its sockets ([`diag`]). Network namespaces, links and traffic belong to `vmcc-lab`.

pub mod bench;
mod config;
pub mod diag;
mod error;
pub mod guard;
mod load;
pub mod mark;
mod netns;
mod objects;
pub mod probe;
mod registered;
pub mod replay;
mod table;

pub use error::{ControlError, LoadError};
pub use load::Loaded;
pub use registered::{Status, clean, list, set_params};
pub use table::{Connection, PathView};
