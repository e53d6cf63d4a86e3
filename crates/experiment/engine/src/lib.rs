//! Engines run a case of a scenario; sessions are the same for all engines.
//!
//! An [`Engine`] runs one case with one seed. A [`Session`] runs a whole plan on an engine: several runs at a time,
//! each kept when it is finished, so that an interrupted session is resumed; at the end it has the summary and the
//! result folder. Neither prints, and neither knows a command line.
//!
//! The simulator (`vmcc_sim::Simulator`) and the lab (`vmcc_lab::engine`) implement [`Engine`]; they use this crate
//! without the feature `sessions`, because engines do not write result folders.

mod engine;
mod error;

#[cfg(feature = "sessions")]
mod claims;
#[cfg(feature = "sessions")]
mod environment;
#[cfg(feature = "sessions")]
mod executor;
#[cfg(feature = "sessions")]
mod session;
#[cfg(feature = "sessions")]
mod storage;
#[cfg(feature = "sessions")]
mod summary;

pub use engine::Engine;
pub use error::{EngineError, ErrorKind, chain};

#[cfg(feature = "sessions")]
pub use executor::{Execution, Shard, Stopped};
#[cfg(feature = "sessions")]
pub use session::{SCENARIO_FILE, Session, jobs};
#[cfg(feature = "sessions")]
pub use storage::{default_folder, open, open_unnamed};
