//! Figures for Prometheus, over HTTP: one who asks at a time, answered and let go of.

use super::taken;
use crate::{Error, ports};
use prometheus::{Encoder, Histogram, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vmcc_host::Status;
use vmcc_host::diag::{Diag, Subflow};

/// How soon the thread notices that it is to end.
const GLANCE: Duration = Duration::from_millis(200);
/// How long it waits for who asks.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request with its headers is shorter.
const MAX_REQUEST_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
const PATH: &str = "/metrics";

/// What the agent counts of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    pub(crate) values: u64,
    pub(crate) problems: u64,
    pub(crate) rounds: u64,
    pub(crate) paths_closed: u64,
    pub(crate) reloads_refused: u64,
    /// Whether that was so the last time: an older file is in force.
    pub(crate) file_refused: bool,
}

/// A thread that answers until this is dropped.
pub(crate) struct Metrics {
    pub(crate) at: SocketAddr,
    own: Arc<Mutex<Own>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Listens in the network namespace of the calling thread.
    pub(crate) fn start(at: SocketAddr, off: Option<Histogram>) -> io::Result<Self> {
        let socket = TcpListener::bind(at)?;
        socket.set_nonblocking(true)?;
        let (own, stop) = (Arc::new(Mutex::new(Own::default())), Arc::new(AtomicBool::new(false)));
        let (told, known) = (Arc::clone(&stop), Arc::clone(&own));
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::SeqCst) {
                // Whoever does not ask properly, or goes away, is nobody's concern but its own.
                if super::poll(&[socket.as_raw_fd()], GLANCE).unwrap_or(false)
                    && let Ok((asker, _)) = socket.accept()
                {
                    let _ = answer(asker, &known, off.as_ref());
                }
            }
        });
        Ok(Self { at, own, stop, thread: Some(thread) })
    }

    pub(crate) fn set(&self, own: &Own) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = own.clone();
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of it was shown when it happened.
            let _ = thread.join();
        }
    }
}

