//! Figures for Prometheus.

use super::{Path, Registry};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::interval;
use vmcc_telemetry::Kind::{Counter, Gauge};
use vmcc_telemetry::{Figures, Server};

/// Figures of a path are read this often: what it carried after that and before its end is not counted.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Addresses here that have figures of their own; the rest share one.
const MAX_LOCALS: usize = 64;

/// Counters of each local address.
const COUNTERS: [(&str, &str); 5] = [
    ("vmcc_quic_acked_bytes_total", "Bytes of streams that were acknowledged."),
    ("vmcc_quic_received_bytes_total", "Bytes of streams that were received."),
    ("vmcc_quic_acked_packets_total", "Packets that were acknowledged."),
    ("vmcc_quic_marked_packets_total", "Acknowledged packets that the other end saw marked with congestion."),
    ("vmcc_quic_lost_packets_total", "Packets that were lost."),
];

type Counts = [u64; COUNTERS.len()];

/// Sums that outlive connections.
#[derive(Default)]
struct Meter {
    /// Of each path as it was last.
    last: HashMap<(u64, u32), Counts>,
    /// By address here; none of those beyond [`MAX_LOCALS`].
    sums: BTreeMap<Option<IpAddr>, Counts>,
    connections: usize,
    /// Paths that answer, and that do not.
    paths: [usize; 2],
}

impl Meter {
    fn read(&mut self, connections: &[super::Connection]) {
        let mut last = HashMap::new();
        (self.connections, self.paths) = (connections.len(), [0; 2]);
        for (connection, path) in
            connections.iter().flat_map(|one| one.paths.iter().map(move |path| (one.number, path)))
        {
            self.paths[usize::from(path.silent)] += 1;
            let (key, now) = ((connection, path.number), counts(path));
            let before = self.last.get(&key).copied().unwrap_or_default();
            let local = Some(path.local.ip().to_canonical());
            let known = self.sums.len() < MAX_LOCALS || self.sums.contains_key(&local);
            let sums = self.sums.entry(local.filter(|_| known)).or_default();
            for (sum, (now, before)) in sums.iter_mut().zip(now.iter().zip(before)) {
                *sum += now.saturating_sub(before);
            }
            last.insert(key, now);
        }
        self.last = last;
    }

    fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        figures.one(("vmcc_quic_connections", Gauge, "Connections in use."), self.connections as f64);
        let states = ["answers", "silent"].into_iter().zip(self.paths);
        let samples = states.map(|(state, count)| ([state], count as f64));
        figures.family(
            ("vmcc_quic_paths", Gauge, "Their paths, by whether they answer."),
            ["state"],
            samples,
        );
        let name = |local: &Option<IpAddr>| local.map_or("other".to_owned(), |ip| ip.to_string());
        let sums: Vec<_> = self.sums.iter().map(|(local, sums)| (name(local), sums)).collect();
        for (i, (name, help)) in COUNTERS.into_iter().enumerate() {
            let samples = sums.iter().map(|(local, sums)| ([local.as_str()], sums[i] as f64));
            figures.family((name, Counter, help), ["local"], samples);
        }
        figures
    }
}

fn counts(path: &Path) -> Counts {
    [path.acked_bytes, path.received_bytes, path.acked_pkt, path.marked_pkt, path.lost_pkt]
}

/// Answers at `address` until what it gives is dropped. Paths are looked at as long as the current tokio runtime runs.
pub(crate) fn serve(address: SocketAddr, registry: &Arc<Registry>) -> io::Result<Server> {
    let meter = Arc::new(Mutex::new(Meter::default()));
    let look = {
        let registry = registry.clone();
        move || {
            let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
            // All of them: a sum of some would go back.
            meter.read(&registry.quic(usize::MAX).0);
            meter.figures()
        }
    };
    let now_and_then = look.clone();
    let server = Server::start(address, move |_| look().text().map_err(|error| error.to_string()))?;
    tokio::spawn(async move {
        let mut interval = interval(SAMPLE_INTERVAL);
        loop {
            interval.tick().await;
            now_and_then();
        }
    });
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Connection;

    fn connection(number: u64, acked_bytes: u64) -> Connection {
        let path = Path {
            number: 0,
            local: "10.0.0.1:7".parse().unwrap(),
            remote: "10.0.0.2:8".parse().unwrap(),
            device: None,
            backup: false,
            silent: number == 2,
            cwnd_pkt: 10,
            srtt_us: 1,
            in_flight_bytes: 0,
            acked_pkt: 0,
            marked_pkt: 0,
            lost_pkt: 0,
            acked_bytes,
            received_bytes: 0,
        };
        Connection { number, algorithm: "lia".to_owned(), paths: vec![path] }
    }

    #[test]
    fn counters_outlive_connections_and_never_decrease() {
        let mut meter = Meter::default();
        meter.read(&[connection(1, 100), connection(2, 50)]);
        assert!(meter.figures().text().unwrap().contains("vmcc_quic_paths{state=\"silent\"} 1\n"));
        meter.read(&[connection(2, 70)]);
        meter.read(&[connection(2, 70), connection(3, 5)]);
        let text = meter.figures().text().unwrap();
        assert!(text.contains("vmcc_quic_acked_bytes_total{local=\"10.0.0.1\"} 175\n"), "{text}");
        assert!(text.contains("vmcc_quic_connections 2\n"), "{text}");
    }
}
