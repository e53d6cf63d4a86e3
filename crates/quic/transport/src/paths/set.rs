//! All paths of a connection: slots, numbers and limits (draft-ietf-quic-multipath-21 section 3).

use super::path::{Path, PathState};
use super::route::Route;
use crate::congestion::Windows;
use crate::error::TransportError;
use crate::event::PathId;
use crate::recovery::GRANULARITY;
use crate::recovery::sent::SentPacket;
use crate::wire::ranges::Ranges;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut, Range};
use vmcc_cc::MAX_PATHS;
use vmcc_multipath::{AckPath, Oldest, late_at, on_time_limit};
use vmcc_units::time::{Span, Time};

/// Paths by their slots, which later paths reuse; numbers are never reused.
#[derive(Debug)]
pub(crate) struct PathSet {
    slots: Vec<Path>,
    multipath: bool,
    next_id: PathId,
    /// The highest path that this end allows, and that the peer does.
    local_max: PathId,
    peer_max: PathId,
    /// PATH_STATUS of paths that have not begun here: sequence number, and whether they are available.
    early_status: BTreeMap<PathId, (u64, bool)>,
    /// Paths that were abandoned, open or not.
    retired: Ranges,
}

impl PathSet {
    /// The path of the handshake; this end allows paths up to `local_max`.
    pub(crate) fn new(first: Path, local_max: PathId) -> PathSet {
        PathSet {
            slots: vec![first],
            multipath: false,
            next_id: 1,
            local_max,
            peer_max: 0,
            early_status: BTreeMap::new(),
            retired: Ranges::default(),
        }
    }

    /// Both ends speak multipath QUIC; the peer allows paths up to `peer_max`.
    pub(crate) fn negotiate(&mut self, peer_max: PathId) {
        (self.multipath, self.peer_max) = (true, peer_max);
    }

    pub(crate) fn is_multipath(&self) -> bool {
        self.multipath
    }

