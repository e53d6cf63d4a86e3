//! Further requirements of the standard: datagrams, key updates, new addresses, marks, sizes, tokens, resets, invalid packets.

use crate::net::{Link, Net, Transfer, client_address};
use std::sync::Arc;
use vmcc_cc::{Algorithm, Params};
use vmcc_multipath::AckPath;
use vmcc_quic_testkit::tls;
use vmcc_transport::{
    Config, ConnectionError, Dir, Ecn, Endpoint, Event, Handle, Retry, Route, Server, StreamError,
};
use vmcc_units::time::Span;

const NO_RETRY: Retry = Retry::Above(usize::MAX);

fn pair(links: &[Link], config: &Config) -> (Net, Handle, Handle) {
    let mut net = Net::new(links, config.clone(), NO_RETRY);
    let client = net.connect(config.clone());
    let server = net.handshake(client);
    (net, client, server)
}

#[test]
fn datagrams_arrive_whole_or_not_at_all() {
    let (mut net, client, server) = pair(&[Link { loss: 100, ..Link::default() }], &Config::default());
    let most = net.connection(0, client).max_datagram().unwrap();
    let now = net.now;
    assert!(!net.connection(0, client).send_datagram(now, &vec![0; most + 1]));
    let mut arrived = 0;
    for i in 0..=255_u8 {
        let now = net.now;
        let datagram = if i < 200 { vec![i; most - usize::from(i)] } else { Vec::new() };
        assert!(datagram.is_empty() || net.connection(0, client).send_datagram(now, &datagram));
        net.run_for(Span::from_ms(if i < 200 { 20 } else { 100 }));
        while let Some(datagram) = net.connection(1, server).read_datagram() {
            assert!(datagram.iter().all(|&byte| usize::from(byte) == most - datagram.len()));
            arrived += 1;
        }
    }
    assert!((150..200).contains(&arrived), "a tenth is lost, and nobody sends it again: {arrived}");
}

/// Datagrams are held back by the window as streams are, so the window grows for them, too.
#[test]
fn datagrams_are_congestion_controlled() {
    // At two of a thousand the window is some 27 packets, which in 10 ms is more than the link carries.
    let link = Link { rate: 20_000_000, queue: 50_000, loss: 2, ..Link::default() };
    let (mut net, client, server) = pair(&[link], &Config::default());
    let (begin, mut arrived) = (net.now, 0);
    net.until(Span::from_secs(30), |net| {
        let now = net.now;
        let connection = net.connection(0, client);
        let most = connection.max_datagram().unwrap();
        while connection.send_datagram(now, &vec![7; most]) {}
        while let Some(datagram) = net.connection(1, server).read_datagram() {
            arrived += datagram.len() as u64;
        }
        net.now > begin + Span::from_secs(10)
    });
    let rate = arrived as f64 * 8.0 / 10.0;
    assert!(rate > 0.8 * 20e6, "{rate}");
}

#[test]
fn key_update_survives_loss_and_reordering() {
    let (mut net, client, server) = pair(&[Link { loss: 20, ..Link::default() }], &Config::default());
    let mut transfer = Transfer::up(&mut net, client, server, 1_000_000);
    let mut changes = 0;
    net.until(Span::from_secs(60), |net| {
        transfer.pump(net);
        let now = net.now;
        changes += u64::from(
            net.connection(transfer.read as usize & 1, [client, server][transfer.read as usize & 1])
                .update_keys(now),
        );
        transfer.is_done()
    });
    net.run_for(Span::from_ms(200));
    assert!(changes > 5, "{changes}");
    let made = [net.connection(0, client).key_updates(), net.connection(1, server).key_updates()];
    // The last one may have had no packet to be seen by.
    assert!(made[0].abs_diff(made[1]) <= 1, "{made:?}");
}

