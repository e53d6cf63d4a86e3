//! Links and their queues, routes, packets in flight.
//!
//! A link is one direction of a cable with the queue in front of it. In a plain FIFO the departure time of
//! a packet is known when it arrives, so one event per hop suffices ([`link`]); links that schedule,
//! shape, or change at run time are *served* and take a second event per packet.

mod link;
mod network;
mod spec;

pub(crate) use network::{AT_HOST, Network};
pub use network::{Drop, LinkCounters, Totals};
pub use spec::{Limit, LinkSpec, NetError, NetSpec, NodeId, QueueSpec, Threshold};
