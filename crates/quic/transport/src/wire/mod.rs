//! Wire format: headers, frames, transport parameters. Every reader is bounded by what it reads and none panics.

pub(crate) mod ack;
pub(crate) mod cid;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod params;

pub(crate) use vmcc_streams::{ranges, varint};