#[test]
fn nat_rebinding_is_followed() {
    let (mut net, client, server) = pair(&[Link::default()], &Config::default());
    let mut transfer = Transfer::up(&mut net, client, server, 3_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 1_000_000);
    let public = "10.77.0.1:7777".parse().unwrap();
    net.nat.insert(client_address(0), public);
    transfer.run(&mut net, Span::from_secs(10));
    net.run_for(Span::from_ms(200));
    assert!(net.connection(1, server).paths().all(|path| path.route.remote == public));
}

#[test]
fn ecn_marks_reduce_the_window_and_bleaching_disables_ecn() {
    let algorithm = Algorithm::by_name("dctcp").unwrap();
    let config = Config { algorithm, params: Params::defaults(algorithm), ..Config::default() };
    let link = Link { rate: 50_000_000, mark_above: 20_000, queue: 300_000, ..Link::default() };
    let (mut net, client, server) = pair(&[link], &config);
    let took = Transfer::up(&mut net, client, server, 10_000_000).run(&mut net, Span::from_secs(20));
    let path = net.connection(0, client).paths().next().unwrap();
    assert!(path.ecn && net.connection(0, client).stats().ecn_ce > 20);
    assert_eq!(path.lost_packets, 0, "marks came first");
    assert!(took < Span::from_ms(2000), "{took:?}");
    let (mut net, client, server) = pair(&[Link { bleaches: true, ..link }], &config);
    Transfer::up(&mut net, client, server, 3_000_000).run(&mut net, Span::from_secs(20));
    assert!(net.connection(0, client).paths().all(|path| !path.ecn));
}

#[test]
fn path_mtu_discovery_grows_and_shrinks_packets() {
    let config = Config { max_mtu: 9000, ..Config::default() };
    let (mut net, client, server) = pair(&[Link { mtu: 1400, ..Link::default() }], &config);
    Transfer::up(&mut net, client, server, 2_000_000).run(&mut net, Span::from_secs(20));
    net.run_for(Span::from_secs(5));
    let mtu = |net: &mut Net| net.connection(0, client).paths().next().unwrap().mtu;
    assert!((1380..=1400).contains(&mtu(&mut net)), "{}", mtu(&mut net));
    net.links.get_mut(&client_address(0)).unwrap().mtu = 1250;
    Transfer::up(&mut net, client, server, 1_000_000).run(&mut net, Span::from_secs(20));
    assert!(mtu(&mut net) <= 1250);
}

#[test]
fn restarted_server_sends_stateless_reset() {
    let (mut net, client, _) = pair(&[Link::default()], &Config::default());
    net.run_for(Span::from_ms(50));
    let server = Server { tls: tls::server(), config: Arc::default(), retry: NO_RETRY, max_connections: 1 };
    net.ends[1] = Endpoint::new(Some(server), [2; 32]); // the same seed: the same key for resets
    let stream = net.connection(0, client).open_stream(Dir::Bi).unwrap();
    net.connection(0, client).write(stream, &[0; 100]).unwrap();
    net.run_for(Span::from_secs(1));
    assert!(net.happened(0, &Event::Closed(ConnectionError::Reset)).is_some(), "{:?}", net.events);
}

#[test]
fn retry_validates_the_address_and_a_token_avoids_it() {
    let mut net = Net::new(&[Link::default()], Config::default(), Retry::Always);
    let client = net.connect(Config::default());
    net.handshake(client);
    let slow = net.now;
    net.run_for(Span::from_ms(50));
    let token = net.connection(0, client).new_token().expect("the server gives one");
    let begin = net.now;
    let route = crate::net::route(0);
    let again = net.ends[0].connect(begin, tls::client(), Arc::default(), "localhost", route, token).unwrap();
    net.handshake(again);
    assert!(net.now.since(begin) < slow.since(vmcc_units::time::Time::ZERO + Span::from_secs(1)));
}

