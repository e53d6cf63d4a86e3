//! Timers: losses, probes, silence, acknowledgments, the end.

use super::state::Connection;
use crate::error::{ConnectionError, code};
use crate::event::Event;
use crate::paths::{PathState, Route, mtu};
use crate::recovery::sent::Frames;
use crate::recovery::space::{Space, SpaceId};
use vmcc_units::time::{Span, Time};

/// Smallest datagram in bytes that is worth sending within the anti-amplification limit.
const MIN_DATAGRAM: u16 = 80;
/// Consecutive probe timeouts after which the path MTU search restarts (black hole detection, RFC 8899 section 4.3).
const BLACK_HOLE_PTOS: u32 = 3;
/// Packets that a probe timeout sends (RFC 9002 section 6.2.4).
const PROBES_PER_PTO: u8 = 2;
/// Packets on every path come back for this time before a connection ends: a reloaded firewall may refuse some.
const REFUSED_TIMEOUT: Span = Span::from_ms(500);

impl Connection {
    /// Time of the next [`handle_timeout`](Self::handle_timeout), if nothing is called before.
    pub fn poll_timeout(&self) -> Option<Time> {
        let at = if self.lifecycle.is_closed() {
            Time::NEVER
        } else if self.is_over() {
            self.lifecycle.until()
        } else {
            self.next_timer()
        };
        (at != Time::NEVER).then_some(at)
    }

    fn next_timer(&self) -> Time {
        let mut at = self.idle.at();
        let mut sooner = |other: Option<Time>| at = at.min(other.unwrap_or(Time::NEVER));
        let handshake_blocked = self.paths.slot_of(0).is_none_or(|slot| self.is_blocked(slot));
        for (_, space) in self.handshake.spaces().filter(|_| !handshake_blocked) {
            sooner(space.loss_at);
            sooner(space.received.ack_at);
        }
        let data = self.has_timed_data();
        for (slot, path) in self.paths.iter().enumerate() {
            match path.state {
                PathState::Closed => continue,
                PathState::Abandoned(until) => sooner(Some(until)),
                PathState::Open | PathState::Validating if self.is_blocked(slot) => {
                    sooner(path.validation.timer(true));
                }
                PathState::Open | PathState::Validating => {
                    sooner(path.space.loss_at);
                    sooner(path.validation.timer(false));
                    sooner(self.pto_at(slot).map(|(at, _)| at));
                    sooner(self.suspect_at(slot));
                    sooner(self.late_at(slot));
                    sooner(self.late_probe_at(slot));
                    sooner(self.keep_alive_at(slot));
                    sooner(path.paced_until.filter(|_| data && self.windows.of(slot).has_room()));
                }
            }
            let carrier = self.ack_carrier(slot).filter(|&carrier| !self.is_blocked(carrier));
            sooner(
                path.space
                    .received
                    .ack_at
                    .filter(|_| carrier.is_some() && self.handshake.one_rtt().is_some()),
            );
        }
        at
    }

    /// Returns true if a path can send nothing until the peer sends something, whatever its timers (RFC 9002 section 6.2.2.1).
    pub(super) fn is_blocked(&self, slot: usize) -> bool {
        let path = &self.paths[slot];
        let has_initial = path.id == 0 && self.handshake.level(SpaceId::Initial).is_some();
        let least = if has_initial { mtu::BASE } else { MIN_DATAGRAM };
        path.validation.amplification_room() < u64::from(least) || self.cids.active(path.id).is_none()
    }

    fn has_timed_data(&self) -> bool {
        self.streams.has_work() || !self.pending.is_empty() || self.datagrams.has_work()
    }

    /// End of a path's probe timeout, and its number space (RFC 9002 section 6.2.1).
    fn pto_at(&self, slot: usize) -> Option<(Time, SpaceId)> {
        let path = &self.paths[slot];
        // What is sent for a timeout does not wait for another one.
        if path.probes > 0 || !path.is_live() || self.is_blocked(slot) {
            return None;
        }
        let confirmed = self.handshake.is_confirmed();
        let wait = |pto| if confirmed { path.probe_interval(pto) } else { path.backed_off(pto) };
        let of = |space: SpaceId, own: &Space, delay: Span| {
            let waiting = own.sent.eliciting() > 0;
            waiting.then(|| (own.last_eliciting + wait(path.pto(delay)), space))
        };
        let levels = self.handshake.spaces().filter(|_| path.id == 0);
        let levels = levels.filter_map(|(space, own)| of(space, own, Span::ZERO));
        // Until the handshake is confirmed the peer may be unable to read these.
        let ack_delay = self.handshake.peer_ack_delay();
        let app = confirmed.then(|| of(SpaceId::Path(slot), &path.space, ack_delay)).flatten();
        let first = levels.chain(app).min_by_key(|(at, _)| *at);
        first.or_else(|| {
            let space = self.handshake.anti_deadlock_space().filter(|_| path.id == 0)?;
            Some((path.last_received_at + path.backed_off(path.pto(Span::ZERO)), space))
        })
    }

