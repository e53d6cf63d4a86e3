//! Paths: opened, validated, preferred or not, abandoned (RFC 9000 sections 8.2 and 9, draft-ietf-quic-multipath-21 section 3).

use super::receive::Arrival;
use super::state::Connection;
use crate::error::{TransportError, code};
use crate::event::{Event, PathId};
use crate::paths::mtu::{self, Mtu};
use crate::paths::{AMPLIFICATION, Path, PathResponse, PathState, Route};
use crate::recovery::sent::Control;
use crate::recovery::space::SpaceId;
use crate::wire::frame::NewCid;
use vmcc_units::time::{Span, Time};

/// Probe timeouts for which packets of an abandoned path are still accepted.
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
        if !self.handshake.is_client() {
            return Err(PathError::NotClient);
        }
        if !self.handshake.is_confirmed() || self.is_over() {
            return Err(PathError::TooEarly);
        }
        if !self.paths.is_multipath() {
            return Err(PathError::NotNegotiated);
        }
        if self.paths.slot_on(route).is_some() {
            return Err(PathError::Exists);
        }
        let path = self.paths.next_id();
        if path > self.paths.max_id() || self.paths.is_full() {
            self.queue(Control::PathsBlocked);
            return Err(PathError::Limit);
        }
        if self.cids.active(path).is_none() {
            self.queue(Control::PathCidsBlocked(path));
            return Err(PathError::NoIds);
        }
        let slot = self.add_path(path, route, now);
        // What limits amplification is the server's concern.
        self.paths[slot].validation.set_validated();
        self.challenge(now, slot);
        Ok(path)
    }

    /// Adds a path in a free slot, and returns the slot.
    fn add_path(&mut self, id: PathId, route: Route, now: Time) -> usize {
        let mut mtu = Mtu::new(self.config.initial_mtu, self.config.max_mtu);
        mtu.limit(self.handshake.peer().max_udp_payload);
        let mut path = Path::new(id, route, mtu);
        path.last_received_at = now;
        self.log_route(now, id, Some(route));
        let slot = self.paths.insert(path);
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
        self.paths[slot].validation.start(data, now, until);
    }

    /// A packet came on a path that is not open: the client opens it (server).
    pub(super) fn accept_path(
        &mut self,
        now: Time,
        path: PathId,
        route: Route,
        bytes: usize,
    ) -> Option<usize> {
        let can_answer = self.cids.active(path).is_some();
        if self.handshake.is_client() || !self.paths.is_acceptable(path) || !can_answer {
            return None;
        }
        let slot = self.add_path(path, route, now);
        self.paths[slot].validation.on_received(bytes as u64);
        self.challenge(now, slot);
        Some(slot)
    }

    pub(super) fn on_challenge(&mut self, arrival: &Arrival, slot: usize, data: u64) {
        if self.paths[slot].is_live() {
            // Its address is not known to be the peer's: no more goes there than three times what came (RFC 9000 section 8.2.2).
            let padded = AMPLIFICATION * arrival.len as u64 >= u64::from(mtu::BASE);
            self.paths[slot].response = Some(PathResponse { data, route: arrival.route, padded });
        }
    }

    /// Validates the route that PATH_CHALLENGE was sent along, wherever the response comes from (RFC 9000 section 8.2.3).
    pub(super) fn on_response(&mut self, now: Time, slot: usize, data: u64) {
        let path = &mut self.paths[slot];
        let Some(validated) = path.validation.on_response(data) else { return };
        if let Some(sent) = validated.sent {
            path.guess_rtt(now.since(sent));
        }
        let remote = path.route.remote;
        if validated.previous.is_some_and(|previous| previous.remote.ip() != remote.ip()) {
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

    /// Peer migration: its newest packet of a path, which is no probe, came from another address (server; RFC 9000 section 9).
    pub(super) fn on_peer_migration(&mut self, now: Time, slot: usize, route: Route, bytes: usize) {
        let path = &mut self.paths[slot];
        if self.handshake.is_client() || !self.handshake.is_confirmed() || !path.is_live() {
            return;
        }
        let (id, old) = (path.id, std::mem::replace(&mut path.route, route));
        // If it was never gone, somebody else has sent a copy from elsewhere.
        let returned = path.validation.return_to(route);
        if !returned {
            path.validation.on_migration(old, bytes as u64);
            path.probes = 0;
        }
        self.log_route(now, id, Some(route));
        if !returned {
            self.challenge(now, slot);
        }
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
        (path.rtt, path.lateness) = Default::default();
        path.ecn.restart();
        path.mtu.restart();
        let id = path.id;
        self.begin_window(slot, now);
        self.on_mtu(slot);
        self.cids.rotate(id, &mut self.pending);
    }

    /// Path validation has failed: PATH_CHALLENGE was not answered in time.
    fn on_challenge_timeout(&mut self, now: Time, slot: usize) {
        let path = &mut self.paths[slot];
        let id = path.id;
        if let Some(previous) = path.validation.on_timeout() {
            path.route = previous;
            self.log_route(now, id, Some(previous));
        } else if path.state == PathState::Validating {
            self.abandon(now, id, code::PATH_UNSTABLE);
        }
    }

    /// Fails path validation where a challenge has timed out.
    pub(super) fn check_challenges(&mut self, now: Time) {
        for slot in self.paths.slots() {
            if self.paths[slot].validation.has_timed_out(now) {
                self.on_challenge_timeout(now, slot);
            }
        }
    }

    /// Gives a path up, whatever is on it leaves on the others.
    ///
    /// # Errors
    /// There is no such path, or it is the last one.
    pub fn abandon_path(&mut self, now: Time, path: PathId) -> Result<(), PathError> {
        let slot = self.paths.live_slot(path).ok_or(PathError::Unknown)?;
        if !self.paths.is_multipath() {
            return Err(PathError::NotNegotiated);
        }
        if !self.paths.another_is_open(slot) {
            return Err(PathError::Last);
        }
        self.abandon(now, path, code::PATH_APPLICATION);
        Ok(())
    }

    pub(super) fn abandon(&mut self, now: Time, path: PathId, code: u64) {
        let Some(slot) = self.paths.live_slot(path) else { return };
        let linger = self.longest_pto().times(LINGER);
        let own = &mut self.paths[slot];
        // Nothing has come on a client's path that never answered, so nothing is late: its place is free at once.
        let unused = self.handshake.is_client() && own.state == PathState::Validating;
        own.state = PathState::Abandoned(if unused { now } else { now + linger });
        own.validation.cancel();
        (own.response, own.probes) = (None, 0);
        (own.space.loss_at, own.failed) = (None, false);
        let packets: Vec<_> = own.space.sent.drain().collect();
        self.windows.close(slot, packets.iter().filter(|packet| packet.in_flight() > 0).count() as u64);
        for packet in packets.into_iter().filter(|packet| !packet.reinjected) {
            self.on_frames_lost(SpaceId::Path(slot), packet.frames);
        }
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
        self.paths.retire(path);
        self.queue(Control::MaxPathId);
        self.issue_cids();
    }

    pub(super) fn on_path_abandon(
        &mut self,
        now: Time,
        path: PathId,
        code: u64,
    ) -> Result<(), TransportError> {
        self.paths.check(path)?;
        if self.paths.slot_of(path).is_none() {
            // It was not open yet, and will not be.
            if !self.paths.is_retired(path) {
                self.queue(Control::PathAbandon(path, code::PATH_APPLICATION));
                self.retire_path(path);
                self.cids.drop_path(path);
            }
            return Ok(());
        }
        self.abandon(now, path, code);
        if self.paths.live().next().is_none() {
            return Err(TransportError::new(NO_VIABLE_PATH, "the peer has abandoned every path"));
        }
        Ok(())
    }

    /// Closes paths that were abandoned long enough ago.
    pub(super) fn close_abandoned(&mut self, now: Time) {
        for slot in self.paths.slots() {
            if let Some(path) = self.paths.close_if_due(slot, now) {
                self.cids.drop_path(path);
                if self.handshake.is_client() {
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
        let slot = self.paths.live_slot(path).ok_or(PathError::Unknown)?;
        if self.paths[slot].status.set_own(backup) && self.paths.is_multipath() {
            self.queue(Control::PathStatus(path));
        }
        Ok(())
    }

    pub(super) fn on_max_path_id(&mut self, max: PathId) {
        if self.paths.on_max_id(max) {
            self.issue_cids();
        }
    }

    pub(super) fn on_paths_blocked(&mut self, max: PathId) -> Result<(), TransportError> {
        self.paths.check(max)?;
        if max < self.paths.local_max() {
            self.queue(Control::MaxPathId);
        }
        Ok(())
    }

    /// Issues connection ids for every path that the peer may use.
    pub(super) fn issue_cids(&mut self) {
        let limit = self.handshake.peer().active_cid_limit;
        self.cids.issue(self.paths.max_id(), limit, &mut self.random, &mut self.pending);
    }

    pub(super) fn on_new_cid(&mut self, new: NewCid) -> Result<(), TransportError> {
        self.paths.check(new.path)?;
        if self.cids.is_peer_empty() {
            return Err(TransportError::violation("a connection id of an end that is known by none"));
        }
        let first = !self.paths.is_retired(new.path) && self.cids.on_new(new, &mut self.pending)?;
        if first && self.handshake.is_client() {
            self.events.push_back(Event::PathsAvailable);
        }
        Ok(())
    }

    pub(super) fn on_retire_cid(&mut self, path: PathId, seq: u64) -> Result<(), TransportError> {
        self.paths.check(path)?;
        if self.cids.on_retire(path, seq)? {
            self.issue_cids();
        }
        Ok(())
    }
}
