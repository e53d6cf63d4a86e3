//! Building of packets: contents, path and time.

use super::content::put_crypto;
use super::packet::Transmit;
use super::state::Connection;
use crate::paths::{PathResponse, Route, SchedulerView, mtu};
use crate::recovery::sent::{Control, Sent};
use crate::recovery::space::SpaceId;
use crate::wire::frame::{self, ty};
use arrayvec::ArrayVec;
use vmcc_cc::MAX_PATHS;
use vmcc_multipath::{Demand, Paths};
use vmcc_units::time::{Span, Time};

/// Packets of acknowledgments alone that are sent before one carries a PING (RFC 9000 section 13.2.4).
const ACKS_PER_PING: u64 = 32;

impl Connection {
    /// Writes what is to leave next into `out`, which is emptied first; none if there is nothing now. To be called until then, after
    /// anything else was called.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        out.clear();
        if self.is_over() {
            return self.transmit_close(now, out);
        }
        if let Err(exhausted) = self.handshake.refresh_keys(now) {
            self.fail(now, exhausted);
            return self.transmit_close(now, out);
        }
        let controls = self.streams.take_controls();
        controls.into_iter().for_each(|control| self.queue(Control::Stream(control)));
        for slot in self.paths.slots() {
            if self.is_urgent(now, slot)
                && let Some(transmit) = self.transmit_one(now, slot, out)
            {
                return Some(transmit);
            }
        }
        self.transmit_data(now, out)
    }

    /// Returns true if something has to leave on a path whatever its window says.
    fn is_urgent(&self, now: Time, slot: usize) -> bool {
        let path = &self.paths[slot];
        if !path.is_live() {
            return false;
        }
        let levels = || self.handshake.is_urgent(now, self.windows.of(slot).has_room());
        path.probes > 0
            || path.response.is_some()
            || path.validation.is_challenge_due(now)
            || (slot == 0 && path.id == 0 && levels())
            || self.acks_due(now, slot)
    }

    /// Returns true if an acknowledgment is due that this path is to carry.
    fn acks_due(&self, now: Time, slot: usize) -> bool {
        self.handshake.one_rtt().is_some()
            && self
                .paths
                .iter()
                .enumerate()
                .any(|(i, other)| other.space.received.is_due(now) && self.ack_carrier(i) == Some(slot))
    }

    /// The path that carries the acknowledgments of another.
    pub(super) fn ack_carrier(&self, of: usize) -> Option<usize> {
        self.paths.ack_carrier(of, self.config.ack_path, self.handshake.peer_ack_delay())
    }

    /// One datagram on a path for what is urgent, with whatever else may leave.
    fn transmit_one(&mut self, now: Time, slot: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        let elsewhere = self.paths[slot].response.filter(|answer| answer.route != self.paths[slot].route);
        if let Some(answer) = elsewhere {
            self.paths[slot].response = None;
            return self.respond_elsewhere(now, slot, answer, out);
        }
        let before = self.paths[slot].route;
        let (len, ect) = self.datagram(now, slot, out)?;
        Some(self.sent(before, len, out.len(), ect))
    }

    /// Sends PATH_RESPONSE along the route that the challenge came by (RFC 9000 section 8.2.2).
    fn respond_elsewhere(
        &mut self,
        now: Time,
        slot: usize,
        answer: PathResponse,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let mut building = self.begin_packet(SpaceId::Path(slot), out, usize::from(mtu::BASE))?;
        frame::put_validation(out, ty::PATH_RESPONSE, answer.data);
        building.frames.push(Sent::Once);
        building.eliciting = true;
        let pad = if answer.padded { usize::from(mtu::BASE) } else { 0 };
        self.finish_packet(now, slot, building, out, pad, false);
        Some(self.sent(answer.route, out.len(), out.len(), false))
    }

    fn sent(&mut self, route: Route, segment: usize, len: usize, ect: bool) -> Transmit {
        self.stats.datagrams_out += len.div_ceil(segment.max(1)) as u64;
        self.stats.bytes_out += len as u64;
        Transmit { route, ect, segment, len }
    }

    /// Data where the scheduler wants it, as many packets in a row as may leave.
    fn transmit_data(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.handshake.one_rtt().is_none() || !self.lifecycle.is_established() {
            return None;
        }
        if self.config.pacing {
            self.paths.update_pacing(now);
        }
        if !self.has_data() {
            let slot = self.paths.slots().find(|&slot| self.may_probe_mtu(now, slot))?;
            return self.transmit_mtu_probe(now, slot, out);
        }
        let slot = self.select_repair_path(now).or_else(|| self.select_path(now))?;
        // There may always be data: it does not keep packets as small as they were at first.
        if self.may_probe_mtu(now, slot) {
            return self.transmit_mtu_probe(now, slot, out);
        }
        let route = self.paths[slot].route;
        let (segment, ect) = self.datagram(now, slot, out)?;
        let mut full = segment >= usize::from(self.paths[slot].mtu.size());
        let mut count = 1;
        while full && count < self.config.max_segments && self.has_data() && self.may_send(now, slot) {
            // ECN is said once for all.
            if self.paths[slot].ecn_now(self.config.ecn) != ect {
                break;
            }
            let Some((len, _)) = self.datagram(now, slot, out) else { break };
            full = len == segment;
            count += 1;
        }
        self.selector.on_sent(&mut self.paths[slot].next_turn, out.len() as u64);
        Some(self.sent(route, segment, out.len(), ect))
    }

    /// Returns true if there are data for which the scheduler decides.
    pub(super) fn has_data(&self) -> bool {
        self.streams.has_work()
            || !self.pending.is_empty()
            || self.datagrams.has_work()
            || self.handshake.has_app_crypto()
    }

    fn may_send(&mut self, now: Time, slot: usize) -> bool {
        let path = &mut self.paths[slot];
        self.windows.of(slot).has_room()
            && path.validation.amplification_room() >= u64::from(path.mtu.size())
            && (!self.config.pacing || path.pacer.ready_at(now, path.mtu.size()) <= now)
    }

    /// The path for data that were lost; none if there are none, or any path may carry them.
    fn repair_path(&self, now: Time) -> Option<usize> {
        if !self.repairs || self.paths.slots().len() < 2 {
            return None;
        }
        let wait = |slot: usize| {
            let path = &self.paths[slot];
            let has_room = self.windows.of(slot).has_room() || path.probes > 0;
            let wait = if has_room { Span::ZERO } else { path.srtt() };
            (!self.is_blocked(slot)).then_some(wait)
        };
        self.paths.repair_path(now, wait)
    }

    /// The path for data that were lost, if it can carry them now.
    fn select_repair_path(&mut self, now: Time) -> Option<usize> {
        self.repairs = self.repairs && self.streams.has_lost();
        let slot = self.repair_path(now)?;
        self.may_send(now, slot).then_some(slot)
    }

    fn select_path(&mut self, now: Time) -> Option<usize> {
        let (paths, windows, streams) = (&self.paths, &self.windows, &self.streams);
        let seen = paths.iter().enumerate().map(|(slot, path)| {
            let withheld = paths.is_withheld(slot);
            SchedulerView { path, windows, slot, withheld }
        });
        let seen: ArrayVec<_, MAX_PATHS> = seen.collect();
        for (slot, path) in seen.iter().enumerate() {
            self.selector.refresh(slot, path);
        }
        let mss = u64::from(paths[0].mtu.size());
        let demand = || Demand {
            now_us: now.us(),
            mss_bytes: mss,
            window_bytes: streams.credit(),
            backlog_bytes: streams.backlog(),
        };
        let slot = self.selector.select(&seen, Paths::NONE, |i| paths[i].rtt.srtt_8us, demand)?;
        (self.paths[slot].validation.amplification_room() >= mss).then_some(slot)
    }

    /// One datagram, from Initial to 1-RTT packets, at the end of `out`: its length, and whether it is to be ECN-capable.
    fn datagram(&mut self, now: Time, slot: usize, out: &mut Vec<u8>) -> Option<(usize, bool)> {
        let start = out.len();
        let path = &self.paths[slot];
        let size = usize::from(path.mtu.size());
        let room = usize::try_from(path.validation.amplification_room()).unwrap_or(usize::MAX);
        if self.is_blocked(slot) {
            return None;
        }
        let ect = path.ecn_now(self.config.ecn);
        let limit = start + size.min(room);
        let may_data = self.windows.of(slot).has_room() || path.probes > 0;
        let probing = self.paths[0].probes > 0;
        let levels: ArrayVec<_, 2> = match path.id {
            0 => SpaceId::LONG
                .into_iter()
                .filter(|&space| self.handshake.has_work(now, space, may_data, probing))
                .collect(),
            _ => ArrayVec::new(),
        };
        let app = self.handshake.one_rtt().is_some() && self.has_app_work(now, slot, may_data);
        // Datagrams with an Initial packet are full (RFC 9000 section 14.1).
        let pad = if levels.contains(&SpaceId::Initial) { start + usize::from(mtu::BASE) } else { 0 };
        for (i, &space) in levels.iter().enumerate() {
            let last = i + 1 == levels.len() && !app;
            self.handshake_packet(now, slot, space, out, limit, if last { pad } else { 0 }, ect);
        }
        if app {
            self.app_packet(now, slot, out, limit, pad, ect, may_data);
        }
        let len = out.len() - start;
        self.paths[slot].validation.on_sent(len as u64);
        (len > 0).then_some((len, ect))
    }

    fn handshake_packet(
        &mut self,
        now: Time,
        slot: usize,
        space: SpaceId,
        out: &mut Vec<u8>,
        limit: usize,
        pad: usize,
        ect: bool,
    ) {
        let Some(mut building) = self.begin_packet(space, out, limit) else { return };
        self.put_ack_of(now, space, &mut building, out);
        let room = building.room(out);
        let probes = self.paths[0].probes > 0;
        if probes && self.handshake.crypto_mut(space).is_some_and(|buffer| !buffer.has_work(u64::MAX)) {
            // The probe before this one may be lost, too.
            self.retransmit(space, 1);
        }
        if let Some(buffer) = self.handshake.crypto_mut(space) {
            put_crypto(buffer, room, &mut building, out);
        }
        if probes && !building.eliciting && building.room(out) > 0 {
            building.ping(out);
        }
        if !building.has_frames(out) && pad == 0 {
            self.drop_packet(&building, out);
            return;
        }
        self.finish_packet(now, slot, building, out, pad, ect);
        if space == SpaceId::Handshake && self.handshake.is_client() {
            self.discard(SpaceId::Initial);
        }
    }

    /// Returns true if a packet with a short header has something to carry on a path.
    fn has_app_work(&self, now: Time, slot: usize, may_data: bool) -> bool {
        let path = &self.paths[slot];
        let established = self.lifecycle.is_established();
        path.response.is_some()
            || path.validation.is_challenge_due(now)
            || self.acks_due(now, slot)
            || (established && path.probes > 0)
            || (established && may_data && path.is_open() && self.has_data())
    }

    fn app_packet(
        &mut self,
        now: Time,
        slot: usize,
        out: &mut Vec<u8>,
        limit: usize,
        mut pad: usize,
        ect: bool,
        may_data: bool,
    ) {
        let Some(mut building) = self.begin_packet(SpaceId::Path(slot), out, limit) else { return };
        if self.put_validation(now, slot, &mut building, out) {
            pad = pad.max(limit.min(building.start() + usize::from(mtu::BASE)));
        }
        // Those that are not due yet ride along with data only: a packet of acknowledgments that brought those of every path would
        // have each path's packets leave singly, and so lose less at a full queue than a TCP connection with an ACK for every second.
        let with_data = may_data && self.has_data();
        for other in self.paths.slots() {
            let received = &self.paths[other].space.received;
            let rides = received.is_due(now) || with_data && received.has_pending_ack();
            if rides && self.ack_carrier(other) == Some(slot) {
                self.put_ack_of(now, SpaceId::Path(other), &mut building, out);
            }
        }
        // What a silent path would carry might never be missed, and what a late one carries holds up the rest.
        let withheld = self.paths.is_withheld(slot);
        if may_data && self.lifecycle.is_established() && self.paths[slot].is_open() && !withheld {
            let repeats = self.repair_path(now).is_none_or(|path| path == slot);
            let room = building.room(out);
            if let Some(buffer) = self.handshake.crypto_mut(SpaceId::Path(slot)) {
                put_crypto(buffer, room, &mut building, out);
            }
            self.put_controls(slot, &mut building, out);
            self.put_datagrams(now, &mut building, out);
            let room = building.room(out);
            if room > 0
                && self.streams.put_frames(out, room, pad == 0, repeats, &mut |range| {
                    building.frames.push(Sent::Stream(range));
                })
            {
                building.eliciting = true;
                building.to_end = true;
            }
        }
        // Packets of acknowledgments alone are never acknowledged: now and then one asks (RFC 9000 section 13.2.4).
        let sent = &self.paths[slot].space.sent;
        let unanswered = sent.eliciting() == 0 && sent.next() - sent.lowest() >= ACKS_PER_PING;
        let asks = self.paths[slot].probes > 0
            || (unanswered && self.handshake.is_confirmed() && building.has_frames(out));
        if asks && !building.eliciting && building.room(out) > 0 {
            building.ping(out);
        }
        if !building.has_frames(out) {
            self.drop_packet(&building, out);
            return;
        }
        self.finish_packet(now, slot, building, out, pad, ect);
    }

    /// Returns true if a probe for larger packets is due.
    fn may_probe_mtu(&mut self, now: Time, slot: usize) -> bool {
        let path = &mut self.paths[slot];
        let ready = self.handshake.is_confirmed() && path.is_responsive() && path.validation.is_validated();
        ready && self.windows.of(slot).has_room() && path.mtu.probe(now).is_some()
    }

    /// A padded PING of that size.
    fn transmit_mtu_probe(&mut self, now: Time, slot: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        let size = self.paths[slot].mtu.probe(now)?;
        let route = self.paths[slot].route;
        let mut building = self.begin_packet(SpaceId::Path(slot), out, usize::from(size))?;
        building.ping(out);
        building.mtu_probe = true;
        self.paths[slot].mtu.on_probe_sent(size);
        self.finish_packet(now, slot, building, out, usize::from(size), false);
        Some(self.sent(route, out.len(), out.len(), false))
    }
}
