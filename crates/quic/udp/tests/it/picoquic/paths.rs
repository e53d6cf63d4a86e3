//! Three paths of a connection while it carries data: one is cut in silence, one given up.

use crate::forward::Forward;
use crate::picoquic::BYTES;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use vmcc_transport::Route;
use vmcc_udp::{Connection, PathEvent};

/// Bytes after which a path is in use: more than its validation and the search for its packets' size take.
const USED: u64 = 50_000;

/// Between looks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Opens a path from each of `locals`, as soon as that is possible, and waits until they carry data.
pub(crate) async fn open(connection: &Connection, routes: &[(SocketAddr, SocketAddr)]) {
    for &(local, remote) in routes {
        while let Err(error) = connection.open_path(Route { local, remote }) {
            assert!(connection.error().is_none(), "{error}");
            sleep(POLL_INTERVAL).await;
        }
    }
    opened(connection, routes.len() + 1).await;
}

/// Waits until this many paths carry data.
pub(crate) async fn opened(connection: &Connection, wanted: usize) {
    while connection.paths().iter().filter(|path| path.open).count() < wanted {
        assert!(connection.error().is_none(), "{:?}", connection.error());
        sleep(POLL_INTERVAL).await;
    }
}

/// Fate of three paths once each of them is in use.
pub(crate) struct Trial<'a> {
    connection: &'a Connection,
    forward: &'a Forward,
    begun: Option<Begun>,
    /// Of two looks since then.
    longest: Duration,
    last: Instant,
}

/// Its time and paths.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// Bytes of the data by then.
    len: usize,
    cut: u32,
    given_up: u32,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(connection: &'a Connection, forward: &'a Forward) -> Trial<'a> {
        Trial { connection, forward, begun: None, longest: Duration::ZERO, last: Instant::now() }
    }

    /// With this many bytes of the data there.
    pub(crate) fn look(&mut self, len: usize) {
        let last = std::mem::replace(&mut self.last, Instant::now());
        if self.begun.is_some() {
            self.longest = self.longest.max(self.last - last);
            return;
        }
        let paths = self.connection.paths();
        if paths.len() < 3 || paths.iter().any(|path| path.bytes.0.max(path.bytes.1) < USED) {
            return;
        }
        // A client sees where it sends to, a server where that seems to come from.
        let ends = [self.forward.at, self.forward.from];
        let cut = paths.iter().find(|path| ends.contains(&path.route.remote));
        let cut = cut.expect("one leads by the forward").id;
        let given_up =
            paths.iter().map(|path| path.id).filter(|id| *id != cut).max().expect("there are three");
        self.forward.set_cut(true);
        self.connection.abandon_path(given_up).unwrap();
        self.begun = Some(Begun { len, cut, given_up });
    }

    /// It began while most of the data was still to come.
    pub(crate) fn begun_early(&self) {
        let begun = self.begun.expect("all three paths were used");
        assert!(begun.len < BYTES / 2, "{begun:?}");
        eprintln!("cut at byte {} of {BYTES}, longest wait {:?}", begun.len, self.longest);
    }

    /// Gives the path up that was cut, too, and waits until both are gone.
    pub(crate) async fn end(&self) {
        let begun = self.begun.expect("all three paths were used");
        // The peer may have done so before.
        let _ = self.connection.abandon_path(begun.cut);
        let mut left = vec![begun.cut, begun.given_up];
        while !left.is_empty() {
            if let PathEvent::Closed { path, .. } = self.connection.path_event().await.unwrap() {
                left.retain(|wanted| *wanted != path);
            }
        }
    }
}