#[test]
fn unvalidated_address_gets_at_most_three_times_its_bytes() {
    let server = Server { tls: tls::server(), config: Arc::default(), retry: NO_RETRY, max_connections: 9 };
    let (mut client, mut server) = (Endpoint::new(None, [5; 32]), Endpoint::new(Some(server), [6; 32]));
    let mut now = vmcc_units::time::Time::ZERO + Span::from_secs(1);
    client
        .connect(now, tls::client(), Arc::default(), "localhost", crate::net::route(0), Vec::new())
        .unwrap();
    let (mut out, mut received, mut sent) = (Vec::new(), 0, 0);
    let back = Route { local: crate::net::server_address(), remote: client_address(0) };
    let first = client.poll_transmit(now, &mut out).unwrap();
    received += first.len;
    server.handle_datagram(now, back, Ecn::NotEct, &mut out);
    // Nobody answers; the server's timers go on.
    for _ in 0..200 {
        while let Some(transmit) = server.poll_transmit(now, &mut out) {
            sent += transmit.len;
        }
        let Some(at) = server.poll_timeout() else { break };
        now = at;
        server.handle_timeout(now);
    }
    assert!(sent > 0 && sent <= 3 * received, "{sent} for {received}");
    assert!(server.is_idle(), "it does not wait for ever");
}

#[test]
fn corrupted_packets_are_dropped() {
    let flip: fn(u64, &mut Vec<u8>) = |number, data| flip(number, data);
    for tamper in [flip, truncate, repeat_header] {
        let mut net = Net::new(&[Link::default(), Link::default()], Config::default(), NO_RETRY);
        net.tamper = Some(tamper);
        let client = net.connect(Config::default());
        let server = net.handshake(client);
        net.open_path(client, 1);
        Transfer::up(&mut net, client, server, 500_000).run(&mut net, Span::from_secs(60));
    }
}

fn flip(number: u64, data: &mut [u8]) {
    if number % 7 == 3 {
        let at = (number as usize * 31) % data.len();
        data[at] ^= 1 << (number % 8);
    }
}

fn truncate(number: u64, data: &mut Vec<u8>) {
    if number % 7 == 3 {
        data.truncate((number as usize * 31) % data.len());
    }
}

fn repeat_header(number: u64, data: &mut Vec<u8>) {
    if number % 7 == 3 {
        let head = data[..data.len().min(40)].to_vec();
        data.extend_from_slice(&head);
    }
}

#[test]
fn acks_take_the_configured_path() {
    for (ack_path, other) in [(AckPath::Own, true), (AckPath::Best, false), (AckPath::Fixed, false)] {
        let config = Config { ack_path, ..Config::default() };
        let mut links = [Link { rate: 20_000_000, queue: 20_000, ..Link::default() }; 2];
        links[1].delay = Span::from_ms(60);
        let mut net = Net::new(&links, config.clone(), NO_RETRY);
        let client = net.connect(config);
        let server = net.handshake(client);
        net.open_path(client, 1);
        Transfer::up(&mut net, client, server, 5_000_000).run(&mut net, Span::from_secs(20));
        let sent: Vec<_> = net.connection(1, server).paths().map(|path| path.bytes.1).collect();
        assert_eq!(sent[1] > sent[0] / 10, other, "{ack_path:?} {sent:?}");
    }
}

