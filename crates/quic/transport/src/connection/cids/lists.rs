//! Connection ids of a path: those that the peer gave, and those that it was given (RFC 9000 section 5.1, multipath section 3.2).

use crate::error::{TransportError, code};
use crate::wire::cid::ConnectionId;
use crate::wire::frame::NewCid;
use crate::wire::ranges::Ranges;

/// Ids that the peer may give for a path at a time.
pub(crate) const ACTIVE_LIMIT: u64 = 4;
/// Ids that are given for a path: one in use, one for the next address.
const CIDS_PER_PATH: usize = 2;
/// Retirements that may wait to be told, or the peer only wants memory.
const MAX_RETIRED: usize = 32;

/// Ids that packets to the peer may carry.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemoteCids {
    /// The first is in use.
    list: Vec<NewCid>,
    retire_prior_to: u64,
    /// Numbers from there on that were given back: a repeated frame brings none of them again.
    given_back: Ranges,
}

impl RemoteCids {
    /// Of path 0: the id that the handshake brought.
    pub(crate) fn of_handshake(id: ConnectionId) -> RemoteCids {
        let first = NewCid { path: 0, seq: 0, retire_prior_to: 0, id, token: [0; 16] };
        RemoteCids { list: vec![first], ..RemoteCids::default() }
    }

    /// The id that packets carry.
    pub(crate) fn active(&self) -> Option<&NewCid> {
        self.list.first()
    }

    /// The handshake has changed the id, or brought its token.
    pub(crate) fn set_first(&mut self, id: ConnectionId, token: Option<[u8; 16]>) {
        if let Some(first) = self.list.first_mut() {
            (first.id, first.token) = (id, token.unwrap_or(first.token));
        }
    }

    /// Returns true if there is one beside the active one.
    pub(crate) fn has_spare(&self) -> bool {
        self.list.len() > 1
    }

    /// Takes the next one into use and gives the old one's number back.
    pub(crate) fn advance(&mut self) -> Option<u64> {
        let old = self.has_spare().then(|| self.list.remove(0).seq)?;
        self.given_back.insert(old..old + 1);
        // Numbers have gaps only where the peer leaves them, which must not cost memory for ever.
        if self.given_back.len() > MAX_RETIRED {
            self.given_back.pop_first();
        }
        Some(old)
    }

    /// The peer gives an id. Answers with numbers that are to be retired.
    pub(crate) fn insert(&mut self, new: NewCid, retired: &mut Vec<u64>) -> Result<(), TransportError> {
        if new.seq < self.retire_prior_to {
            retired.push(new.seq);
            return Ok(());
        }
        match self.list.iter().find(|own| own.seq == new.seq) {
            Some(own) if own.id != new.id => {
                return Err(TransportError::violation("a connection id's number was used twice"));
            }
            Some(_) => {}
            None if self.given_back.contains(new.seq) => {}
            None => {
                let at = self.list.iter().position(|own| own.seq > new.seq).unwrap_or(self.list.len());
                self.list.insert(at.max(usize::from(!self.list.is_empty())).min(self.list.len()), new);
            }
        }
        self.retire_prior_to = self.retire_prior_to.max(new.retire_prior_to);
        let prior = self.retire_prior_to;
        self.given_back.remove_below(prior);
        retired.extend(self.list.iter().map(|own| own.seq).filter(|&seq| seq < prior));
        self.list.retain(|own| own.seq >= prior);
        if self.list.len() as u64 > ACTIVE_LIMIT || retired.len() > MAX_RETIRED {
            return Err(TransportError::new(code::CONNECTION_ID_LIMIT, "more than were allowed"));
        }
        Ok(())
    }

    /// The reset token of the id in use: others' are not looked for (RFC 9000 section 10.3.1).
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.list.first().into_iter().map(|own| &own.token).filter(|token| **token != [0; 16])
    }
}

/// Ids by which packets of the peer are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalCids {
    list: Vec<(u64, ConnectionId)>,
    next: u64,
}

