//! Paths: opened, validated, preferred or not, abandoned (RFC 9000 sections 8.2 and 9, draft-ietf-quic-multipath-21 section 3).

use super::receive::PayloadKind;
use super::*;
use crate::error::{TransportError, code};
use crate::paths::{AMPLIFICATION, PathChallenge, PathResponse, mtu};
use vmcc_units::time::Span;

/// Times that a challenge is sent before a path counts as dead.
const MAX_CHALLENGES: u32 = 4;
/// An abandoned path's packets are still taken for so many probe timeouts.
const LINGER: u64 = 3;
/// No path is left.
const NO_VIABLE_PATH: u64 = 0x10;

/// Error of opening a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The handshake is not confirmed yet.
    #[error("the handshake goes on; open paths after the event `Connected`, once the peer has confirmed it")]
    TooEarly,
    /// One end did not offer the multipath extension.
    #[error("the peer does not speak multipath QUIC, or it was not offered: the connection has one path")]
    NotNegotiated,
    /// Only clients open paths.
    #[error("a server does not open paths; its client does")]
    NotClient,
    /// All paths that both ends allow are in use.
    #[error("as many paths are open as both ends allow; abandon one, or wait for the event `PathsAvailable`")]
    Limit,
    /// The peer has not given connection ids for the next path.
    #[error("the peer has given no connection id for another path; wait for the event `PathsAvailable`")]
    NoIds,
    /// A path from there to there is open.
    #[error("there is a path with these addresses")]
    Exists,
    /// There is no such path.
    #[error("there is no such path")]
    Unknown,
    /// The last path cannot be abandoned.
    #[error("it is the last path; close the connection instead")]
    Last,
}

impl Connection {
    /// Opens another path (client). The event `PathOpened` says that it carries data.
    ///
    /// # Errors
    /// It cannot be opened now; the error says why.
    pub fn open_path(&mut self, now: Time, route: Route) -> Result<PathId, PathError> {
        if self.side == Side::Server {
            return Err(PathError::NotClient);
        }
        if !self.confirmed || self.is_over() {
            return Err(PathError::TooEarly);
        }
        if !self.multipath {
            return Err(PathError::NotNegotiated);
        }
        if self.paths.iter().any(|path| path.route == route && path.is_live()) {
            return Err(PathError::Exists);
        }
        while self.retired_paths.contains(self.next_path.into()) {
            self.next_path += 1;
        }
        let path = self.next_path;
        let full = self.paths.iter().filter(|path| path.state != PathState::Closed).count() >= MAX_PATHS;
        if path > self.max_path() || full {
            self.queue(Control::PathsBlocked);
            return Err(PathError::Limit);
        }
        if self.remote_cids.get(&path).is_none_or(|cids| cids.active().is_none()) {
            self.queue(Control::PathCidsBlocked(path));
            return Err(PathError::NoIds);
        }
        self.next_path += 1;
        let slot = self.add_path(path, route, now);
        self.paths[slot].validated = true; // what limits amplification is the server's concern
        self.challenge(now, slot);
        Ok(path)
    }

    /// Adds a path in a free slot, and returns the slot.
    fn add_path(&mut self, id: PathId, route: Route, now: Time) -> usize {
        let mut mtu = Mtu::new(self.config.initial_mtu, self.config.max_mtu);
        mtu.limit(self.peer.max_udp_payload);
        let mut path = Path::new(id, route, mtu);
        path.last_received_at = now;
        if let Some((seq, available)) = self.early_status.remove(&id) {
            (path.peer_status_seq, path.peer_backup) = (Some(seq), !available);
        }
        self.log_route(now, id, Some(route));
        let free = self.paths.iter().position(|path| path.state == PathState::Closed);
        let slot = free.unwrap_or(self.paths.len());
        match self.paths.get_mut(slot) {
            Some(place) => *place = path,
            None => self.paths.push(path),
        }
        self.windows.add_path(slot, mtu.size());
        // It has not answered yet.
        self.windows.set_silent(slot, true);
        slot
    }

    /// Starts path validation: queues PATH_CHALLENGE.
    fn challenge(&mut self, now: Time, slot: usize) {
        let data = self.random.u64();
        // RFC 9000 section 8.2.4; a path that nothing is known of has the timeout of a fresh one.
        let until = now + self.longest_pto().max(Span::from_secs(1)).times(LINGER);
        self.paths[slot].challenge =
            Some(PathChallenge { data, send_at: now, tries: 0, first_sent: now, until });
    }

    /// A packet came on a path that is not open: the client opens it (server).
    pub(super) fn accept_path(
        &mut self,
        now: Time,
        path: PathId,
        route: Route,
        bytes: usize,
    ) -> Option<usize> {
        let full = self.paths.iter().filter(|path| path.state != PathState::Closed).count() >= MAX_PATHS;
        let can_answer = self.remote_cids.get(&path).is_some_and(|cids| cids.active().is_some());
        let spent = self.retired_paths.contains(path.into());
        if self.side == Side::Client || path > self.max_path() || full || !can_answer || spent {
            return None;
        }
        let slot = self.add_path(path, route, now);
        self.paths[slot].bytes_in = bytes as u64;
        self.next_path = self.next_path.max(path + 1);
        self.challenge(now, slot);
        Some(slot)
    }

