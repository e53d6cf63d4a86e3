//! Effects of acknowledgments and losses: round trips, marks, windows, and frames to send again (RFC 9002).

use super::state::Connection;
use crate::congestion::{Acked, Advice};
use crate::error::{TransportError, code};
use crate::event::Event;
use crate::paths::{Path, SchedulerView};
use crate::qlog;
use crate::recovery::sent::{Control, Frames, Sent, SentPacket};
use crate::recovery::space::SpaceId;
use crate::wire::ack::Ack;
use vmcc_multipath::may_suppress;
use vmcc_streams::SentRange;
use vmcc_units::time::{Span, Time};

/// Losses over this many probe timeouts are persistent congestion (RFC 9002 section 7.6.1).
const PERSISTENT_CONGESTION_THRESHOLD: u64 = 3;
/// Capacity of the scratch buffer, in packets, that an idle connection keeps.
const IDLE_SCRATCH_CAPACITY: usize = 16;

impl Connection {
    pub(super) fn on_ack(&mut self, now: Time, space: SpaceId, ack: &Ack<'_>) -> Result<(), TransportError> {
        let slot = space.slot();
        let Some(own) = self.space_mut(space) else { return Ok(()) };
        if ack.largest >= own.sent.next() {
            return Err(TransportError::violation("a packet was acknowledged that was not sent"));
        }
        let raises = own.largest_acked.is_none_or(|largest| ack.largest > largest);
        own.largest_acked = own.largest_acked.max(Some(ack.largest));
        self.undo_spurious(now, space, ack);
        let mut taken = std::mem::take(&mut self.taken);
        let Some(own) = self.space_mut(space) else { return Ok(()) };
        for range in ack.ranges() {
            let low = (*range.start()).max(own.sent.lowest());
            taken.extend((low..=*range.end()).rev().filter_map(|pn| Some((pn, own.sent.take(pn)?))));
            if *range.start() <= own.sent.lowest() {
                break;
            }
        }
        own.sent.trim();
        if taken.is_empty() {
            self.taken = taken;
            return Ok(());
        }
        let acked = self.account(now, space, slot, ack, raises, &taken);
        for (_, packet) in taken.drain(..) {
            self.paths[slot].mtu.on_arrived(packet.size);
            if packet.mtu_probe && self.paths[slot].mtu.on_probe_acked(now, packet.size) {
                self.on_mtu(slot);
            }
            self.on_frames_acked(space, packet.frames);
        }
        // What a burst took is not kept by a connection that has become idle.
        if taken.capacity() <= IDLE_SCRATCH_CAPACITY
            || self.paths.iter().any(|path| path.space.sent.eliciting() > 0)
        {
            self.taken = taken;
        }
        self.handshake.on_acked(space);
        if matches!(space, SpaceId::Path(_)) {
            // The peer reads such packets once its handshake is complete (RFC 9001 section 4.1.2).
            self.confirm();
        }
        self.on_responsive(now, slot);
        self.find_losses(now, space, Some(acked));
        if acked.rtt_us > 0 {
            self.check_on_time(now, slot);
        }
        Ok(())
    }

    /// Packets that were declared lost and arrive after all were late: later ones are awaited for longer, and the window gets back what it
    /// lost if no packet of the reduction was really lost.
    fn undo_spurious(&mut self, now: Time, space: SpaceId, ack: &Ack<'_>) {
        let slot = space.slot();
        let rtt = self.paths[slot].loss_rtt();
        let Some(own) = self.space_mut(space) else { return };
        let spurious = own.reordering.take_spurious(now, rtt, ack);
        if spurious.is_empty() {
            return;
        }
        let at = self.paths[slot].cc_context(now, slot, false);
        for declared_at in spurious {
            self.windows.on_spurious_loss(&at, declared_at);
        }
        self.paths.pace(&self.windows, slot);
    }

