//! One module per command.

pub(crate) mod agent;
pub(crate) mod algorithms;
pub(crate) mod bench;
pub(crate) mod clean;
pub(crate) mod doctor;
pub(crate) mod internal;
pub(crate) mod mark;
pub(crate) mod metrics;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod scenarios;