    pub(super) fn on_challenge(&mut self, slot: usize, route: Route, data: u64) {
        if self.paths[slot].is_live() {
            // Its address is not known to be the peer's: no more goes there than three times what came (RFC 9000 section 8.2.2).
            let padded = AMPLIFICATION * self.arriving >= u64::from(mtu::BASE);
            self.paths[slot].response = Some(PathResponse { data, route, padded });
        }
    }

    /// Validates the route that PATH_CHALLENGE was sent along, wherever the response comes from (RFC 9000 section 8.2.3).
    pub(super) fn on_response(&mut self, now: Time, slot: usize, data: u64) {
        let path = &mut self.paths[slot];
        let Some(challenge) = path.challenge.filter(|own| own.data == data) else { return };
        (path.challenge, path.validated) = (None, true);
        // Of several it is not known which was answered.
        if challenge.tries == 1 {
            path.guess_rtt(now.since(challenge.first_sent));
        }
        let (previous, remote) = (path.previous.take(), path.route.remote);
        if previous.is_some_and(|previous| previous.remote.ip() != remote.ip()) {
            self.on_network_change(now, slot);
        }
        let path = &mut self.paths[slot];
        if path.state == PathState::Validating {
            path.state = PathState::Open;
            let path = path.id;
            self.windows.set_silent(slot, false);
            // A window of all has begun with the first.
            if !self.windows.is_combined() {
                self.begin_window(slot, now);
            }
            self.note(now, path, "the path is validated");
            self.events.push_back(Event::PathOpened { path });
            self.reinject_failed();
        }
    }

    /// Peer migration: its newest packet of a path came from another address (server; RFC 9000 section 9).
    pub(super) fn on_peer_migration(
        &mut self,
        now: Time,
        slot: usize,
        route: Route,
        nature: PayloadKind,
        bytes: usize,
    ) {
        if self.side == Side::Client || !self.confirmed || nature.probing || !self.paths[slot].is_live() {
            return;
        }
        let path = &mut self.paths[slot];
        if path.previous == Some(route) {
            // It was never gone: somebody else sent a copy from elsewhere (RFC 9000 section 9.3.2).
            let id = path.id;
            (path.route, path.validated, path.previous, path.challenge) = (route, true, None, None);
            self.log_route(now, id, Some(route));
            return;
        }
        let old = path.route;
        if path.validated {
            path.previous = Some(old);
        }
        (path.route, path.validated) = (route, false);
        (path.bytes_in, path.bytes_out, path.probes) = (bytes as u64, 0, 0);
        let id = path.id;
        self.log_route(now, id, Some(route));
        self.challenge(now, slot);
    }

    fn log_route(&mut self, now: Time, path: PathId, route: Option<Route>) {
        if let Some(log) = &mut self.log {
            log.tuple(now, path, route);
        }
    }

    /// Resets RTT, congestion control, ECN and MTU: the peer is in another network, most likely (RFC 9000 section 9.4). A new port alone is
    /// NAT rebinding.
    fn on_network_change(&mut self, now: Time, slot: usize) {
        self.windows.restart(slot, now);
        let path = &mut self.paths[slot];
        path.rtt = Default::default();
        path.ecn.restart();
        path.mtu.restart();
        let id = path.id;
        self.begin_window(slot, now);
        self.on_mtu(slot);
        self.rotate_cid(id);
    }

    /// Path validation has failed: PATH_CHALLENGE was not answered in time.
    fn on_challenge_timeout(&mut self, now: Time, slot: usize) {
        self.paths[slot].challenge = None;
        if let Some(previous) = self.paths[slot].previous.take() {
            let path = &mut self.paths[slot];
            (path.route, path.validated) = (previous, true);
            let id = path.id;
            self.log_route(now, id, Some(previous));
        } else if self.paths[slot].state == PathState::Validating {
            let path = self.paths[slot].id;
            self.abandon(now, path, code::PATH_UNSTABLE);
        }
    }

    /// Fails path validation where a challenge has timed out.
    pub(super) fn check_challenges(&mut self, now: Time) {
        for slot in 0..self.paths.len() {
            let asked = self.paths[slot].challenge;
            if asked.is_some_and(|c| c.until <= now || (c.send_at <= now && c.tries >= MAX_CHALLENGES)) {
                self.on_challenge_timeout(now, slot);
            }
        }
    }

    /// Gives a path up, whatever is on it leaves on the others.
    ///
    /// # Errors
    /// There is no such path, or it is the last one.
    pub fn abandon_path(&mut self, now: Time, path: PathId) -> Result<(), PathError> {
        let slot = self.slot_of(path).filter(|&slot| self.paths[slot].is_live()).ok_or(PathError::Unknown)?;
        if !self.multipath {
            return Err(PathError::NotNegotiated);
        }
        if !self.paths.iter().enumerate().any(|(i, other)| i != slot && other.is_open()) {
            return Err(PathError::Last);
        }
        self.abandon(now, path, code::PATH_APPLICATION);
        Ok(())
    }