    /// Figures of newly acknowledged packets: bytes, marks, round trip.
    fn account(
        &mut self,
        now: Time,
        space: SpaceId,
        slot: usize,
        ack: &Ack<'_>,
        raises: bool,
        taken: &[(u64, SentPacket)],
    ) -> Acked {
        let mut acked = Acked::default();
        let (mut ect, mut without, mut eliciting, mut newest) = (0, 0, false, Time::ZERO);
        let mut out = (0, 0);
        let mut largest = None;
        for (pn, packet) in taken {
            acked.bytes += u64::from(packet.size);
            acked.packets += u32::from(packet.size > 0);
            out = (out.0 + u64::from(packet.in_flight() > 0), out.1 + packet.in_flight());
            ect += u64::from(packet.ect);
            without += u64::from(!packet.ect && packet.size > 0 && !packet.mtu_probe);
            eliciting |= packet.eliciting;
            newest = newest.max(packet.sent);
            largest = if *pn == ack.largest { Some(packet.sent) } else { largest };
        }
        acked.newest = newest;
        let delay = match space {
            SpaceId::Path(_) if self.handshake.is_peer_known() => {
                let us = ack.delay.saturating_mul(1 << self.handshake.peer().ack_delay_exponent);
                Span::from_us(us.min(1 << 40)).min(self.handshake.peer_ack_delay())
            }
            _ => Span::ZERO,
        };
        self.windows.free(slot, out.0, out.1);
        let path = &mut self.paths[slot];
        path.acked_packets += u64::from(acked.packets);
        if let Some(sent) = largest.filter(|_| eliciting) {
            path.on_rtt(now, now.since(sent), delay);
            acked.rtt_us = (path.latest_rtt.us() as u32).max(1);
        }
        let before = match space {
            SpaceId::Path(_) => self.paths[slot].space.ecn,
            _ => self.handshake.level(space).map_or(Default::default(), |level| level.space.ecn),
        };
        let own = &mut self.paths[slot].ecn;
        let marked = match raises {
            true => Some(own.on_ack(&before, ack.ecn, ect)),
            false => own.on_late_ack(&before, ack.ecn),
        };
        if let Some(marked) = marked {
            acked.marked = u32::try_from(marked).unwrap_or(u32::MAX).min(acked.packets);
            self.stats.ecn_ce += u64::from(acked.marked);
            self.paths[slot].marked_packets += u64::from(acked.marked);
            if raises {
                self.check_marks(now, slot, ect, marked);
            }
            if let (Some(own), Some(told)) = (self.space_mut(space), ack.ecn) {
                own.ecn = told;
            }
        }
        if self.paths[slot].ecn.on_arrived_without(without) {
            self.on_false_marks(now, slot);
        }
        // Of all paths the slowest says how late a packet may be (multipath section 2.5).
        let until = now + self.longest_pto().times(PERSISTENT_CONGESTION_THRESHOLD);
        if let (SpaceId::Path(_), Some(keys)) = (space, self.handshake.one_rtt_mut()) {
            keys.on_acked(newest, until);
        }
        acked
    }

    /// A round trip was measured: ends the lateness of a path whose round trips are usual again.
    fn check_on_time(&mut self, now: Time, slot: usize) {
        if !self.paths[slot].lateness.is_late() {
            return;
        }
        // Without another path it carries data whether it is late or not.
        let limit = self.paths.on_time_limit(slot).unwrap_or(Span::MAX);
        let path = &mut self.paths[slot];
        if path.lateness.on_sample(now, path.latest_rtt, limit) {
            let path = path.id;
            self.note(now, path, "the path is on time");
        }
    }

    fn check_marks(&mut self, now: Time, slot: usize, ect: u64, marked: u64) {
        let path = &mut self.paths[slot];
        let (id, rtt) = (path.id, path.srtt());
        if path.ecn.on_marks(now, rtt, ect, marked) {
            self.note(now, id, "every packet is marked: ECN is off to see whether packets are lost then");
        }
    }

