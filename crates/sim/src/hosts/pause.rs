//! Descheduled virtual machines: a paused host neither sends nor processes what arrives.
//!
//! What waited is handled when the host resumes, all at that instant, as Linux does when its vCPU finds the timer's and the
//! NIC's interrupts pending: softirqs run in their order, whatever came first.
//!
//! 1. TIMER: timers of the protocol that expired meanwhile (retransmission, tail loss probe, delayed ACK), by deadline. So a
//!    timeout goes before the ACKs that had been waiting all along, and turns out to be spurious.
//! 2. NET_RX: the packets in the receive ring, in order of arrival. What came when the ring was full has been lost.
//! 3. HRTIMER, then processes: pacing, and what programs had meant to do.
//!
//! 1 and 2 are exchanged if the scenario says so: a real guest whose whole process had been stopped handled packets first in 16
//! of 22 cases.
//!
//! Clocks go on: the echo of a timestamp shows the whole time. What had left the host before travels on.
//! Not modelled: a host that is taken off while it handles packets (it would finish those first), a ring for each NIC (there
//! is one for the host), NAPI's budget.

use super::{Purpose, Wire};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::traffic::exponential;
use hdrhistogram::Histogram;
use std::sync::Arc;
use vmcc_metrics::observed::Off;

/// A packet that waits for the host.
#[derive(Clone, Debug)]
pub(crate) enum Received {
    Plain(Packet, Sack),
    Payload(Packet, Box<[u8]>),
}

/// All that waits for a host, in the order in which it will be handled; timers by deadline, packets by arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) timers: Vec<TimerId>,
    pub(crate) packets: Vec<Received>,
    pub(crate) programs: Vec<TimerId>,
}

/// Off times of one event: a pattern that begins with an on period. Windows are generated on demand, because a long run has
/// millions.
#[derive(Clone, Debug)]
pub(crate) struct OffTimes {
    /// From when.
    pub(crate) at: Time,
    /// To when.
    pub(crate) end: Time,
    /// Length of an on period.
    pub(crate) on: Span,
    /// Length of an off period.
    pub(crate) off: Span,
    pub(crate) how: Lengths,
    /// State of the host when it resumes.
    pub(crate) waking: Waking,
}

/// Source of the lengths of on and off periods.
#[derive(Clone, Debug)]
pub(crate) enum Lengths {
    /// They are always the same.
    Fixed,
    /// They are exponential means.
    Random(Stream),
    /// They were recorded: pairs of on and off, which are gone through again and again, and where in them we are.
    Recorded(Arc<[(Span, Span)]>, usize),
}

impl OffTimes {
    /// Off from `start` to `end`.
    #[cfg(test)]
    pub(crate) fn once(start: Time, end: Time) -> OffTimes {
        let waking = Waking::default();
        OffTimes { at: start, end, on: Span::ZERO, off: end.since(start), how: Lengths::Fixed, waking }
    }

    /// The next on and off period.
    fn lengths(&mut self) -> (Span, Span) {
        let draw =
            |stream: &mut Stream, mean: Span| Span::from_ps(exponential(stream, mean.ps() as f64) as u64);
        match &mut self.how {
            Lengths::Fixed => (self.on, self.off),
            Lengths::Random(stream) => (draw(stream, self.on), draw(stream, self.off)),
            Lengths::Recorded(pairs, next) => {
                let pair = pairs[*next];
                *next = (*next + 1) % pairs.len();
                pair
            }
        }
    }
}

impl Iterator for OffTimes {
    type Item = (Time, Time);

    /// Beginning and end of the next window that is not empty.
    fn next(&mut self) -> Option<(Time, Time)> {
        while self.at < self.end {
            let (on, off) = self.lengths();
            let from = self.at + on;
            let to = from + off;
            self.at = to + Span::from_ps(1);
            if from < to.min(self.end) {
                return Some((from, to.min(self.end)));
            }
        }
        None
    }
}

