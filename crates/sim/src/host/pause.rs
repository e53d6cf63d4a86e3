//! Descheduled virtual machines: a paused host neither sends nor processes what arrives.
//!
//! Modelled: packets that arrive and timers that expire during a pause are handled, in that order of time,
//! when the host resumes, all at that instant (a vCPU that finds its receive ring filled).
//! Not modelled: a receive ring that overflows, the guest's own timekeeping.

use super::wire::{Purpose, Wire};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::time::Time;
use std::collections::VecDeque;

/// Something that waits for the host.
#[derive(Clone, Debug)]
pub(crate) enum Deferred {
    Packet(Packet, Sack),
    Timer(TimerId),
}

/// One host's pauses.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    pub(crate) host: u32,
    /// Beginnings and ends, in order, not overlapping.
    windows: VecDeque<(Time, Time)>,
    pub(crate) paused: bool,
    pub(crate) timer: Timer,
    pub(crate) waiting: Vec<Deferred>,
}

impl Pauses {
    /// `windows` in any order; overlapping ones are joined.
    pub(crate) fn new(host: u32, mut windows: Vec<(Time, Time)>) -> Pauses {
        windows.retain(|w| w.1 > w.0);
        windows.sort_unstable();
        let mut joined: VecDeque<(Time, Time)> = VecDeque::with_capacity(windows.len());
        for (start, end) in windows {
            match joined.back_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push_back((start, end)),
            }
        }
        Pauses { host, windows: joined, paused: false, timer: Timer::new(), waiting: Vec::new() }
    }

    /// Arms the timer for the next change.
    pub(crate) fn arm<W: Wire>(&mut self, wire: &mut W, index: u32) {
        if let Some(&(start, end)) = self.windows.front() {
            let at = if self.paused { end } else { start };
            wire.arm(&mut self.timer, Purpose::Pause.id(index), at);
        }
    }

    /// The time of a change has come; returns what waited if the host resumes.
    pub(crate) fn change(&mut self) -> Vec<Deferred> {
        self.paused = !self.paused;
        if self.paused {
            return Vec::new();
        }
        self.windows.pop_front();
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_windows_are_joined() {
        let t = Time::from_ps;
        let p = Pauses::new(0, vec![(t(10), t(20)), (t(5), t(12)), (t(30), t(30)), (t(40), t(50))]);
        assert_eq!(p.windows, [(t(5), t(20)), (t(40), t(50))]);
    }
}
