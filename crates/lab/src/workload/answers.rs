//! Answered requests as a program counts them: how many, for how long, and the distribution of their latencies.

use super::{Connection, Report};
use hdrhistogram::Histogram;

/// Significant digits of latencies.
const PRECISION: u8 = 3;

/// Requests of a flow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answers {
    pub(crate) answered: u64,
    /// Requests that were not answered in time.
    pub(crate) unfinished: u64,
    /// Duration of the program's requests, in seconds.
    pub(crate) secs: f64,
    pub(crate) latencies_ns: Histogram<u64>,
}

impl Answers {
    pub(super) fn none() -> Self {
        // The precision is a constant that the constructor accepts; it grows with the latencies.
        let latencies_ns = Histogram::new(PRECISION).expect("a valid precision");
        Self { answered: 0, unfinished: 0, secs: 0.0, latencies_ns }
    }

    /// Counts `count` requests with a latency of `us`.
    pub(super) fn record(&mut self, us: f64, count: u64) {
        // It grows with its values.
        let _ = self.latencies_ns.record_n((us * 1e3) as u64, count);
    }

    /// Report of `connections` that carried `bytes` to the client in all. Only their end tells how it went: bytes came evenly.
    pub(super) fn report(self, connections: u32, bytes: u64) -> Report {
        let took_s = (self.secs > 0.0).then_some(self.secs);
        let each = Connection::transfer(0, 0.0, took_s, bytes / u64::from(connections.max(1)));
        Report { connections: vec![each; connections as usize], answers: Some(self), ..Report::default() }
    }
}
