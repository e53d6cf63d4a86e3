//! Timers: losses, probes, silence, acknowledgments, the end.

use super::*;
use crate::paths::mtu;
use crate::recovery::GRANULARITY;
use crate::recovery::sent::Frames;
use vmcc_units::time::Span;

/// Smallest datagram in bytes that is worth sending within the anti-amplification limit.
const MIN_DATAGRAM: u16 = 80;
/// Consecutive probe timeouts after which the path MTU search restarts (black hole detection, RFC 8899 section 4.3).
const BLACK_HOLE_PTOS: u32 = 3;
/// Packets that a probe timeout sends (RFC 9002 section 6.2.4).
const PROBES_PER_PTO: u8 = 2;
/// Packets on every path come back for this time before a connection ends: a firewall that is loaded anew may refuse some.
const REFUSED_TIMEOUT: Span = Span::from_ms(500);
/// A connection lives through at least this many probe timeouts without a word (RFC 9000 section 10.1).
const IDLE_PTOS: u64 = 3;

impl Connection {
    /// Time of the next [`handle_timeout`](Self::handle_timeout), if nothing is called before.
    pub fn poll_timeout(&self) -> Option<Time> {
        let at = match self.state {
            State::Closed => Time::NEVER,
            State::Closing | State::Draining => self.close.until,
            _ => self.next_timer(),
        };
        (at != Time::NEVER).then_some(at)
    }

    fn next_timer(&self) -> Time {
        let mut at = self.idle_at;
        let mut sooner = |other: Option<Time>| at = at.min(other.unwrap_or(Time::NEVER));
        let handshake_blocked = self.slot_of(0).is_none_or(|slot| self.is_blocked(slot));
        for level in self.levels.iter().flatten().filter(|_| !handshake_blocked) {
            sooner(level.space.loss_at);
            sooner(level.space.received.ack_at);
        }
        let data = self.has_timed_data();
        for (slot, path) in self.paths.iter().enumerate() {
            match path.state {
                PathState::Closed => continue,
                PathState::Abandoned(until) => sooner(Some(until)),
                PathState::Open | PathState::Validating if self.is_blocked(slot) => {
                    sooner(path.challenge.map(|challenge| challenge.until));
                }
                PathState::Open | PathState::Validating => {
                    sooner(path.space.loss_at);
                    sooner(path.challenge.map(|challenge| challenge.send_at.min(challenge.until)));
                    sooner(self.pto_at(slot).map(|(at, _)| at));
                    sooner(self.suspect_at(slot));
                    sooner(self.keep_alive_at(slot));
                    sooner(path.paced_until.filter(|_| data && self.windows.of(slot).has_room()));
                }
            }
            let carrier = self.ack_carrier(slot).filter(|&carrier| !self.is_blocked(carrier));
            sooner(path.space.received.ack_at.filter(|_| carrier.is_some() && self.one_rtt.is_some()));
        }
        at
    }

    /// Returns true if a path can send nothing until the peer sends something, whatever its timers (RFC 9002 section 6.2.2.1).
    pub(super) fn is_blocked(&self, slot: usize) -> bool {
        let path = &self.paths[slot];
        let least = if path.id == 0 && self.levels[0].is_some() { mtu::BASE } else { MIN_DATAGRAM };
        let no_id = self.remote_cids.get(&path.id).is_none_or(|cids| cids.active().is_none());
        path.amplification_room() < u64::from(least) || no_id
    }

    fn has_timed_data(&self) -> bool {
        self.streams.has_work() || !self.pending.is_empty() || !self.datagrams_out.is_empty()
    }