    /// Starts the window over: marks that mean nothing have reduced it.
    fn on_false_marks(&mut self, now: Time, slot: usize) {
        let id = self.paths[slot].id;
        self.note(now, id, "marks mean nothing: ECN stays off");
        self.windows.restart(slot, now);
        self.begin_window(slot, now);
        self.paths.pace(&self.windows, slot);
    }

    fn on_frames_acked(&mut self, space: SpaceId, frames: Frames) {
        for frame in frames {
            match frame {
                Sent::Stream(SentRange { id, range, fin }) => {
                    self.paths[space.slot()].payload_out += range.end - range.start;
                    self.streams.on_acked(id, range, fin);
                }
                Sent::Ack { path, largest } => {
                    if let Some(slot) = self.paths.slot_of(path) {
                        self.paths[slot].space.received.on_ack_acked(largest);
                    }
                }
                Sent::Control(Control::Stream(vmcc_streams::Control::ResetStream(id))) => {
                    self.streams.on_reset_acked(id)
                }
                Sent::Crypto(range) => {
                    if let Some(buffer) = self.handshake.crypto_mut(space) {
                        buffer.on_acked(range);
                    }
                }
                Sent::Control(_) | Sent::Once => {}
            }
        }
    }

    /// The path answers: resets its probe timeouts, and revives it if it was suspect.
    fn on_responsive(&mut self, now: Time, slot: usize) {
        let path = &mut self.paths[slot];
        path.probes = 0;
        // A server that may not answer yet is not probed ever faster (RFC 9002 section 6.2.1).
        if self.handshake.is_peer_validated() {
            path.pto_count = 0;
        }
        if path.failed {
            path.failed = false;
            let path = path.id;
            self.paths.on_revived(now, slot);
            self.windows.set_silent(slot, false);
            self.note(now, path, "the path answers again");
            self.events.push_back(Event::PathRevived { path });
            self.reinject_failed();
        }
    }

    /// Looks for lost packets, and tells the window what an acknowledgment and they have brought.
    pub(super) fn find_losses(&mut self, now: Time, space: SpaceId, acked: Option<Acked>) {
        let slot = space.slot();
        let (rtt, min_rtt) = (self.paths[slot].loss_rtt(), self.paths[slot].rtt.min_rtt);
        let mut lost = std::mem::take(&mut self.taken);
        if let Some(own) = self.space_mut(space) {
            own.detect_lost(now, rtt, min_rtt, &mut lost);
        }
        self.log_lost(now, space, slot, &lost);
        let path = &mut self.paths[slot];
        let period = persistent_congestion_period(&lost, path.first_rtt_at);
        let (mut newest, mut out, mut lost_packets) = (None, (0, 0), 0);
        for (_, packet) in &lost {
            out = (out.0 + u64::from(packet.in_flight() > 0), out.1 + packet.in_flight());
            if packet.ect || (packet.size > 0 && !packet.mtu_probe) {
                path.ecn.on_lost(packet.ect);
            }
            if packet.mtu_probe {
                path.mtu.on_probe_lost(now, packet.size);
            } else if packet.size > 0 {
                path.lost_packets += 1;
                path.lateness.on_loss(now);
                lost_packets += 1;
                newest = newest.max(Some(packet.sent));
            }
        }
        let large = lost.iter().filter(|(_, packet)| !packet.mtu_probe).map(|(_, packet)| packet.size).max();
        let shrunk = path.mtu.on_lost(large.unwrap_or(0));
        self.windows.free(slot, out.0, out.1);
        if shrunk {
            self.on_mtu(slot);
        }
        for (_, packet) in lost.drain(..) {
            if !packet.reinjected {
                self.on_frames_lost(space, packet.frames);
            }
        }
        self.taken = lost;
        let waiting = self.has_data();
        let ack_delay = self.handshake.peer_ack_delay();
        let path = &mut self.paths[slot];
        let long = path.pto(ack_delay).times(PERSISTENT_CONGESTION_THRESHOLD);
        let at = path.cc_context(now, slot, waiting);
        let advice = match (acked, newest) {
            (Some(acked), lost) => self.windows.on_ack(&at, &Acked { lost, lost_packets, ..acked }),
            (None, Some(newest)) => {
                self.windows.on_lost(&at, newest, lost_packets);
                Advice::default()
            }
            (None, None) => return,
        };
        if let Some(period) = period {
            self.windows.on_all_lost(&at, period, long);
        }
        self.paths.pace(&self.windows, slot);
        self.log_metrics(now, slot);
        self.apply_advice(now, slot, advice);
    }

