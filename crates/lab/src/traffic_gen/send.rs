//! The end that sends.

use super::pattern::Pattern;
use super::{ALPN, Event, PathSample, Reporter, TrafficGenError};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use vmcc_apps::keys::Identity;
use vmcc_apps::trust::{self, Trust};
use vmcc_transport::{Config, PathClose, PathError, Route};
use vmcc_udp::{Connection, Endpoint, PathEvent, Source, sources};

/// A handshake takes no longer, also where each packet of it is lost some times.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Notifies the other end of the end, if possible.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Until the handshake may be confirmed, or the peer has given connection ids.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// A connection, and what goes on with it.
struct Flow {
    number: u32,
    connection: Connection,
    tasks: Vec<JoinHandle<()>>,
}

pub(super) async fn send(
    address_pairs: &[(IpAddr, SocketAddr)],
    connections: u32,
    config: Arc<Config>,
    (lasts, every): (Duration, Duration),
    reporter: Reporter,
) -> Result<(), TrafficGenError> {
    let end = reporter.at(lasts);
    let tls = trust::client(&Identity::generate()?, Trust::Any, ALPN)?;
    let endpoint = Endpoint::new(None)?;
    let routes = routes(&endpoint, address_pairs)?;
    let Some(first) = routes.first().copied() else {
        return Err(TrafficGenError::NoRoute);
    };
    let mut begun = Vec::new();
    for number in 0..connections {
        begun.push((number, endpoint.connect_route(tls.clone(), config.clone(), "vmcc", first)?));
    }
    let pattern = Arc::new(Pattern::new());
    let mut flows = Vec::new();
    for (number, connection) in begun {
        let remote = first.remote;
        let waited = HANDSHAKE_TIMEOUT.min(lasts);
        match timeout(waited, connection.connected()).await {
            Ok(Ok(())) => {}
            Ok(Err(source)) => return Err(TrafficGenError::Handshake { number, remote, source }),
            Err(_) => return Err(TrafficGenError::NoAnswer { number, remote, waited }),
        }
        reporter.report(&[Event::Established { connection: number }])?;
        flows.push(Flow::begin(number, connection, &routes, &pattern, &reporter));
    }
    report_periodically(&flows, address_pairs, (end, every), &reporter).await?;
    flows.iter().flat_map(|flow| &flow.tasks).for_each(JoinHandle::abort);
    endpoint.close_all(0, "done");
    drop(timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await);
    Ok(())
}

/// Tells of every path until it is over.
async fn report_periodically(
    flows: &[Flow],
    address_pairs: &[(IpAddr, SocketAddr)],
    (end, every): (Instant, Duration),
    reporter: &Reporter,
) -> io::Result<()> {
    let mut ticks = interval(every.max(RETRY_INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            () = sleep_until(end) => {
                return reporter.report(&flows.iter().flat_map(|flow| flow.events(address_pairs, reporter)).collect::<Vec<_>>());
            }
            _ = ticks.tick() => {
                reporter.report(&flows.iter().flat_map(|flow| flow.events(address_pairs, reporter)).collect::<Vec<_>>())?;
            }
        }
    }
}

/// A socket at each address here.
fn routes(
    endpoint: &Endpoint,
    address_pairs: &[(IpAddr, SocketAddr)],
) -> Result<Vec<Route>, TrafficGenError> {
    let own = sources()?;
    let route = |(ip, remote): &(IpAddr, SocketAddr)| {
        let bound = endpoint.bind_source(&Source::at(*ip, &own), 0);
        let local = bound.map_err(|source| TrafficGenError::Socket { address: *ip, source })?;
        Ok(Route { local, remote: *remote })
    };
    address_pairs.iter().map(route).collect()
}

impl Flow {
    fn begin(
        number: u32,
        connection: Connection,
        routes: &[Route],
        pattern: &Arc<Pattern>,
        reporter: &Reporter,
    ) -> Flow {
        let route_of_path = Arc::new(Mutex::new(HashMap::from([(0, 0)])));
        let opening =
            open(connection.clone(), routes.to_vec(), route_of_path.clone(), (number, reporter.clone()));
        let watching = watch(connection.clone(), route_of_path, (number, reporter.clone()));
        let writing = write(connection.clone(), pattern.clone(), (number, reporter.clone()));
        let tasks = vec![tokio::spawn(opening), tokio::spawn(watching), tokio::spawn(writing)];
        Flow { number, connection, tasks }
    }

    fn events(&self, address_pairs: &[(IpAddr, SocketAddr)], reporter: &Reporter) -> Vec<Event> {
        let at = reporter.now();
        let event = |path: vmcc_transport::PathReport| {
            let route = address_pairs.iter().position(|(ip, _)| *ip == path.route.local.ip())?;
            Some(Event::Path(PathSample {
                connection: self.number,
                route,
                at,
                srtt_us: u32::try_from(path.srtt.us()).unwrap_or(u32::MAX),
                cwnd_pkt: path.cwnd_pkt,
                acked_bytes: path.payload_out,
                lost_pkt: path.lost_packets,
                marked_pkt: path.marked_packets,
                timeouts: path.timeouts,
                reductions: path.reductions,
            }))
        };
        self.connection.paths().into_iter().filter(|path| path.open).filter_map(event).collect()
    }
}

/// Opens a path on every route but the first, each once.
async fn open(
    connection: Connection,
    routes: Vec<Route>,
    route_of_path: Arc<Mutex<HashMap<u32, usize>>>,
    (number, reporter): (u32, Reporter),
) {
    for (index, route) in routes.into_iter().enumerate().skip(1) {
        loop {
            match connection.open_path(route) {
                Ok(path) => {
                    route_of_path.lock().unwrap_or_else(PoisonError::into_inner).insert(path, index);
                    break;
                }
                Err(PathError::TooEarly | PathError::NoIds | PathError::Limit) => sleep(RETRY_INTERVAL).await,
                Err(error) => {
                    let reason = format!("no path on route {index}: {error}");
                    drop(reporter.report(&[Event::Broken { connection: number, reason }]));
                    return;
                }
            }
        }
    }
}

/// Reports closed paths.
async fn watch(
    connection: Connection,
    route_of_path: Arc<Mutex<HashMap<u32, usize>>>,
    (number, reporter): (u32, Reporter),
) {
    while let Ok(event) = connection.path_event().await {
        let PathEvent::Closed { path, code } = event else { continue };
        let route = route_of_path.lock().unwrap_or_else(PoisonError::into_inner).get(&path).copied();
        let closed = |route| Event::Closed {
            connection: number,
            route,
            at: reporter.now(),
            why: PathClose::of(code).into(),
        };
        drop(reporter.report(&route.map(closed).into_iter().collect::<Vec<_>>()));
    }
}

/// Writes as much as the connection takes.
async fn write(connection: Connection, pattern: Arc<Pattern>, (number, reporter): (u32, Reporter)) {
    if let Err(error) = fill(&connection, &pattern, number).await {
        drop(reporter.report(&[Event::Broken { connection: number, reason: error.to_string() }]));
    }
}

async fn fill(connection: &Connection, pattern: &Pattern, number: u32) -> io::Result<()> {
    let mut stream = connection.open_stream().await.map_err(io::Error::other)?;
    stream.write_u32(number).await?;
    let mut offset = 0;
    loop {
        offset += stream.write(pattern.at(offset, Pattern::PIECE)).await? as u64;
    }
}
