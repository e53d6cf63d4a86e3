//! Events of the guard: actions on paths, with their reasons.

use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_system::diag::Subflow;

/// Event of the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardEvent {
    /// It closed a path that an algorithm requested to close.
    Closed(CloseRequest),
    /// Any other action.
    Action(PathAction),
}

/// Kind of action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Action {
    /// It would be closed, but the guard only reports.
    WouldClose,
    /// It would be suppressed, but the guard only reports.
    WouldSuppress,
    /// An algorithm asks to close it, and it stays, because too few others are in use.
    #[serde(rename = "spared")]
    Retained,
    /// It is a backup from now on, and closed when what it has sent is acknowledged.
    Draining,
    /// It is closed.
    Closed,
    /// It is a backup from now on.
    Suppressed,
    /// It is no longer a backup.
    Released,
    /// The path manager was asked to open a subflow in its place.
    TriedAgain,
    /// It cannot be tried again.
    NotTriedAgain,
}

/// Action of the guard on a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathAction {
    /// Kind of action.
    pub action: Action,
    /// Reason.
    pub reason: String,
    /// Inode number of the connection's network namespace.
    pub netns: u32,
    /// The connection's token at this end.
    pub token: u32,
    /// Local end of the subflow.
    pub local: SocketAddr,
    /// Its remote end.
    pub remote: SocketAddr,
}

impl PathAction {
    pub(crate) fn to(subflow: &Subflow, netns: u32, action: Action, reason: &str) -> Self {
        let token = subflow.mptcp.map_or(0, |mptcp| mptcp.token_local);
        let (local, remote) = (subflow.local, subflow.remote);
        Self { action, reason: reason.to_owned(), netns, token, local, remote }
    }
}

impl fmt::Display for PathAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = format!("{} -> {} (connection {:08x})", self.local, self.remote, self.token);
        let reason = &self.reason;
        match self.action {
            Action::WouldClose => write!(f, "would close {path}: {reason}"),
            Action::WouldSuppress => write!(f, "would suppress {path}: {reason}"),
            Action::Retained => write!(f, "spared {path}: {reason}"),
            Action::Draining => write!(f, "draining {path}, to be closed: {reason}"),
            Action::Closed => write!(f, "closed {path}: {reason}"),
            Action::Suppressed => write!(f, "suppressed {path}, it is a backup now: {reason}"),
            Action::Released => write!(f, "no longer suppressed {path}: {reason}"),
            Action::TriedAgain => write!(f, "tried again {path}: {reason}"),
            Action::NotTriedAgain => write!(f, "not tried again {path}: {reason}"),
        }
    }
}
