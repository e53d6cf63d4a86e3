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

    /// Gives the peer ids for every path that it may use.
    pub(super) fn give_ids(&mut self) {
        while self.ids_given_to < self.max_path() {
            self.ids_given_to += 1;
            self.local_cids.insert(self.ids_given_to, LocalCids::default());
        }
        let limit = self.peer.active_cid_limit;
        let missing: Vec<_> = self.local_cids.iter().map(|(path, own)| (*path, own.missing(limit))).collect();
        for (path, count) in missing {
            for _ in 0..count {
                let id = ConnectionId::new(&self.random.bytes()[..LOCAL_CID_LEN]).expect("eight bytes");
                let Some(cids) = self.local_cids.get_mut(&path) else { continue };
                let seq = cids.push(id);
                self.endpoint_news.push_back(EndpointNews::NewLocal(id));
                self.queue(Control::NewCid(path, seq));
            }
        }
    }

    /// Returns true if the peer has chosen an empty connection id.
    pub(super) fn has_no_peer_id(&self) -> bool {
        self.peer_cid.is_some_and(|id| id.as_slice().is_empty())
    }

    pub(super) fn on_new_cid(&mut self, new: NewCid) -> Result<(), TransportError> {
        self.check_path(new.path)?;
        if self.has_no_peer_id() {
            return Err(TransportError::violation("a connection id of an end that is known by none"));
        }
        if self.spent.contains(new.path.into()) {
            return Ok(());
        }
        let known = self.remote_cids.contains_key(&new.path);
        let mut retired = Vec::new();
        let before = self.tokens_of(new.path);
        self.remote_cids.entry(new.path).or_default().insert(new, &mut retired)?;
        self.tell_tokens(new.path, before);
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
    fn tell_tokens(&mut self, path: PathId, before: Vec<[u8; 16]>) {
        let after = self.tokens_of(path);
        let gone = before.iter().filter(|token| !after.contains(token));
        self.endpoint_news.extend(gone.map(|token| EndpointNews::ForgetToken(*token)));
        let new = after.iter().filter(|token| !before.contains(token));
        self.endpoint_news.extend(new.map(|token| EndpointNews::ResetToken(*token)));
    }

    pub(super) fn on_retire_cid(&mut self, path: PathId, seq: u64) -> Result<(), TransportError> {
        self.check_path(path)?;
        let Some(cids) = self.local_cids.get_mut(&path) else { return Ok(()) };
        if let Some(id) = cids.retire(seq)? {
            self.endpoint_news.push_back(EndpointNews::RetiredLocal(id));
            self.give_ids();
        }
        Ok(())
    }

    /// The frame that gives an id, if it was not retired.
    pub(super) fn new_cid(&self, path: PathId, seq: u64) -> Option<NewCid> {
        let id = self.local_cids.get(&path)?.get(seq)?;
        let token = self.reset_secret.tag(id.as_slice());
        Some(NewCid { path, seq, retire_prior_to: 0, id, token })
    }

    /// Takes a fresh id into use on a path, so that nobody links its addresses.
    pub(super) fn change_id(&mut self, path: PathId) {
        let before = self.tokens_of(path);
        let old = self.remote_cids.get_mut(&path).and_then(RemoteCids::advance);
        self.tell_tokens(path, before);
        if let Some(seq) = old {
            self.queue(Control::RetireCid(path, seq));
        }
    }

    /// Forgets the ids of a path.
    pub(super) fn drop_ids(&mut self, path: PathId) {
        let before = self.tokens_of(path);
        self.remote_cids.remove(&path);
        self.tell_tokens(path, before);
        if let Some(cids) = self.local_cids.remove(&path) {
            self.old_ids.extend(cids.iter());
        }
        while self.old_ids.len() > MAX_OLD_IDS {
            self.endpoint_news.extend(self.old_ids.pop_front().map(EndpointNews::RetiredLocal));
        }
    }
}
