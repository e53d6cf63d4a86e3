//! Changes by a path manager to subflows of a running connection.

use super::Tx;
use crate::endpoint::Wire;
use crate::tcp::record::Closing;
use crate::tcp::subflow::Status;
use crate::time::{Span, Time};
use crate::transport::SubflowChange;

impl<W: Wire> Tx<'_, W> {
    /// Changes subflow `r`. One is closed and opened only where a connection can have several, and no earlier than others were
    /// asked for, since nobody else could carry what it has not delivered.
    pub(crate) fn change(&mut self, r: usize, change: SubflowChange) {
        let lives = self.conn.established_at != Time::NEVER && !self.conn.finished;
        match change {
            SubflowChange::Backup(backup) => {
                self.subs[r].backup = backup;
                self.conn.selector.refresh(r, &self.subs[r]);
                if lives {
                    self.push(None);
                }
            }
            SubflowChange::Close
                if lives
                    && self.conn.grouped
                    && self.conn.joins_begun
                    && self.subs[r].status != Status::Closed =>
            {
                self.close_subflow(r, Closing::Managed);
                self.push(None);
            }
            SubflowChange::Open if lives && self.subs[r].status == Status::Closed => self.reopen(r),
            SubflowChange::Close | SubflowChange::Open => {}
        }
    }

    fn reopen(&mut self, r: usize) {
        self.conn.forget_carrier(r);
        self.subs[r] = self.subs[r].reopened(self.config.initial_cwnd_pkt);
        self.publish(r);
        self.open_subflow(r, Span::ZERO);
    }

    /// True if subflow `r` joins a connection, rather than opening it.
    pub(super) fn joins(&self, r: usize) -> bool {
        r > 0 || self.conn.established_at != Time::NEVER
    }
}
