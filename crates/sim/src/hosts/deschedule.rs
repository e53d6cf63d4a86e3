//! Descheduled virtual machines: a descheduled host neither sends nor processes what arrives.
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

use crate::endpoint::{Purpose, Wire};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::rng::{Stream, exponential_span};
use crate::time::{Span, Time};
use hdrhistogram::Histogram;
use std::sync::Arc;
use vmcc_metrics::observed::Off;

/// A packet that waits for the host.
#[derive(Clone, Debug)]
pub(crate) enum PendingPacket {
    Plain(Packet, Sack),
    Payload(Packet, Box<[u8]>),
}

/// All that waits for a host, in the order in which it will be handled; timers by deadline, packets by arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) timers: Vec<TimerId>,
    pub(crate) packets: Vec<PendingPacket>,
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
    pub(crate) periods: Periods,
    /// State of the host when it resumes.
    pub(crate) resume: ResumeConfig,
}

/// Source of the lengths of on and off periods.
#[derive(Clone, Debug)]
pub(crate) enum Periods {
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
        let resume = ResumeConfig::default();
        OffTimes { at: start, end, on: Span::ZERO, off: end.since(start), periods: Periods::Fixed, resume }
    }

    /// The next on and off period.
    fn lengths(&mut self) -> (Span, Span) {
        match &mut self.periods {
            Periods::Fixed => (self.on, self.off),
            Periods::Random(stream) => {
                (exponential_span(stream, self.on), exponential_span(stream, self.off))
            }
            Periods::Recorded(pairs, next) => {
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

/// Receive ring and order of work of a host that resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResumeConfig {
    /// Packets for which the receive ring has room.
    pub(crate) ring: usize,
    /// Packets before timers: the second of the orders that were seen on real hosts.
    pub(crate) packets_first: bool,
}

impl Default for ResumeConfig {
    fn default() -> ResumeConfig {
        ResumeConfig { ring: usize::MAX, packets_first: false }
    }
}

/// Steal time of a host.
#[derive(Clone, Debug)]
pub(crate) struct StealStats {
    pub(crate) host: u32,
    pub(crate) total: Span,
    /// In nanoseconds, to 1 %.
    pub(crate) lengths: Histogram<u64>,
    /// Resume time and length of each of the first off times.
    pub(crate) times: Vec<(Time, Span)>,
    /// Packets that found the receive ring full.
    pub(crate) lost_pkt: u64,
}

impl StealStats {
    fn new(host: u32) -> StealStats {
        // The precision is a constant that the constructor accepts; it grows with the lengths.
        let lengths = Histogram::new(2).expect("a valid precision");
        StealStats { host, total: Span::ZERO, lengths, times: Vec::new(), lost_pkt: 0 }
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
    resume: ResumeConfig,
}

/// One host's virtual CPU: its off times, and what is pending until it resumes.
#[derive(Clone, Debug)]
pub(crate) struct Vcpu {
    pub(crate) host: u32,
    /// The next window of each event, and what comes after it.
    events: Vec<(Option<(Time, Time)>, OffTimes)>,
    /// The window that is on or comes next.
    window: Option<Window>,
    pub(crate) descheduled: bool,
    pub(crate) timer: Timer,
    pending: Pending,
    steal_stats: StealStats,
}

impl Vcpu {
    /// Windows that overlap are joined.
    pub(crate) fn new(host: u32, events: Vec<OffTimes>) -> Vcpu {
        let events = events.into_iter().map(|mut times| (times.next(), times)).collect();
        let (timer, pending) = (Timer::new(), Pending::default());
        let steal_stats = StealStats::new(host);
        let mut vcpu = Vcpu { host, events, window: None, descheduled: false, timer, pending, steal_stats };
        vcpu.window = vcpu.next_window();
        vcpu
    }

    /// One that several events make is left as any of them says, with the smallest ring.
    fn next_window(&mut self) -> Option<Window> {
        let (start, mut end) = self.events.iter().filter_map(|(next, _)| *next).min()?;
        let mut resume = ResumeConfig::default();
        let within = |end: Time| {
            move |(next, _): &&mut (Option<(Time, Time)>, OffTimes)| next.is_some_and(|n| n.0 <= end)
        };
        while let Some((next, times)) = self.events.iter_mut().find(within(end)) {
            end = next.map_or(end, |n| n.1.max(end));
            resume.ring = resume.ring.min(times.resume.ring);
            resume.packets_first |= times.resume.packets_first;
            *next = times.next();
        }
        Some(Window { start, end, resume })
    }

    /// Arms the timer for the next change.
    pub(crate) fn arm<W: Wire>(&mut self, wire: &mut W, index: u32) {
        if let Some(Window { start, end, .. }) = self.window {
            let at = if self.descheduled { end } else { start };
            wire.arm(&mut self.timer, Purpose::DESCHEDULE.id(index), at);
        }
    }

    /// A packet arrives while the host is off.
    pub(crate) fn receive(&mut self, packet: impl FnOnce() -> PendingPacket) {
        let room = self.window.map_or(usize::MAX, |window| window.resume.ring);
        if self.pending.packets.len() < room {
            self.pending.packets.push(packet());
        } else {
            self.steal_stats.lost_pkt += 1;
        }
    }

    /// A timer expires meanwhile; `in_softirq`: it is the protocol's.
    pub(crate) fn expire(&mut self, id: TimerId, in_softirq: bool) {
        let pending = if in_softirq { &mut self.pending.timers } else { &mut self.pending.programs };
        pending.push(id);
    }

    /// The time of a change has come; returns what waited if the host resumes, and whether packets go before timers then.
    pub(crate) fn switch(&mut self) -> (Pending, bool) {
        self.descheduled = !self.descheduled;
        if self.descheduled {
            return (Pending::default(), false);
        }
        if let Some(Window { start, end, .. }) = self.window {
            self.steal_stats.add(start, end);
        }
        let packets_first = self.window.is_some_and(|window| window.resume.packets_first);
        self.window = self.next_window();
        (std::mem::take(&mut self.pending), packets_first)
    }

    /// Off times of the host until `now`.
    pub(crate) fn steal_stats(&self, now: Time) -> StealStats {
        let mut all = self.steal_stats.clone();
        if let Some(window) = self.window.filter(|window| self.descheduled && window.start < now) {
            all.add(window.start, now);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(events: Vec<OffTimes>) -> Vec<(Time, Time)> {
        let mut vcpu = Vcpu::new(0, events);
        let first = vcpu.window;
        let all = first.into_iter().chain(std::iter::from_fn(|| vcpu.next_window()));
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
    fn pattern_repeats_until_its_end() {
        let pattern = |end| OffTimes {
            at: Time::ZERO,
            end: Time::from_ps(end),
            on: Span::from_ps(20),
            off: Span::from_ps(179),
            periods: Periods::Fixed,
            resume: ResumeConfig::default(),
        };
        let all = windows(vec![pattern(400_000_000)]);
        assert_eq!(all.len(), 2_000_000);
        assert_eq!(all.last(), Some(&(Time::from_ps(399_999_820), Time::from_ps(399_999_999))));
        let other = OffTimes::once(Time::from_ps(150), Time::from_ps(230));
        let t = Time::from_ps;
        assert_eq!(windows(vec![pattern(600), other]), [(t(20), t(399)), (t(420), t(599))]);
    }

    #[test]
    fn recorded_pattern_repeats() {
        let (t, s) = (Time::from_ps, Span::from_ps);
        let pairs = [(s(10), s(5)), (s(20), s(0)), (s(3), s(7))];
        let periods = Periods::Recorded(pairs.into(), 0);
        let resume = ResumeConfig::default();
        let times = OffTimes { at: Time::ZERO, end: t(100), on: s(0), off: s(0), periods, resume };
        // One picosecond lies between a period's end and the next one's beginning; a period of no length is none.
        assert_eq!(windows(vec![times]), [(t(10), t(15)), (t(40), t(47)), (t(58), t(63)), (t(88), t(95))]);
    }

    #[test]
    fn packets_at_a_full_ring_are_dropped() {
        let t = Time::from_ps;
        let small = ResumeConfig { ring: 2, packets_first: true };
        let events = [OffTimes { resume: small, ..OffTimes::once(t(1), t(2)) }, OffTimes::once(t(5), t(6))];
        let mut vcpu = Vcpu::new(0, events.to_vec());
        let mut woken = || {
            let _ = vcpu.switch();
            for seq in 0..5 {
                vcpu.receive(|| PendingPacket::Plain(Packet { seq, ..Packet::default() }, Sack::EMPTY));
            }
            let (pending, packets_first) = vcpu.switch();
            (pending.packets.len(), packets_first, vcpu.steal_stats(t(9)).lost_pkt)
        };
        assert_eq!((woken(), woken()), ((2, true, 3), (5, false, 3)), "each as its event says");
    }
}
