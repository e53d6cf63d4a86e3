//! Application datagrams (RFC 9221) that wait to be sent. What is too old is dropped: a receiver has no use for it.
//!
//! A burst may wait for [`INTERVAL`]. A queue that stands above [`TARGET`] for so long is a standing queue, as in CoDel (RFC 8289). Unlike
//! there, it is cut at once, because senders of datagrams need not react to losses. It is cut to less than the target, so that what is sent
//! and what is dropped are runs: else the same few of each sender's bursts would always be dropped.

use std::collections::VecDeque;
use vmcc_units::time::{Span, Time};

/// Sojourn time above which a queue is too long.
const TARGET: Span = Span::from_ms(10);
/// Sojourn time that is left when the queue is cut.
const CUT_TO: Span = Span::from_ms(5);
/// Time that it may be too long, where no round trip is longer; as long without a drop ends dropping.
const INTERVAL: Span = Span::from_ms(100);

#[derive(Debug, Default)]
pub(crate) struct DatagramQueue {
    list: VecDeque<(Time, Vec<u8>)>,
    bytes: usize,
    /// The sojourn time has been above the target since then.
    above_since: Option<Time>,
    /// The last drop for age, while the queue stands.
    dropped_at: Option<Time>,
}

impl DatagramQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, now: Time, data: Vec<u8>) {
        self.bytes += data.len();
        self.list.push_back((now, data));
    }

    /// The next one.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.list.front().map(|(_, data)| &data[..])
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        let (_, data) = self.list.pop_front()?;
        self.bytes -= data.len();
        if self.list.is_empty() {
            self.above_since = None;
        }
        Some(data)
    }

    /// Drops what is too old, but never the last one: how many. `rtt` is the longest round trip of a path that carries them.
    pub(crate) fn drop_old(&mut self, now: Time, rtt: Span) -> u64 {
        let Some((oldest, _)) = self.list.front() else { return 0 };
        if now.since(*oldest) <= TARGET {
            self.above_since = None;
            return 0;
        }
        let interval = INTERVAL.max(rtt);
        let above = now.since(*self.above_since.get_or_insert(now)) >= interval;
        let standing = self.dropped_at.is_some_and(|at| now.since(at) < interval);
        if !above && !standing && now.since(*oldest) <= interval {
            return 0;
        }
        let mut dropped = 0;
        while self.list.len() > 1 && self.list.front().is_some_and(|(at, _)| now.since(*at) > CUT_TO) {
            self.pop();
            dropped += 1;
        }
        if dropped > 0 {
            self.dropped_at = Some(now);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(1000 + ms)
    }

    /// Sends one each `leave_ms`, while `arrive` come each millisecond; the sojourn times.
    fn sojourns(arrive: u64, leave_ms: u64, span_ms: u64) -> Vec<u64> {
        let (mut queue, mut all) = (DatagramQueue::default(), Vec::new());
        for ms in 0..span_ms {
            (0..arrive).for_each(|_| queue.push(at(ms), ms.to_be_bytes().to_vec()));
            if ms % leave_ms == 0 {
                queue.drop_old(at(ms), Span::ZERO);
                let sent = queue.pop().map(|data| u64::from_be_bytes(data.try_into().unwrap()));
                all.extend(sent.map(|sent| ms - sent));
            }
        }
        all
    }

    #[test]
    fn standing_queue_is_cut_to_the_target_and_keeps_the_link_busy() {
        for (arrive, leave_ms) in [(1, 2), (1, 20), (3, 1)] {
            let all = sojourns(arrive, leave_ms, 4000);
            assert_eq!(all.len() as u64, 4000 / leave_ms, "nothing is idle");
            let late = &all[all.len() / 4..];
            let most = 10.max(leave_ms);
            assert!(late.iter().all(|&ms| ms <= most), "{arrive} {leave_ms}: {late:?}");
        }
    }

    #[test]
    fn burst_of_less_than_the_interval_is_not_dropped() {
        let mut queue = DatagramQueue::default();
        (0..80).for_each(|_| queue.push(at(0), vec![0; 1000]));
        for ms in 0..80 {
            assert_eq!(queue.drop_old(at(ms), Span::ZERO), 0, "{ms}");
            queue.pop();
        }
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    #[test]
    fn outage_keeps_the_newest_datagram() {
        let mut queue = DatagramQueue::default();
        (0..400).for_each(|i| queue.push(at(10 * i), vec![i as u8]));
        assert_eq!(queue.drop_old(at(4000), Span::from_ms(50)), 399);
        assert_eq!(queue.front(), Some(&[143][..]));
    }
}
