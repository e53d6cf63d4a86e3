//! Which pairs of addresses carry packets to a QUIC server, and how fast: `vmcc paths`.
//!
//! A probe is a packet of a version that nobody speaks; a server answers it with those that it does (RFC 8999 section 6, RFC 9000 section
//! 5.2.2). So every QUIC server can be asked, nobody has to be trusted, and it keeps nothing. Relays pass probes on as they do all packets.

mod line;
mod rank;
#[cfg(target_os = "linux")]
mod trace;

pub use rank::{Choice, Verdict, overlap, rank, score};

use crate::live;
use crate::place::{NameError, Place};
use crate::relays::{self, NamedRelay};
use crate::run::{block_on, stopped, unless};
use line::{Direct, Line, Relayed};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_udp::{Candidate, Target};

/// A version of the pattern that is reserved for this (RFC 9000 section 15).
const NO_VERSION: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];
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
const INTERVAL: Duration = Duration::from_millis(50);
/// Fewer tell no more than probes.
const ENOUGH_PACKETS: u64 = 100;
/// The last answer is waited for this long.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// A pair of addresses, and what was seen of it.
#[derive(Clone, Debug)]
pub struct Way {
    /// From here.
    pub local: IpAddr,
    /// The interface that has it.
    pub interface: String,
    /// By this relay, if by any.
    pub relay: Option<String>,
    /// To there.
    pub remote: SocketAddr,
    /// Result of the probes, or the reason why none could be sent.
    pub seen: Result<Seen, String>,
}

/// Result of probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Probes that were sent.
    pub sent: u32,
    /// Round trips of those that were answered, the shortest first.
    pub round_trips: Vec<Duration>,
    /// Routers on the way, and the server, as far as they answer.
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

impl Way {
    /// Round trip and share of losses: of traffic if there is any, else of probes; none if it is no path.
    pub fn estimate(&self) -> Option<(Duration, f64)> {
        let seen = self.seen.as_ref().ok()?;
        let median = seen.median()?;
        Some(seen.traffic.map_or((median, seen.loss()), |traffic| (traffic.round_trip, traffic.loss)))
    }

    /// Its hops, as far as they are known.
    pub fn hops(&self) -> &[Hop] {
        self.seen.as_ref().map_or(&[], |seen| &seen.hops)
    }
}

impl Seen {
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
pub enum WaysError {
    /// The name has no address.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Nor has that of a relay.
    #[error("relay {0}")]
    Relay(#[source] NameError),
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
pub fn ways(
    server: &Place,
    locals: &[IpAddr],
    relays: &[NamedRelay],
    probes: u32,
    stop: &AtomicBool,
) -> Result<Vec<Way>, WaysError> {
    let names = async { (server.addresses().await, relays::resolve(relays).await) };
    let (addresses, relays) = block_on(unless(stopped(stop), names))?.ok_or(WaysError::Interrupted)?;
    let (addresses, relays) = (addresses?, relays.map_err(WaysError::Relay)?);
    let target = Target { addresses, locals: locals.to_vec(), relays, ..Target::default() };
    let pairs = target.candidates()?;
    let programs = live::programs();
    let ways = std::thread::scope(|scope| {
        let programs = &programs;
        let probe = |candidate: Candidate| {
            scope.spawn(move || {
                let seen = seen(&candidate, probes, programs, stop).map_err(|error| error.to_string());
                let Candidate { source, relay, remote } = candidate;
                let relay = relay.map(|relay| relay.to_string());
                Way { local: source.ip, interface: source.interface, relay, remote, seen }
            })
        };
        let threads: Vec<_> = pairs.into_iter().map(probe).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    Ok(ways)
}

fn seen(
    candidate: &Candidate,
    probes: u32,
    programs: &[live::Program],
    stop: &AtomicBool,
) -> io::Result<Seen> {
    let Candidate { source, relay, remote } = candidate;
    let mut line: Box<dyn Line> = match relay {
        None => Box::new(Direct::open(source, *remote)?),
        Some(relay) => Box::new(Relayed::open(source, relay, *remote, stop)?),
    };
    let seen = probe(&mut *line, probes, stop)?;
    Ok(Seen { traffic: traffic(programs, line.local()?, *remote), ..seen })
}

fn probe(line: &mut dyn Line, probes: u32, stop: &AtomicBool) -> io::Result<Seen> {
    let mut under_way = HashMap::new();
    let mut seen = Seen::default();
    for _ in 0..probes {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let id = random()?;
        line.send(&packet(id))?;
        under_way.insert(id, Instant::now());
        seen.sent += 1;
        receive(line, Instant::now() + INTERVAL, &mut under_way, &mut seen)?;
    }
    let until = Instant::now() + REPLY_TIMEOUT;
    while !under_way.is_empty() && Instant::now() < until && !stop.load(Ordering::SeqCst) {
        receive(line, until.min(Instant::now() + INTERVAL), &mut under_way, &mut seen)?;
    }
    seen.round_trips.sort();
    if let Some(round_trip) = seen.median() {
        // Without them less is known of the way, which is a path all the same.
        seen.hops = line.hops(round_trip, stop).unwrap_or_default();
    }
    Ok(seen)
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
fn traffic(programs: &[live::Program], local: IpAddr, remote: SocketAddr) -> Option<Traffic> {
    let paths = programs.iter().flat_map(|program| &program.connections).flat_map(|one| &one.paths);
    let mut same =
        paths.filter(|path| path.local.ip() == local && path.remote.ip() == remote.ip() && !path.silent);
    let path = same.find(|path| path.srtt_us > 0 && path.acked_pkt >= ENOUGH_PACKETS)?;
    let loss = path.lost_pkt as f64 / (path.lost_pkt + path.acked_pkt) as f64;
    Some(Traffic { round_trip: Duration::from_micros(path.srtt_us.into()), loss })
}

/// Takes answers until a moment.
fn receive(
    line: &mut dyn Line,
    until: Instant,
    under_way: &mut HashMap<[u8; ID_LEN], Instant>,
    seen: &mut Seen,
) -> io::Result<()> {
    let mut buffer = [0; line::MAX_DATAGRAM];
    while let Some(place) = line.receive(until, &mut buffer)? {
        if let Some(sent) = answered(&buffer[place]).and_then(|id| under_way.remove(&id)) {
            seen.round_trips.push(sent.elapsed());
        }
    }
    Ok(())
}

/// A long header of no version, from `id` to `id`.
fn packet(id: [u8; ID_LEN]) -> Vec<u8> {
    let mut packet = vec![0xc0];
    packet.extend_from_slice(&NO_VERSION);
    for _ in 0..2 {
        packet.push(ID_LEN as u8);
        packet.extend_from_slice(&id);
    }
    packet.resize(PROBE_BYTES, 0);
    packet
}

/// Which probe a Version Negotiation packet answers.
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
    fn only_answers_count() {
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
