//! Probes of each pair of addresses to a QUIC server, for RTT, loss and hops: `vmcc paths`.
//!
//! A probe is a packet of a version that nobody speaks; a server answers it with those that it does (RFC 8999 section 6, RFC 9000 section
//! 5.2.2). So every QUIC server can be asked, nobody has to be trusted, and it keeps nothing. Relays pass probes on as they do all packets.

mod rank;
mod socket;
#[cfg(target_os = "linux")]
mod trace;

pub use rank::{Choice, Verdict, overlap, rank, score};

use crate::endpoint_addr::{EndpointAddr, ResolveError};
use crate::relays::{self, NamedRelay};
use crate::run::{block_on, run_until, stop_requested};
use crate::status;
use socket::{DirectSocket, ProbeSocket, RelayedSocket};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_udp::{Candidate, Target};

/// A version of the pattern that is reserved for this (RFC 9000 section 15).
const RESERVED_VERSION: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];
const ID_LEN: usize = 8;

/// Packet that a server answers, and the key to recognize its answer.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "routers are asked on Linux only"))]
struct Probe {
    packet: fn([u8; ID_LEN]) -> Vec<u8>,
    answered: fn(&[u8]) -> Option<[u8; ID_LEN]>,
}

const QUIC: Probe = Probe { packet, answered };
const STUN: Probe = Probe {
    packet: |id| vmcc_turn::binding_request(std::array::from_fn(|i| id.get(i).copied().unwrap_or_default())),
    answered: |datagram| vmcc_turn::binding_answered(datagram)?.first_chunk().copied(),
};
/// Shorter ones need not be answered.
const PROBE_BYTES: usize = 1200;
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// Fewer tell no more than probes.
const MIN_TRAFFIC_PACKETS: u64 = 100;
/// The last answer is waited for this long.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// A pair of addresses, and what was seen of it.
#[derive(Clone, Debug)]
pub struct ProbedRoute {
    /// From here.
    pub local: IpAddr,
    /// The interface that has it.
    pub interface: String,
    /// By this relay, if by any.
    pub relay: Option<String>,
    /// To there.
    pub remote: SocketAddr,
    /// Result of the probes, or the reason why none could be sent.
    pub stats: Result<ProbeStats, String>,
}

/// Result of probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeStats {
    /// Probes that were sent.
    pub sent: u32,
    /// Round trips of those that were answered, the shortest first.
    pub round_trips: Vec<Duration>,
    /// Routers on the route, and the server, as far as they answer.
    pub hops: Vec<Hop>,
    /// Figures of a running program that uses this route.
    pub traffic: Option<Traffic>,
}

/// The end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Address that answered there, if any did.
    pub address: Option<IpAddr>,
    /// Round trip to it.
    pub round_trip: Option<Duration>,
}

/// Figures of a route from traffic, which are better than those of a few probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// The share of packets that was lost.
    pub loss: f64,
}

impl ProbedRoute {
    /// Round trip and share of losses: of traffic if there is any, else of probes; none if it is no path.
    pub fn estimate(&self) -> Option<(Duration, f64)> {
        let stats = self.stats.as_ref().ok()?;
        let median = stats.median()?;
        Some(stats.traffic.map_or((median, stats.loss()), |traffic| (traffic.round_trip, traffic.loss)))
    }

    /// Its hops, as far as they are known.
    pub fn hops(&self) -> &[Hop] {
        self.stats.as_ref().map_or(&[], |stats| &stats.hops)
    }
}

impl ProbeStats {
    /// The share of probes that were not answered.
    pub fn loss(&self) -> f64 {
        1.0 - self.round_trips.len() as f64 / f64::from(self.sent.max(1))
    }

    /// The round trip in the middle.
    pub fn median(&self) -> Option<Duration> {
        self.round_trips.get(self.round_trips.len() / 2).copied()
    }
}

