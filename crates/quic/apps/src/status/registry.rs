//! Connections of this program, for those who publish them.

use super::{Connection, Path};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use vmcc_plmt::{CarrierReport, WeakConnection};
use vmcc_udp::{ConnectionReport, Endpoint, sources};

/// Number of the first session over TCP: those of QUIC connections are below.
const FIRST_TCP_NUMBER: u64 = 1 << 32;

/// Time for the last bytes of pipes, and the interval at which it is looked whether they have arrived.
const PIPE_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const PIPE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// QUIC connections of an endpoint, and sessions over TCP.
pub(crate) struct Registry {
    endpoint: Endpoint,
    tcp: Mutex<Tcp>,
    pipes: Arc<()>,
}

/// Held by a pipe that is not to be cut off.
#[derive(Clone)]
pub(crate) struct PipeGuard(#[expect(dead_code, reason = "its copies are counted")] Arc<()>);

#[derive(Default)]
struct Tcp {
    next: u64,
    sessions: Vec<(u64, WeakConnection)>,
}

impl Registry {
    pub(crate) fn new(endpoint: Endpoint) -> Registry {
        Registry { endpoint, tcp: Mutex::default(), pipes: Arc::default() }
    }

    fn tcp(&self) -> MutexGuard<'_, Tcp> {
        self.tcp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session over TCP, until it ends.
    pub(crate) fn add(&self, session: WeakConnection) {
        let mut tcp = self.tcp();
        tcp.sessions.retain(|(_, session)| session.reports().is_some());
        tcp.next += 1;
        let number = FIRST_TCP_NUMBER + tcp.next;
        tcp.sessions.push((number, session));
    }

    /// Guard for a QUIC connection that is a pipe of a session over TCP, until the pipe's last bytes have arrived.
    pub(crate) fn pipe(&self) -> PipeGuard {
        PipeGuard(self.pipes.clone())
    }

    /// Ends all sessions and connections, and waits until their peers know, for as long as the caller allows.
    pub(crate) async fn close(&self, code: u64, reason: &str) {
        let sessions = std::mem::take(&mut self.tcp().sessions);
        sessions.iter().for_each(|(_, session)| session.close(code, reason));
        for (_, session) in &sessions {
            session.drained().await;
        }
        let begun = Instant::now();
        while Arc::strong_count(&self.pipes) > 1 && begun.elapsed() < PIPE_CLOSE_TIMEOUT {
            sleep(PIPE_POLL_INTERVAL).await;
        }
        self.endpoint.close_all(code, reason);
        self.endpoint.wait_idle().await;
    }

    /// QUIC connections, at most `max`, and how many there are.
    pub(super) fn quic(&self, max: usize) -> (Vec<Connection>, usize) {
        self.quic_with(max, devices())
    }

    fn quic_with(&self, max: usize, mut devices: HashMap<IpAddr, String>) -> (Vec<Connection>, usize) {
        let (reports, count) = self.endpoint.reports(max);
        // Paths by relays begin at the relay's address, and leave by an interface here.
        let locals = reports.iter().flat_map(|report| &report.paths).map(|path| path.route.local);
        for local in locals.collect::<Vec<_>>() {
            let device = self.endpoint.via(local).and_then(|via| devices.get(&via.source).cloned());
            devices.extend(device.map(|device| (local.ip(), device)));
        }
        (reports.into_iter().map(|report| quic(report, &devices)).collect(), count)
    }

    /// All connections, at most `max`, and how many there are.
    pub(super) fn connections(&self, max: usize) -> (Vec<Connection>, usize) {
        let devices = devices();
        let (mut all, quic) = self.quic_with(max, devices.clone());
        let reports = |(number, session): &(u64, WeakConnection)| Some((*number, session.reports()?));
        let sessions: Vec<_> = self.tcp().sessions.iter().filter_map(reports).collect();
        let count = quic + sessions.len();
        let room = max.saturating_sub(all.len());
        all.extend(sessions.into_iter().take(room).map(|(number, session)| tcp(number, session, &devices)));
        (all, count)
    }
}

/// Interfaces by their addresses.
fn devices() -> HashMap<IpAddr, String> {
    let own = sources().unwrap_or_default().into_iter();
    own.map(|source| (source.ip, source.interface)).collect()
}

fn quic(report: ConnectionReport, devices: &HashMap<IpAddr, String>) -> Connection {
    let path = |path: vmcc_transport::PathReport| Path {
        number: path.id,
        local: path.route.local,
        remote: path.route.remote,
        device: devices.get(&path.route.local.ip()).cloned(),
        backup: path.backup,
        silent: path.failed,
        cwnd_pkt: path.cwnd_pkt,
        srtt_us: u32::try_from(path.srtt.us()).unwrap_or(u32::MAX),
        in_flight_bytes: path.in_flight,
        acked_pkt: path.acked_packets,
        marked_pkt: path.marked_packets,
        lost_pkt: path.lost_packets,
        acked_bytes: path.payload_out,
        received_bytes: path.payload_in,
    };
    Connection {
        number: report.number,
        algorithm: report.algorithm.to_owned(),
        paths: report.paths.into_iter().filter(|path| path.open).map(path).collect(),
    }
}

/// A session over TCP: its carriers are its paths. The kernel counts their packets, and couples none.
fn tcp(number: u64, carriers: Vec<CarrierReport>, devices: &HashMap<IpAddr, String>) -> Connection {
    let congestion = carriers.iter().find_map(|carrier| carrier.congestion.clone());
    let algorithm = congestion.map_or_else(|| "uncoupled".to_owned(), |name| format!("uncoupled-{name}"));
    let path = |CarrierReport { stats, info, congestion, local, remote, .. }| Path {
        number: u32::try_from(stats.carrier).unwrap_or(u32::MAX),
        local,
        remote,
        device: devices.get(&local.ip().to_canonical()).cloned(),
        backup: stats.backup,
        silent: stats.suspect,
        // A pipe over QUIC has those of its own paths.
        cwnd_pkt: if congestion.is_some() { info.cwnd_pkt } else { 0 },
        srtt_us: u32::try_from(info.srtt.us()).unwrap_or(u32::MAX),
        in_flight_bytes: info.in_flight,
        acked_pkt: 0,
        marked_pkt: 0,
        lost_pkt: 0,
        acked_bytes: stats.bytes_out.saturating_sub(info.in_flight + info.queued),
        received_bytes: stats.bytes_in,
    };
    Connection { number, algorithm, paths: carriers.into_iter().map(path).collect() }
}
