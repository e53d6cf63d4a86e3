//! Suspect paths: the only path is silent, and random sequences of path events.

use crate::multipath::{connected, shaped, silence};
use crate::net::{Link, Net, Transfer, client_address, route};
use vmcc_multipath::Coupling;
use vmcc_transport::{Config, ConnectionError, Event, Handle};
use vmcc_units::time::{Span, Time};

/// Path 0 is cut and found silent, path 1 is given up: the first is alone, and has been for two seconds.
fn alone(config: &Config) -> (Net, Handle, Transfer) {
    let (mut net, client, server) = connected(&[shaped(20_000_000, 10); 2], config);
    let mut transfer = Transfer::up(&mut net, client, server, 10_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 2_000_000);
    silence(&mut net, &mut transfer, 0);
    let now = net.now;
    net.connection(0, client).abandon_path(now, 1).unwrap();
    let (end, before) = (now + Span::from_secs(2), net.sent);
    let window = net.connection(0, client).paths().map(|path| path.cwnd_pkt).max().unwrap();
    transfer.until(&mut net, Span::from_secs(10), |net, _| net.now > end);
    assert!(net.sent - before < u64::from(window) + 100, "{} packets into silence", net.sent - before);
    (net, client, transfer)
}

const BOTH: [Coupling; 2] = [Coupling::Separate, Coupling::Combined];

#[test]
fn data_of_a_silent_path_is_reinjected_on_the_next_path() {
    for coupling in BOTH {
        let (mut net, client, mut transfer) = alone(&Config { coupling, ..Config::default() });
        net.open_path(client, 1);
        let took = transfer.run(&mut net, Span::from_secs(60));
        // 8 MB of 20 Mbit/s, and slow start.
        assert!(took < Span::from_secs(5), "{coupling:?} {took:?}");
    }
}

#[test]
fn silent_only_path_resumes_when_it_answers() {
    for coupling in BOTH {
        let (mut net, _, mut transfer) = alone(&Config { coupling, ..Config::default() });
        net.links.get_mut(&client_address(0)).unwrap().cut = (Time::NEVER, Time::NEVER);
        let took = transfer.run(&mut net, Span::from_secs(60));
        assert!(took < Span::from_secs(9), "{coupling:?} {took:?}");
    }
}

/// Paths are cut in one direction or both, mended, given up, opened, made backups and regular again, at any time and in any order.
#[test]
fn all_data_arrives_after_random_path_events() {
    for seed in 0..12 {
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        let coupling = BOTH[seed as usize % 2];
        let config = Config { coupling, ..Config::default() };
        let (mut net, client, server) =
            connected(&[shaped(10_000_000, 5), shaped(5_000_000, 20), shaped(10_000_000, 15)], &config);
        let mut transfer = Transfer::up(&mut net, client, server, 20_000_000);
        let mut told = String::new();
        for _ in 0..14 {
            let (i, now) = (draw(3) as u16, net.now);
            let link = net.links.get_mut(&client_address(i)).unwrap();
            match draw(7) {
                0 | 1 => {
                    link.cut = (now, Time::NEVER);
                    link.cut_from = [[true, true], [true, false], [false, true]][draw(3) as usize];
                    told += &format!("{now:?} {i} cut {:?}\n", link.cut_from);
                }
                2 | 3 => {
                    link.cut = (Time::NEVER, Time::NEVER);
                    told += &format!("{now:?} {i} mended\n");
                }
                4 => {
                    let paths: Vec<u32> = net.connection(0, client).paths().map(|path| path.id).collect();
                    let path = paths[draw(paths.len() as u64) as usize];
                    let done = net.connection(0, client).abandon_path(now, path);
                    told += &format!("{now:?} {path} abandoned: {done:?}\n");
                }
                5 => {
                    let opened = net.connection(0, client).open_path(now, route(i));
                    told += &format!("{now:?} {i} opened: {opened:?}\n");
                }
                _ => {
                    let backup = draw(2) == 0;
                    let paths: Vec<u32> = net.connection(0, client).paths().map(|path| path.id).collect();
                    for path in paths.into_iter().filter(|path| path % 3 == u32::from(i)) {
                        net.connection(0, client).set_backup(path, backup).unwrap();
                    }
                }
            }
            let end = now + Span::from_ms(if draw(6) == 0 { 1500 } else { draw(300) });
            while net.now < end {
                transfer.pump(&mut net);
                net.run_for(Span::from_ms(5));
            }
        }
        net.links.values_mut().for_each(|link| link.cut = (Time::NEVER, Time::NEVER));
        for i in 0..3 {
            let now = net.now;
            let _ = net.connection(0, client).open_path(now, route(i));
        }
        let begin = net.now;
        while !transfer.is_done() {
            transfer.pump(&mut net);
            net.run_for(Span::from_ms(5));
            let took = net.now.since(begin);
            assert!(
                took < Span::from_secs(40),
                "{seed} {coupling:?}: {} bytes are there\n{told}",
                transfer.read
            );
        }
        net.run_for(Span::from_secs(3));
        assert!(
            net.connection(0, client).paths().all(|path| path.in_flight == 0),
            "{seed} {coupling:?}\n{told}"
        );
    }
}

