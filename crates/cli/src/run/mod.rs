//! What `vmcc run` says: its command line, progress, tables, a conclusion; and which engine it takes.

pub(crate) mod command;
pub(crate) mod conclusion;
pub(crate) mod engine;
pub(crate) mod overview;
pub(crate) mod progress;
