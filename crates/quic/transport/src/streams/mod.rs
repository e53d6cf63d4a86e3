//! Streams: what an application writes and reads, and how much it may.

pub(crate) mod pages;
pub(crate) mod recv;
pub(crate) mod send;
mod share;
mod table;

pub(crate) use table::{Limits, Streams};
