//! What paths and connections carry per second, from what they had carried at each look.

use super::model::{Identity, Row, identity};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use vmcc_agent::{Connection, Path};

/// Looks that are remembered of a connection.
const REMEMBERED: usize = 60;

/// What had been carried at the last look.
#[derive(Default)]
pub(crate) struct Rates {
    at: Duration,
    connections: HashMap<Identity, Carried>,
}

#[derive(Default)]
struct Carried {
    paths: Vec<(SocketAddr, SocketAddr, u64)>,
    history: Vec<f32>,
}

impl Carried {
    /// Bits per second of a path since `self`, which was seen `seconds` ago; `None` for one that is new.
    fn rate(&self, path: &Path, seconds: f64) -> Option<f64> {
        let same = |(local, remote, _): &&(SocketAddr, SocketAddr, u64)| {
            (*local, *remote) == (path.local, path.remote)
        };
        let (_, _, before) = self.paths.iter().find(same)?;
        // Less than before: another socket with the same ends.
        let bytes = carried(path).checked_sub(*before)?;
        (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
    }
}

/// Payload, both ways.
fn carried(path: &Path) -> u64 {
    path.bytes_acked.saturating_add(path.bytes_received)
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
        let path_goodput_bps: Vec<_> =
            connection.paths.iter().map(|path| known.rate(path, seconds)).collect();
        let goodput_bps = path_goodput_bps.iter().flatten().copied().reduce(|a, b| a + b);
        known.paths = connection.paths.iter().map(|p| (p.local, p.remote, carried(p))).collect();
        if let Some(rate) = goodput_bps {
            if known.history.len() == REMEMBERED {
                known.history.remove(0);
            }
            known.history.push(rate as f32);
        }
        self.connections.insert(identity, known);
        Row { connection, goodput_bps, path_goodput_bps }
    }

    pub(crate) fn history(&self, of: &Identity) -> &[f32] {
        self.connections.get(of).map_or(&[], |known| &known.history)
    }
}