/// State of a host when it resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waking {
    /// Packets for which the receive ring has room.
    pub(crate) ring: usize,
    /// Packets before timers: the second of the orders that were seen on real hosts.
    pub(crate) packets_first: bool,
}

impl Default for Waking {
    fn default() -> Waking {
        Waking { ring: usize::MAX, packets_first: false }
    }
}

/// Off times of a host.
#[derive(Clone, Debug)]
pub(crate) struct Absences {
    pub(crate) host: u32,
    pub(crate) total: Span,
    /// In nanoseconds, to 1 %.
    pub(crate) lengths: Histogram<u64>,
    /// Resume time and length of each of the first off times.
    pub(crate) times: Vec<(Time, Span)>,
    /// Packets that found the receive ring full.
    pub(crate) lost_pkt: u64,
}

impl Absences {
    fn new(host: u32) -> Absences {
        // The precision is a constant that the constructor accepts; it grows with the lengths.
        let lengths = Histogram::new(2).expect("a valid precision");
        Absences { host, total: Span::ZERO, lengths, times: Vec::new(), lost_pkt: 0 }
    }

    fn add(&mut self, from: Time, to: Time) {
        let length = to.since(from);
        self.total += length;
        if self.times.len() < Off::MAX_KEPT {
            self.times.push((to, length));
        }
        // It grows as it must.
        let _ = self.lengths.record(length.ns());
    }
}

/// A time for which a host is off, and what it finds after it.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: Time,
    end: Time,
    waking: Waking,
}

/// One host's pauses.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    pub(crate) host: u32,
    /// The next window of each event, and what comes after it.
    events: Vec<(Option<(Time, Time)>, OffTimes)>,
    /// The window that is on or comes next.
    window: Option<Window>,
    pub(crate) paused: bool,
    pub(crate) timer: Timer,
    waiting: Waiting,
    absences: Absences,
}

impl Pauses {
    /// Windows that overlap are joined.
    pub(crate) fn new(host: u32, events: Vec<OffTimes>) -> Pauses {
        let events = events.into_iter().map(|mut times| (times.next(), times)).collect();
        let (timer, waiting) = (Timer::new(), Waiting::default());
        let absences = Absences::new(host);
        let mut pauses = Pauses { host, events, window: None, paused: false, timer, waiting, absences };
        pauses.window = pauses.next_window();
        pauses
    }

    /// One that several events make is left as any of them says, with the smallest ring.
    fn next_window(&mut self) -> Option<Window> {
        let (start, mut end) = self.events.iter().filter_map(|(next, _)| *next).min()?;
        let mut waking = Waking::default();
        let within = |end: Time| {
            move |(next, _): &&mut (Option<(Time, Time)>, OffTimes)| next.is_some_and(|n| n.0 <= end)
        };
        while let Some((next, times)) = self.events.iter_mut().find(within(end)) {
            end = next.map_or(end, |n| n.1.max(end));
            waking.ring = waking.ring.min(times.waking.ring);
            waking.packets_first |= times.waking.packets_first;
            *next = times.next();
        }
        Some(Window { start, end, waking })
    }

    /// Arms the timer for the next change.
    pub(crate) fn arm<W: Wire>(&mut self, wire: &mut W, index: u32) {
        if let Some(Window { start, end, .. }) = self.window {
            let at = if self.paused { end } else { start };
            wire.arm(&mut self.timer, Purpose::PAUSE.id(index), at);
        }
    }

    /// A packet arrives while the host is off.
    pub(crate) fn receive(&mut self, packet: impl FnOnce() -> Received) {
        let room = self.window.map_or(usize::MAX, |window| window.waking.ring);
        if self.waiting.packets.len() < room {
            self.waiting.packets.push(packet());
        } else {
            self.absences.lost_pkt += 1;
        }
    }

    /// A timer expires meanwhile; `in_softirq`: it is the protocol's.
    pub(crate) fn expire(&mut self, id: TimerId, in_softirq: bool) {
        let waiting = if in_softirq { &mut self.waiting.timers } else { &mut self.waiting.programs };
        waiting.push(id);
    }

