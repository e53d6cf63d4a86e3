//! Running a scenario: choose an engine, run every case, collect.

pub(crate) mod claims;
pub(crate) mod command;
pub(crate) mod conclusion;
pub(crate) mod engine;
pub(crate) mod environment;
pub(crate) mod execute;
pub(crate) mod overview;
pub(crate) mod progress;
pub(crate) mod storage;
