//! Edge cases of the standard that an ordinary transfer does not meet.

use crate::multipath::{connected, shaped};
use crate::net::{Link, Net, Transfer, client_address, route};
use vmcc_quic_testkit::pair::Pair;
use vmcc_transport::{Config, ConnectionError, Ecn, Event, Retry, Route};
use vmcc_units::time::{Span, Time};

/// The peer counts on over a change of address: that is no reason to do without marks in the new network.
#[test]
fn ecn_is_validated_again_after_migration() {
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
fn losses_before_the_first_rtt_sample_keep_the_initial_window() {
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
fn losses_around_an_acked_packet_are_no_persistent_congestion() {
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

#[test]
fn multipath_with_empty_connection_ids_is_refused() {
    let mut server = Pair::server();
    // Of this client, the id is of no bytes; with the extension, or without.
    for (extension, refused) in [(&[0x3e, 1, 3][..], true), (&[], false)] {
        let params = [&[0x0f, 0][..], extension].concat();
        let message = [&(params.len() as u32).to_be_bytes()[..], &params].concat();
        let mut packet = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, u8::from(refused), 0, 0];
        packet.extend(((1200_u16 - 18) | 0x4000).to_be_bytes());
        packet.extend([0, 0x06, 0, message.len() as u8]);
        packet.extend(message);
        packet.resize(1200, 0);
        let now = Time::ZERO + Span::from_secs(1);
        server.handle_datagram(now, Pair::route(1), Ecn::NotEct, &mut packet);
        let mut out = Vec::new();
        while server.poll_transmit(now, &mut out).is_some() {}
        let closed = std::iter::from_fn(|| server.poll_event()).find_map(|(_, event)| match event {
            Event::Closed(ConnectionError::Transport(error)) => Some(error.code),
            _ => None,
        });
        assert_eq!(closed, refused.then_some(0x0a));
    }
}

/// A datagram that was as long as it might be when it was given does not hold back all that follow once packets are smaller.
#[test]
fn oversized_queued_datagrams_are_dropped() {
    let (mut net, client, server) = connected(&[shaped(20_000_000, 5)], &Config::default());
    net.run_for(Span::from_secs(2));
    net.links.get_mut(&client_address(0)).unwrap().mtu = 1250;
    let now = net.now;
    let connection = net.connection(0, client);
    let most = connection.max_datagram().unwrap();
    while connection.send_datagram(now, &vec![1; most]) {}
    net.run_for(Span::from_secs(20));
    let now = net.now;
    assert!(net.connection(0, client).send_datagram(now, &[2; 100]), "there is room again");
    net.run_for(Span::from_secs(1));
    assert_eq!(net.connection(1, server).read_datagram(), Some(vec![2; 100]));
}

/// The close is sent on a path that receives, not on a silent one.
#[test]
fn connection_close_is_sent_on_a_responsive_path() {
    let (mut net, client, server) = connected(&[shaped(20_000_000, 5); 2], &Config::default());
    let mut transfer = Transfer::up(&mut net, client, server, 20_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 2_000_000);
    let now = net.now;
    net.links.get_mut(&client_address(0)).unwrap().cut = (now, Time::NEVER);
    // Before anybody can know.
    net.connection(1, server).close(now, 7, b"enough");
    net.run_for(Span::from_secs(2));
    let closed = ConnectionError::ApplicationClosed { code: 7, reason: "enough".to_owned() };
    assert!(net.happened(0, &Event::Closed(closed)).is_some());
}

/// A path's status may overtake its first packet.
#[test]
fn path_status_before_the_path_is_kept() {
    let links = [Link::default(), Link { delay: Span::from_ms(80), ..Link::default() }];
    let mut net = Net::new(&links, Config::default(), Retry::Above(usize::MAX));
    let client = net.connect(Config::default());
    let server = net.handshake(client);
    net.run_for(Span::from_secs(1));
    let now = net.now;
    let path = net.connection(0, client).open_path(now, route(1)).unwrap();
    net.connection(0, client).set_backup(path, true).unwrap();
    net.run_for(Span::from_secs(1));
    assert!(net.connection(1, server).paths().any(|own| own.id == path && own.open && own.backup));
}

/// Packets that fit one network may be too large for the next: nothing is to be lost for that.
#[test]
fn migration_restarts_mtu_discovery() {
    let (mut net, client, server) = connected(&[shaped(20_000_000, 5)], &Config::default());
    Transfer::down(&mut net, client, server, 2_000_000).run(&mut net, Span::from_secs(10));
    let path = |net: &mut Net| net.connection(1, server).paths().next().unwrap();
    let before = path(&mut net);
    assert!(before.mtu > 1400, "{before:?}");
    net.nat.insert(client_address(0), "10.77.0.1:7777".parse().unwrap());
    net.links.get_mut(&client_address(0)).unwrap().mtu = 1250;
    Transfer::up(&mut net, client, server, 1000).run(&mut net, Span::from_secs(10));
    Transfer::down(&mut net, client, server, 1_000_000).run(&mut net, Span::from_secs(10));
    let after = path(&mut net);
    assert!(after.mtu <= 1250 && after.timeouts == before.timeouts, "{before:?} {after:?}");
}

/// Route and bytes of the server's first packet.
fn says(pair: &mut Pair) -> Option<(Route, Vec<u8>)> {
    let mut out = Vec::new();
    let transmit = pair.ends[1].poll_transmit(pair.now, &mut out)?;
    Some((transmit.route, out))
}

const CHALLENGE: u8 = 0x1a;
const RESPONSE: u8 = 0x1b;

fn elsewhere() -> Route {
    Route { remote: "10.9.9.9:999".parse().unwrap(), ..Pair::route(1) }
}

#[test]
fn path_response_goes_to_the_challenge_address_within_amplification_limit() {
    for (len, least, most) in [(9, 21, 60), (1200, 1200, 1200)] {
        let mut pair = Pair::new();
        let mut frames = vec![CHALLENGE, 1, 2, 3, 4, 5, 6, 7, 8];
        frames.resize(len, 0);
        pair.say_from(elsewhere(), 1, 1000, &frames);
        let answers = std::iter::from_fn(|| says(&mut pair)).filter(|(to, _)| *to == elsewhere());
        let answers: Vec<_> = answers.map(|(_, packet)| packet).collect();
        assert_eq!(answers.len(), 1);
        assert!(answers[0].windows(9).any(|nine| nine == [RESPONSE, 1, 2, 3, 4, 5, 6, 7, 8]));
        assert!((least..=most).contains(&answers[0].len()), "{}", answers[0].len());
    }
}

/// RFC 9000 section 8.2.3.
#[test]
fn path_response_from_another_address_validates_the_challenged_one() {
    let kept = |answered: bool| {
        let mut pair = Pair::new();
        let mut ping = [0; 1200];
        ping[0] = 1;
        pair.say_from(elsewhere(), 1, 1000, &ping);
        let challenge = std::iter::from_fn(|| says(&mut pair)).find_map(|(to, packet)| {
            let at = packet.iter().position(|byte| *byte == CHALLENGE)?;
            (to == elsewhere()).then(|| packet[at + 1..at + 9].to_vec())
        });
        if answered {
            pair.say(1, 1001, &[&[RESPONSE][..], &challenge.expect("it is asked")].concat());
        }
        // Longer than the timeout of PATH_CHALLENGE, and shorter than the idle timeout.
        let end = pair.now + Span::from_secs(20);
        while pair.ends[1].poll_timeout().is_some_and(|at| at < end) {
            pair.now = pair.ends[1].poll_timeout().unwrap();
            pair.ends[1].handle_timeout(pair.now);
            while says(&mut pair).is_some() {}
        }
        let server = pair.handles[1].unwrap();
        let route = pair.ends[1].connection(server).unwrap().paths().next().unwrap().route;
        route == elsewhere()
    };
    assert!(kept(true) && !kept(false));
}

#[test]
fn unknown_version_gets_version_negotiation_for_any_cid_length() {
    for len in [0, 8, 21, 255] {
        let mut server = Pair::server();
        let mut packet =
            [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, len as u8][..], &vec![7; len], &[3, 1, 2, 3]].concat();
        packet.resize(1200, 0);
        let (now, mut out) = (Time::ZERO + Span::from_secs(1), Vec::new());
        server.handle_datagram(now, Pair::route(1), Ecn::NotEct, &mut packet);
        server.poll_transmit(now, &mut out).unwrap();
        let begin = [&[0, 0, 0, 0, 3, 1, 2, 3, len as u8][..], &vec![7; len], &[0, 0, 0, 1]].concat();
        assert!(out[0] & 0x80 != 0 && out[1..].starts_with(&begin), "{out:?}");
        assert!(server.poll_transmit(now, &mut out).is_none());
    }
}

/// Nothing says that a path carries smaller packets now: that is found out by silence, on all of them at the same time.
#[test]
fn mtu_black_hole_on_every_path_is_detected() {
    for paths in 1..5 {
        let (mut net, client, server) = connected(&vec![shaped(20_000_000, 5); paths], &Config::default());
        let mut transfer = Transfer::up(&mut net, client, server, 20_000_000);
        transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 4_000_000);
        let mtu = |net: &mut Net| net.connection(0, client).paths().map(|path| path.mtu).max();
        assert!(mtu(&mut net) > Some(1400));
        net.links.values_mut().for_each(|link| link.mtu = 1280);
        let (now, read) = (net.now, transfer.read + 300_000);
        transfer.until(&mut net, Span::from_secs(60), |_, transfer| transfer.read > read);
        let took = net.now.since(now);
        assert!(took < Span::from_secs(1), "{paths} paths: {took:?}");
        transfer.run(&mut net, Span::from_secs(60));
        let mtu = mtu(&mut net);
        assert!(mtu > Some(1200) && mtu <= Some(1280), "{paths} paths: {mtu:?}");
    }
}

/// RFC 9000 section 12.2: packets of a datagram to another connection id than its first one's are ignored.
#[test]
fn coalesced_packet_to_another_id_is_ignored() {
    // CONNECTION_CLOSE of an application with code 5 and no reason.
    const CLOSE: [u8; 3] = [0x1d, 5, 0];
    let mut pair = Pair::new();
    let server = pair.handles[1].unwrap();
    let error = |pair: &mut Pair| pair.ends[1].connection(server).and_then(|own| own.error().cloned());
    pair.say_behind_another_id(1000, &CLOSE);
    assert_eq!(error(&mut pair), None);
    pair.say(1, 1000, &CLOSE);
    let closed = ConnectionError::ApplicationClosed { code: 5, reason: String::new() };
    assert_eq!(error(&mut pair), Some(closed));
}
