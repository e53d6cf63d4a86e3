//! A client with two interfaces, a router, and a server behind it with one address.

use socket2::Socket;
use std::io::Read;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vmcc_advise::gather::{Request, gather};
use vmcc_advise::{Advice, CauseCode, Facts, advise};
use vmcc_testkit::netns::{Namespace, join, run};
use vmcc_testkit::paths::{Over, listen};

pub(super) const SERVER: &str = "10.66.9.1";
pub(super) const PORT: u16 = 5201;
pub(super) const SECOND: &str = "10.66.1.1";
const ACCEPT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Two paths that work: endpoint, rule, limits and MPTCP at both ends.
pub(super) struct World {
    pub(super) client: Namespace,
    pub(super) router: Namespace,
    pub(super) server: Namespace,
}

impl World {
    pub(super) fn new() -> Self {
        let [client, router, server] = ["c", "r", "s"].map(Namespace::new);
        let world = Self { client, router, server };
        join(&world.client, &world.router, "p0", "10.66.0");
        join(&world.client, &world.router, "p1", "10.66.1");
        join(&world.server, &world.router, "q0", "10.66.9");
        world.router.sysctl("ipv4/ip_forward", "1");
        run(&format!("ip -n {} route add default via 10.66.0.2", world.client));
        run(&format!("ip -n {} route add default via 10.66.9.2", world.server));
        world.add_rule();
        for end in [&world.client, &world.server] {
            end.sysctl("mptcp/enabled", "1");
            world.limits(end, 2);
        }
        run(&format!("ip -n {} mptcp endpoint add {SECOND} dev p1 subflow", world.client));
        world
    }

    pub(super) fn add_rule(&self) {
        run(&format!("ip -n {} rule add from {SECOND} table 101", self.client));
        run(&format!("ip -n {} route add default via 10.66.1.2 dev p1 table 101", self.client));
    }

    pub(super) fn limits(&self, end: &Namespace, subflows: u32) {
        run(&format!("ip -n {end} mptcp limits set subflows {subflows} add_addr_accepted 0"));
    }

    /// Facts and advice of the client, about the server's port.
    pub(super) fn advice(&self) -> (Facts, Advice) {
        let request = Request { peer: Some(SERVER.to_owned()), port: Some(PORT), ..Request::default() };
        let facts = self.client.within(|| gather(&request)).unwrap();
        let advice = advise(&facts);
        (facts, advice)
    }

    /// Causes that the client is given.
    pub(super) fn causes(&self) -> Vec<CauseCode> {
        self.advice().1.causes.iter().map(|cause| cause.code).collect()
    }
}

/// A server that reads from each connection until it ends; stops when dropped.
pub(super) struct Listener {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    pub(super) fn new(world: &World, over: Over) -> Self {
        let socket = world.server.within(|| listen(over, PORT));
        socket.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || accept(&socket, &stopped));
        Self { stop, thread: Some(thread) }
    }
}

fn accept(listener: &Socket, stop: &AtomicBool) {
    let mut served = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok((socket, _)) = listener.accept() else {
            thread::sleep(ACCEPT_POLL_INTERVAL);
            continue;
        };
        socket.set_nonblocking(false).unwrap();
        let mut stream = TcpStream::from(OwnedFd::from(socket));
        served.push(thread::spawn(move || {
            let mut buffer = [0; 4096];
            while matches!(stream.read(&mut buffer), Ok(1..)) {}
        }));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
