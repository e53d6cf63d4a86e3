//! A scenario's traffic as connections and datagram senders.
//!
//! Every random draw comes from a stream named after the traffic entry, the two hosts and the number of the
//! connection between them: adding an entry or a connection changes no other's draws. An entry without a name is
//! called after what it is, not after its place in the file.

mod app;
mod datagrams;
mod pairs;
mod plan;
mod stream;

pub use app::{App, Object};
pub(crate) use datagrams::{DatagramSpec, PlannedDatagrams, plan_datagrams};
pub(crate) use pairs::{Sender, senders};
pub(crate) use plan::{Planned, plan_flows};
pub(crate) use stream::{Delivered, Writer, chunks_due, chunks_take};

/// The most connections or busy periods of one entry.
pub(crate) const MAX_FLOWS: usize = 1_000_000;
