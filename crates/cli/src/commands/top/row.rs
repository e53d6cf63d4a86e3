//! A connection of the view: its rates, its verdicts, its identity.

use serde::Serialize;
use std::net::SocketAddr;
use vmcc_agent::{Connection, Path, Verdict};

/// A connection and its rates.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// As `vmcc status` has it.
    #[serde(flatten)]
    pub(crate) connection: Connection,
    /// Of the paths that were there at both of the last looks; `None` if there are none.
    pub(crate) goodput_bps: Option<f64>,
    /// Of each path, in their order.
    pub(crate) path_goodput_bps: Vec<Option<f64>>,
    /// The share of marked packets among those that each path delivered between the last two looks, or until the only one.
    pub(crate) path_marked_share: Vec<Option<f64>>,
}

impl Row {
    pub(crate) fn cwnd_pkt(&self) -> u64 {
        self.connection.paths.iter().map(|path| u64::from(path.cwnd_pkt)).sum()
    }

    pub(crate) fn srtt_us(&self) -> u32 {
        self.connection.paths.iter().map(|path| path.srtt_us).max().unwrap_or(0)
    }

    pub(crate) fn marked_share(&self) -> Option<f64> {
        self.path_marked_share.iter().copied().flatten().reduce(f64::max)
    }

    /// The highest of its paths.
    pub(crate) fn highest(&self, of: impl Fn(&Path) -> Option<f64>) -> Option<f64> {
        self.connection.paths.iter().filter_map(of).reduce(f64::max)
    }

    /// Its name, alike in all views.
    pub(crate) fn name(&self) -> String {
        crate::commands::status::name(&self.connection)
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        let has = |of: &str| of.to_ascii_lowercase().contains(text);
        let path = |path: &Path| {
            has(&plain(path.local).to_string())
                || has(&plain(path.remote).to_string())
                || path.device.as_deref().is_some_and(has)
                || has(verdict(path))
        };
        let closed = !self.connection.closed.is_empty() && "closed".contains(text);
        closed
            || has(&self.name())
            || has(&self.connection.algorithm)
            || self.connection.paths.iter().any(path)
    }
}

/// Of a path and its siblings together, in a word.
pub(crate) fn verdict(path: &Path) -> &'static str {
    let of = |verdict| move |sibling: &vmcc_agent::Sibling| sibling.finding.verdict == verdict;
    match path.siblings.as_slice() {
        _ if path.uncoupled.is_some() => "uncoupled",
        some if some.iter().any(of(Verdict::Shares)) => "shares",
        [] => "-",
        some if some.iter().all(of(Verdict::Apart)) => "apart",
        some if some.iter().all(|sibling| sibling.finding.evidence == 0.0) => "-",
        _ => "unsure",
    }
}

/// Identity of a connection: constant while it exists, and not shared by another one. Those of MPTCP come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Identity {
    Token(u32),
    /// Of plain TCP: its ends, for the order, and what another one with the same ends has not.
    Socket(Option<(SocketAddr, SocketAddr, [u8; 8])>),
}

pub(crate) fn identity(connection: &Connection) -> Identity {
    let socket = || connection.paths.first().map(|path| (path.local, path.remote, path.cookie));
    connection.token.map_or_else(|| Identity::Socket(socket()), Identity::Token)
}

/// An address of IPv4 as one, also that of a socket of IPv6.
pub(crate) fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}
