//! One folder or file per command: it parses, calls, prints.

#[cfg(not(feature = "kernel"))]
mod absent;
#[cfg(feature = "kernel")]
mod advise;
pub(crate) mod algorithm;
pub(crate) mod algorithms;
pub(crate) mod bench;
#[cfg(feature = "kernel")]
mod clean;
pub(crate) mod compare;
pub(crate) mod cp;
pub(crate) mod doctor;
#[cfg(feature = "kernel")]
mod down;
#[cfg(feature = "kernel")]
mod events;
pub(crate) mod internal;
pub(crate) mod keys;
pub(crate) mod mark;
pub(crate) mod metrics;
pub(crate) mod paths;
#[cfg(feature = "kernel")]
mod programs;
pub(crate) mod proxy;
mod qlog;
mod relays;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod scenarios;
pub(crate) mod search;
#[cfg(feature = "kernel")]
mod status;
#[cfg(feature = "kernel")]
mod taken;
#[cfg(feature = "kernel")]
mod top;
pub(crate) mod up;

#[cfg(not(feature = "kernel"))]
pub(crate) use absent::{advise, clean, down, events, status, top, unmark};
#[cfg(feature = "kernel")]
pub(crate) use {
    advise::advise, clean::clean, down::down, events::events, mark::unmark, status::status, top::top,
};
