//! Goodput of paths and connections, from their counters at each look.

use super::row::{Identity, Row, identity};
use std::collections::HashMap;
use std::time::Duration;
use vmcc_agent::{Connection, Path};

/// Looks that are remembered of a connection.
const REMEMBERED: usize = 60;

/// Counters at the last look.
#[derive(Default)]
pub(crate) struct Rates {
    at: Duration,
    connections: HashMap<Identity, Carried>,
}

#[derive(Default)]
struct Carried {
    paths: Vec<Counts>,
    history: Vec<f32>,
}

/// Of a path, and of no other that has its ends now.
struct Counts {
    cookie: [u8; 8],
    bytes: u64,
    delivered_pkt: u32,
    marked_pkt: u32,
}

impl Counts {
    fn of(path: &Path) -> Self {
        Self {
            cookie: path.cookie,
            // Payload, both ways.
            bytes: path.bytes_acked.saturating_add(path.bytes_received),
            delivered_pkt: path.delivered_pkt,
            marked_pkt: path.delivered_ce_pkt,
        }
    }

    /// Bits per second since `before`.
    fn rate(&self, before: &Self, seconds: f64) -> Option<f64> {
        // A count that went back tells nothing.
        let bytes = self.bytes.checked_sub(before.bytes)?;
        (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
    }

    /// The share of marked packets since `before`; the kernel's counters wrap at 2^32.
    fn marked_share(&self, before: &Self) -> Option<f64> {
        let delivered = self.delivered_pkt.wrapping_sub(before.delivered_pkt);
        let marked = self.marked_pkt.wrapping_sub(before.marked_pkt);
        (delivered > 0 && marked <= delivered).then(|| f64::from(marked) / f64::from(delivered))
    }
}

impl Rates {
    /// The connections with their rates since the last call; what is not among them is forgotten.
    pub(crate) fn measure(&mut self, connections: Vec<Connection>, at: Duration) -> Vec<Row> {
        let seconds = at.saturating_sub(self.at).as_secs_f64();
        let mut before = std::mem::take(&mut self.connections);
        self.at = at;
        let row = |connection| self.row(&mut before, connection, seconds);
        connections.into_iter().map(row).collect()
    }

    fn row(&mut self, before: &mut HashMap<Identity, Carried>, connection: Connection, seconds: f64) -> Row {
        let identity = identity(&connection);
        let mut known = before.remove(&identity).unwrap_or_default();
        let counts: Vec<Counts> = connection.paths.iter().map(Counts::of).collect();
        let earlier = |now: &Counts| known.paths.iter().find(|then| then.cookie == now.cookie);
        // What a path carried before it was first seen may be of any time: it has no rate yet.
        let path_goodput_bps: Vec<_> = counts.iter().map(|now| now.rate(earlier(now)?, seconds)).collect();
        let share = |(now, path): (&Counts, &Path)| match earlier(now) {
            Some(then) => now.marked_share(then),
            None => path.ece_share,
        };
        let path_marked_share = counts.iter().zip(&connection.paths).map(share).collect();
        let goodput_bps = path_goodput_bps.iter().flatten().copied().reduce(|a, b| a + b);
        known.paths = counts;
        if let Some(rate) = goodput_bps {
            if known.history.len() == REMEMBERED {
                known.history.remove(0);
            }
            known.history.push(rate as f32);
        }
        self.connections.insert(identity, known);
        Row { connection, goodput_bps, path_goodput_bps, path_marked_share }
    }

    pub(crate) fn history(&self, of: &Identity) -> &[f32] {
        self.connections.get(of).map_or(&[], |known| &known.history)
    }
}
