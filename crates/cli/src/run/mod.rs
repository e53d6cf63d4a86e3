//! Output of `vmcc run` (its command line, progress, tables, a conclusion) and its choice of the engine.

pub(crate) mod command;
pub(crate) mod conclusion;
pub(crate) mod engine;
pub(crate) mod overview;
pub(crate) mod progress;
