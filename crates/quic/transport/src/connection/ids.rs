//! Connection ids: those that the peer may use, those that it has given.

use super::*;
use crate::error::TransportError;
use crate::wire::frame::NewCid;

/// Ids of paths that are gone which are still known as this connection's: a stateless reset for a late packet would end it.
const MAX_OLD_IDS: usize = 64;

impl Connection {
    /// The highest path that both ends allow.
    pub(super) fn max_path(&self) -> PathId {
        if self.multipath { self.local_max_path.min(self.peer_max_path) } else { 0 }
    }

    /// A frame may only be about paths that this end allows.
    pub(super) fn check_path(&self, path: PathId) -> Result<(), TransportError> {
        if path > self.local_max_path {
            return Err(TransportError::violation("a path beyond the limit"));
        }
        Ok(())
    }

    /// Issues connection ids for every path that the peer may use.
    pub(super) fn issue_cids(&mut self) {
        while self.cids_issued_to < self.max_path() {
            self.cids_issued_to += 1;
            self.local_cids.insert(self.cids_issued_to, LocalCids::default());
        }
        let limit = self.peer.active_cid_limit;
        let missing: Vec<_> = self.local_cids.iter().map(|(path, own)| (*path, own.missing(limit))).collect();
        for (path, count) in missing {
            for _ in 0..count {
                let id = ConnectionId::new(&self.random.bytes()[..LOCAL_CID_LEN]).expect("eight bytes");
                let Some(cids) = self.local_cids.get_mut(&path) else { continue };
                let seq = cids.push(id);
                self.endpoint_events.push_back(EndpointEvent::NewLocal(id));
                self.queue(Control::NewCid(path, seq));
            }
        }
    }

    /// Returns true if the peer has chosen an empty connection id.
    pub(super) fn peer_cid_is_empty(&self) -> bool {
        self.peer_cid.is_some_and(|id| id.as_slice().is_empty())
    }

    pub(super) fn on_new_cid(&mut self, new: NewCid) -> Result<(), TransportError> {
        self.check_path(new.path)?;
        if self.peer_cid_is_empty() {
            return Err(TransportError::violation("a connection id of an end that is known by none"));
        }
        if self.retired_paths.contains(new.path.into()) {
            return Ok(());
        }
        let known = self.remote_cids.contains_key(&new.path);
        let mut retired = Vec::new();
        let before = self.tokens_of(new.path);
        self.remote_cids.entry(new.path).or_default().insert(new, &mut retired)?;
        self.update_reset_tokens(new.path, before);
        retired.into_iter().for_each(|seq| self.queue(Control::RetireCid(new.path, seq)));
        if !known && self.side == Side::Client {
            self.events.push_back(Event::PathsAvailable);
        }
        Ok(())
    }

    fn tokens_of(&self, path: PathId) -> Vec<[u8; 16]> {
        self.remote_cids.get(&path).into_iter().flat_map(RemoteCids::tokens).copied().collect()
    }

    /// The endpoint knows the tokens of the ids that are in use, and no others.
    fn update_reset_tokens(&mut self, path: PathId, before: Vec<[u8; 16]>) {
        let after = self.tokens_of(path);
        let gone = before.iter().filter(|token| !after.contains(token));
        self.endpoint_events.extend(gone.map(|token| EndpointEvent::ForgetToken(*token)));
        let new = after.iter().filter(|token| !before.contains(token));
        self.endpoint_events.extend(new.map(|token| EndpointEvent::ResetToken(*token)));
    }

    pub(super) fn on_retire_cid(&mut self, path: PathId, seq: u64) -> Result<(), TransportError> {
        self.check_path(path)?;
        let Some(cids) = self.local_cids.get_mut(&path) else { return Ok(()) };
        if let Some(id) = cids.retire(seq)? {
            self.endpoint_events.push_back(EndpointEvent::RetiredLocal(id));
            self.issue_cids();
        }
        Ok(())
    }

    /// The frame that gives an id, if it was not retired.
    pub(super) fn new_cid(&self, path: PathId, seq: u64) -> Option<NewCid> {
        let id = self.local_cids.get(&path)?.get(seq)?;
        let token = self.reset_secret.tag(id.as_slice());
        Some(NewCid { path, seq, retire_prior_to: 0, id, token })
    }

    /// Switches a path to a fresh connection id, so that its addresses cannot be linked (RFC 9000 section 9.5).
    pub(super) fn rotate_cid(&mut self, path: PathId) {
        let before = self.tokens_of(path);
        let old = self.remote_cids.get_mut(&path).and_then(RemoteCids::advance);
        self.update_reset_tokens(path, before);
        if let Some(seq) = old {
            self.queue(Control::RetireCid(path, seq));
        }
    }

    /// Forgets the ids of a path.
    pub(super) fn drop_cids(&mut self, path: PathId) {
        let before = self.tokens_of(path);
        self.remote_cids.remove(&path);
        self.update_reset_tokens(path, before);
        if let Some(cids) = self.local_cids.remove(&path) {
            self.old_ids.extend(cids.iter());
        }
        while self.old_ids.len() > MAX_OLD_IDS {
            self.endpoint_events.extend(self.old_ids.pop_front().map(EndpointEvent::RetiredLocal));
        }
    }
}
