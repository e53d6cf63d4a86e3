//! Corners of the standard that an ordinary transfer does not come by.

use crate::multipath::{connected, shaped};
use crate::net::{Transfer, client_address, route};
use vmcc_transport::Config;
use vmcc_units::time::Span;

/// The peer counts on over a change of address: that is no reason to do without marks in the new network.
#[test]
fn marks_are_used_in_another_network_too() {
    let (mut net, client, server) = connected(&[shaped(20_000_000, 5)], &Config::default());
    Transfer::down(&mut net, client, server, 2_000_000).run(&mut net, Span::from_secs(10));
    assert!(net.connection(1, server).paths().all(|path| path.ecn));
    net.nat.insert(client_address(0), "10.77.0.1:7777".parse().unwrap());
    Transfer::up(&mut net, client, server, 100_000).run(&mut net, Span::from_secs(10));
    Transfer::down(&mut net, client, server, 2_000_000).run(&mut net, Span::from_secs(10));
    let path = net.connection(1, server).paths().next().unwrap();
    assert!(path.ecn && path.route.remote.ip().to_string() == "10.77.0.1", "{path:?}");
}
