//! PATH_STATUS of a path: available or backup (draft-ietf-quic-multipath-21 section 3.3).

/// A path's status, as this end and the peer want it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status {
    own_backup: bool,
    own_seq: u64,
    peer_backup: bool,
    peer_seq: Option<u64>,
}

impl Status {
    /// Returns true if the path carries data only where no other can.
    pub(crate) fn is_backup(&self) -> bool {
        self.own_backup || self.peer_backup
    }

    /// This end's status to send, and its sequence number.
    pub(crate) fn own(&self) -> (bool, u64) {
        (self.own_backup, self.own_seq)
    }

    /// Sets this end's status; returns true if the peer is to hear of it.
    pub(crate) fn set_own(&mut self, backup: bool) -> bool {
        let changed = self.own_backup != backup;
        self.own_seq += u64::from(changed);
        self.own_backup = backup;
        changed
    }

    /// The peer's status came, maybe late.
    pub(crate) fn on_peer(&mut self, seq: u64, available: bool) {
        if self.peer_seq.is_none_or(|last| seq > last) {
            (self.peer_seq, self.peer_backup) = (Some(seq), !available);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_status_of_the_peer_holds_and_either_end_makes_a_backup() {
        let mut status = Status::default();
        status.on_peer(0, false);
        assert!(status.is_backup());
        status.on_peer(2, true);
        status.on_peer(1, false);
        assert!(!status.is_backup(), "1 is older than 2");
        assert!(status.set_own(true) && !status.set_own(true) && status.is_backup());
        assert_eq!(status.own(), (true, 1));
    }
}
