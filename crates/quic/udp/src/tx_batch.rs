//! Transmit batches: packets gathered from the engine and sent by their sockets in few system calls.

use crate::shared::Inner;
use crate::socket::{Message, Refusal};
use std::io;
use vmcc_transport::Transmit;

/// Bytes of a batch: more would leave the processor's cache before they are sent.
const MAX_BATCH_BYTES: usize = 64 << 10;
/// Transmits of a batch: the first waits for the last, and nothing is received meanwhile.
const MAX_TRANSMITS: usize = 32;

/// A socket of the endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TxSocket {
    Socket(usize),
    Relay(usize),
}

/// Transmits of one batch, and their bytes.
#[derive(Default)]
pub(crate) struct TxBatch {
    transmits: Vec<Transmit>,
    /// Their bytes; kept for the next ones, of which there may be more or fewer.
    bytes: Vec<Vec<u8>>,
}

impl TxBatch {
    /// Takes what the engine has to send now; whether there may be more.
    pub(crate) fn gather(&mut self, inner: &mut Inner) -> bool {
        self.transmits.clear();
        let mut bytes = 0;
        while self.transmits.len() < MAX_TRANSMITS && bytes < MAX_BATCH_BYTES {
            if self.bytes.len() == self.transmits.len() {
                self.bytes.push(Vec::new());
            }
            let now = inner.now();
            let Some(transmit) = inner.engine.poll_transmit(now, &mut self.bytes[self.transmits.len()])
            else {
                return false;
            };
            bytes += transmit.len;
            self.transmits.push(transmit);
        }
        true
    }

    /// Sends it; what the system refuses.
    pub(crate) fn send(&self, inner: &mut Inner, refusals: &mut Vec<Refusal>) {
        let message = |(transmit, bytes)| Message { transmit, bytes };
        let mut rest: Vec<Message<'_>> =
            self.transmits.iter().zip(self.bytes.iter().map(Vec::as_slice)).map(message).collect();
        while let Some(first) = rest.first() {
            let target = inner.target_of(first.transmit);
            let same = |message: &Message<'_>| inner.target_of(message.transmit) == target;
            let (now, later): (Vec<_>, Vec<_>) = rest.into_iter().partition(same);
            match target {
                Some(TxSocket::Socket(at)) => inner.sockets[at].send(&now, refusals),
                Some(TxSocket::Relay(at)) => {
                    let time = inner.now();
                    inner.relays[at].send(time, &now, refusals);
                }
                None => {
                    let gone = || io::Error::new(io::ErrorKind::AddrNotAvailable, "the address is gone");
                    refusals.extend(now.iter().map(|message| (message.transmit.route, gone())));
                }
            }
            rest = later;
        }
    }
}

impl Inner {
    /// Socket for a path's packets.
    fn target_of(&self, transmit: &Transmit) -> Option<TxSocket> {
        let local = transmit.route.local;
        let relay = self.relays.iter().position(|relay| relay.is_at(local)).map(TxSocket::Relay);
        relay.or_else(|| self.socket_of(local).map(TxSocket::Socket))
    }
}