    /// End of a path's probe timeout, and its number space (RFC 9002 section 6.2.1).
    fn pto_at(&self, slot: usize) -> Option<(Time, SpaceId)> {
        let path = &self.paths[slot];
        // What is sent for a timeout does not wait for another one.
        if path.probes > 0 || !path.is_live() || self.is_blocked(slot) {
            return None;
        }
        let wait = |pto| if self.confirmed { path.probe_interval(pto) } else { path.backed_off(pto) };
        let of = |space: SpaceId, own: &Space, delay: Span| {
            let waiting = own.sent.eliciting() > 0;
            waiting.then(|| (own.last_eliciting + wait(path.pto(delay)), space))
        };
        let levels = LEVELS.iter().zip(&self.levels).filter(|_| path.id == 0);
        let levels = levels.filter_map(|(&space, level)| of(space, &level.as_ref()?.space, Span::ZERO));
        // Until the handshake is confirmed the peer may be unable to read these.
        let app =
            self.confirmed.then(|| of(SpaceId::Path(slot), &path.space, self.peer_ack_delay())).flatten();
        let first = levels.chain(app).min_by_key(|(at, _)| *at);
        // A client keeps the server able to send (RFC 9002 section 6.2.2.1).
        let lonely = path.id == 0 && self.side == Side::Client && !self.peer_validated && !self.confirmed;
        first.or_else(|| {
            let space = if self.levels[1].is_some() { SpaceId::Handshake } else { SpaceId::Initial };
            lonely.then(|| (path.last_received_at + path.backed_off(path.pto(Span::ZERO)), space))
        })
    }

    /// Time at which a path becomes suspect: its two oldest packets should have been acknowledged by then, and nothing came. One alone may be
    /// lost. Packets that later ones have overtaken are a matter of loss detection. Unlike the probe timeout this does not move with every
    /// packet that is sent.
    fn suspect_at(&self, slot: usize) -> Option<Time> {
        let path = &self.paths[slot];
        if !path.is_responsive() || !self.another_is_responsive(slot) || !self.confirmed {
            return None;
        }
        let first = path.space.largest_acked.map_or(0, |largest| largest + 1);
        let mut out = path.space.sent.from(first).filter(|packet| packet.eliciting && !packet.mtu_probe);
        let (oldest, second) = (out.next()?, out.next());
        let since = |packet: &SentPacket| packet.sent.max(path.last_received_at);
        // Two deviations instead of four: to be wrong costs packets sent twice, to be late stalls everything.
        let (rto, srtt) = (path.pto(Span::ZERO), path.srtt());
        let margin = Span::from_ps(rto.ps().saturating_sub(srtt.ps())).div(2);
        let late = since(oldest) + srtt + margin.max(self.peer_ack_delay());
        // If only the oldest is lost, the next one is acknowledged without delay.
        let latest = since(oldest) + rto + self.peer_ack_delay();
        Some(second.map_or(late, |second| late.max(since(second) + srtt + margin).min(latest)))
    }