#[test]
fn streams_are_reset_stopped_and_limited() {
    let config =
        Config { max_streams_bidi: 3, stream_window: 10_000, connection_window: 15_000, ..Config::default() };
    let (mut net, client, server) = pair(&[Link::default()], &config);
    let streams: Vec<_> = std::iter::from_fn(|| net.connection(0, client).open_stream(Dir::Bi)).collect();
    assert_eq!(streams, [0, 4, 8]);
    for &stream in &streams {
        net.connection(0, client).write(stream, &[1; 20_000]).unwrap();
    }
    net.run_for(Span::from_ms(200));
    let mut buffer = vec![0; 50_000];
    let unread: Vec<_> =
        streams.iter().map(|&s| net.connection(1, server).read(s, &mut buffer).unwrap().unwrap()).collect();
    assert_eq!(unread.iter().sum::<usize>(), 15_000, "the connection's limit: {unread:?}");
    net.connection(0, client).reset(0, 77).unwrap();
    net.connection(1, server).stop(4, 88).unwrap();
    net.run_for(Span::from_ms(200));
    assert_eq!(net.connection(1, server).read(0, &mut buffer), Err(StreamError::Reset(77)));
    assert!(net.happened(0, &Event::StreamStopped { stream: 4, code: 88 }).is_some());
    assert_eq!(net.connection(0, client).write(4, b"more"), Err(StreamError::Stopped(88)));
    // Both halves of each end, and the client may open others.
    for stream in [0, 4] {
        net.connection(1, server).finish(stream).unwrap();
    }
    net.run_for(Span::from_ms(200));
    for stream in [0, 4] {
        assert_eq!(net.connection(0, client).read(stream, &mut buffer), Ok(None));
    }
    net.run_for(Span::from_ms(200));
    assert_eq!(net.connection(0, client).open_stream(Dir::Bi), Some(12));
    // What is left is not held up by what was given up.
    let mut read = unread[2];
    net.until(Span::from_secs(2), |net| {
        read += net.connection(1, server).read(8, &mut buffer).unwrap().unwrap();
        read == 20_000
    });
}

/// More than half of what the connection may send lies there, and nobody reads it.
#[test]
fn unread_streams_do_not_block_others() {
    let config = Config { stream_window: 5_000, connection_window: 64_000, ..Config::default() };
    let (mut net, client, server) = pair(&[Link::default()], &config);
    for _ in 0..11 {
        let stream = net.connection(0, client).open_stream(Dir::Bi).unwrap();
        net.connection(0, client).write(stream, &[1; 5_000]).unwrap();
    }
    net.run_for(Span::from_ms(200));
    Transfer::up(&mut net, client, server, 500_000).run(&mut net, Span::from_secs(20));
}

#[test]
fn read_streams_get_more_window_than_unread_ones() {
    let link = Link { delay: Span::from_ms(50), ..Link::default() };
    let config = Config { first_stream_window: 10_000, stream_window: 1 << 20, ..Config::default() };
    let (mut net, client, server) = pair(&[link], &config);
    let unread = net.connection(0, client).open_stream(Dir::Bi).unwrap();
    net.connection(0, client).write(unread, &[1; 100_000]).unwrap();
    let took = Transfer::up(&mut net, client, server, 2_000_000).run(&mut net, Span::from_secs(60));
    // With the first window alone it would be 20 s.
    assert!(took < Span::from_secs(4), "{took:?}");
    assert_eq!(net.connection(1, server).read(unread, &mut [0; 100_000]), Ok(Some(10_000)));
}

/// Each is read until it has the widest window that it gets, and then no more.
#[test]
fn unread_streams_leave_others_a_share_of_the_window() {
    let config = Config {
        first_stream_window: 20_000,
        reserved_stream_window: 5_000,
        stream_window: 1 << 20,
        connection_window: 1 << 20,
        max_streams_bidi: 100,
        ..Config::default()
    };
    let (mut net, client, server) = pair(&[Link::default()], &config);
    let unread: Vec<_> = (0..99).map(|_| net.connection(0, client).open_stream(Dir::Bi).unwrap()).collect();
    let (mut read, mut written, mut buffer) = ([0; 99], [0; 99], vec![0; 1 << 20]);
    for round in 0..400 {
        for (i, &stream) in unread.iter().enumerate() {
            written[i] += net.connection(0, client).write(stream, &[1; 50_000]).unwrap();
            if round < 200 {
                // The first packets may not have come.
                let came = net.connection(1, server).read(stream, &mut buffer);
                read[i] += came.ok().flatten().unwrap_or(0);
            }
        }
        net.run_for(Span::from_ms(20));
    }
    assert!(read.iter().all(|&read| read > 20_000), "{read:?}");
    let took = Transfer::up(&mut net, client, server, 300_000).run(&mut net, Span::from_secs(20));
    assert!(took < Span::from_secs(10), "{took:?}");
    // All of it came in the end, and lay there.
    let lay: Vec<usize> = unread
        .iter()
        .map(|&stream| net.connection(1, server).read(stream, &mut buffer).unwrap().unwrap_or(0))
        .collect();
    assert!(lay.iter().sum::<usize>() <= 1 << 20, "{lay:?}");
}

