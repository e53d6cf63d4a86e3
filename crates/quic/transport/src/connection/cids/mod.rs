//! Connection ids: those issued to the peer, those it has issued, and those of the handshake (RFC 9000 section 5.1).

mod lists;

use super::pending::Pending;
use crate::crypto::{Random, Secret};
use crate::error::TransportError;
use crate::event::PathId;
use crate::recovery::sent::Control;
use crate::wire::cid::ConnectionId;
use crate::wire::frame::NewCid;
pub(super) use lists::ACTIVE_LIMIT;
use lists::{LocalCids, RemoteCids};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of the connection ids that this end issues.
pub(crate) const LOCAL_CID_LEN: usize = 8;
/// Ids of closed paths that are still known as this connection's: a stateless reset for a late packet would end it.
const MAX_OLD_IDS: usize = 64;

/// A fresh connection id of this end.
pub(crate) fn random_cid(random: &mut Random) -> ConnectionId {
    ConnectionId::new(&random.bytes()[..LOCAL_CID_LEN]).expect("eight bytes")
}

/// Changes of the ids and tokens by which the endpoint finds a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointEvent {
    /// Packets with this id belong to this path.
    NewLocal(ConnectionId, PathId),
    RetiredLocal(ConnectionId),
    /// Stateless reset token of the peer.
    ResetToken([u8; 16]),
    ForgetToken([u8; 16]),
}

/// Ids that the handshake has brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandshakeCids {
    /// Destination of the client's first Initial.
    pub(super) original: ConnectionId,
    /// Source of the server's Retry.
    pub(super) retry: Option<ConnectionId>,
    pub(super) own: ConnectionId,
    pub(super) peer: Option<ConnectionId>,
}

/// Connection ids of a connection.
#[derive(Debug)]
pub(super) struct Cids {
    handshake: HandshakeCids,
    local: BTreeMap<PathId, LocalCids>,
    remote: BTreeMap<PathId, RemoteCids>,
    /// Paths up to here have been given ids.
    issued_to: PathId,
    /// Ids of closed paths.
    old: VecDeque<ConnectionId>,
    reset_secret: Secret,
    events: VecDeque<EndpointEvent>,
}

impl Cids {
    pub(super) fn new(handshake: HandshakeCids, reset_secret: Secret) -> Cids {
        let mut local = LocalCids::default();
        local.push(handshake.own);
        let peer = handshake.peer.unwrap_or(handshake.original);
        Cids {
            handshake,
            local: BTreeMap::from([(0, local)]),
            remote: BTreeMap::from([(0, RemoteCids::of_handshake(peer))]),
            issued_to: 0,
            old: VecDeque::new(),
            reset_secret,
            events: VecDeque::new(),
        }
    }

    pub(super) fn handshake(&self) -> &HandshakeCids {
        &self.handshake
    }

    /// Returns true if the peer has chosen an empty connection id.
    pub(super) fn is_peer_empty(&self) -> bool {
        self.handshake.peer.is_some_and(|id| id.as_slice().is_empty())
    }

    /// Adopts the source id of the peer's first packet. Later ones must keep to it: returns false for a packet with another one.
    pub(super) fn accept_source(&mut self, source: ConnectionId) -> bool {
        if self.handshake.peer.is_none() {
            self.handshake.peer = Some(source);
            self.set_first(source);
        }
        self.handshake.peer == Some(source)
    }

    /// A Retry asks for another destination.
    pub(super) fn on_retry(&mut self, source: ConnectionId) {
        self.handshake.retry = Some(source);
        self.set_first(source);
    }

    fn set_first(&mut self, id: ConnectionId) {
        if let Some(remote) = self.remote.get_mut(&0) {
            remote.set_first(id, None);
        }
    }

    /// Adopts the stateless reset token of the server's transport parameters, which belongs to its first id.
    pub(super) fn set_first_token(&mut self, token: [u8; 16]) {
        if let Some(first) = self.remote.get_mut(&0)
            && let Some(id) = first.active().map(|own| own.id)
        {
            first.set_first(id, Some(token));
            self.events.push_back(EndpointEvent::ResetToken(token));
        }
    }

    /// Destination id of packets on a path; none if the peer has issued none.
    pub(super) fn active(&self, path: PathId) -> Option<ConnectionId> {
        Some(self.remote.get(&path)?.active()?.id)
    }

    /// Returns true for an id that was issued for a path, which is not closed, and that the peer has not retired.
    pub(super) fn is_issued(&self, path: PathId, id: &ConnectionId) -> bool {
        self.local.get(&path).is_some_and(|own| own.contains(id))
    }

