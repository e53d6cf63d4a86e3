//! One connection of a session.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::wire::Net;
use crate::endpoint::Wire;
use crate::tcp::Connections;
use crate::time::Time;
use vmcc_tcp::{Acceptor, CarrierId, CarrierInfo};

/// Bytes of one direction that are under way. Both ends share them and may be in two threads; what is taken depends on TCP alone, since
/// packets arrive after they were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes(Arc<Mutex<VecDeque<u8>>>);

impl Bytes {
    fn put(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
    }

    fn take(&self, len: usize) -> Vec<u8> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(len <= queue.len(), "more has arrived than was sent");
        let len = len.min(queue.len());
        queue.drain(..len).collect()
    }
}

/// Life of a carrier at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// No carrier of the session yet.
    New,
    Member(CarrierId),
    Ended,
}

/// A connection at one end: the half that sends from here, and the half that receives what its twin sends.
#[derive(Debug)]
pub(super) struct Carrier {
    tx: u32,
    rx: u32,
    outgoing: Bytes,
    incoming: Bytes,
    /// Bytes taken of what arrived.
    taken: u64,
    /// Arrival time of the last acknowledgment.
    heard_at: Time,
    pub(super) life: Life,
    /// Reader of the greeting, at the end that accepts.
    pub(super) acceptor: Acceptor,
}

impl Carrier {
    /// Indices of its halves in the shard's tables.
    pub(super) fn halves(&self) -> (u32, u32) {
        (self.tx, self.rx)
    }

    pub(super) fn new((tx, rx): (u32, u32), outgoing: &Bytes, incoming: &Bytes) -> Carrier {
        Carrier {
            tx,
            rx,
            outgoing: outgoing.clone(),
            incoming: incoming.clone(),
            taken: 0,
            heard_at: Time::ZERO,
            life: Life::New,
            acceptor: Acceptor::default(),
        }
    }

    pub(super) fn heard(&mut self, now: Time) {
        self.heard_at = now;
    }

    /// Snapshot of its TCP, of whose unsent bytes a program would hold those beyond `notsent_lowat` in user space.
    pub(super) fn info(&self, tcp: &Connections, now: Time, notsent_lowat: u64) -> CarrierInfo {
        let info = tcp.carrier_info(self.tx, now.since(self.heard_at));
        CarrierInfo { blocked: info.queued > notsent_lowat, ..info }
    }

    pub(super) fn is_connected(&self, tcp: &Connections) -> bool {
        tcp.is_connected(self.tx)
    }

    pub(super) fn has_timed_out(&self, tcp: &Connections) -> bool {
        tcp.has_timed_out(self.tx)
    }

    /// Bytes that TCP has delivered since the last call.
    pub(super) fn read(&mut self, tcp: &Connections) -> Vec<u8> {
        let arrived = tcp.arrived_bytes(self.rx);
        let new = arrived - std::mem::replace(&mut self.taken, arrived);
        if new == 0 { Vec::new() } else { self.incoming.take(new as usize) }
    }

    pub(super) fn write<W: Wire>(&self, net: &mut Net<'_, W>, bytes: &[u8]) {
        self.outgoing.put(bytes);
        net.with(self.tx, |tcp, wire| tcp.carry(wire, self.tx, bytes.len() as u64));
    }

    pub(super) fn dial<W: Wire>(&self, net: &mut Net<'_, W>) {
        net.with(self.tx, |tcp, wire| tcp.dial(wire, self.tx));
    }

    pub(super) fn abort<W: Wire>(&self, net: &mut Net<'_, W>) {
        net.with(self.tx, |tcp, wire| tcp.abort(wire, self.tx));
    }

    pub(super) fn end_gracefully<W: Wire>(&self, net: &mut Net<'_, W>) {
        net.with(self.tx, |tcp, wire| tcp.end_gracefully(wire, self.tx));
    }
}
