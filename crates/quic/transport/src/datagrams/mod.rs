//! Application datagrams of a connection (RFC 9221), in both directions.

mod queue;

use queue::DatagramQueue;
use std::collections::VecDeque;
use vmcc_units::time::{Span, Time};

/// Bytes that a received datagram costs beside its own: empty ones are not free.
const RECEIVE_COST: usize = 64;
/// Bytes of a DATAGRAM frame's type and length.
const FRAME_OVERHEAD: usize = 3;

/// Datagrams that wait to be sent, and those that wait to be read.
#[derive(Debug)]
pub(crate) struct Datagrams {
    /// Bytes that may wait, in each direction.
    limit_bytes: usize,
    out: DatagramQueue,
    received: VecDeque<Vec<u8>>,
    /// With [`RECEIVE_COST`] of each.
    received_bytes: usize,
    dropped: u64,
}

impl Datagrams {
    pub(crate) fn new(limit_bytes: usize) -> Datagrams {
        Datagrams {
            limit_bytes,
            out: DatagramQueue::default(),
            received: VecDeque::new(),
            received_bytes: 0,
            dropped: 0,
        }
    }

    /// Queues a datagram to send; returns false if there is no room.
    pub(crate) fn send(&mut self, now: Time, data: &[u8]) -> bool {
        let room = self.out.bytes() + data.len() <= self.limit_bytes;
        if room {
            self.out.push(now, data.to_vec());
        }
        room
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.out.is_empty()
    }

    /// Drops datagrams to send that are too old; `rtt` is the longest round trip of a path that carries them.
    pub(crate) fn drop_old(&mut self, now: Time, rtt: Span) {
        self.dropped += self.out.drop_old(now, rtt);
    }

    /// Takes the next datagram whose frame fits in `room` bytes. Drops those larger than `max`: packets may have become smaller since they were
    /// queued, and they must not hold back others.
    pub(crate) fn take(&mut self, max: usize, room: usize) -> Option<Vec<u8>> {
        while self.out.front()?.len() > max {
            self.out.pop();
            self.dropped += 1;
        }
        let fits = self.out.front()?.len() + FRAME_OVERHEAD <= room;
        if fits { self.out.pop() } else { None }
    }

    /// Stores a received datagram, and drops the oldest where nobody reads them. Returns true if there was none to read.
    pub(crate) fn on_received(&mut self, data: &[u8]) -> bool {
        self.received_bytes += data.len() + RECEIVE_COST;
        while self.received_bytes > self.limit_bytes {
            let Some(oldest) = self.received.pop_front() else { break };
            self.received_bytes -= oldest.len() + RECEIVE_COST;
            self.dropped += 1;
        }
        let first = self.received.is_empty();
        self.received.push_back(data.to_vec());
        first
    }

    /// The next received datagram.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let datagram = self.received.pop_front()?;
        self.received_bytes -= datagram.len() + RECEIVE_COST;
        Some(datagram)
    }

    /// Datagrams that were dropped, in both directions.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_datagrams_are_bounded_and_the_newest_kept() {
        let mut datagrams = Datagrams::new(4 * (RECEIVE_COST + 10));
        let first: Vec<bool> = (0..6).map(|i| datagrams.on_received(&[i; 10])).collect();
        assert_eq!(first, [true, false, false, false, false, false]);
        let read: Vec<_> = std::iter::from_fn(|| datagrams.read()).collect();
        assert_eq!((read, datagrams.dropped()), ((2..6).map(|i| vec![i; 10]).collect(), 2));
        // Empty ones are bounded as well.
        (0..1000).for_each(|_| _ = datagrams.on_received(&[]));
        assert_eq!(std::iter::from_fn(|| datagrams.read()).count(), 4 * (RECEIVE_COST + 10) / RECEIVE_COST);
        assert_eq!(datagrams.received_bytes, 0);
    }

    #[test]
    fn oversized_datagrams_do_not_block_the_queue() {
        let mut datagrams = Datagrams::new(1000);
        assert!(datagrams.send(Time::ZERO, &[1; 500]) && datagrams.send(Time::ZERO, &[2; 100]));
        assert!(!datagrams.send(Time::ZERO, &[3; 401]), "more than may wait");
        assert_eq!(datagrams.take(400, 100 + FRAME_OVERHEAD - 1), None, "the packet is full");
        assert_eq!(datagrams.take(400, 100 + FRAME_OVERHEAD), Some(vec![2; 100]));
        assert_eq!((datagrams.take(400, 1000), datagrams.has_work(), datagrams.dropped()), (None, false, 1));
    }
}
