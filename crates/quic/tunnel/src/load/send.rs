//! The end that sends.

use super::pattern::Pattern;
use super::{ALPN, LoadError, Note, PathNote, Teller};
use crate::keys::Identity;
use crate::trust::{self, Trust};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use vmcc_transport::{Config, PathClose, PathError, Route};
use vmcc_udp::{Connection, Endpoint, PathEvent, Source, sources};

/// A handshake takes no longer, also where each packet of it is lost some times.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The other end is told that it is over, if it can be.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Until the handshake may be confirmed, or the peer has given connection ids.
const SOON: Duration = Duration::from_millis(1);

/// A connection, and what goes on with it.
struct Flow {
    number: u32,
    connection: Connection,
    tasks: Vec<JoinHandle<()>>,
}

pub(super) async fn send(
    ways: &[(IpAddr, SocketAddr)],
    connections: u32,
    config: Arc<Config>,
    (lasts, every): (Duration, Duration),
    teller: Teller,
) -> Result<(), LoadError> {
    let end = teller.at(lasts);
    let tls = trust::client(&Identity::generate()?, Trust::Everybody, ALPN)?;
    let endpoint = Endpoint::new(None)?;
    let routes = routes(&endpoint, ways)?;
    let Some(first) = routes.first().copied() else {
        return Err(LoadError::Setting("there is no way to send on".to_owned()));
    };
    let mut begun = Vec::new();
    for number in 0..connections {
        begun.push((number, endpoint.connect(tls.clone(), config.clone(), "vmcc", first)?));
    }
    let pattern = Arc::new(Pattern::new());
    let mut flows = Vec::new();
    for (number, connection) in begun {
        let remote = first.remote;
        let waited = HANDSHAKE_TIMEOUT.min(lasts);
        match timeout(waited, connection.connected()).await {
            Ok(Ok(())) => {}
            Ok(Err(source)) => return Err(LoadError::Handshake { number, remote, source }),
            Err(_) => return Err(LoadError::NoAnswer { number, remote, waited }),
        }
        teller.tell(&[Note::Established { connection: number }])?;
        flows.push(Flow::begin(number, connection, &routes, &pattern, &teller));
    }
    look(&flows, ways, (end, every), &teller).await?;
    flows.iter().flat_map(|flow| &flow.tasks).for_each(JoinHandle::abort);
    endpoint.close_all(0, "done");
    drop(timeout(CLOSE_TIMEOUT, endpoint.told()).await);
    Ok(())
}

/// Tells of every path until it is over.
async fn look(
    flows: &[Flow],
    ways: &[(IpAddr, SocketAddr)],
    (end, every): (Instant, Duration),
    teller: &Teller,
) -> io::Result<()> {
    let mut ticks = interval(every.max(SOON));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            () = sleep_until(end) => {
                return teller.tell(&flows.iter().flat_map(|flow| flow.notes(ways, teller)).collect::<Vec<_>>());
            }
            _ = ticks.tick() => {
                teller.tell(&flows.iter().flat_map(|flow| flow.notes(ways, teller)).collect::<Vec<_>>())?;
            }
        }
    }
}

/// A socket at each address here.
fn routes(endpoint: &Endpoint, ways: &[(IpAddr, SocketAddr)]) -> Result<Vec<Route>, LoadError> {
    let own = sources()?;
    let route = |(ip, remote): &(IpAddr, SocketAddr)| {
        let bound = endpoint.bind_source(&Source::at(*ip, &own), 0);
        let local = bound.map_err(|source| LoadError::Socket { address: *ip, source })?;
        Ok(Route { local, remote: *remote })
    };
    ways.iter().map(route).collect()
}

impl Flow {
    fn begin(
        number: u32,
        connection: Connection,
        routes: &[Route],
        pattern: &Arc<Pattern>,
        teller: &Teller,
    ) -> Flow {
        let ways = Arc::new(Mutex::new(HashMap::from([(0, 0)])));
        let opening = open(connection.clone(), routes.to_vec(), ways.clone(), (number, teller.clone()));
        let watching = watch(connection.clone(), ways, (number, teller.clone()));
        let writing = write(connection.clone(), pattern.clone(), (number, teller.clone()));
        let tasks = vec![tokio::spawn(opening), tokio::spawn(watching), tokio::spawn(writing)];
        Flow { number, connection, tasks }
    }

    fn notes(&self, ways: &[(IpAddr, SocketAddr)], teller: &Teller) -> Vec<Note> {
        let at = teller.now();
        let note = |path: vmcc_transport::PathReport| {
            let way = ways.iter().position(|(ip, _)| *ip == path.route.local.ip())?;
            Some(Note::Path(PathNote {
                connection: self.number,
                way,
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
        self.connection.paths().into_iter().filter(|path| path.open).filter_map(note).collect()
    }
}

/// Opens a path on every way but the first, each once.
async fn open(
    connection: Connection,
    routes: Vec<Route>,
    ways: Arc<Mutex<HashMap<u32, usize>>>,
    (number, teller): (u32, Teller),
) {
    for (way, route) in routes.into_iter().enumerate().skip(1) {
        loop {
            match connection.open_path(route) {
                Ok(path) => {
                    ways.lock().unwrap_or_else(PoisonError::into_inner).insert(path, way);
                    break;
                }
                Err(PathError::TooEarly | PathError::NoIds | PathError::Limit) => sleep(SOON).await,
                Err(error) => {
                    let reason = format!("no path on way {way}: {error}");
                    drop(teller.tell(&[Note::Broken { connection: number, reason }]));
                    return;
                }
            }
        }
    }
}

/// Tells which paths are given up.
async fn watch(
    connection: Connection,
    ways: Arc<Mutex<HashMap<u32, usize>>>,
    (number, teller): (u32, Teller),
) {
    while let Ok(event) = connection.path_event().await {
        let PathEvent::Closed { path, code } = event else { continue };
        let way = ways.lock().unwrap_or_else(PoisonError::into_inner).get(&path).copied();
        let closed =
            |way| Note::Closed { connection: number, way, at: teller.now(), why: PathClose::of(code).into() };
        drop(teller.tell(&way.map(closed).into_iter().collect::<Vec<_>>()));
    }
}

/// Writes as much as the connection takes.
async fn write(connection: Connection, pattern: Arc<Pattern>, (number, teller): (u32, Teller)) {
    if let Err(error) = fill(&connection, &pattern, number).await {
        drop(teller.tell(&[Note::Broken { connection: number, reason: error.to_string() }]));
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
