//! picoquic fetches.

use crate::forward::Forward;
use crate::hq::{self, bytes};
use crate::picoquic::paths::{self, Trial};
use crate::picoquic::{BYTES, with_picoquic};
use std::net::SocketAddr;
use vmcc_transport::{ConnectionError, Retry};
use vmcc_udp::Connection;

/// Observations of a connection while it lasted.
struct Seen {
    key_updates: u64,
    /// The client's first and last address.
    remotes: (SocketAddr, SocketAddr),
}

impl Seen {
    fn look(&mut self, connection: &Connection) {
        self.key_updates = self.key_updates.max(connection.key_updates());
        if let Some(path) = connection.paths().first() {
            self.remotes.1 = path.route.remote;
        }
    }
}

/// A client of picoquic with these options gets all by one path; what it said of that, and what was seen here.
fn one_path(options: &[&str], check: impl Fn(&str, &Seen)) {
    with_picoquic(async |picoquic| {
        let data = bytes(BYTES);
        let endpoint = hq::server(Retry::Always, vmcc_udp::config());
        let local = endpoint.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut client = picoquic.client(local, options, "/data");
        let connection = endpoint.accept().await;
        let first = connection.paths()[0].route.remote;
        assert!(!connection.is_multipath(), "it was not told to");
        let mut seen = Seen { key_updates: 0, remotes: (first, first) };
        let end = hq::serve(&connection, &data, async |_| seen.look(&connection)).await;
        assert!(matches!(end, ConnectionError::ApplicationClosed { code: 0, .. }), "{end}");
        let said = client.ended().await;
        assert!(picoquic.fetched("data") == data, "{said}");
        check(&said, &seen);
    });
}

#[test]
#[ignore = "needs picoquicdemo, which VMCC_PICOQUIC names"]
fn server_against_picoquic_with_retry() {
    // As usual; a second ClientHello is asked for; the ClientHello takes several packets; ChaCha20.
    for options in [&[][..], &["-z"], &["-Q"], &["-C", "20"]] {
        one_path(options, |_, seen| assert_eq!(seen.key_updates, 0));
    }
}

#[test]
#[ignore = "needs picoquicdemo, which VMCC_PICOQUIC names"]
fn server_against_picoquic_with_key_update() {
    one_path(&["-u", "100"], |said, seen| {
        assert!(said.contains("Key rotation started."), "{said}");
        assert_eq!(seen.key_updates, 1);
    });
}

#[test]
#[ignore = "needs picoquicdemo, which VMCC_PICOQUIC names"]
fn server_against_picoquic_with_migration() {
    // A NAT gives another port; another connection id from the same port; another port with another connection id.
    for (mode, moves) in [("1", true), ("2", false), ("3", true)] {
        one_path(&["-f", mode], |said, seen| {
            let (first, last) = seen.remotes;
            assert_eq!(first != last, moves, "{mode}: {first}, then {last}\n{said}");
        });
    }
}

#[test]
#[ignore = "needs picoquicdemo, which VMCC_PICOQUIC names"]
fn server_against_picoquic_loses_one_of_three_paths_and_abandons_one() {
    with_picoquic(async |picoquic| {
        let data = bytes(BYTES);
        let endpoint = hq::server(Retry::Always, vmcc_udp::config());
        let local = endpoint.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // Its other addresses of a server have the first one's port.
        let forward = Forward::start(SocketAddr::new([127, 0, 0, 4].into(), local.port()), local).await;
        let others = format!("127.0.0.2/0/{},127.0.0.3/0/127.0.0.1", forward.at.ip());
        let mut client = picoquic.client(local, &["-M", "-A", &others, "-u", "100"], "/data");
        let connection = endpoint.accept().await;
        assert!(connection.is_multipath());
        paths::opened(&connection, 3).await;
        let mut trial = Trial::new(&connection, &forward);
        let mut key_updates = 0;
        let end = hq::serve(&connection, &data, async |len| {
            trial.look(len);
            key_updates = connection.key_updates().max(key_updates);
        });
        let end = end.await;
        assert!(matches!(end, ConnectionError::ApplicationClosed { code: 0, .. }), "{end}");
        let said = client.ended().await;
        assert!(picoquic.fetched("data") == data, "{said}");
        trial.begun_early();
        assert_eq!(key_updates, 1, "{said}");
    });
}
