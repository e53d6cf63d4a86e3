//! Reductions of observations to one figure: [`Reduce`] over a [`Scope`], which is the part of a run that a place of the
//! result is about. The catalogue assigns one to every metric.

pub(crate) mod energy;
pub(crate) mod goodput;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod off;
pub(crate) mod ports;
pub(crate) mod probes;
pub(crate) mod rtt;
pub(crate) mod transfers;
pub(crate) mod waiting;
pub(crate) mod windows;

use crate::Dist;
use crate::observed::{Answers, Class, Connection, Links, Observed, Probe, Response, Sample, Subflow};
use serde::Serialize;
use std::collections::BTreeMap;

/// Reduction of observations to a metric.
#[derive(Debug, Clone, Copy)]
pub enum Reduce {
    /// Counters of subflows, summed over those of the scope.
    Sum(fn(&Subflow) -> Option<u64>),
    /// Something else.
    By(fn(&Scope<'_>) -> Option<Figure>),
    /// Over time: the mean of the interval's samples of subflows.
    Mean(fn(&Sample) -> Option<f64>),
    /// A field of [`crate::FlowRecord`] or a series with a rule of its own, in `figures/flows.rs` or `figures/series.rs`.
    There,
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// A count.
    Count(u64),
    /// A number.
    Number(f64),
    /// A distribution.
    Dist(Dist),
}

/// The part of a run that figures are about.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The run.
    pub seen: &'a Observed,
    /// The connections: measured ones, or an entry's.
    pub connections: &'a [&'a Connection],
    /// The requests on them.
    pub responses: &'a [&'a Response],
    /// The probes: measured ones, or an entry's.
    pub probes: &'a [&'a Probe],
    /// An entry of traffic.
    pub entry: Option<usize>,
    /// A path.
    pub path: Option<usize>,
    /// One of the path's queues.
    pub class: Option<&'a Class>,
    /// A tier of links.
    pub tier: Option<&'a Links>,
    /// True if it is one range of sizes.
    pub by_size: bool,
}

impl<'a> Scope<'a> {
    /// The subflows that it is about.
    pub fn subflows(&self) -> impl Iterator<Item = (&'a Connection, &'a Subflow)> {
        let all = self.connections.iter().flat_map(|c| c.subflows.iter().map(move |s| (*c, s)));
        all.filter(|(_, subflow)| self.path.is_none_or(|path| subflow.path == Some(path)))
    }

    /// Requests that programs of its traffic counted; their sizes are not known.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &'a Answers> {
        let (seen, entry, by_size) = (self.seen, self.entry, self.by_size);
        seen.answers.iter().filter(move |answers| {
            !by_size && entry.map_or(!seen.entries[answers.entry].competing, |entry| entry == answers.entry)
        })
    }

    /// True if any connection ends by itself.
    pub(crate) fn any_finite(&self) -> bool {
        self.connections.iter().any(|connection| !connection.endless())
    }

    /// The figure of this scope; `None` if it was not observed, or is not one of a scope.
    pub(crate) fn reduce(&self, how: Reduce) -> Option<Figure> {
        match how {
            Reduce::Sum(counter) => self.sum(counter).map(Figure::Count),
            Reduce::By(by) => by(self),
            Reduce::Mean(_) | Reduce::There => None,
        }
    }

    /// The sum over subflows; `None` if one of them was not counted, or nothing is there to count.
    pub(crate) fn sum(&self, counter: fn(&Subflow) -> Option<u64>) -> Option<u64> {
        // A path that no measured connection uses has counted nothing; a run without connections has no counters.
        if self.connections.is_empty() && self.path.is_none() {
            return None;
        }
        self.subflows().map(|(_, subflow)| counter(subflow)).sum()
    }

    /// By host that sends.
    pub(crate) fn by_sender(&self, rate: impl Fn(&Connection) -> f64) -> BTreeMap<usize, f64> {
        let mut senders = BTreeMap::new();
        for connection in self.connections {
            *senders.entry(connection.sender).or_insert(0.0) += rate(connection);
        }
        senders
    }
}