    fn log_lost(&mut self, now: Time, space: SpaceId, slot: usize, lost: &[(u64, SentPacket)]) {
        let Some(own) = self.space_mut(space) else { return };
        let limits = own.largest_acked.zip(own.reordering.packet_threshold());
        if let Some(log) = &mut self.log {
            let path = self.paths[slot].id;
            for &(number, SentPacket { mtu_probe, .. }) in lost {
                let reordered = limits.is_some_and(|(acked, packets)| number + packets <= acked);
                log.lost(now, path, &qlog::Lost { space, number, mtu_probe, reordered });
            }
        }
    }

    pub(super) fn log_metrics(&mut self, now: Time, slot: usize) {
        if let Some(log) = &mut self.log {
            let (path, windows, withheld) = (&self.paths[slot], &self.windows, self.paths.is_withheld(slot));
            log.metrics(now, &SchedulerView { path, windows, slot, withheld });
        }
    }

    /// Applies the algorithm's requests to the connection.
    fn apply_advice(&mut self, now: Time, slot: usize, advice: Advice) {
        match advice.only {
            Some(true) => self.selector.only = Some(slot as u8),
            Some(false) => self.selector.only = None,
            None => {}
        }
        let kept = advice.close_for.filter(|&kept| kept != slot);
        let in_use = |path: &Path| path.is_responsive() && !path.is_backup();
        let others = self.paths.iter().enumerate().filter(|(i, path)| *i != slot && in_use(path));
        // Of two that are one and of which one is silent, the other is all there is.
        if kept.is_some_and(|kept| self.paths.get(kept).is_some_and(Path::is_responsive))
            && may_suppress(others.count(), self.config.min_paths)
        {
            let path = self.paths[slot].id;
            self.abandon(now, path, code::PATH_RESOURCES);
        }
    }

    /// Queues a lost packet's frames to be sent again, on whichever path comes first.
    pub(super) fn on_frames_lost(&mut self, space: SpaceId, frames: Frames) {
        for frame in frames {
            match frame {
                Sent::Stream(SentRange { id, range, fin }) => {
                    self.streams.on_lost(id, range, fin);
                    self.repairs = true;
                }
                Sent::Crypto(range) => {
                    if let Some(buffer) = self.handshake.crypto_mut(space) {
                        buffer.on_lost(range);
                    }
                }
                Sent::Control(control) => self.queue(control),
                Sent::Ack { .. } | Sent::Once => {}
            }
        }
    }
}

/// The longest time, from one packet to another that both asked for an acknowledgment, in which all that was sent is lost. Whatever was sent
/// before there was a round trip to measure by does not count (RFC 9002 section 7.6.2).
fn persistent_congestion_period(lost: &[(u64, SentPacket)], first_rtt_at: Time) -> Option<(Time, Time)> {
    let (mut longest, mut begun, mut before) = (None::<(Time, Time)>, None, None);
    for (number, packet) in lost {
        // Of numbers that are missing the packets have arrived.
        if before.is_some_and(|before| before + 1 != *number) {
            begun = None;
        }
        before = Some(*number);
        if packet.eliciting && !packet.mtu_probe && packet.sent > first_rtt_at {
            let from = *begun.get_or_insert(packet.sent);
            if longest.is_none_or(|(a, b)| packet.sent.since(from) >= b.since(a)) {
                longest = Some((from, packet.sent));
            }
        }
    }
    longest
}