    /// Issues ids for every path up to `max_path`, as many as the peer's limit allows.
    pub(super) fn issue(
        &mut self,
        max_path: PathId,
        peer_limit: u64,
        random: &mut Random,
        pending: &mut Pending,
    ) {
        while self.issued_to < max_path {
            self.issued_to += 1;
            self.local.insert(self.issued_to, LocalCids::default());
        }
        for (&path, own) in &mut self.local {
            for _ in 0..own.missing(peer_limit) {
                let id = random_cid(random);
                let seq = own.push(id);
                self.events.push_back(EndpointEvent::NewLocal(id, path));
                pending.push(Control::NewCid(path, seq));
            }
        }
    }

    /// The frame that issues an id, if it was not retired.
    pub(super) fn frame(&self, path: PathId, seq: u64) -> Option<NewCid> {
        let id = self.local.get(&path)?.get(seq)?;
        let token = self.reset_secret.tag(id.as_slice());
        Some(NewCid { path, seq, retire_prior_to: 0, id, token })
    }

    /// NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID came. Returns true for the first id of its path.
    pub(super) fn on_new(&mut self, new: NewCid, pending: &mut Pending) -> Result<bool, TransportError> {
        let first = !self.remote.contains_key(&new.path);
        let mut retired = Vec::new();
        let before = self.tokens_of(new.path);
        self.remote.entry(new.path).or_default().insert(new, &mut retired)?;
        self.update_tokens(new.path, before);
        retired.into_iter().for_each(|seq| pending.push(Control::RetireCid(new.path, seq)));
        Ok(first)
    }

    /// RETIRE_CONNECTION_ID or PATH_RETIRE_CONNECTION_ID came. Returns true if another id may be issued for it.
    pub(super) fn on_retire(&mut self, path: PathId, seq: u64) -> Result<bool, TransportError> {
        let Some(cids) = self.local.get_mut(&path) else { return Ok(false) };
        let retired = cids.retire(seq)?;
        self.events.extend(retired.map(EndpointEvent::RetiredLocal));
        Ok(retired.is_some())
    }

    /// Switches a path to a fresh id, so that its addresses cannot be linked (RFC 9000 section 9.5).
    pub(super) fn rotate(&mut self, path: PathId, pending: &mut Pending) {
        let before = self.tokens_of(path);
        let old = self.remote.get_mut(&path).and_then(RemoteCids::advance);
        self.update_tokens(path, before);
        if let Some(seq) = old {
            pending.push(Control::RetireCid(path, seq));
        }
    }

    /// Forgets the ids of a closed path.
    pub(super) fn drop_path(&mut self, path: PathId) {
        let before = self.tokens_of(path);
        self.remote.remove(&path);
        self.update_tokens(path, before);
        if let Some(cids) = self.local.remove(&path) {
            self.old.extend(cids.iter());
        }
        while self.old.len() > MAX_OLD_IDS {
            self.events.extend(self.old.pop_front().map(EndpointEvent::RetiredLocal));
        }
    }

    fn tokens_of(&self, path: PathId) -> Vec<[u8; 16]> {
        self.remote.get(&path).into_iter().flat_map(RemoteCids::tokens).copied().collect()
    }

    /// The endpoint knows the tokens of the ids that are in use, and no others.
    fn update_tokens(&mut self, path: PathId, before: Vec<[u8; 16]>) {
        let after = self.tokens_of(path);
        let gone = before.iter().filter(|token| !after.contains(token));
        self.events.extend(gone.map(|token| EndpointEvent::ForgetToken(*token)));
        let new = after.iter().filter(|token| !before.contains(token));
        self.events.extend(new.map(|token| EndpointEvent::ResetToken(*token)));
    }

