//! A client of what holds objects: fetches begin as a Poisson process, whether or not earlier ones are done, each on a connection of its
//! own or on one that is kept (see `persistent_client`); every byte is compared with what their holder was given.

use super::in_process::exit_with;
use super::object_store::{ObjectStore, key};
use super::verify::{ExpectedResponse, request};
use crate::process::Ended;
use crate::rng::Rng;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_scenario::model::ObjectProgram;

/// A fetch's thread does little.
pub(super) const STACK_BYTES: usize = 64 << 10;

/// Plan of a client: the objects, their server, and the rate of fetches.
pub(super) struct Plan {
    pub(super) to: SocketAddr,
    pub(super) multipath: bool,
    pub(super) per_second: f64,
    pub(super) seed: u64,
    pub(super) lasts: Duration,
    /// Time that a connection stays open after its transfer.
    pub(super) linger: Duration,
    pub(super) holder: ObjectProgram,
    pub(super) store: Arc<ObjectStore>,
}

/// One fetch.
struct Fetch {
    port: u16,
    object: usize,
    began: Duration,
    took: io::Result<Option<Duration>>,
}

/// Begins fetches until their time is over, and says what became of each: a line each on `stdout`, the first fault on `stderr`.
pub(super) fn fetch_all(plan: Plan, end: &AtomicBool) -> Ended {
    let plan = Arc::new(plan);
    let (results, fetches) = channel();
    let begun = Instant::now();
    let mut fault = run_arrivals(&plan, begun, end, |object, _| {
        let (plan, results) = (Arc::clone(&plan), results.clone());
        let one = move || fetch(&plan, object, begun, &results);
        let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(one);
        started.map(|_| ()).map_err(|e| io::Error::other(format!("a thread for a fetch: {e}")))
    });
    drop(results);
    let mut text = String::new();
    for fetch in fetches {
        match fetch.took {
            Ok(took) => {
                let took = took.map_or("-".to_owned(), |took| took.as_secs_f64().to_string());
                let _ =
                    writeln!(text, "{} {} {} {took}", fetch.port, fetch.object, fetch.began.as_secs_f64());
            }
            Err(e) if fault.is_none() => {
                fault = Some(io::Error::other(format!("a fetch of {}: {e}", key(fetch.object))));
            }
            Err(_) => {}
        }
    }
    exit_with(text, fault)
}

/// Begins a fetch for each object that somebody wants, then, until their time is over; says what went wrong.
pub(super) fn run_arrivals(
    plan: &Plan,
    begun: Instant,
    end: &AtomicBool,
    mut begin: impl FnMut(usize, Duration) -> io::Result<()>,
) -> Option<io::Error> {
    let mut rng = Rng::new(plan.seed, 0);
    let mut next = Duration::ZERO;
    loop {
        next += Duration::from_secs_f64(rng.exponential() / plan.per_second.max(1e-3));
        if next >= plan.lasts || !wait_until(begun + next, end) {
            return None;
        }
        let object = (rng.uniform() * plan.store.count() as f64) as usize % plan.store.count();
        if let Err(e) = begin(object, next) {
            return Some(e);
        }
    }
}

/// Waits until `at`; false if `end` is set.
fn wait_until(at: Instant, end: &AtomicBool) -> bool {
    const STEP: Duration = Duration::from_millis(100);
    while let Some(rest) = at.checked_duration_since(Instant::now()) {
        if end.load(Ordering::Relaxed) {
            return false;
        }
        thread::sleep(rest.min(STEP));
    }
    !end.load(Ordering::Relaxed)
}

fn fetch(plan: &Plan, object: usize, begun: Instant, results: &Sender<Fetch>) {
    let began = begun.elapsed();
    let until = begun + plan.lasts;
    let (port, took, socket) = match fetch_one(plan, object, until) {
        Ok((socket, took)) => (port_of(&socket), Ok(took), Some(socket)),
        // Its time was over before it was connected.
        Err(e) if is_late(&e) => (0, Ok(None), None),
        Err(e) => (0, Err(e), None),
    };
    // Nobody listens any more when the run was given up.
    let _ = results.send(Fetch { port, object, began, took });
    if let Some(socket) = socket {
        thread::sleep(plan.linger);
        drop(socket);
    }
}

/// One fetch, and how long it took: `None` if its time was over before.
fn fetch_one(plan: &Plan, object: usize, until: Instant) -> io::Result<(Socket, Option<Duration>)> {
    let started = Instant::now();
    let socket = connect(plan, until)?;
    let mut answer = ExpectedResponse::of(plan.holder, object, plan.store.object(object));
    let there = exchange(&socket, &request(plan.holder, object), &mut answer, until)?;
    Ok((socket, there.map(|there| there.duration_since(started))))
}

/// Time left until `until`, at least 1 ms: sockets take no timeout of zero.
fn left_until(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

pub(super) fn connect(plan: &Plan, until: Instant) -> io::Result<Socket> {
    connect_to(plan.to, plan.multipath, left_until(until))
}

pub(super) fn connect_to(to: SocketAddr, multipath: bool, timeout: Duration) -> io::Result<Socket> {
    let protocol = if multipath { Protocol::MPTCP } else { Protocol::TCP };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))?;
    socket.connect_timeout(&to.into(), timeout)?;
    Ok(socket)
}

/// Asks for an object, and takes the answer. When its last byte was there: `None` if the time was over before.
pub(super) fn exchange(
    mut socket: &Socket,
    request: &str,
    answer: &mut ExpectedResponse,
    until: Instant,
) -> io::Result<Option<Instant>> {
    socket.write_all(request.as_bytes())?;
    let (mut complete, mut buffer) = (false, vec![0; 1 << 15]);
    while !complete {
        socket.set_read_timeout(Some(left_until(until)))?;
        let count = match socket.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(e) if is_late(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        complete = answer.take(&buffer[..count])?;
    }
    Ok(Some(Instant::now()))
}

pub(super) fn port_of(socket: &Socket) -> u16 {
    socket.local_addr().ok().and_then(|address| address.as_socket()).map_or(0, |address| address.port())
}

pub(super) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
