//! Pattern of an application, from counters of its connections at two or more moments.

use crate::facts::{Application, Kind};
use std::collections::HashMap;
use std::time::Duration;
use vmcc_system::diag::Subflow;

/// Connections that are followed; later ones are left out.
const MAX_CONNECTIONS: usize = 1 << 16;
/// Mean size of a message from which an application is bulk.
const BULK_BYTES: u64 = 1_000_000;
/// Share of the time with data to send below which the application, not the network, is the limit.
const IDLE_SHARE: f64 = 0.5;
/// Share of all bytes, and of all messages, from which bulk and small messages count as mixed.
const MIXED_SHARE: f64 = 0.1;

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    sent_bytes: u64,
    received_bytes: u64,
    sent_segments: u64,
    received_segments: u64,
    busy_us: u64,
    window_limited_us: u64,
}

impl Counters {
    fn of(socket: &Subflow) -> Self {
        Self {
            sent_bytes: socket.bytes_acked,
            received_bytes: socket.bytes_received,
            sent_segments: socket.data_segments_sent.into(),
            received_segments: socket.data_segments_received.into(),
            busy_us: socket.busy_us,
            window_limited_us: socket.receive_window_limited_us,
        }
    }

    /// Of a connection with one more subflow.
    fn with(&self, subflow: &Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_add(subflow.sent_bytes),
            received_bytes: self.received_bytes.saturating_add(subflow.received_bytes),
            sent_segments: self.sent_segments + subflow.sent_segments,
            received_segments: self.received_segments + subflow.received_segments,
            busy_us: self.busy_us.max(subflow.busy_us),
            window_limited_us: self.window_limited_us.max(subflow.window_limited_us),
        }
    }

    /// A subflow that has ended takes its counts along; then less is counted, never more.
    fn since(&self, before: &Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            sent_segments: self.sent_segments.saturating_sub(before.sent_segments),
            received_segments: self.received_segments.saturating_sub(before.received_segments),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            window_limited_us: self.window_limited_us.saturating_sub(before.window_limited_us),
        }
    }

    fn bytes(&self) -> u64 {
        self.sent_bytes + self.received_bytes
    }

    /// Bytes of the larger direction.
    fn larger(&self) -> u64 {
        self.sent_bytes.max(self.received_bytes)
    }

    /// Messages of the larger direction: each request, or acknowledgment by the application, is a segment with data at least.
    fn messages(&self) -> u64 {
        let replies =
            if self.sent_bytes >= self.received_bytes { self.received_segments } else { self.sent_segments };
        replies.max(1)
    }
}

#[derive(Debug)]
struct Track {
    first: Counters,
    last: Counters,
    /// Looks at which it had carried something since the one before.
    active: u32,
}

/// Identity of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// MPTCP, as far as root can tell: its token at this end.
    Token(u32),
    /// TCP: the socket's cookie.
    Cookie([u8; 8]),
}

impl Key {
    fn of(socket: &Subflow) -> Self {
        socket.mptcp.map_or(Self::Cookie(socket.cookie), |mptcp| Self::Token(mptcp.token_local))
    }
}

/// Connections, look by look.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    tracks: HashMap<Key, Track>,
    looks: u32,
}

impl Pattern {
    /// Adds what is seen now. Connections of the first look count from there, later ones from their beginning.
    pub(super) fn look(&mut self, sockets: &[&Subflow]) {
        let mut connections: HashMap<Key, Counters> = HashMap::new();
        for socket in sockets {
            let subflow = Counters::of(socket);
            connections.entry(Key::of(socket)).and_modify(|all| *all = all.with(&subflow)).or_insert(subflow);
        }
        for (key, now) in connections {
            let full = self.tracks.len() >= MAX_CONNECTIONS;
            match self.tracks.get_mut(&key) {
                Some(track) => {
                    track.active += u32::from(now.since(&track.last).bytes() > 0);
                    track.last = now;
                }
                None if full => {}
                None => {
                    let first = if self.looks == 0 { now } else { Counters::default() };
                    let active = u32::from(now.since(&first).bytes() > 0);
                    self.tracks.insert(key, Track { first, last: now, active });
                }
            }
        }
        self.looks += 1;
    }