#[test]
fn send_buffers_of_all_streams_share_a_bound() {
    let config = Config {
        stream_window: 5_000,
        connection_window: 1 << 20,
        connection_send_window: 400_000,
        max_streams_bidi: 100,
        ..Config::default()
    };
    let (mut net, client, server) = pair(&[Link::default()], &config);
    let mut written = 0;
    for _ in 0..99 {
        let stream = net.connection(0, client).open_stream(Dir::Bi).unwrap();
        written += net.connection(0, client).write(stream, &[1; 1 << 20]).unwrap();
    }
    assert!(written <= 400_000 + 99 * (16 << 10), "{written}");
    net.run_for(Span::from_ms(500));
    Transfer::up(&mut net, client, server, 500_000).run(&mut net, Span::from_secs(20));
}

#[test]
fn max_streams_counts_open_streams_only() {
    for ended in 0..40 {
        let config = Config { max_streams_bidi: 16, ..Config::default() };
        let (mut net, client, server) = pair(&[Link::default()], &config);
        for _ in 0..ended {
            let stream = net.connection(0, client).open_stream(Dir::Bi).unwrap();
            net.connection(0, client).finish(stream).unwrap();
            net.run_for(Span::from_ms(100));
            assert_eq!(net.connection(1, server).read(stream, &mut [0]), Ok(None));
            net.connection(1, server).finish(stream).unwrap();
            net.run_for(Span::from_ms(100));
            assert_eq!(net.connection(0, client).read(stream, &mut [0]), Ok(None));
        }
        for open in 0..16 {
            let stream = net.connection(0, client).open_stream(Dir::Bi);
            let stream = stream.unwrap_or_else(|| panic!("{ended} ended, {open} are open"));
            net.connection(0, client).write(stream, b"here").unwrap();
            net.run_for(Span::from_ms(100));
        }
        assert_eq!(net.connection(0, client).open_stream(Dir::Bi), None);
    }
}

#[test]
fn keep_alive_keeps_an_idle_connection() {
    let config =
        Config { idle_timeout: Span::from_secs(2), keep_alive: Span::from_ms(800), ..Config::default() };
    let (mut net, client, _) = pair(&[Link::default()], &config);
    net.run_for(Span::from_secs(20));
    assert_eq!(net.connection(0, client).error(), None);
}

#[test]
fn nat_rebinding_stalls_a_download_for_two_round_trips_at_most() {
    let (mut net, client, server) = pair(&[Link::default()], &Config::default());
    let mut transfer = Transfer::down(&mut net, client, server, 3_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 1_000_000);
    net.nat.insert(client_address(0), "10.77.0.1:7777".parse().unwrap());
    let begin = net.now;
    // What the server sends to the old address is lost; the client's next packet shows the new one.
    let mut told = false;
    net.until(Span::from_secs(10), |net| {
        transfer.pump(net);
        if !told && net.now.since(begin) > Span::from_ms(100) {
            told = true;
            let stream = net.connection(0, client).open_stream(Dir::Uni).unwrap();
            net.connection(0, client).write(stream, b"still here").unwrap();
        }
        transfer.is_done()
    });
    assert!(net.now.since(begin) < Span::from_secs(2), "{:?}", net.now.since(begin));
}

/// Losses at the old address say nothing about the route to the new one (RFC 9000 section 9.4).
#[test]
fn migration_resets_path_state() {
    let link = Link { rate: 20_000_000, queue: 250_000, delay: Span::from_ms(50), ..Link::default() };
    let (mut net, client, server) = pair(&[link], &Config::default());
    let mut transfer = Transfer::down(&mut net, client, server, 20_000_000);
    transfer.until(&mut net, Span::from_secs(20), |_, transfer| transfer.read > 3_000_000);
    net.nat.insert(client_address(0), "10.7.7.7:4000".parse().unwrap());
    let (read, at) = (transfer.read, net.now);
    transfer.until(&mut net, Span::from_secs(20), |_, transfer| transfer.read > read + 7_000_000);
    let took = net.now.since(at);
    assert!(net.connection(1, server).paths().all(|path| path.route.remote.port() == 4000));
    // 2.8 s at the link's rate, and a second to begin again.
    assert!(took < Span::from_ms(4000), "{took:?}");
}

