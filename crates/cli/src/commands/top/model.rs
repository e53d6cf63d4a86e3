//! Model of the view: connections in the requested order, each with its goodput in bits per second.

use super::rates::Rates;
use super::row::{Row, identity};
use crate::args::SortKey;
use std::cmp::Ordering;
use std::time::Duration;
use vmcc_agent::Connection;

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