impl LocalCids {
    /// Adds an id; its number.
    pub(crate) fn push(&mut self, id: ConnectionId) -> u64 {
        self.list.push((self.next, id));
        self.next += 1;
        self.next - 1
    }

    /// Number of further ids to give to a peer with this limit.
    pub(crate) fn missing(&self, peer_limit: u64) -> usize {
        let want = usize::try_from(peer_limit).unwrap_or(CIDS_PER_PATH).min(CIDS_PER_PATH);
        want.saturating_sub(self.list.len())
    }

    pub(crate) fn contains(&self, id: &ConnectionId) -> bool {
        self.list.iter().any(|(_, own)| own == id)
    }

    /// The id with a number, if it was not retired.
    pub(crate) fn get(&self, seq: u64) -> Option<ConnectionId> {
        self.list.iter().find(|(own, _)| *own == seq).map(|(_, id)| *id)
    }

    /// The peer needs an id no more; an error if there was none of that number.
    pub(crate) fn retire(&mut self, seq: u64) -> Result<Option<ConnectionId>, TransportError> {
        if seq >= self.next {
            return Err(TransportError::violation("a connection id was retired that was not given"));
        }
        let at = self.list.iter().position(|(own, _)| *own == seq);
        Ok(at.map(|at| self.list.remove(at).1))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ConnectionId> {
        self.list.iter().map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(seq: u64, retire_prior_to: u64) -> NewCid {
        NewCid { path: 1, seq, retire_prior_to, id: ConnectionId::new(&[seq as u8]).unwrap(), token: [1; 16] }
    }

    #[test]
    fn connection_ids_are_used_in_order_and_retired() {
        let (mut cids, mut retired) = (RemoteCids::default(), Vec::new());
        for n in [new(0, 0), new(2, 0), new(1, 0)] {
            cids.insert(n, &mut retired).unwrap();
        }
        assert_eq!((cids.active().map(|own| own.seq), cids.advance()), (Some(0), Some(0)));
        cids.insert(new(0, 0), &mut retired).unwrap();
        assert_eq!(cids.active().map(|own| own.seq), Some(1), "a repeated frame brings nothing back");
        cids.insert(new(3, 3), &mut retired).unwrap();
        assert_eq!((cids.active().map(|own| own.seq), &retired[..]), (Some(3), &[1, 2][..]));
        assert!(cids.insert(NewCid { id: ConnectionId::EMPTY, ..new(3, 3) }, &mut retired).is_err());
        let mut all = (4..9).map(|seq| cids.insert(new(seq, 3), &mut Vec::new()));
        assert!(all.any(|result| result.is_err_and(|error| error.code == code::CONNECTION_ID_LIMIT)));
    }

    #[test]
    fn first_connection_id_may_arrive_after_the_second() {
        let (mut cids, mut retired) = (RemoteCids::default(), Vec::new());
        for n in [new(1, 0), new(0, 0)] {
            cids.insert(n, &mut retired).unwrap();
        }
        assert!(cids.has_spare() && retired.is_empty());
        assert_eq!((cids.advance(), cids.active().map(|own| own.seq)), (Some(1), Some(0)));
    }

    #[test]
    fn sequence_number_gaps_use_bounded_memory() {
        let (mut cids, mut retired) = (RemoteCids::default(), Vec::new());
        for seq in (0..20_000).step_by(2) {
            cids.insert(new(seq, 0), &mut retired).unwrap();
            cids.advance();
        }
        assert_eq!((cids.given_back.len(), retired.len()), (MAX_RETIRED, 0));
    }

    #[test]
    fn retiring_an_unissued_connection_id_is_an_error() {
        let mut cids = LocalCids::default();
        let id = ConnectionId::new(&[1]).unwrap();
        assert_eq!((cids.missing(8), cids.push(id), cids.missing(8), cids.missing(1)), (2, 0, 1, 0));
        assert!(cids.retire(1).is_err());
        assert_eq!((cids.retire(0), cids.retire(0)), (Ok(Some(id)), Ok(None)));
    }
}
