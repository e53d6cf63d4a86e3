//! Records to send: acknowledgments first, then limits, then data where the scheduler says, then late records again.

use super::{Phase, Session};
use crate::carrier::{Carrier, Control, Sent, State};
use crate::event::CarrierId;
use crate::record::{MAX_BODY, RecordBuilder};
use crate::wire::{self, MAX_ACKS, MAX_STREAM_HEADER};
use vmcc_multipath::{Demand, PathView, Paths, Scheduler};
use vmcc_streams::SentRange;
use vmcc_streams::frame::put;
use vmcc_units::time::Time;

/// Bytes that a control frame takes at most: a type and three numbers, or an address.
const MAX_CONTROL: usize = 32;

impl Session {
    /// Appends the next record to `out`: the carrier whose connection it is for; none if there is nothing to send now. To be called
    /// until then, after anything else was called.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<CarrierId> {
        if let Some(carrier) = self.carriers.iter_mut().find(|carrier| !carrier.urgent.is_empty()) {
            carrier.on_written(carrier.urgent.len());
            out.append(&mut carrier.urgent);
            return Some(carrier.number);
        }
        if self.phase != Phase::Open {
            return None;
        }
        self.queue_stream_controls();
        self.update_withheld();
        let slot = self
            .transmit_acks(now, out)
            .or_else(|| self.transmit_pings(now, out))
            .or_else(|| self.transmit_controls(now, out))
            .or_else(|| self.transmit_data(now, out))
            .or_else(|| self.transmit_late(now, out))?;
        Some(self.carriers[slot].number)
    }

    fn queue_stream_controls(&mut self) {
        let controls = self.streams.take_controls();
        controls.into_iter().for_each(|control| self.queue(Control::Stream(control)));
    }

    /// The scheduler hears of a change that may have given a carrier room or taken it out of use.
    pub(super) fn refresh(&mut self, slot: usize) {
        self.selector.refresh(slot, &self.carriers[slot]);
    }

    /// The best carrier for small records that must not wait.
    fn control_carrier(&self) -> Option<usize> {
        let usable = |slot: &usize| {
            let carrier = &self.carriers[*slot];
            carrier.is_usable() && !carrier.withheld && carrier.has_control_room()
        };
        (0..self.carriers.len()).filter(usable).min_by_key(|&slot| self.carriers[slot].srtt())
    }

    /// An acknowledgment goes back on the carrier that it is about, which therefore works, unless that has become silent.
    fn transmit_acks(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        let slot = self.carriers.iter().position(|carrier| carrier.is_open() && carrier.ack_now);
        if slot.is_none() && self.final_acks.is_empty() {
            return None;
        }
        let own =
            slot.filter(|&slot| self.carriers[slot].is_usable() && self.carriers[slot].has_control_room());
        let slot = own.or_else(|| self.control_carrier())?;
        self.transmit(now, slot, MAX_BODY, out, |_, _, _, _| {})
    }

    fn transmit_pings(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        let slot = (0..self.carriers.len()).find(|&slot| self.ping_at(slot).is_some_and(|at| at <= now))?;
        self.transmit(now, slot, MAX_BODY, out, |_, _, _, out| put(out, wire::ty::PING, &[]))
    }

    fn transmit_controls(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        while !self.controls.is_empty() {
            let slot = self.control_carrier()?;
            let sent = self.transmit(now, slot, MAX_BODY, out, Session::put_controls);
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    fn put_controls(&mut self, builder: &RecordBuilder, frames: &mut Vec<Sent>, out: &mut Vec<u8>) {
        while builder.room(out) >= MAX_CONTROL
            && let Some(control) = self.controls.pop_front()
        {
            self.queued.remove(&control);
            match control {
                Control::Stream(own) if !self.streams.put_control(own, out) => continue,
                Control::Stream(_) => {}
                Control::Address { added, address } => wire::put_address(out, added, address),
                Control::Abandon(number) => put(out, wire::ty::ABANDON, &[number]),
            }
            frames.push(Sent::Control(control));
        }
    }

    fn transmit_data(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        while self.streams.has_work() {
            if self.awaits_more() {
                return None;
            }
            let (slot, start) = (self.select(now)?, out.len());
            // The rest of a window is used up in one record, and none is smaller than a segment.
            let room = self.carriers[slot].room().max(self.carriers[slot].mss());
            let body = usize::try_from(room).unwrap_or(MAX_BODY).min(MAX_BODY);
            let sent = self.transmit(now, slot, body, out, |session, builder, frames, out| {
                let room = builder.room(out);
                session
                    .streams
                    .put_frames(out, room, true, true, &mut |range| frames.push(Sent::Range(range)));
            });
            if sent.is_some() {
                self.selector.on_sent(&mut self.carriers[slot].next_turn, (out.len() - start) as u64);
                self.copy_to_others(now, slot);
                return sent;
            }
        }
        // Flow control may have stopped the streams just now, which the peer is to hear.
        self.queue_stream_controls();
        self.transmit_controls(now, out)
    }

    /// Returns true while a part of a record would only wait in front of carriers, all of which are blocked: bytes that are written
    /// meanwhile join it.
    fn awaits_more(&self) -> bool {
        let only_backups = self.only_backups();
        let mut taking = self.carriers.iter().filter(|carrier| carrier.takes_data(only_backups)).peekable();
        taking.peek().is_some()
            && taking.all(|carrier| carrier.info.blocked)
            && self.streams.is_remainder(MAX_BODY as u64)
    }

    fn only_backups(&self) -> bool {
        self.carriers.iter().all(|carrier| carrier.backup || !carrier.is_usable())
    }

    fn select(&mut self, now: Time) -> Option<usize> {
        (0..self.carriers.len()).for_each(|slot| self.refresh(slot));
        let (carriers, streams) = (&self.carriers, &self.streams);
        let mss = carriers.iter().map(Carrier::mss).max().unwrap_or(1);
        let demand = || Demand {
            now_us: now.us(),
            mss_bytes: mss,
            window_bytes: streams.credit(),
            backlog_bytes: streams.backlog(),
        };
        self.selector.select(carriers, Paths::NONE, |slot| carriers[slot].srtt_8us(), demand)
    }

    /// Redundant scheduling: the newest record of a carrier leaves on all others with room as well.
    fn copy_to_others(&mut self, now: Time, slot: usize) {
        if self.config.scheduler != Scheduler::Redundant {
            return;
        }
        let Some(record) = self.carriers[slot].outstanding.back() else { return };
        let ranges: Vec<SentRange> = ranges(&record.frames).cloned().collect();
        for other in (0..self.carriers.len()).filter(|&other| other != slot) {
            let carrier = &self.carriers[other];
            if carrier.is_usable() && carrier.room() > 0 {
                let mut copy = Vec::new();
                self.transmit_copy(now, other, &ranges, &mut copy);
                // `transmit` has counted these bytes; they leave with the urgent ones, which counts them again.
                self.carriers[other].bytes_out -= copy.len() as u64;
                self.carriers[other].urgent.append(&mut copy);
            }
        }
    }

    /// Sends late records again on a faster carrier that has nothing else to do. A record is late if it would be acknowledged
    /// earlier over the other carrier although that takes two of its round trips, or if it is overdue.
    fn transmit_late(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        if !self.config.reinject_late {
            return None;
        }
        if self.streams.credit() == 0 {
            self.selector.note_blocked();
        }
        let only_backups = self.only_backups();
        let takes_data = |&slot: &usize| self.carriers[slot].takes_data(only_backups);
        let fast =
            (0..self.carriers.len()).filter(takes_data).min_by_key(|&slot| self.carriers[slot].srtt())?;
        let fast_rtt = self.carriers[fast].rtt.srtt();
        for slow in (0..self.carriers.len()).filter(|&slot| slot != fast) {
            let carrier = &mut self.carriers[slow];
            if !carrier.is_usable() {
                continue;
            }
            carrier.repeated = carrier.repeated.max(carrier.acked);
            let index = usize::try_from(carrier.repeated - carrier.acked).unwrap_or(usize::MAX);
            let Some(record) = carrier.outstanding.get(index) else { continue };
            let expected = record.sent + carrier.rtt.srtt();
            let overdue = record.sent + carrier.rto();
            if expected <= now + fast_rtt.times(2) && overdue > now {
                continue;
            }
            carrier.repeated += 1;
            let ranges: Vec<SentRange> = ranges(&record.frames).cloned().collect();
            if let Some(slot) = self.transmit_copy(now, fast, &ranges, out) {
                return Some(slot);
            }
        }
        None
    }

    /// One record with ranges that another carrier has carried before; none if all of them have arrived.
    fn transmit_copy(
        &mut self,
        now: Time,
        slot: usize,
        ranges: &[SentRange],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        self.transmit(now, slot, MAX_BODY, out, |session, builder, frames, out| {
            for range in ranges {
                let len = usize::try_from(range.range.end - range.range.start).unwrap_or(usize::MAX);
                if len.saturating_add(MAX_STREAM_HEADER) <= builder.room(out)
                    && session.streams.put_copy(range, out)
                {
                    session.stats.repeated_bytes += len as u64;
                    frames.push(Sent::Range(range.clone()));
                }
            }
        })
    }

    /// One record on a carrier: acknowledgments that are pending, then what `put` appends. None if that is nothing.
    fn transmit(
        &mut self,
        now: Time,
        slot: usize,
        body: usize,
        out: &mut Vec<u8>,
        put: impl FnOnce(&mut Session, &RecordBuilder, &mut Vec<Sent>, &mut Vec<u8>),
    ) -> Option<usize> {
        let start = out.len();
        // Acknowledgments are small: they do not take the room of data.
        let counts = self.take_acks();
        let mut acks = Vec::new();
        if !counts.is_empty() {
            wire::put_ack(&mut acks, &counts);
        }
        let builder = RecordBuilder::begin(out, (body + acks.len()).min(MAX_BODY));
        out.extend_from_slice(&acks);
        let before = out.len();
        let mut frames = Vec::new();
        put(self, &builder, &mut frames, out);
        let counted = out.len() > before;
        if !builder.finish(out) {
            return None;
        }
        let carrier = &mut self.carriers[slot];
        carrier.on_written(out.len() - start);
        if counted {
            carrier.on_sent(now, self.config.max_ack_delay, frames);
        }
        self.refresh(slot);
        Some(slot)
    }

    /// Counts that the peer has not been sent yet, of all carriers.
    pub(super) fn take_acks(&mut self) -> Vec<(CarrierId, u64)> {
        let mut counts = std::mem::take(&mut self.final_acks);
        for carrier in self.carriers.iter_mut().filter(|carrier| carrier.state == State::Open) {
            (carrier.ack_due, carrier.ack_now) = (None, false);
            if carrier.received > carrier.reported {
                carrier.reported = carrier.received;
                counts.push((carrier.number, carrier.received));
            }
        }
        counts.truncate(MAX_ACKS);
        counts
    }
}

fn ranges(frames: &[Sent]) -> impl Iterator<Item = &SentRange> {
    frames.iter().filter_map(|frame| match frame {
        Sent::Range(range) => Some(range),
        Sent::Control(_) => None,
    })
}