fn answer(mut asker: TcpStream, own: &Mutex<Own>, off: Option<&Histogram>) -> io::Result<()> {
    asker.set_nonblocking(false)?;
    asker.set_read_timeout(Some(PATIENCE))?;
    asker.set_write_timeout(Some(PATIENCE))?;
    let (status, kind, body) = match request(&mut asker)? {
        Some((method, path)) if method == "GET" && path == PATH => {
            let own = own.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match text(&own, off, Question::of(&asker)?) {
                Ok(text) => ("200 OK", prometheus::TEXT_FORMAT, text),
                Err(error) => ("500 Internal Server Error", "text/plain", format!("{error}\n")),
            }
        }
        Some(_) => ("404 Not Found", "text/plain", format!("figures are at {PATH}\n")),
        None => ("400 Bad Request", "text/plain", "no request that can be read\n".to_owned()),
    };
    let length = body.len();
    write!(
        asker,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Both ends of the connection that asks, which is not to be counted.
#[derive(Clone, Copy)]
struct Question([SocketAddr; 2]);

impl Question {
    fn of(asker: &TcpStream) -> io::Result<Self> {
        Ok(Self([asker.local_addr()?, asker.peer_addr()?].map(plain)))
    }

    /// From either end: who asks may be here.
    fn is(&self, socket: &Subflow) -> bool {
        let [here, there] = self.0;
        let (local, remote) = (plain(socket.local), plain(socket.remote));
        (local, remote) == (here, there) || (local, remote) == (there, here)
    }
}

/// As sockets of IPv4 write it.
fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

/// The method and path; `None` if it is no request of a sensible size.
fn request(asker: &mut TcpStream) -> io::Result<Option<(String, String)>> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    let began = Instant::now();
    while bytes.len() <= MAX_REQUEST_BYTES && began.elapsed() < PATIENCE {
        let length = asker.read(&mut part)?;
        bytes.extend_from_slice(&part[..length]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let both = request.method.zip(request.path);
                return Ok(both.map(|(method, path)| (method.to_owned(), path.to_owned())));
            }
            Ok(httparse::Status::Partial) if length > 0 => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// Everything, as Prometheus reads it.
fn text(own: &Own, off: Option<&Histogram>, question: Question) -> Result<String, Error> {
    let registry = Registry::new();
    let algorithms = vmcc_host::list()?;
    let mut sockets = Diag::open()?.subflows()?;
    sockets.retain(|socket| !question.is(socket));
    let of_machine = || {
        off.map_or(Ok(()), |times| registry.register(Box::new(times.clone())))?;
        taken::fill(&registry)
    };
    let filled = of_agent(&registry, own)
        .and_then(|()| of_machine())
        .and_then(|()| of_algorithms(&registry, &algorithms))
        .and_then(|()| {
            let of = |name: &str| sockets.iter().filter(|s| s.algorithm == name).count() as i64;
            gauges(&registry, "vmcc_sockets", "TCP sockets here, subflows among them, by congestion control.")
                .map(|gauge| {
                    algorithms
                        .iter()
                        .for_each(|a| gauge.with_label_values(&[&a.kernel_name]).set(of(&a.kernel_name)))
                })
        });
    let mut bytes = Vec::new();
    let encoded = filled.and_then(|()| TextEncoder::new().encode(&registry.gather(), &mut bytes));
    encoded
        .and_then(|()| {
            let ports = ports::list().map(|listed| listed.ports).unwrap_or_default();
            Ok(String::from_utf8_lossy(&bytes).into_owned() + &vmcc_port::prometheus(&ports)?)
        })
        .map_err(|e| Error::Figures(e.to_string()))
}

const ALGORITHM: &str = "algorithm";

fn gauges(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGaugeVec> {
    let gauge = IntGaugeVec::new(Opts::new(name, help), &[ALGORITHM])?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

fn of_agent(registry: &Registry, own: &Own) -> prometheus::Result<()> {
    for (name, help, value) in [
        ("vmcc_agent_values", "Values that the agent has set.", own.values),
        ("vmcc_agent_problems", "What the file asks for and cannot be set now.", own.problems),
        (
            "vmcc_agent_file_refused",
            "1 if the file was not usable when it was last read: the one before is in force.",
            u64::from(own.file_refused),
        ),
    ] {
        let gauge = IntGaugeVec::new(Opts::new(name, help), &[])?;
        gauge.with_label_values::<&str>(&[]).set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(Box::new(gauge))?;
    }
    for (name, help, value) in [
        ("vmcc_agent_rounds_total", "Times that everything was looked at.", own.rounds),
        ("vmcc_agent_paths_closed_total", "Paths that the guard closed.", own.paths_closed),
        ("vmcc_agent_reloads_refused_total", "Times that the file was not usable.", own.reloads_refused),
    ] {
        counters(registry, name, help, &[])?.with_label_values::<&str>(&[]).inc_by(value);
    }
    Ok(())
}

fn of_algorithms(registry: &Registry, all: &[Status]) -> prometheus::Result<()> {
    let connections = gauges(
        registry,
        "vmcc_mptcp_connections",
        "MPTCP connections whose paths are coupled, in all namespaces.",
    )?;
    let one = [ALGORITHM];
    let uncoupled = counters(
        registry,
        "vmcc_uncoupled_paths_total",
        "Paths that found no room and ran uncoupled.",
        &one,
    )?;
    let lost = counters(
        registry,
        "vmcc_close_requests_lost_total",
        "Requests to close a path that were dropped.",
        &one,
    )?;
    let without =
        counters(registry, "vmcc_without_ecn_total", "Connections left to Reno for lack of ECN.", &one)?;
    let help = "Reductions of a window, by what caused them.";
    let reductions = counters(registry, "vmcc_reductions_total", help, &[ALGORITHM, "cause"])?;
    for found in all {
        let name = found.kernel_name.as_str();
        if let Some(count) = found.connections {
            connections.with_label_values(&[name]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        if let Some(shortage) = found.shortage {
            uncoupled.with_label_values(&[name]).inc_by(shortage.uncoupled);
            lost.with_label_values(&[name]).inc_by(shortage.requests_lost);
        }
        if let Some(counters) = found.counters {
            without.with_label_values(&[name]).inc_by(counters.without_ecn);
            let causes = [
                ("mark", counters.after_mark),
                ("loss", counters.after_loss),
                ("timeout", counters.after_timeout),
            ];
            causes
                .iter()
                .for_each(|(cause, count)| reductions.with_label_values(&[name, cause]).inc_by(*count));
        }
    }
    Ok(())
}