    /// Stateless reset tokens of the peer's ids that are in use.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.remote.values().flat_map(RemoteCids::tokens)
    }

    /// Every id that leads to this connection.
    pub(super) fn all_local(&self) -> impl Iterator<Item = &ConnectionId> {
        let HandshakeCids { original, retry, own, .. } = &self.handshake;
        let other = [original, own].into_iter().chain(retry).chain(&self.old);
        self.local.values().flat_map(LocalCids::iter).chain(other)
    }

    pub(super) fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> ConnectionId {
        ConnectionId::new(&[byte; LOCAL_CID_LEN]).unwrap()
    }

    fn cids() -> Cids {
        let handshake = HandshakeCids { original: id(1), retry: None, own: id(2), peer: None };
        Cids::new(handshake, Secret::new(&[3; 32]))
    }

    fn events(cids: &mut Cids) -> Vec<EndpointEvent> {
        std::iter::from_fn(|| cids.poll_event()).collect()
    }

    fn new(path: PathId, seq: u64) -> NewCid {
        NewCid { path, seq, retire_prior_to: 0, id: id(10 + seq as u8), token: [10 + seq as u8; 16] }
    }

    #[test]
    fn ids_are_issued_per_path_up_to_the_peer_limit_and_replaced() {
        let (mut cids, mut random, mut pending) = (cids(), Random::new(&[4; 32]), Pending::default());
        cids.issue(2, 8, &mut random, &mut pending);
        let issued: Vec<_> = events(&mut cids);
        let paths: Vec<_> = issued
            .iter()
            .map(|event| match event {
                EndpointEvent::NewLocal(_, path) => *path,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((paths, pending.len()), (vec![0, 1, 1, 2, 2], 5));
        cids.issue(2, 8, &mut random, &mut pending);
        assert!(events(&mut cids).is_empty(), "there are enough");
        let gone = cids.frame(1, 0).unwrap().id;
        assert_eq!(cids.on_retire(1, 0), Ok(true));
        cids.issue(2, 8, &mut random, &mut pending);
        let (after, fresh) = (events(&mut cids), cids.frame(1, 2).unwrap().id);
        assert_eq!(after, [EndpointEvent::RetiredLocal(gone), EndpointEvent::NewLocal(fresh, 1)]);
        assert_eq!(
            (cids.frame(1, 0), cids.on_retire(1, 0), cids.on_retire(9, 0)),
            (None, Ok(false), Ok(false))
        );
        assert!(cids.on_retire(1, 3).is_err(), "it was not issued");
    }

    #[test]
    fn endpoint_knows_the_token_of_the_id_in_use_only() {
        let (mut cids, mut pending) = (cids(), Pending::default());
        assert_eq!(
            (cids.on_new(new(1, 0), &mut pending), cids.on_new(new(1, 1), &mut pending)),
            (Ok(true), Ok(false))
        );
        assert_eq!(events(&mut cids), [EndpointEvent::ResetToken([10; 16])]);
        cids.rotate(1, &mut pending);
        let rotated = [EndpointEvent::ForgetToken([10; 16]), EndpointEvent::ResetToken([11; 16])];
        assert_eq!((events(&mut cids), pending.pop()), (rotated.to_vec(), Some(Control::RetireCid(1, 0))));
        cids.rotate(1, &mut pending);
        assert_eq!((cids.active(1), events(&mut cids).len()), (Some(id(11)), 0), "there is no other");
        cids.drop_path(1);
        assert_eq!((cids.active(1), events(&mut cids)), (None, vec![EndpointEvent::ForgetToken([11; 16])]));
    }

    #[test]
    fn ids_of_closed_paths_stay_known_and_are_bounded() {
        let (mut cids, mut random, mut pending) = (cids(), Random::new(&[4; 32]), Pending::default());
        cids.issue(MAX_OLD_IDS as u32, 8, &mut random, &mut pending);
        events(&mut cids);
        let before = cids.all_local().count();
        let [first, last] = [1, MAX_OLD_IDS as u32].map(|path| cids.frame(path, 0).unwrap().id);
        (1..=MAX_OLD_IDS as u32 / 2).for_each(|path| cids.drop_path(path));
        assert_eq!((cids.all_local().count(), events(&mut cids).len()), (before, 0));
        assert!(!cids.is_issued(1, &first) && cids.is_issued(MAX_OLD_IDS as u32, &last));
        cids.drop_path(MAX_OLD_IDS as u32);
        assert!(matches!(
            events(&mut cids)[..],
            [EndpointEvent::RetiredLocal(_), EndpointEvent::RetiredLocal(_)]
        ));
        assert_eq!(cids.all_local().count(), before - 2);
    }

    #[test]
    fn source_id_of_the_first_packet_holds() {
        let mut cids = cids();
        assert_eq!(cids.active(0), Some(id(1)));
        cids.on_retry(id(5));
        assert_eq!(cids.active(0), Some(id(5)));
        assert!(cids.accept_source(id(6)) && !cids.accept_source(id(7)) && cids.accept_source(id(6)));
        assert_eq!((cids.active(0), cids.is_peer_empty()), (Some(id(6)), false));
        cids.set_first_token([9; 16]);
        assert_eq!(events(&mut cids), [EndpointEvent::ResetToken([9; 16])]);
        assert!(cids.accept_source(id(6)) && cids.tokens().eq([&[9; 16]]));
    }
}