    /// The time has come that [`poll_timeout`](Self::poll_timeout) told, or is past.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_over() {
            if now >= self.close.until && self.state != State::Closed {
                self.state = State::Closed;
            }
            return;
        }
        if now >= self.idle_at {
            self.end(now, ConnectionError::TimedOut);
            return;
        }
        for space in LEVELS {
            self.check_loss_timer(now, space);
        }
        for slot in 0..self.paths.len() {
            self.check_loss_timer(now, SpaceId::Path(slot));
            if self.keep_alive_at(slot).is_some_and(|at| at <= now) {
                self.paths[slot].inflow.on_probe();
                self.paths[slot].probes = 1;
            }
            if self.suspect_at(slot).is_some_and(|at| at <= now) {
                self.suspect(now, slot);
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

    /// Queues the frames of the oldest packets for retransmission; the packets stay on record.
    fn retransmit(&mut self, space: SpaceId, most: usize) {
        let Some(own) = self.space_mut(space) else { return };
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
        again.into_iter().for_each(|frames| self.on_frames_lost(space, frames));
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
        let Some(slot) = self.paths.iter().position(|path| path.is_live() && path.route == route) else {
            return false;
        };
        if !self.confirmed || self.is_over() {
            return true;
        }
        let others = self.another_is_responsive(slot);
        if self.paths[slot].state == PathState::Validating && others {
            let path = self.paths[slot].id;
            self.abandon(now, path, crate::error::code::PATH_UNSTABLE);
        } else if others && !self.paths[slot].failed {
            self.suspect(now, slot);
        }
        true
    }

    /// A packet of this connection came back: nobody listens at the port that it went to. Packets that come on all paths later say
    /// otherwise; until then the path is one that cannot be sent along. Where every path is, the peer is gone.
    pub(crate) fn handle_port_unreachable(&mut self, now: Time, route: Route) {
        self.handle_unreachable(now, route);
        let refused = self.paths.iter_mut().find(|path| path.is_live() && path.route == route);
        let Some(path) = refused.filter(|_| self.confirmed) else { return };
        path.refused_since.get_or_insert(now);
        let live = || self.paths.iter().filter(|path| path.is_live());
        let last = live().filter_map(|path| path.refused_since).max();
        let gone = live().all(|path| path.failed || path.refused_since.is_some());
        if gone && last.is_some_and(|at| now.since(at) >= REFUSED_TIMEOUT) {
            self.end(now, ConnectionError::PortUnreachable);
        }
    }

    /// True for the beginning of a packet that this connection may have sent along a route: it has an id of the peer's, which
    /// nobody knows but who is on the way.
    pub(crate) fn may_have_sent(&self, route: Route, packet: &[u8]) -> bool {
        let long = packet.first().is_some_and(|first| first & 0x80 != 0);
        let to = if long { packet.get(6..) } else { packet.get(1..) };
        let Some(path) = self.paths.iter().find(|path| path.is_live() && path.route == route) else {
            return false;
        };
        let id = self.remote_cids.get(&path.id).and_then(|cids| cids.active()).map(|active| active.id);
        id.zip(to).is_some_and(|(id, to)| !id.as_slice().is_empty() && to.starts_with(id.as_slice()))
    }

    /// Returns true if a path is silent while another could carry its data.
    pub(super) fn is_avoided(&self, slot: usize) -> bool {
        self.paths[slot].failed && self.another_is_responsive(slot)
    }

    fn another_is_responsive(&self, slot: usize) -> bool {
        self.paths.iter().enumerate().any(|(i, path)| i != slot && path.is_responsive())
    }

    /// Reinjects data of silent paths, sent while all were silent, on the one that answers.
    pub(super) fn reinject_failed(&mut self) {
        for slot in 0..self.paths.len() {
            if self.is_avoided(slot) {
                self.reinject(slot);
            }
        }
    }

    /// Reinjects a silent path's data on others.
    fn reinject(&mut self, slot: usize) {
        self.retransmit(SpaceId::Path(slot), usize::MAX);
        if self.windows.is_combined() {
            self.free_silent(slot);
        }
    }

    /// Something came, or something was sent that asks for an answer: the connection is not idle.
    pub(super) fn touch_idle(&mut self, now: Time) {
        let timeouts = [self.local.max_idle_timeout_ms, self.peer.max_idle_timeout_ms];
        let ms = timeouts.into_iter().filter(|&ms| ms > 0).min();
        self.idle_at = ms.map_or(Time::NEVER, |ms| {
            now + Span::from_ms(ms).max(self.longest_pto().times(IDLE_PTOS)).max(GRANULARITY)
        });
    }

    /// Time of the next keep-alive on a path, or of the probe after the end of a client's inflow. A server's packets make no NAT binding.
    fn keep_alive_at(&self, slot: usize) -> Option<Time> {
        let path = &self.paths[slot];
        if !path.is_responsive() || path.probes > 0 || !self.confirmed {
            return None;
        }
        let client = self.side == Side::Client;
        let active =
            if client { path.last_eliciting_at } else { path.last_eliciting_at.max(path.last_received_at) };
        let keep_alive = (self.config.keep_alive > Span::ZERO).then(|| active + self.config.keep_alive);
        // What was sent meanwhile is answered, or missed.
        let inflow = path.inflow.probe_at(path.pto(self.peer_ack_delay()));
        let inflow = inflow.filter(|_| client && path.space.sent.eliciting() == 0);
        keep_alive.into_iter().chain(inflow).min()
    }
}