    /// The time of a change has come; returns what waited if the host resumes, and whether packets go before timers then.
    pub(crate) fn change(&mut self) -> (Waiting, bool) {
        self.paused = !self.paused;
        if self.paused {
            return (Waiting::default(), false);
        }
        if let Some(Window { start, end, .. }) = self.window {
            self.absences.add(start, end);
        }
        let packets_first = self.window.is_some_and(|window| window.waking.packets_first);
        self.window = self.next_window();
        (std::mem::take(&mut self.waiting), packets_first)
    }

    /// Off times of the host until `now`.
    pub(crate) fn absences(&self, now: Time) -> Absences {
        let mut all = self.absences.clone();
        if let Some(window) = self.window.filter(|window| self.paused && window.start < now) {
            all.add(window.start, now);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(events: Vec<OffTimes>) -> Vec<(Time, Time)> {
        let mut pauses = Pauses::new(0, events);
        let first = pauses.window;
        let all = first.into_iter().chain(std::iter::from_fn(|| pauses.next_window()));
        all.map(|window| (window.start, window.end)).collect()
    }

    #[test]
    fn overlapping_windows_are_joined() {
        let t = Time::from_ps;
        let once = [(10, 20), (5, 12), (30, 30), (40, 50)].map(|(a, b)| OffTimes::once(t(a), t(b)));
        assert_eq!(windows(once.to_vec()), [(t(5), t(20)), (t(40), t(50))]);
    }

    /// A pattern lasts as long as its event says, however often that is, and joins with others on the way.
    #[test]
    fn a_pattern_goes_on_to_its_end() {
        let pattern = |end| OffTimes {
            at: Time::ZERO,
            end: Time::from_ps(end),
            on: Span::from_ps(20),
            off: Span::from_ps(179),
            how: Lengths::Fixed,
            waking: Waking::default(),
        };
        let all = windows(vec![pattern(400_000_000)]);
        assert_eq!(all.len(), 2_000_000);
        assert_eq!(all.last(), Some(&(Time::from_ps(399_999_820), Time::from_ps(399_999_999))));
        let other = OffTimes::once(Time::from_ps(150), Time::from_ps(230));
        let t = Time::from_ps;
        assert_eq!(windows(vec![pattern(600), other]), [(t(20), t(399)), (t(420), t(599))]);
    }

    #[test]
    fn what_was_recorded_is_repeated() {
        let (t, s) = (Time::from_ps, Span::from_ps);
        let pairs = [(s(10), s(5)), (s(20), s(0)), (s(3), s(7))];
        let how = Lengths::Recorded(pairs.into(), 0);
        let waking = Waking::default();
        let times = OffTimes { at: Time::ZERO, end: t(100), on: s(0), off: s(0), how, waking };
        // One picosecond lies between a period's end and the next one's beginning; a period of no length is none.
        assert_eq!(windows(vec![times]), [(t(10), t(15)), (t(40), t(47)), (t(58), t(63)), (t(88), t(95))]);
    }

    #[test]
    fn what_finds_the_ring_full_is_lost() {
        let t = Time::from_ps;
        let small = Waking { ring: 2, packets_first: true };
        let events = [OffTimes { waking: small, ..OffTimes::once(t(1), t(2)) }, OffTimes::once(t(5), t(6))];
        let mut pauses = Pauses::new(0, events.to_vec());
        let mut woken = || {
            let _ = pauses.change();
            for seq in 0..5 {
                pauses.receive(|| Received::Plain(Packet { seq, ..Packet::default() }, Sack::EMPTY));
            }
            let (waiting, packets_first) = pauses.change();
            (waiting.packets.len(), packets_first, pauses.absences(t(9)).lost_pkt)
        };
        assert_eq!((woken(), woken()), ((2, true, 3), (5, false, 3)), "each as its event says");
    }
}
