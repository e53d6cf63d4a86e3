//! Corners of the standard that an ordinary transfer does not come by.

use crate::multipath::{connected, shaped};
use crate::net::{Link, Net, Transfer, client_address, route};
use vmcc_transport::{Config, Retry};
use vmcc_units::time::{Span, Time};

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

/// RFC 9002 section 7.6.2: what was lost before there was a round trip to measure by is no persistent congestion.
#[test]
fn what_is_lost_before_the_first_round_trip_leaves_the_first_window() {
    let link = Link { cut: (Time::ZERO, Time::ZERO + Span::from_ms(3500)), ..Link::default() };
    let mut net = Net::new(&[link], Config::default(), Retry::Above(usize::MAX));
    let client = net.connect(Config::default());
    let server = net.handshake(client);
    Transfer::up(&mut net, client, server, 1000).run(&mut net, Span::from_secs(5));
    net.run_for(Span::from_ms(200));
    let path = net.connection(0, client).paths().next().unwrap();
    assert!(path.lost_packets > 0 && path.cwnd_pkt >= 5, "{path:?}");
}

/// And what was lost on both sides of something that arrived is neither.
#[test]
fn losses_around_what_arrived_are_no_persistent_congestion() {
    let (mut net, client, server) = connected(&[Link::default()], &Config::default());
    Transfer::up(&mut net, client, server, 100_000).run(&mut net, Span::from_secs(10));
    net.run_for(Span::from_secs(1));
    let before = net.connection(0, client).paths().next().unwrap();
    let cut = |net: &mut Net, from: [bool; 2]| {
        let link = net.links.get_mut(&client_address(0)).unwrap();
        (link.cut, link.cut_from) = ((Time::ZERO, Time::NEVER), from);
    };
    // One packet is lost, several arrive whose acknowledgments are lost, one is lost again, and then all is well.
    cut(&mut net, [true; 2]);
    let mut transfer = Transfer::up(&mut net, client, server, 100);
    transfer.pump(&mut net);
    net.run_for(Span::from_ms(20));
    cut(&mut net, [false, true]);
    net.run_for(Span::from_ms(600));
    cut(&mut net, [true; 2]);
    net.run_for(Span::from_ms(300));
    cut(&mut net, [false; 2]);
    net.run_for(Span::from_secs(5));
    Transfer::up(&mut net, client, server, 1000).run(&mut net, Span::from_secs(5));
    net.run_for(Span::from_ms(200));
    let after = net.connection(0, client).paths().next().unwrap();
    assert!(after.lost_packets >= before.lost_packets + 2, "{before:?} {after:?}");
    assert!(after.cwnd_pkt >= before.cwnd_pkt / 2, "{before:?} {after:?}");
}