/// Error before any probe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The name has no address.
    #[error(transparent)]
    Name(#[from] ResolveError),
    /// Nor has that of a relay.
    #[error("relay {0}")]
    Relay(#[source] ResolveError),
    /// The user wanted it.
    #[error("interrupted")]
    Interrupted,
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Probes every pair of an address here and one of `server`, without relays and by each, all at the same time.
///
/// # Errors
/// The name has no address, or this host's addresses are not known.
pub fn probe_routes(
    server: &EndpointAddr,
    locals: &[IpAddr],
    relays: &[NamedRelay],
    probes: u32,
    stop: &AtomicBool,
) -> Result<Vec<ProbedRoute>, ProbeError> {
    let names = async { (server.resolve().await, relays::resolve(relays).await) };
    let (addresses, relays) =
        block_on(run_until(stop_requested(stop), names))?.ok_or(ProbeError::Interrupted)?;
    let (addresses, relays) = (addresses?, relays.map_err(ProbeError::Relay)?);
    let target = Target { addresses, locals: locals.to_vec(), relays, ..Target::default() };
    let pairs = target.candidates()?;
    let (programs, _) = status::programs();
    let routes = std::thread::scope(|scope| {
        let programs = &programs;
        let probe = |candidate: Candidate| {
            scope.spawn(move || {
                let stats =
                    probe_route(&candidate, probes, programs, stop).map_err(|error| error.to_string());
                let Candidate { source, relay, remote } = candidate;
                let relay = relay.map(|relay| relay.to_string());
                ProbedRoute { local: source.ip, interface: source.interface, relay, remote, stats }
            })
        };
        let threads: Vec<_> = pairs.into_iter().map(probe).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    Ok(routes)
}

fn probe_route(
    candidate: &Candidate,
    probes: u32,
    programs: &[status::Program],
    stop: &AtomicBool,
) -> io::Result<ProbeStats> {
    let Candidate { source, relay, remote } = candidate;
    let mut socket: Box<dyn ProbeSocket> = match relay {
        None => Box::new(DirectSocket::open(source, *remote)?),
        Some(relay) => Box::new(RelayedSocket::open(source, relay, *remote, stop)?),
    };
    let stats = send_probes(&mut *socket, probes, stop)?;
    Ok(ProbeStats { traffic: traffic(programs, socket.local()?, *remote), ..stats })
}

fn send_probes(socket: &mut dyn ProbeSocket, probes: u32, stop: &AtomicBool) -> io::Result<ProbeStats> {
    let mut under_way = HashMap::new();
    let mut stats = ProbeStats::default();
    for _ in 0..probes {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let id = random()?;
        socket.send(&packet(id))?;
        under_way.insert(id, Instant::now());
        stats.sent += 1;
        receive(socket, Instant::now() + PROBE_INTERVAL, &mut under_way, &mut stats)?;
    }
    let until = Instant::now() + REPLY_TIMEOUT;
    while !under_way.is_empty() && Instant::now() < until && !stop.load(Ordering::SeqCst) {
        receive(socket, until.min(Instant::now() + PROBE_INTERVAL), &mut under_way, &mut stats)?;
    }
    stats.round_trips.sort();
    if let Some(round_trip) = stats.median() {
        // Without them less is known of the route, which is a path all the same.
        stats.hops = socket.hops(round_trip, stop).unwrap_or_default();
    }
    Ok(stats)
}

#[cfg(target_os = "linux")]
fn hops(socket: &UdpSocket, probe: &Probe, round_trip: Duration, stop: &AtomicBool) -> io::Result<Vec<Hop>> {
    trace::trace(socket, probe, round_trip, stop)
}

#[cfg(not(target_os = "linux"))]
fn hops(socket: &UdpSocket, _: &Probe, round_trip: Duration, _: &AtomicBool) -> io::Result<Vec<Hop>> {
    Ok(vec![Hop { address: Some(socket.peer_addr()?.ip()), round_trip: Some(round_trip) }])
}

/// Figures of a running program that uses a route.
fn traffic(programs: &[status::Program], local: IpAddr, remote: SocketAddr) -> Option<Traffic> {
    let paths = programs.iter().flat_map(|program| &program.connections).flat_map(|one| &one.paths);
    let mut same =
        paths.filter(|path| path.local.ip() == local && path.remote.ip() == remote.ip() && !path.silent);
    let path = same.find(|path| path.srtt_us > 0 && path.acked_pkt >= MIN_TRAFFIC_PACKETS)?;
    let loss = path.lost_pkt as f64 / (path.lost_pkt + path.acked_pkt) as f64;
    Some(Traffic { round_trip: Duration::from_micros(path.srtt_us.into()), loss })
}

/// Takes answers until a moment.
fn receive(
    socket: &mut dyn ProbeSocket,
    until: Instant,
    under_way: &mut HashMap<[u8; ID_LEN], Instant>,
    stats: &mut ProbeStats,
) -> io::Result<()> {
    let mut buffer = [0; socket::MAX_DATAGRAM];
    while let Some(place) = socket.receive(until, &mut buffer)? {
        if let Some(sent) = answered(&buffer[place]).and_then(|id| under_way.remove(&id)) {
            stats.round_trips.push(sent.elapsed());
        }
    }
    Ok(())
}

/// A long header of no version, from `id` to `id`.
fn packet(id: [u8; ID_LEN]) -> Vec<u8> {
    let mut packet = vec![0xc0];
    packet.extend_from_slice(&RESERVED_VERSION);
    for _ in 0..2 {
        packet.push(ID_LEN as u8);
        packet.extend_from_slice(&id);
    }
    packet.resize(PROBE_BYTES, 0);
    packet
}

/// Connection id of the probe that a Version Negotiation packet answers.
fn answered(packet: &[u8]) -> Option<[u8; ID_LEN]> {
    let [first, 0, 0, 0, 0, rest @ ..] = packet else { return None };
    let (&len, rest) = rest.split_first()?;
    (first & 0x80 != 0 && usize::from(len) == ID_LEN).then(|| rest.first_chunk().copied())?
}

fn random() -> io::Result<[u8; ID_LEN]> {
    let mut bytes = [0; ID_LEN];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_negotiation_is_matched_by_connection_id() {
        let id = [1, 2, 3, 4, 5, 6, 7, 8];
        let probe = packet(id);
        assert_eq!((probe.len(), answered(&probe)), (PROBE_BYTES, None));
        let answer = [&[0x80, 0, 0, 0, 0, 8][..], &id, &[8], &id, &[0, 0, 0, 1]].concat();
        assert_eq!(answered(&answer), Some(id));
        for len in 0..14 {
            assert_eq!(answered(&answer[..len]), None);
        }
    }
}