#[test]
fn receiver_follows_every_key_update() {
    let (mut net, client, server) = pair(&[Link::default()], &Config::default());
    let mut transfer = Transfer::down(&mut net, client, server, 3_000_000);
    net.until(Span::from_secs(20), |net| {
        transfer.pump(net);
        let now = net.now;
        net.connection(1, server).update_keys(now);
        transfer.is_done()
    });
    assert!(net.connection(0, client).key_updates() > 5);
    // And changes them itself in the end, for it asks for acknowledgments now and then.
    let now = net.now;
    net.connection(0, client).update_keys(now);
    Transfer::up(&mut net, client, server, 100_000).run(&mut net, Span::from_secs(5));
}

#[test]
fn closed_connection_does_not_update_keys() {
    let (mut net, client, server) = pair(&[Link::default()], &Config::default());
    Transfer::up(&mut net, client, server, 100_000).run(&mut net, Span::from_secs(5));
    net.run_for(Span::from_ms(200));
    let now = net.now;
    let connection = net.connection(0, client);
    assert!(connection.update_keys(now), "what was sent is acknowledged");
    Transfer::up(&mut net, client, server, 100_000).run(&mut net, Span::from_secs(5));
    net.run_for(Span::from_ms(200));
    let now = net.now;
    let connection = net.connection(0, client);
    connection.close(now, 0, b"done");
    assert!(!connection.update_keys(now));
    assert_eq!(connection.key_updates(), 1);
}

#[test]
fn sending_restarts_the_idle_timeout() {
    let config = Config { idle_timeout: Span::from_secs(3), ..Config::default() };
    let (mut net, client, _) = pair(&[Link::default()], &config);
    net.run_for(Span::from_ms(2500));
    net.links.clear();
    let stream = net.connection(0, client).open_stream(Dir::Bi).unwrap();
    net.connection(0, client).write(stream, b"anybody?").unwrap();
    net.run_for(Span::from_secs(2));
    assert_eq!(net.connection(0, client).error(), None);
    net.run_for(Span::from_secs(2));
    assert!(net.happened(0, &Event::Closed(ConnectionError::TimedOut)).is_some());
}

/// The client's TLS shows the parameters of the session before until the server has answered.
#[test]
fn resumed_session_uses_new_transport_parameters() {
    let mut net = Net::new(&[Link::default()], Config::default(), NO_RETRY);
    let tls = tls::client();
    for _ in 0..4 {
        let (now, route) = (net.now, crate::net::route(0));
        let client = net.ends[0].connect(now, tls.clone(), Arc::default(), "localhost", route, Vec::new());
        let client = client.unwrap();
        net.handshake(client);
        net.run_for(Span::from_ms(200));
        net.connection(0, client).close(now, 0, b"");
        net.run_for(Span::from_secs(5));
    }
}

/// A client that goes as soon as it is connected says so in packets that the server can read still.
#[test]
fn immediate_close_reaches_the_peer() {
    let mut net = Net::new(&[Link::default()], Config::default(), NO_RETRY);
    let client = net.connect(Config::default());
    net.until(Span::from_secs(1), |net| net.happened(0, &Event::Connected).is_some());
    let now = net.now;
    assert!(!net.connection(0, client).is_confirmed());
    net.connection(0, client).close(now, 7, b"gone");
    net.run_for(Span::from_secs(1));
    let over = |(_, _, event): &(_, _, Event)| {
        matches!(event, Event::Closed(ConnectionError::ApplicationClosed { code: 7, .. }))
    };
    assert!(net.events[1].iter().any(over), "{:?}", net.events[1]);
}
