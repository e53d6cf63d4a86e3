//! Model of the view: connections in the requested order, each with its goodput in bits per second.

use super::lines::plain;
use super::rates::Rates;
use crate::args::SortKey;
use serde::Serialize;
use std::cmp::Ordering;
use std::net::SocketAddr;
use std::time::Duration;
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

    fn contains(&self, text: &str) -> bool {
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

/// By what and which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) by: SortKey,
    pub(crate) reversed: bool,
}

impl Order {
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let most = |a: f64, b: f64| b.total_cmp(&a);
        let of = |share: Option<f64>| share.unwrap_or(-1.0);
        let way = match self.by {
            SortKey::Goodput => most(of(a.goodput_bps), of(b.goodput_bps)),
            SortKey::Cwnd => b.cwnd_pkt().cmp(&a.cwnd_pkt()),
            SortKey::Rtt => b.srtt_us().cmp(&a.srtt_us()),
            SortKey::Alpha => most(of(a.highest(|p| p.alpha)), of(b.highest(|p| p.alpha))),
            SortKey::Marked => most(of(a.marked_share()), of(b.marked_share())),
            SortKey::Connection => Ordering::Equal,
            SortKey::Algorithm => a.connection.algorithm.cmp(&b.connection.algorithm),
        };
        let way = way.then_with(|| identity(&a.connection).cmp(&identity(&b.connection)));
        if self.reversed { way.reverse() } else { way }
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

/// Everything that was seen last, and what of it is shown.
pub(crate) struct Model {
    order: Order,
    filter: String,
    /// True if `shown` does not match order and filter.
    stale: bool,
    rates: Rates,
    all: Vec<Row>,
    /// Places in `all`, filtered and in order.
    shown: Vec<usize>,
}

impl Model {
    pub(crate) fn new(by: SortKey, filter: &str) -> Self {
        let order = Order { by, reversed: false };
        let filter = filter.to_ascii_lowercase();
        Self { order, filter, stale: false, rates: Rates::default(), all: Vec::new(), shown: Vec::new() }
    }

    /// Takes what is there now, seen `at` on a clock that never goes back.
    pub(crate) fn update(&mut self, connections: Vec<Connection>, at: Duration) {
        self.all = self.rates.measure(connections, at);
        self.arrange();
    }

    /// Shows what order and filter say now: once, however many keys have changed them.
    pub(crate) fn settle(&mut self) {
        if self.stale {
            self.arrange();
        }
    }

    fn arrange(&mut self) {
        self.stale = false;
        let wanted = |row: &Row| self.filter.is_empty() || row.contains(&self.filter);
        self.shown = (0..self.all.len()).filter(|at| wanted(&self.all[*at])).collect();
        self.shown.sort_by(|a, b| self.order.compare(&self.all[*a], &self.all[*b]));
    }

    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }

    pub(crate) fn set_filter(&mut self, filter: &str) {
        self.filter = filter.to_ascii_lowercase();
        self.stale = true;
    }

    pub(crate) fn order(&self) -> Order {
        self.order
    }

    pub(crate) fn set_order(&mut self, order: Order) {
        self.order = order;
        self.stale = true;
    }

    /// Number of connections that are shown.
    pub(crate) fn len(&self) -> usize {
        self.shown.len()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Row> {
        self.shown.get(at).map(|at| &self.all[*at])
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.shown.iter().map(|at| &self.all[*at])
    }

    /// Of everything, shown or not: connections, paths, bits per second.
    pub(crate) fn totals(&self) -> (usize, usize, f64) {
        let paths = self.all.iter().map(|row| row.connection.paths.len()).sum();
        // A sum of nothing is -0.
        let bps = self.all.iter().filter_map(|row| row.goodput_bps).fold(0.0, |sum, bps| sum + bps);
        (self.all.len(), paths, bps)
    }

    /// Goodput of a connection at each look, in bits per second, the latest last.
    pub(crate) fn history(&self, row: &Row) -> &[f32] {
        self.rates.history(&identity(&row.connection))
    }
}