    pub(super) fn abandon(&mut self, now: Time, path: PathId, code: u64) {
        let Some(slot) = self.slot_of(path).filter(|&slot| self.paths[slot].is_live()) else { return };
        let linger = self.longest_pto().times(LINGER);
        let own = &mut self.paths[slot];
        // Nothing has come on a client's path that never answered, so nothing is late: its place is free at once.
        let unused = self.side == Side::Client && own.state == PathState::Validating;
        own.state = PathState::Abandoned(if unused { now } else { now + linger });
        (own.challenge, own.response, own.probes) = (None, None, 0);
        (own.space.loss_at, own.failed) = (None, false);
        let packets: Vec<_> = own.space.sent.drain().collect();
        self.windows.close(slot, packets.iter().filter(|packet| packet.in_flight() > 0).count() as u64);
        for packet in packets.into_iter().filter(|packet| !packet.reinjected) {
            self.on_frames_lost(SpaceId::Path(slot), packet.frames);
        }
        self.controller.remove(slot);
        if self.selector.only == Some(slot as u8) {
            self.selector.only = None;
        }
        self.queue(Control::PathAbandon(path, code));
        self.note(now, path, &format!("the path is abandoned with code {code:#x}"));
        self.log_route(now, path, None);
        self.events.push_back(Event::PathClosed { path, code });
        self.retire_path(path);
    }

    /// Retires a path id, which is never reused, and allows the peer another one.
    fn retire_path(&mut self, path: PathId) {
        self.retired_paths.insert(path.into()..u64::from(path) + 1);
        self.early_status.remove(&path);
        self.local_max_path += 1;
        self.queue(Control::MaxPathId);
        self.issue_cids();
    }

    pub(super) fn on_path_abandon(
        &mut self,
        now: Time,
        path: PathId,
        code: u64,
    ) -> Result<(), TransportError> {
        self.check_path(path)?;
        if self.slot_of(path).is_none() {
            // It was not open yet, and will not be.
            if !self.retired_paths.contains(path.into()) {
                self.queue(Control::PathAbandon(path, code::PATH_APPLICATION));
                self.retire_path(path);
                self.drop_cids(path);
            }
            return Ok(());
        }
        self.abandon(now, path, code);
        if !self.paths.iter().any(Path::is_live) {
            return Err(TransportError::new(NO_VIABLE_PATH, "the peer has abandoned every path"));
        }
        Ok(())
    }

    /// Closes paths that were abandoned long enough ago.
    pub(super) fn close_abandoned(&mut self, now: Time) {
        for slot in 0..self.paths.len() {
            if matches!(self.paths[slot].state, PathState::Abandoned(until) if until <= now) {
                self.paths[slot].state = PathState::Closed;
                let path = self.paths[slot].id;
                self.drop_cids(path);
                if self.side == Side::Client {
                    self.events.push_back(Event::PathsAvailable);
                }
            }
        }
    }

    /// Says whether a path is to carry data only where no other can, here and at the peer.
    ///
    /// # Errors
    /// There is no such path.
    pub fn set_backup(&mut self, path: PathId, backup: bool) -> Result<(), PathError> {
        let slot = self.slot_of(path).filter(|&slot| self.paths[slot].is_live()).ok_or(PathError::Unknown)?;
        if self.paths[slot].backup != backup {
            self.paths[slot].backup = backup;
            self.paths[slot].status_seq += 1;
            if self.multipath {
                self.queue(Control::PathStatus(path));
            }
        }
        Ok(())
    }

    pub(super) fn on_path_status(
        &mut self,
        path: PathId,
        seq: u64,
        available: bool,
    ) -> Result<(), TransportError> {
        self.check_path(path)?;
        let Some(slot) = self.slot_of(path) else {
            // It may overtake the first packet of its path. There are no more of them than paths that may be opened.
            if !self.retired_paths.contains(path.into()) {
                let known = self.early_status.entry(path).or_insert((seq, available));
                *known = if seq > known.0 { (seq, available) } else { *known };
            }
            return Ok(());
        };
        let own = &mut self.paths[slot];
        if own.peer_status_seq.is_none_or(|last| seq > last) {
            (own.peer_status_seq, own.peer_backup) = (Some(seq), !available);
        }
        Ok(())
    }

    pub(super) fn on_max_path_id(&mut self, max: PathId) -> Result<(), TransportError> {
        if max > self.peer_max_path {
            self.peer_max_path = max;
            self.issue_cids();
        }
        Ok(())
    }

    pub(super) fn on_paths_blocked(&mut self, max: PathId) -> Result<(), TransportError> {
        self.check_path(max)?;
        if max < self.local_max_path {
            self.queue(Control::MaxPathId);
        }
        Ok(())
    }

    /// The longest probe timeout of a path that is in use.
    pub(super) fn longest_pto(&self) -> Span {
        let delay = self.peer_ack_delay();
        let live = self.paths.iter().filter(|path| path.state != PathState::Closed);
        live.map(|path| path.pto(delay)).max().unwrap_or(Span::from_secs(1))
    }
}
