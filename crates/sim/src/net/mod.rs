//! Links and their queues, routes, packets in flight.
//!
//! A link is one direction of a cable with the queue in front of it. In a plain FIFO the departure time of
//! a packet is known when it arrives, so one event per hop suffices; links that schedule,
//! shape, count packets, or change at run time have a *scheduler* and take a second event per packet. Both kinds mean the
//! same by a buffer and by a threshold, the kernel's: what waits, without the packet in service.

mod buffer;
mod fifo;
mod impair;
mod link;
mod network;
mod payload;
mod queue;
mod rate;
mod red;
mod scheduler;
mod spec;
#[cfg(test)]
mod tests;

pub(crate) use network::{ACK_ONLY, AT_HOST, Crossings, MAX_ENDPOINT, MAX_SHARDS, Network, owned_routes};
pub use network::{DropReason, LinkCounters, Totals};
pub(crate) use spec::{Change, END, Probe};
pub use spec::{
    ClassSpec, JitterSpec, LimitSpec, LinkChange, LinkSpec, LossSpec, MarkingSpec, NetError, NetSpec, NodeId,
    QueueSpec, RedSpec, Scheduling, ShaperClass, ThresholdSpec,
};
