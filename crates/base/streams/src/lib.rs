//! Streams of a multipath connection: send and receive buffers by offset, flow control, and the frames of RFC 9000 for them.
//!
//! Independent of paths, packets and clocks. The QUIC transport and the TCP carriers both send their streams from here: a range that
//! one path loses leaves on any other.

#![forbid(unsafe_code)]

mod error;
mod event;
pub mod frame;
mod limits;
mod pages;
pub mod ranges;
mod recv;
mod send;
mod share;
mod table;
pub mod varint;

pub use error::{StreamError, Violation, code};
pub use event::{Control, Event, SentRange};
pub use frame::{Dir, Frame};
pub use limits::{Limits, PeerLimits};
pub use recv::RecvBuffer;
pub use send::SendBuffer;
pub use table::{Side, Streams};
