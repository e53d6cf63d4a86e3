//! Silent carriers, ends of carriers and of the session, timers.

use super::{Phase, Session};
use crate::carrier::{Control, Sent, State};
use crate::error::{CarrierError, SessionError};
use crate::event::{CarrierId, Event};
use crate::wire::MAX_ACKS;
use vmcc_units::time::{Span, Time};

impl Session {
    /// A carrier's connection has ended, by EOF or an error.
    pub fn carrier_closed(&mut self, now: Time, carrier: CarrierId, reason: &str) {
        if let Some(slot) = self.slot_of(carrier) {
            self.end_carrier(now, slot, CarrierError::Ended(reason.to_owned()));
        }
    }

    /// Gives a carrier up; its data leave on others. The caller aborts the connection.
    pub fn abandon(&mut self, now: Time, carrier: CarrierId) {
        if let Some(slot) = self.slot_of(carrier) {
            self.end_carrier(now, slot, CarrierError::Local);
        }
    }

    /// The time at which [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Closed {
            return None;
        }
        let orphaned = self.orphaned_at.map(|at| at + self.config.session_timeout);
        let slots = 0..self.carriers.len();
        slots.filter_map(|slot| self.carrier_timeout(slot)).chain(orphaned).min()
    }

    fn carrier_timeout(&self, slot: usize) -> Option<Time> {
        let carrier = &self.carriers[slot];
        match carrier.state {
            State::Closed => None,
            State::Greeting => Some(carrier.since + self.config.greeting_timeout),
            State::Open => {
                let silent = self.silent_at(slot);
                let abort = carrier.suspect_since.map(|since| since + self.config.abort_timeout);
                let late = self.late_at(slot);
                [carrier.ack_due, silent, late, abort, self.dead_at(slot), self.ping_at(slot)]
                    .into_iter()
                    .flatten()
                    .min()
            }
        }
    }

    /// The time at which a carrier without progress becomes suspect: only one that others can replace.
    fn silent_at(&self, slot: usize) -> Option<Time> {
        let carrier = &self.carriers[slot];
        let is_waiting = carrier.is_usable() && !carrier.outstanding.is_empty();
        (is_waiting && self.has_other_usable(slot)).then(|| carrier.silent_at())
    }

    /// The time at which a carrier without progress is given up even if it is the last: its peer is gone.
    fn dead_at(&self, slot: usize) -> Option<Time> {
        let carrier = &self.carriers[slot];
        let is_waiting = carrier.is_open() && !carrier.outstanding.is_empty();
        is_waiting.then(|| carrier.progress_at + self.config.session_timeout)
    }

    /// The time at which an idle carrier is probed.
    pub(super) fn ping_at(&self, slot: usize) -> Option<Time> {
        let carrier = &self.carriers[slot];
        let is_idle = carrier.is_usable() && carrier.outstanding.is_empty();
        let keep_alive = (self.config.keep_alive > Span::ZERO).then_some(self.config.keep_alive);
        let interval = self.late_probe_interval(slot).into_iter().chain(keep_alive).min();
        interval.filter(|_| is_idle).map(|interval| carrier.last_sent + interval)
    }

    /// Does what is due. [`poll_transmit`](Self::poll_transmit) follows.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.phase == Phase::Closed {
            return;
        }
        for slot in 0..self.carriers.len() {
            let carrier = &mut self.carriers[slot];
            if carrier.ack_due.is_some_and(|due| due <= now) {
                (carrier.ack_due, carrier.ack_now) = (None, true);
            }
            let carrier = &self.carriers[slot];
            let is_past = |since: Time, timeout: Span| now >= since + timeout;
            match (carrier.state, carrier.suspect_since) {
                (State::Greeting, _) if is_past(carrier.since, self.config.greeting_timeout) => {
                    self.end_carrier(now, slot, CarrierError::GreetingTimeout);
                }
                (State::Open, Some(since)) if is_past(since, self.config.abort_timeout) => {
                    let number = carrier.number;
                    self.end_carrier(now, slot, CarrierError::Silent);
                    self.queue(Control::Abandon(number));
                }
                (State::Open, _) if self.dead_at(slot).is_some_and(|at| at <= now) => {
                    self.end_carrier(now, slot, CarrierError::Silent);
                }
                (State::Open, None) if self.silent_at(slot).is_some_and(|at| at <= now) => {
                    self.suspect_if_silent(now, slot);
                }
                (State::Open, None) if self.late_at(slot).is_some_and(|at| at <= now) => {
                    self.on_late(now, slot);
                }
                _ => {}
            }
        }
        if self.orphaned_at.is_some_and(|at| now >= at + self.config.session_timeout) {
            self.end(SessionError::TimedOut);
        }
    }

    fn has_other_usable(&self, slot: usize) -> bool {
        self.carriers.iter().enumerate().any(|(i, other)| i != slot && other.is_usable())
    }

    pub(super) fn has_open_carrier(&self) -> bool {
        self.carriers.iter().any(|carrier| carrier.state == State::Open)
    }

    /// Suspects a carrier that owes acknowledgments, if another can carry its data.
    pub(super) fn suspect_if_silent(&mut self, now: Time, slot: usize) {
        let carrier = &mut self.carriers[slot];
        if !carrier.is_usable() || carrier.outstanding.is_empty() || !self.has_other_usable(slot) {
            return;
        }
        let carrier = &mut self.carriers[slot];
        carrier.suspect_since = Some(now);
        let number = carrier.number;
        self.stats.suspicions += 1;
        self.refresh(slot);
        self.return_records(slot, u64::MAX);
        self.report_again();
        self.events.push_back(Event::CarrierSuspected { carrier: number });
    }

    /// A suspect carrier has acknowledged something. It is late until its round trips are usual.
    pub(super) fn revive(&mut self, now: Time, slot: usize) {
        let carrier = &mut self.carriers[slot];
        if carrier.suspect_since.take().is_some() {
            carrier.lateness.begin(now);
            let number = carrier.number;
            self.refresh(slot);
            self.events.push_back(Event::CarrierRevived { carrier: number });
        }
    }

    /// Returns a carrier's outstanding records to the session, the oldest first, to leave on others: of stream data this many bytes at
    /// most, or a record more. The bytes that returned.
    pub(super) fn return_records(&mut self, slot: usize, most: u64) -> u64 {
        let Session { carriers, streams, stats, .. } = self;
        let (mut controls, mut bytes) = (Vec::new(), 0);
        for record in carriers[slot].outstanding.iter_mut().filter(|record| !record.returned) {
            if bytes >= most {
                break;
            }
            record.returned = true;
            for frame in &record.frames {
                match frame {
                    Sent::Range(sent) => {
                        bytes += sent.range.end - sent.range.start;
                        streams.on_lost(sent.id, sent.range.clone(), sent.fin);
                    }
                    Sent::Control(control) => controls.push(*control),
                }
            }
        }
        stats.returned_bytes += bytes;
        controls.into_iter().for_each(|control| self.queue(control));
        bytes
    }

    /// Acknowledgments may have been lost with a carrier: all counts are sent once more.
    fn report_again(&mut self) {
        for carrier in self.carriers.iter_mut().filter(|carrier| carrier.is_open() && carrier.received > 0) {
            carrier.reported = 0;
            carrier.ack_now = true;
        }
    }

    pub(super) fn end_carrier(&mut self, now: Time, slot: usize, reason: CarrierError) {
        let carrier = &mut self.carriers[slot];
        let (number, state) = (carrier.number, carrier.state);
        if state == State::Closed {
            return;
        }
        carrier.state = State::Closed;
        carrier.suspect_since = None;
        carrier.urgent = Vec::new();
        if state == State::Open && self.final_acks.len() < MAX_ACKS / 2 {
            self.final_acks.push((number, carrier.received));
        }
        self.refresh(slot);
        self.return_records(slot, u64::MAX);
        self.carriers[slot].outstanding.clear();
        self.report_again();
        self.events.push_back(Event::CarrierClosed { carrier: number, reason: reason.clone() });
        if self.phase == Phase::Connecting {
            self.end(SessionError::NotConnected(reason));
        }
        // Those that are left are better than none.
        if !self.carriers.iter().any(|carrier| carrier.is_usable()) {
            (0..self.carriers.len()).for_each(|slot| self.revive(now, slot));
        }
        let is_orphan = self.carriers.iter().all(|carrier| carrier.state == State::Closed);
        self.orphaned_at = is_orphan.then_some(now);
    }

    /// Number of carriers that have not ended.
    pub fn carrier_count(&self) -> usize {
        self.carriers.iter().filter(|carrier| carrier.state != State::Closed).count()
    }

    /// Numbers of carriers that have not ended.
    pub fn carrier_ids(&self) -> impl Iterator<Item = CarrierId> {
        self.carriers.iter().filter(|carrier| carrier.state != State::Closed).map(|carrier| carrier.number)
    }
}