/// Has the last packet that was swallowed on a path come back as one that nobody listens for; whether it was taken for one.
fn bounce(net: &mut Net, path: u16) -> bool {
    let packet = net.swallowed.remove(&client_address(path));
    packet.is_some_and(|packet| net.ends[0].handle_port_unreachable(net.now, route(path), &packet))
}

#[test]
fn port_unreachable_ends_a_connection_only_on_every_path_and_unforged() {
    let gone = Event::Closed(ConnectionError::PortUnreachable);
    let (mut net, client, server) = connected(&[shaped(20_000_000, 10); 2], &Config::default());
    let mut transfer = Transfer::up(&mut net, client, server, 40_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 2_000_000);
    let cut = |net: &mut Net, path| {
        let now = net.now;
        net.links.get_mut(&client_address(path)).unwrap().cut = (now, Time::NEVER);
    };
    cut(&mut net, 0);
    let (mut bounced, end) = (0, net.now + Span::from_secs(5));
    transfer.until(&mut net, Span::from_secs(10), |net, _| {
        bounced += u32::from(bounce(net, 0));
        net.now > end
    });
    assert!(bounced > 0 && net.happened(0, &gone).is_none(), "the other path carries everything");
    assert!(!net.ends[0].handle_port_unreachable(net.now, route(1), &[0x40; 64]), "nobody's packet");
    cut(&mut net, 1);
    let (mut bounced, begin) = ([0; 2], net.now);
    net.until(Span::from_secs(20), |net| {
        for path in 0..2 {
            bounced[usize::from(path)] += u32::from(bounce(net, path));
        }
        net.happened(0, &gone).is_some()
    });
    assert!(bounced[1] > 1 && net.now.since(begin) >= Span::from_ms(500), "once may be chance: {bounced:?}");
}

/// A packet alone is acknowledged after the delay that the peer has announced, and its round trip is not always the usual one.
#[test]
fn lone_packets_make_no_path_suspect() {
    let link = Link { rate: 10_000_000, delay: Span::from_ms(1), ..Link::default() };
    let (mut net, client, server) = connected(&[link; 2], &Config::default());
    let mut transfer = Transfer::down(&mut net, client, server, u64::MAX);
    transfer.offered = 0;
    for bytes in [100, 1_300].repeat(50) {
        transfer.offered += bytes;
        transfer.pump(&mut net);
        net.run_for(Span::from_ms(60));
    }
    transfer.pump(&mut net);
    assert_eq!(transfer.read, transfer.offered);
    for path in [0, 1] {
        assert_eq!(net.happened(1, &Event::PathSuspected { path }), None);
    }
}