    /// The application; `None` if nothing was carried.
    pub(super) fn application(&self, elapsed: Duration) -> Option<Application> {
        let moved: Vec<(Counters, u32)> = self
            .tracks
            .values()
            .map(|track| (track.last.since(&track.first), track.active))
            .filter(|(counters, _)| counters.bytes() > 0)
            .collect();
        let sum = |of: fn(&Counters) -> u64| moved.iter().map(|(one, _)| of(one)).sum::<u64>();
        let messages = sum(Counters::messages);
        let bytes = sum(Counters::larger);
        let size = bytes.checked_div(messages)?;
        let is_bulk = |one: &Counters| one.larger() / one.messages() >= BULK_BYTES;
        let (bulk, small): (Vec<_>, Vec<_>) = moved.iter().partition(|(one, _)| is_bulk(one));
        let bulk_bytes: u64 = bulk.iter().map(|(one, _)| one.larger()).sum();
        let small_messages: u64 = small.iter().map(|(one, _)| one.messages()).sum();
        let kind = if bulk_bytes * 2 >= bytes { Kind::Bulk } else { Kind::RequestResponse };
        let active: u64 = moved.iter().map(|(_, active)| u64::from(*active)).sum();
        let looks = u64::from(self.looks.saturating_sub(1).max(1));
        let (busy, limited) = (sum(|one| one.busy_us), sum(|one| one.window_limited_us));
        let share = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        let sending = sum(|one| one.sent_bytes) >= sum(|one| one.received_bytes);
        let available_us = elapsed.as_secs_f64() * 1e6 * active as f64 / looks as f64;
        let idle = sending && (busy as f64) < IDLE_SHARE * available_us;
        Some(Application {
            kind: Some(kind),
            size_bytes: Some(size),
            concurrency: u32::try_from(active.div_ceil(looks)).ok(),
            demand_bps: (idle && kind == Kind::Bulk)
                .then(|| (sum(|one| one.sent_bytes) as f64 * 8.0 / elapsed.as_secs_f64().max(1e-3)) as u64),
            closes_listener: false,
            mixed: share(bulk_bytes, bytes) >= MIXED_SHARE && share(small_messages, messages) >= MIXED_SHARE,
            receive_window_limited: sending.then(|| share(limited, busy)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that have carried this since the first look, in a second in which all were active.
    fn seen(connections: &[Counters]) -> Option<Application> {
        let track = |(number, counters): (usize, &Counters)| {
            let key = Key::Token(u32::try_from(number).unwrap());
            (key, Track { first: Counters::default(), last: *counters, active: 2 })
        };
        let tracks = connections.iter().enumerate().map(track).collect();
        Pattern { tracks, looks: 3 }.application(Duration::from_secs(1))
    }

    fn responses(count: u64, bytes: u64) -> Counters {
        Counters {
            sent_bytes: count * bytes,
            received_bytes: count * 60,
            sent_segments: count * bytes.div_ceil(1448),
            received_segments: count,
            busy_us: 900_000,
            window_limited_us: 0,
        }
    }

    #[test]
    fn responses_are_divided_by_the_segments_of_requests() {
        let found = seen(&[responses(1_000, 10_000); 8]).unwrap();
        let expected = (Some(Kind::RequestResponse), Some(10_000), Some(8), false);
        assert_eq!((found.kind, found.size_bytes, found.concurrency, found.mixed), expected);
        // The client sees the same connections from their other end.
        let one = responses(1_000, 10_000);
        let client = Counters {
            sent_bytes: one.received_bytes,
            received_bytes: one.sent_bytes,
            sent_segments: one.received_segments,
            received_segments: one.sent_segments,
            ..one
        };
        let found = seen(&[client]).unwrap();
        assert_eq!(
            (found.size_bytes, found.demand_bps, found.receive_window_limited),
            (Some(10_000), None, None)
        );
    }

    #[test]
    fn sender_that_is_mostly_idle_has_a_demand() {
        let slow = Counters {
            sent_bytes: 10_000_000,
            sent_segments: 7_000,
            busy_us: 100_000,
            ..Counters::default()
        };
        assert_eq!(seen(&[slow]).unwrap().demand_bps, Some(80_000_000));
        assert_eq!(seen(&[Counters { busy_us: 990_000, ..slow }]).unwrap().demand_bps, None);
    }

    #[test]
    fn bulk_beside_small_messages_is_mixed() {
        let bulk = Counters {
            sent_bytes: 50_000_000,
            sent_segments: 35_000,
            busy_us: 900_000,
            ..Counters::default()
        };
        let found = seen(&[bulk, responses(1_000, 10_000)]).unwrap();
        assert_eq!((found.kind, found.mixed), (Some(Kind::Bulk), true));
        assert!(!seen(&[bulk]).unwrap().mixed);
    }

    #[test]
    fn counts_of_an_ended_subflow_are_not_carried_data() {
        let (whole, rest) = (responses(1_000, 10_000), responses(400, 10_000));
        assert_eq!(rest.since(&whole).bytes(), 0);
        assert_eq!(seen(&[]), None);
        assert_eq!(seen(&[Counters::default()]), None);
    }
}
