//! Three paths of a connection while it carries data: one is cut in silence, one given up.

use crate::forward::Forward;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::sleep;
use vmcc_transport::Route;
use vmcc_udp::{Connection, PathEvent};

/// Bytes after which a path is in use: more than its validation and the search for its packets' size take.
const USED: u64 = 50_000;

/// Between looks.
const LOOK: Duration = Duration::from_millis(5);

/// Opens a path from each of `locals`, as soon as that is possible, and waits until they carry data.
pub(crate) async fn open(connection: &Connection, routes: &[(SocketAddr, SocketAddr)]) {
    for &(local, remote) in routes {
        while let Err(error) = connection.open_path(Route { local, remote }) {
            assert!(connection.error().is_none(), "{error}");
            sleep(LOOK).await;
        }
    }
    opened(connection, routes.len() + 1).await;
}

/// Waits until so many paths carry data.
pub(crate) async fn opened(connection: &Connection, wanted: usize) {
    while connection.paths().iter().filter(|path| path.open).count() < wanted {
        assert!(connection.error().is_none(), "{:?}", connection.error());
        sleep(LOOK).await;
    }
}

/// What happens to three paths once each of them is in use.
pub(crate) struct Trial<'a> {
    connection: &'a Connection,
    forward: &'a Forward,
    /// Bytes of the data by then, and the numbers of the path that is cut and of the one that is given up.
    pub(crate) begun: Option<(usize, u32, u32)>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(connection: &'a Connection, forward: &'a Forward) -> Trial<'a> {
        Trial { connection, forward, begun: None }
    }

    /// With so many bytes of the data there.
    pub(crate) fn look(&mut self, len: usize) {
        if self.begun.is_some() {
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
        self.forward.cut();
        self.connection.abandon_path(given_up).unwrap();
        self.begun = Some((len, cut, given_up));
    }

    /// Both were closed at both ends; how, in the order in which it happened.
    pub(crate) async fn over(&self) -> Vec<PathEvent> {
        let (_, cut, given_up) = self.begun.expect("all three paths were used");
        let mut events = Vec::new();
        let closed = |events: &[PathEvent], wanted| {
            events.iter().any(|event| matches!(event, PathEvent::Closed { path, .. } if *path == wanted))
        };
        while !closed(&events, cut) || !closed(&events, given_up) {
            events.push(self.connection.path_event().await.unwrap());
        }
        events
    }
}