    pub(crate) fn slots(&self) -> Range<usize> {
        0..self.slots.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Path> {
        self.slots.iter()
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Path> {
        self.slots.get(slot)
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Path> {
        self.slots.get_mut(slot)
    }

    /// Slot of a path that is not closed.
    pub(crate) fn slot_of(&self, id: PathId) -> Option<usize> {
        self.slots.iter().position(|path| path.id == id && path.state != PathState::Closed)
    }

    /// Slot of a path on which packets may be sent.
    pub(crate) fn live_slot(&self, id: PathId) -> Option<usize> {
        self.slot_of(id).filter(|&slot| self.slots[slot].is_live())
    }

    /// Slot of the live path along a route.
    pub(crate) fn slot_on(&self, route: Route) -> Option<usize> {
        self.slots.iter().position(|path| path.route == route && path.is_live())
    }

    /// Live paths, with their slots.
    pub(crate) fn live(&self) -> impl DoubleEndedIterator<Item = (usize, &Path)> {
        self.slots.iter().enumerate().filter(|(_, path)| path.is_live())
    }

    /// Slots but this one of which something holds.
    fn any_other(&self, slot: usize, holds: impl Fn(&Path) -> bool) -> bool {
        self.slots.iter().enumerate().any(|(i, path)| i != slot && holds(path))
    }

    pub(crate) fn another_is_open(&self, slot: usize) -> bool {
        self.any_other(slot, Path::is_open)
    }

    pub(crate) fn another_is_responsive(&self, slot: usize) -> bool {
        self.any_other(slot, Path::is_responsive)
    }

    /// Returns true if a path is silent while another could carry its data.
    pub(crate) fn is_avoided(&self, slot: usize) -> bool {
        self.slots[slot].failed && self.another_is_responsive(slot)
    }

    /// Slot of the best other path that is no backup: one on time, and of those the one with the lowest RTT.
    fn best_other(&self, slot: usize) -> Option<usize> {
        let usable = |path: &Path| path.is_responsive() && !path.is_backup();
        let others = self.slots.iter().enumerate().filter(|(i, path)| *i != slot && usable(path));
        others.min_by_key(|(_, path)| (path.lateness.is_late(), path.srtt())).map(|(i, _)| i)
    }

    /// The best other path, if it is on time.
    fn other_on_time(&self, slot: usize) -> Option<&Path> {
        self.best_other(slot).map(|other| &self.slots[other]).filter(|other| other.is_on_time())
    }

    /// Returns true if a path is late while another is on time.
    pub(crate) fn is_late(&self, slot: usize) -> bool {
        self.slots[slot].lateness.is_late() && self.other_on_time(slot).is_some()
    }

    /// Returns true if a path is to carry no data, because another can.
    pub(crate) fn is_withheld(&self, slot: usize) -> bool {
        self.is_avoided(slot) || self.is_late(slot)
    }

    /// Time at which a path becomes late: its two oldest packets are overdue then.
    pub(crate) fn late_at(&self, slot: usize) -> Option<Time> {
        let path = &self.slots[slot];
        if self.slots.len() < 2 || !path.is_on_time() {
            return None;
        }
        let oldest = path.unanswered().take(2).last()?;
        let oldest = Oldest { sent: oldest.sent, overdue: oldest.overdue };
        let other = &self.slots[self.best_other(slot)?];
        late_at(oldest, other.srtt(), other.unanswered().next().map(|packet| packet.sent))
    }

    /// A path becomes late: the best other one is on time beside it.
    pub(crate) fn on_late(&mut self, now: Time, slot: usize) {
        self.slots[slot].lateness.begin(now);
        if let Some(other) = self.best_other(slot) {
            self.slots[other].lateness.end(now);
        }
    }

    /// A suspect path answers again: it is late if its round trips are not usual.
    pub(crate) fn on_revived(&mut self, now: Time, slot: usize) {
        let path = &self.slots[slot];
        let round_trip = path.srtt().max(path.latest_rtt);
        if self.on_time_limit(slot).is_some_and(|limit| round_trip > limit) {
            self.slots[slot].lateness.begin(now);
        }
    }

    /// Longest round trip of a late path that is on time.
    pub(crate) fn on_time_limit(&self, slot: usize) -> Option<Span> {
        Some(on_time_limit(&self.slots[slot].rtt, self.other_on_time(slot)?.srtt()))
    }

    /// Time of the next probe of a late path while other paths are in use: one for each round trip that would be on time, and one at once
    /// where it decides.
    pub(crate) fn late_probe_at(&self, slot: usize) -> Option<Time> {
        let path = &self.slots[slot];
        if !path.lateness.is_late() || !path.is_responsive() || path.probes > 0 {
            return None;
        }
        let in_use = self.any_other(slot, |other| is_regular(other) && other.space.sent.eliciting() > 0);
        let limit = self.on_time_limit(slot).filter(|_| in_use)?;
        let at_once = path.space.sent.eliciting() == 0 && path.lateness.awaits_probe(path.last_eliciting_at);
        Some(path.last_eliciting_at + if at_once { Span::ZERO } else { limit })
    }

    /// The path for data that were lost: of those on time the one that delivers them first, after the time until it has room. None if no
    /// path is on time. `wait` is that time, or none where nothing can be sent.
    pub(crate) fn repair_path(&self, now: Time, wait: impl Fn(usize) -> Option<Span>) -> Option<usize> {
        let expected = |slot: usize| {
            let path = Some(&self.slots[slot]).filter(|path| is_regular(path))?;
            Some((path.expected_rtt(now) + wait(slot)?, slot))
        };
        self.slots().filter_map(expected).min().map(|(_, slot)| slot)
    }

    /// Returns true if no slot is left.
    pub(crate) fn is_full(&self) -> bool {
        self.slots.iter().filter(|path| path.state != PathState::Closed).count() >= MAX_PATHS
    }

    /// The highest path that both ends allow.
    pub(crate) fn max_id(&self) -> PathId {
        if self.multipath { self.local_max.min(self.peer_max) } else { 0 }
    }

    /// The highest path that this end allows.
    pub(crate) fn local_max(&self) -> PathId {
        self.local_max
    }

    /// The highest path that the peer allows.
    pub(crate) fn peer_max(&self) -> PathId {
        self.peer_max
    }

    /// Refuses frames about paths beyond what this end allows.
    pub(crate) fn check(&self, id: PathId) -> Result<(), TransportError> {
        if id > self.local_max {
            return Err(TransportError::violation("a path beyond the limit"));
        }
        Ok(())
    }

    /// MAX_PATH_ID came; returns true if more paths are allowed now.
    pub(crate) fn on_max_id(&mut self, max: PathId) -> bool {
        let more = max > self.peer_max;
        self.peer_max = self.peer_max.max(max);
        more
    }

    /// Number of the next path that this end may open.
    pub(crate) fn next_id(&mut self) -> PathId {
        while self.is_retired(self.next_id) {
            self.next_id += 1;
        }
        self.next_id
    }

    /// Returns true if the peer may open a path of this number now.
    pub(crate) fn is_acceptable(&self, id: PathId) -> bool {
        id <= self.max_id() && !self.is_full() && !self.is_retired(id)
    }

    /// Adds a path in a free slot, and returns the slot.
    pub(crate) fn insert(&mut self, mut path: Path) -> usize {
        self.next_id = self.next_id.max(path.id + 1);
        if let Some((seq, available)) = self.early_status.remove(&path.id) {
            path.status.on_peer(seq, available);
        }
        let free = self.slots.iter().position(|path| path.state == PathState::Closed);
        let slot = free.unwrap_or(self.slots.len());
        match self.slots.get_mut(slot) {
            Some(place) => *place = path,
            None => self.slots.push(path),
        }
        slot
    }

    /// Retires a number, which is never reused, and allows the peer another one.
    pub(crate) fn retire(&mut self, id: PathId) {
        self.retired.insert(id.into()..u64::from(id) + 1);
        self.early_status.remove(&id);
        self.local_max += 1;
    }

    pub(crate) fn is_retired(&self, id: PathId) -> bool {
        self.retired.contains(id.into())
    }

    /// PATH_STATUS came. It may overtake the first packet of its path: there are no more of those than paths that may be opened.
    pub(crate) fn on_status(&mut self, id: PathId, seq: u64, available: bool) {
        match self.slot_of(id) {
            Some(slot) => self.slots[slot].status.on_peer(seq, available),
            None if self.is_retired(id) => {}
            None => {
                let known = self.early_status.entry(id).or_insert((seq, available));
                *known = if seq > known.0 { (seq, available) } else { *known };
            }
        }
    }

    /// Closes a path that was abandoned long enough ago, and returns its number.
    pub(crate) fn close_if_due(&mut self, slot: usize, now: Time) -> Option<PathId> {
        let path = &mut self.slots[slot];
        let due = matches!(path.state, PathState::Abandoned(until) if until <= now);
        due.then(|| {
            path.state = PathState::Closed;
            path.id
        })
    }

    /// The longest probe timeout of a path that is in use.
    pub(crate) fn longest_pto(&self, ack_delay: Span) -> Span {
        let used = self.slots.iter().filter(|path| path.state != PathState::Closed);
        used.map(|path| path.pto(ack_delay)).max().unwrap_or(Span::from_secs(1))
    }

    /// Time at which a path becomes suspect: its two oldest packets should have been acknowledged by then, and nothing came. One alone may be
    /// lost. Packets that later ones have overtaken are a matter of loss detection. Unlike the probe timeout this does not move with every
    /// packet that is sent.
    pub(crate) fn suspect_at(&self, slot: usize, ack_delay: Span) -> Option<Time> {
        let path = &self.slots[slot];
        if !path.is_responsive() || !self.another_is_responsive(slot) {
            return None;
        }
        let mut out = path.unanswered();
        let (oldest, second) = (out.next()?, out.next());
        let since = |packet: &SentPacket| packet.sent.max(path.last_received_at);
        // Two deviations instead of four: to be wrong costs packets sent twice, to be late stalls everything.
        let (rto, srtt) = (path.pto(Span::ZERO), path.srtt());
        let margin = (rto - srtt).div(2);
        // The round trip of a packet may be a little longer than usual and its acknowledgment delayed.
        let late = since(oldest) + srtt + margin.max(ack_delay) + GRANULARITY;
        // If only the oldest is lost, the next one is acknowledged without delay.
        let latest = since(oldest) + rto + ack_delay;
        Some(second.map_or(late, |second| late.max(since(second) + srtt + margin).min(latest)))
    }

    /// The path that carries the acknowledgments of another.
    pub(crate) fn ack_carrier(&self, of: usize, policy: AckPath, ack_delay: Span) -> Option<usize> {
        // One on which nothing comes any more while others bring something would swallow them.
        let newest = self.slots.iter().map(|path| path.last_received_at).max().unwrap_or(Time::ZERO);
        let answers = |slot: usize| {
            let path = &self.slots[slot];
            path.is_responsive() && path.last_received_at + path.pto(ack_delay) >= newest
        };
        let best = || {
            let open = self.slots().filter(|&slot| answers(slot) && self.slots[slot].rtt.srtt_8us > 0);
            open.min_by_key(|&slot| self.slots[slot].rtt.srtt_8us)
        };
        let wanted = match policy {
            AckPath::Own => Some(of),
            AckPath::Best if self.multipath => best(),
            AckPath::Best => Some(of),
            AckPath::Fixed => self.slot_of(0),
        };
        let own = Some(of).filter(|&of| self.slots[of].is_live());
        let wanted = wanted.filter(|&slot| answers(slot)).or_else(|| own.filter(|&of| answers(of)));
        wanted.or_else(best).or(own).or_else(|| self.slots.iter().position(Path::is_live))
    }

    /// Path on which the peer was heard last: another one may be silent although nobody could notice so far.
    pub(crate) fn last_heard(&self) -> usize {
        let rank = |path: &Path| (path.is_open(), !path.failed, path.last_received_at);
        self.live().rev().max_by_key(|(_, path)| rank(path)).map_or(0, |(slot, _)| slot)
    }

    /// Notes until when pacing holds each path back.
    pub(crate) fn update_pacing(&mut self, now: Time) {
        for path in &mut self.slots {
            let ready = path.pacer.ready_at(now, path.mtu.size());
            path.paced_until = Some(ready).filter(|&ready| ready > now);
        }
    }

    /// Paces a path by its window; all paths where the window is one of all.
    pub(crate) fn pace(&mut self, windows: &Windows, slot: usize) {
        let all = windows.is_combined();
        let paths = self.slots.iter_mut().enumerate().filter(|(i, _)| all || *i == slot);
        paths.for_each(|(i, path)| path.pace(windows.of(i)));
    }
}

/// Returns true if a path is on time and no backup.
fn is_regular(path: &Path) -> bool {
    path.is_on_time() && !path.is_backup()
}

impl Index<usize> for PathSet {
    type Output = Path;

    #[inline]
    fn index(&self, slot: usize) -> &Path {
        &self.slots[slot]
    }
}

impl IndexMut<usize> for PathSet {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut Path {
        &mut self.slots[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::super::mtu::{BASE, Mtu};
    use super::*;

    fn path(id: PathId) -> Path {
        let address = |port: u16| ([127, 0, 0, 1], port).into();
        let route = Route { local: address(1), remote: address(100 + id as u16) };
        let mut path = Path::new(id, route, Mtu::new(BASE, BASE));
        path.state = PathState::Open;
        path
    }

    fn set() -> PathSet {
        let mut paths = PathSet::new(path(0), MAX_PATHS as u32 - 1);
        paths.negotiate(100);
        paths
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn slots_are_reused_and_numbers_are_not() {
        let mut paths = set();
        let ids: Vec<_> = (1..MAX_PATHS)
            .map(|_| {
                let id = paths.next_id();
                paths.insert(path(id));
                id
            })
            .collect();
        assert_eq!(ids, (1..MAX_PATHS as u32).collect::<Vec<_>>());
        assert!(paths.is_full() && !paths.is_acceptable(MAX_PATHS as u32));
        paths.retire(2);
        paths[2].state = PathState::Abandoned(at(5));
        assert_eq!((paths.close_if_due(2, at(4)), paths.slot_of(2)), (None, Some(2)));
        assert_eq!((paths.close_if_due(2, at(5)), paths.slot_of(2)), (Some(2), None));
        assert!(!paths.is_acceptable(2) && paths.is_acceptable(MAX_PATHS as u32), "one more is allowed");
        let id = paths.next_id();
        assert_eq!((id, paths.insert(path(id)), paths.slot_of(id)), (MAX_PATHS as u32, 2, Some(2)));
        paths.retire(id + 1);
        assert_eq!(paths.next_id(), id + 2);
    }

    #[test]
    fn limits_are_those_of_both_ends_once_negotiated() {
        let mut paths = PathSet::new(path(0), 3);
        assert_eq!((paths.max_id(), paths.check(3), paths.check(4).is_err()), (0, Ok(()), true));
        paths.negotiate(2);
        assert_eq!(
            (paths.max_id(), paths.on_max_id(1), paths.on_max_id(9), paths.max_id()),
            (2, false, true, 3)
        );
    }

    #[test]
    fn status_before_the_first_packet_of_a_path_holds() {
        let mut paths = set();
        paths.on_status(1, 3, false);
        paths.on_status(1, 2, true);
        let slot = paths.insert(path(1));
        assert!(paths[slot].is_backup());
        paths.on_status(1, 4, true);
        assert!(!paths[slot].is_backup());
        paths.retire(2);
        paths.on_status(2, 0, false);
        let slot = paths.insert(path(2));
        assert!(!paths[slot].is_backup(), "nothing is kept of a retired path");
    }

    #[test]
    fn acks_avoid_paths_that_receive_nothing_while_others_do() {
        let mut paths = set();
        let slot = paths.insert(path(1));
        for (i, rtt) in [(0, 10), (slot, 40)] {
            paths[i].on_rtt(at(100), Span::from_ms(rtt), Span::ZERO);
            paths[i].last_received_at = at(100);
        }
        let carrier = |paths: &PathSet, policy| paths.ack_carrier(slot, policy, Span::ZERO);
        let all = [AckPath::Own, AckPath::Best, AckPath::Fixed];
        assert_eq!(all.map(|policy| carrier(&paths, policy)), [Some(slot), Some(0), Some(0)]);
        paths[slot].last_received_at = at(10_000);
        assert_eq!(all.map(|policy| carrier(&paths, policy)), [Some(slot); 3]);
        paths[0].state = PathState::Closed;
        paths[slot].failed = true;
        assert_eq!(all.map(|policy| carrier(&paths, policy)), [Some(slot); 3], "there is no other");
    }

    #[test]
    fn close_leaves_on_the_open_path_that_was_heard_last() {
        let mut paths = set();
        let slot = paths.insert(path(1));
        (paths[0].last_received_at, paths[slot].last_received_at) = (at(5), at(9));
        assert_eq!(paths.last_heard(), slot);
        paths[slot].failed = true;
        assert_eq!(paths.last_heard(), 0);
    }
}
