//! The engine: event queue, clock, packet slab, links, and the loop that drives them.
//!
//! # Contract between engine and hosts
//!
//! * A run is one or more *shards*. A shard owns some links and one value of a type implementing
//!   [`Endpoints`]: all hosts of that shard. Calls are static: no trait object, no hashing per packet.
//! * The two halves of a connection may live in different shards (threads). **Sender and receiver halves
//!   share nothing; they talk by packets only.** An endpoint is addressed by [`crate::packet::Packet::to`],
//!   an index into the tables of the shard where the route ends.
//! * [`Endpoints::on_packet`] is called when a packet has crossed the last link of its route. The engine
//!   has already released the packet; the host sees a copy.
//! * A host acts through [`Ctx`]: [`Ctx::now`], [`Ctx::send`], [`Ctx::send_with_sack`], [`Ctx::send_with_payload`], [`Ctx::arm`].
//!   `send` puts the packet at once into the queue of the route's first link (the vNIC): whether it was
//!   dropped there is not told, as in a real host that does not look at its qdisc.
//! * Randomness: [`crate::rng::Streams::stream`] at set-up; the host keeps its streams in its own state.
//! * Order: events of one instant are handled by kind (control, link service, arrivals by upstream link
//!   id, timers by timer id). Ids given to timers must therefore not depend on the partition; a numbering
//!   that keeps the order of global ids within each shard is enough.
//! * Nothing may depend on wall clock, addresses, or iteration order of unordered maps.

mod ctx;
mod parallel;
mod partition;
mod run;
mod shard;
mod timer;

pub use ctx::{ClassSample, Ctx, QueueSample};
pub(crate) use parallel::Bounds;
pub use partition::Partition;
pub use run::Engine;
pub use timer::{Timer, TimerId};

use crate::packet::{Packet, Sack};

/// The hosts of one shard: transports, applications, traffic generators.
pub trait Endpoints: Send {
    /// Called once, at time zero, before any event.
    fn start(&mut self, ctx: &mut Ctx);

    /// A packet reached the end of its route. `sack` is empty unless the packet has [`Packet::SACK`].
    fn on_packet(&mut self, ctx: &mut Ctx, packet: &Packet, sack: &Sack);

    /// A packet that carries a payload reached the end of its route.
    fn on_payload(&mut self, ctx: &mut Ctx, packet: &Packet, payload: &[u8]) {
        let _ = payload;
        self.on_packet(ctx, packet, &Sack::EMPTY);
    }

    /// The event of timer `id` came. Call [`Ctx::expired`] with its [`Timer`] and act if it says `true`.
    fn on_timer(&mut self, ctx: &mut Ctx, id: TimerId);

    /// A packet for endpoint `to` arrives soon, a pure ACK or one that carries data: a hint to bring the
    /// endpoint's state closer.
    #[inline]
    fn prefetch(&self, to: u32, ack: bool) {
        let _ = (to, ack);
    }

    /// The same packet arrives very soon: what [`Endpoints::prefetch`] asked for is there and may be read to
    /// find out what else will be needed.
    #[inline]
    fn prefetch_more(&self, to: u32, ack: bool) {
        let _ = (to, ack);
    }
}