    /// Time at which a path becomes suspect.
    fn suspect_at(&self, slot: usize) -> Option<Time> {
        let confirmed = self.handshake.is_confirmed();
        confirmed.then(|| self.paths.suspect_at(slot, self.handshake.peer_ack_delay())).flatten()
    }

    /// Time at which a path becomes late.
    fn late_at(&self, slot: usize) -> Option<Time> {
        let confirmed = self.handshake.is_confirmed();
        confirmed.then(|| self.paths.late_at(slot)).flatten()
    }

    /// Time of the next probe of a late path.
    fn late_probe_at(&self, slot: usize) -> Option<Time> {
        self.paths.late_probe_at(slot)
    }

    /// Time of the next keep-alive on a path.
    fn keep_alive_at(&self, slot: usize) -> Option<Time> {
        let (is_client, ack_delay) = (self.handshake.is_client(), self.handshake.peer_ack_delay());
        let path = Some(&self.paths[slot]).filter(|_| self.handshake.is_confirmed())?;
        path.keep_alive_at(is_client, self.config.keep_alive, ack_delay)
    }

    /// The time has come that [`poll_timeout`](Self::poll_timeout) told, or is past.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_over() {
            self.lifecycle.handle_timeout(now);
            return;
        }
        if now >= self.idle.at() {
            self.end(now, ConnectionError::TimedOut);
            return;
        }
        for space in SpaceId::LONG {
            self.check_loss_timer(now, space);
        }
        for slot in self.paths.slots() {
            self.check_loss_timer(now, SpaceId::Path(slot));
            if self.keep_alive_at(slot).is_some_and(|at| at <= now) {
                self.paths[slot].inflow.on_probe();
                self.paths[slot].probes = 1;
            }
            if self.suspect_at(slot).is_some_and(|at| at <= now) {
                self.suspect(now, slot);
            }
            if self.late_at(slot).is_some_and(|at| at <= now) {
                self.on_late(now, slot);
            }
            if self.late_probe_at(slot).is_some_and(|at| at <= now) {
                self.paths[slot].probes = 1;
            }
            if let Some((_, space)) = self.pto_at(slot).filter(|(at, _)| *at <= now) {
                self.on_pto(now, slot, space);
            }
        }
        self.check_challenges(now);
        self.close_abandoned(now);
    }

    fn check_loss_timer(&mut self, now: Time, space: SpaceId) {
        let due = self.space_mut(space).and_then(|own| own.loss_at).is_some_and(|at| at <= now);
        if due {
            self.find_losses(now, space, None);
        }
    }

    /// Probe timeout: queues probes, with the oldest data that is not acknowledged (RFC 9002 section 6.2.4).
    fn on_pto(&mut self, now: Time, slot: usize, space: SpaceId) {
        let path = &mut self.paths[slot];
        path.pto_count += 1;
        path.timeouts += 1;
        path.probes = PROBES_PER_PTO;
        if path.pto_count == BLACK_HOLE_PTOS {
            path.mtu.restart();
            self.on_mtu(slot);
        }
        self.log_metrics(now, slot);
        if !self.paths[slot].failed {
            self.retransmit(space, usize::from(PROBES_PER_PTO));
        }
    }

    /// Queues the frames of the oldest packets for retransmission; the packets stay on record. Returns the bytes of streams in them.
    pub(super) fn retransmit(&mut self, space: SpaceId, most: usize) -> u64 {
        let Some(own) = self.space_mut(space) else { return 0 };
        let next = own.sent.next();
        let wanted =
            own.sent.below(next).filter(|(_, packet)| !packet.reinjected && !packet.frames.is_empty());
        let again: Vec<Frames> = wanted
            .take(most)
            .map(|(_, packet)| {
                packet.reinjected = true;
                packet.frames.clone()
            })
            .collect();
        let bytes = again.iter().map(Frames::stream_bytes).sum();
        self.stats.reinjected_bytes += bytes;
        again.into_iter().for_each(|frames| self.on_frames_lost(space, frames));
        bytes
    }

    /// Marks a path late, and reinjects what it carries on others, the oldest first, as far as the budget allows.
    fn on_late(&mut self, now: Time, slot: usize) {
        let path = self.paths[slot].id;
        self.note(now, path, "the path is late: what it carries leaves on others");
        self.paths.on_late(now, slot);
        self.paths[slot].probes = self.paths[slot].probes.max(1);
        let budget = self.reinjection.left(self.streams.sent());
        let most = budget / u64::from(self.paths[slot].mtu.size());
        let bytes = self.retransmit(SpaceId::Path(slot), usize::try_from(most).unwrap_or(usize::MAX));
        self.reinjection.take(bytes);
    }

    /// Marks a path suspect, which is silent while others answer: its data is reinjected on them at once.
    fn suspect(&mut self, now: Time, slot: usize) {
        self.paths[slot].failed = true;
        self.windows.set_silent(slot, true);
        let path = self.paths[slot].id;
        self.note(now, path, "the path is silent: what it carries leaves on others");
        self.events.push_back(Event::PathSuspected { path });
        let sizes =
            self.paths[slot].space.sent.iter().filter(|packet| !packet.mtu_probe).map(|packet| packet.size);
        let largest = sizes.max().unwrap_or(0);
        if self.paths[slot].mtu.on_lost(largest) {
            self.on_mtu(slot);
        }
        self.reinject(slot);
        // Probed at once.
        self.paths[slot].probes = self.paths[slot].probes.max(1);
    }

    /// This host cannot send along a route: its interface is gone, or no route leads there. Nobody waits for answers of such a path while
    /// there are others. Whether a path of this connection takes it.
    pub(crate) fn handle_unreachable(&mut self, now: Time, route: Route) -> bool {
        let Some(slot) = self.paths.slot_on(route) else { return false };
        if !self.handshake.is_confirmed() || self.is_over() {
            return true;
        }
        let others = self.paths.another_is_responsive(slot);
        if self.paths[slot].state == PathState::Validating && others {
            let path = self.paths[slot].id;
            self.abandon(now, path, code::PATH_UNSTABLE);
        } else if others && !self.paths[slot].failed {
            self.suspect(now, slot);
        }
        true
    }

    /// A packet of this connection came back: nobody listens at the port that it went to. Packets that come on all paths later say
    /// otherwise; until then the path is one that cannot be sent along. Where every path is, the peer is gone.
    pub(crate) fn handle_port_unreachable(&mut self, now: Time, route: Route) {
        self.handle_unreachable(now, route);
        let refused = self.paths.slot_on(route);
        let Some(slot) = refused.filter(|_| self.handshake.is_confirmed()) else { return };
        self.paths[slot].refused_since.get_or_insert(now);
        let last = self.paths.live().filter_map(|(_, path)| path.refused_since).max();
        let gone = self.paths.live().all(|(_, path)| path.failed || path.refused_since.is_some());
        if gone && last.is_some_and(|at| now.since(at) >= REFUSED_TIMEOUT) {
            self.end(now, ConnectionError::PortUnreachable);
        }
    }

    /// True for the beginning of a packet that this connection may have sent along a route: it has an id of the peer's, which
    /// nobody knows but who is on the way.
    pub(crate) fn may_have_sent(&self, route: Route, packet: &[u8]) -> bool {
        let long = packet.first().is_some_and(|first| first & 0x80 != 0);
        let to = if long { packet.get(6..) } else { packet.get(1..) };
        let Some(slot) = self.paths.slot_on(route) else { return false };
        let id = self.cids.active(self.paths[slot].id);
        id.zip(to).is_some_and(|(id, to)| !id.as_slice().is_empty() && to.starts_with(id.as_slice()))
    }

    /// Reinjects data of silent paths, sent while all were silent, on the one that answers.
    pub(super) fn reinject_failed(&mut self) {
        for slot in self.paths.slots() {
            if self.paths.is_avoided(slot) {
                self.reinject(slot);
            }
        }
    }

    /// Reinjects a silent path's data on others.
    fn reinject(&mut self, slot: usize) {
        self.retransmit(SpaceId::Path(slot), usize::MAX);
        if self.windows.is_combined() {
            // Others could use that part of the window. Losses are known when the path answers again.
            let (packets, bytes) = self.paths[slot].space.sent.free_all();
            self.windows.free(slot, packets, bytes);
        }
    }
}
