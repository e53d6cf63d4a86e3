//! Descheduled virtual machines: a paused host neither sends nor processes what arrives.
//!
//! Modelled: packets that arrive and timers that expire during a pause are handled, in that order of time,
//! when the host resumes, all at that instant (a vCPU that finds its receive ring filled).
//! Not modelled: a receive ring that overflows, the guest's own timekeeping.

use super::{Purpose, Wire};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::traffic::exponential;
use hdrhistogram::Histogram;

/// Something that waits for the host.
#[derive(Clone, Debug)]
pub(crate) enum Deferred {
    Packet(Packet, Sack),
    Payload(Packet, Box<[u8]>),
    Timer(TimerId),
}

/// When one event keeps a host off: a pattern that begins with an on period. Windows are made as they are reached: a long run
/// has millions.
#[derive(Clone, Debug)]
pub(crate) struct OffTimes {
    /// From when.
    pub(crate) at: Time,
    /// To when.
    pub(crate) end: Time,
    /// How long the host runs.
    pub(crate) on: Span,
    /// How long it does not.
    pub(crate) off: Span,
    /// Draws the lengths, which are exponential means then.
    pub(crate) random: Option<Stream>,
}

impl OffTimes {
    /// Off from `start` to `end`.
    #[cfg(test)]
    pub(crate) fn once(start: Time, end: Time) -> OffTimes {
        OffTimes { at: start, end, on: Span::ZERO, off: end.since(start), random: None }
    }

    fn length(&mut self, mean: Span) -> Span {
        match &mut self.random {
            Some(stream) => Span::from_ps(exponential(stream, mean.ps() as f64) as u64),
            None => mean,
        }
    }
}

impl Iterator for OffTimes {
    type Item = (Time, Time);

    /// Beginning and end of the next window that is not empty.
    fn next(&mut self) -> Option<(Time, Time)> {
        while self.at < self.end {
            let from = self.at + self.length(self.on);
            let to = from + self.length(self.off);
            self.at = to + Span::from_ps(1);
            if from < to.min(self.end) {
                return Some((from, to.min(self.end)));
            }
        }
        None
    }
}

/// How long a host was off, pause by pause.
#[derive(Clone, Debug)]
pub(crate) struct Absences {
    pub(crate) host: u32,
    pub(crate) total: Span,
    /// In nanoseconds, to 1 %.
    pub(crate) lengths: Histogram<u64>,
}

impl Absences {
    fn new(host: u32) -> Absences {
        // The precision is a constant that the constructor accepts; it grows with the lengths.
        let lengths = Histogram::new(2).expect("a valid precision");
        Absences { host, total: Span::ZERO, lengths }
    }

    fn add(&mut self, length: Span) {
        self.total += length;
        // It grows as it must.
        let _ = self.lengths.record(length.ns());
    }
}

/// One host's pauses.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    pub(crate) host: u32,
    /// The next window of each event, and what comes after it.
    events: Vec<(Option<(Time, Time)>, OffTimes)>,
    /// The window that is on or comes next.
    window: Option<(Time, Time)>,
    pub(crate) paused: bool,
    pub(crate) timer: Timer,
    pub(crate) waiting: Vec<Deferred>,
    absences: Absences,
}

impl Pauses {
    /// Windows that overlap are joined.
    pub(crate) fn new(host: u32, events: Vec<OffTimes>) -> Pauses {
        let events = events.into_iter().map(|mut times| (times.next(), times)).collect();
        let (timer, waiting) = (Timer::new(), Vec::new());
        let absences = Absences::new(host);
        let mut pauses = Pauses { host, events, window: None, paused: false, timer, waiting, absences };
        pauses.window = pauses.next_window();
        pauses
    }

    fn next_window(&mut self) -> Option<(Time, Time)> {
        let (start, mut end) = self.events.iter().filter_map(|(next, _)| *next).min()?;
        let within = |end: Time| {
            move |(next, _): &&mut (Option<(Time, Time)>, OffTimes)| next.is_some_and(|n| n.0 <= end)
        };
        while let Some((next, times)) = self.events.iter_mut().find(within(end)) {
            end = next.map_or(end, |n| n.1.max(end));
            *next = times.next();
        }
        Some((start, end))
    }

    /// Arms the timer for the next change.
    pub(crate) fn arm<W: Wire>(&mut self, wire: &mut W, index: u32) {
        if let Some((start, end)) = self.window {
            let at = if self.paused { end } else { start };
            wire.arm(&mut self.timer, Purpose::PAUSE.id(index), at);
        }
    }

    /// The time of a change has come; returns what waited if the host resumes.
    pub(crate) fn change(&mut self) -> Vec<Deferred> {
        self.paused = !self.paused;
        if self.paused {
            return Vec::new();
        }
        if let Some((start, end)) = self.window {
            self.absences.add(end.since(start));
        }
        self.window = self.next_window();
        std::mem::take(&mut self.waiting)
    }

    /// How long the host was off until `now`.
    pub(crate) fn absences(&self, now: Time) -> Absences {
        let mut all = self.absences.clone();
        if let Some((start, _)) = self.window.filter(|(start, _)| self.paused && *start < now) {
            all.add(now.since(start));
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
        first.into_iter().chain(std::iter::from_fn(|| pauses.next_window())).collect()
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
            random: None,
        };
        let all = windows(vec![pattern(400_000_000)]);
        assert_eq!(all.len(), 2_000_000);
        assert_eq!(all.last(), Some(&(Time::from_ps(399_999_820), Time::from_ps(399_999_999))));
        let other = OffTimes::once(Time::from_ps(150), Time::from_ps(230));
        let t = Time::from_ps;
        assert_eq!(windows(vec![pattern(600), other]), [(t(20), t(399)), (t(420), t(599))]);
    }
}
