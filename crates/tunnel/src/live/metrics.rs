//! Figures for Prometheus, over HTTP: one who asks at a time, answered and let go of.

use super::Path;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{interval, timeout};
use vmcc_udp::Endpoint;

/// Figures of a path are read this often: what it carried after that and before its end is not counted.
const INTERVAL: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// A request with its headers is shorter.
const MOST_REQUEST: usize = 8 << 10;
/// Addresses here that have figures of their own; the rest share one.
const MOST_LOCALS: usize = 64;

/// What is counted of each address here.
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
    /// By address here; none of those beyond [`MOST_LOCALS`].
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
            let known = self.sums.len() < MOST_LOCALS || self.sums.contains_key(&local);
            let sums = self.sums.entry(local.filter(|_| known)).or_default();
            for (sum, (now, before)) in sums.iter_mut().zip(now.iter().zip(before)) {
                *sum += now.saturating_sub(before);
            }
            last.insert(key, now);
        }
        self.last = last;
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let head = |text: &mut String, name: &str, help: &str, kind: &str| {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        };
        head(&mut text, "vmcc_quic_connections", "Connections in use.", "gauge");
        let _ = writeln!(text, "vmcc_quic_connections {}", self.connections);
        head(&mut text, "vmcc_quic_paths", "Their paths, by whether they answer.", "gauge");
        for (state, count) in ["answers", "silent"].iter().zip(self.paths) {
            let _ = writeln!(text, "vmcc_quic_paths{{state=\"{state}\"}} {count}");
        }
        for (i, (name, help)) in COUNTERS.iter().enumerate() {
            head(&mut text, name, help, "counter");
            for (local, sums) in &self.sums {
                let local = local.map_or("other".to_owned(), |ip| ip.to_string());
                let _ = writeln!(text, "{name}{{local=\"{local}\"}} {}", sums[i]);
            }
        }
        text
    }
}

fn counts(path: &Path) -> Counts {
    [path.acked_bytes, path.received_bytes, path.acked_pkt, path.marked_pkt, path.lost_pkt]
}

/// Answers at `address` as long as the current tokio runtime runs; where it listens.
pub(crate) async fn serve(address: SocketAddr, endpoint: &Endpoint) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    let meter = Arc::new(Mutex::new(Meter::default()));
    let look = {
        let (endpoint, meter) = (endpoint.clone(), meter.clone());
        move || {
            // All of them: a sum of some would go back.
            let reports = endpoint.reports(usize::MAX).0.into_iter();
            let none = HashMap::new();
            let connections: Vec<_> = reports.map(|report| super::connection(report, &none)).collect();
            meter.lock().unwrap_or_else(PoisonError::into_inner).read(&connections);
        }
    };
    let now_and_then = look.clone();
    tokio::spawn(async move {
        let mut interval = interval(INTERVAL);
        loop {
            interval.tick().await;
            now_and_then();
        }
    });
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((asker, _)) => {
                    look();
                    let text = meter.lock().unwrap_or_else(PoisonError::into_inner).text();
                    // Who does not ask properly, or goes away, is nobody's concern but its own.
                    drop(timeout(PATIENCE, answer(asker, &text)).await);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    Ok(bound)
}

async fn answer(mut asker: TcpStream, text: &str) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > MOST_REQUEST || asker.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let (status, body) = match line {
        line if line.starts_with(b"GET /metrics ") => ("200 OK", text),
        _ => ("404 Not Found", "figures are at /metrics\n"),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    asker.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
    asker.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Connection;

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
    fn sums_outlive_connections_and_never_go_back() {
        let mut meter = Meter::default();
        meter.read(&[connection(1, 100), connection(2, 50)]);
        assert!(meter.text().contains("vmcc_quic_paths{state=\"silent\"} 1\n"));
        meter.read(&[connection(2, 70)]);
        meter.read(&[connection(2, 70), connection(3, 5)]);
        let text = meter.text();
        assert!(text.contains("vmcc_quic_acked_bytes_total{local=\"10.0.0.1\"} 175\n"), "{text}");
        assert!(text.contains("vmcc_quic_connections 2\n"), "{text}");
    }
}
