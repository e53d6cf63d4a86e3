//! Several paths: opened, used together, cut, preferred, abandoned.

use crate::net::{Link, Net, Transfer, client_address};
use vmcc_transport::{Config, Event, Handle, PathError, Retry};
use vmcc_units::time::{Span, Time};

const NO_RETRY: Retry = Retry::Above(usize::MAX);

/// A connection over as many paths as there are links.
pub(crate) fn connected(links: &[Link], config: &Config) -> (Net, Handle, Handle) {
    let mut net = Net::new(links, config.clone(), NO_RETRY);
    let client = net.connect(config.clone());
    let server = net.handshake(client);
    for i in 1..links.len() {
        assert_eq!(net.open_path(client, i as u16), i as u32);
    }
    (net, client, server)
}

pub(crate) fn shaped(rate: u64, delay_ms: u64) -> Link {
    Link { rate, delay: Span::from_ms(delay_ms), queue: rate / 8 / 20, ..Link::default() }
}

/// Cuts the client's path, and goes on until it is found silent.
pub(crate) fn silence(net: &mut Net, transfer: &mut Transfer, path: u16) {
    let now = net.now;
    net.links.get_mut(&client_address(path)).unwrap().cut = (now, Time::NEVER);
    transfer.until(net, Span::from_secs(10), |net, _| {
        net.happened(0, &Event::PathSuspected { path: path.into() }).is_some()
    });
}

/// Bytes that the server got on each path.
fn carried(net: &mut Net, server: Handle) -> Vec<u64> {
    net.connection(1, server).paths().map(|path| path.bytes.0).collect()
}

#[test]
fn two_paths_aggregate_their_rates() {
    for (rates, delays) in [([20, 20], [5, 5]), ([20, 5], [5, 20])] {
        let links = [0, 1].map(|i| shaped(rates[i] * 1_000_000, delays[i]));
        let (mut net, client, server) = connected(&links, &Config::default());
        let took = Transfer::up(&mut net, client, server, 20_000_000).run(&mut net, Span::from_secs(60));
        let least = 20_000_000.0 * 8.0 / (rates.iter().sum::<u64>() as f64 * 1e6);
        assert!(took.secs_f64() < least * 1.15, "{rates:?} {took:?}");
        let bytes = carried(&mut net, server);
        assert!(bytes.iter().all(|&bytes| bytes > 1_000_000), "{bytes:?}");
    }
}

#[test]
fn silent_path_loss_stalls_for_less_than_a_quarter_second() {
    for (cut, rate) in [(0, 0), (1, 0), (0, 20_000_000), (1, 20_000_000)] {
        let mut links = [Link { rate, queue: 60_000, delay: Span::from_ms(20), ..Link::default() }; 2];
        links[1].delay = Span::from_ms(30);
        let (mut net, client, server) = connected(&links, &Config::default());
        let at = net.now + Span::from_ms(700);
        net.links.get_mut(&client_address(cut)).unwrap().cut = (at, Time::NEVER);
        let bytes = if rate == 0 { 60_000_000 } else { 10_000_000 };
        let mut transfer = Transfer::up(&mut net, client, server, bytes);
        transfer.run(&mut net, Span::from_secs(60));
        assert!(net.now > at && transfer.stall < Span::from_ms(250), "{cut} {rate} {:?}", transfer.stall);
        assert!(net.happened(0, &Event::PathSuspected { path: u32::from(cut) }).is_some());
    }
}

#[test]
fn healed_path_is_used_again() {
    let mut links = [shaped(20_000_000, 10); 2];
    let begin = Time::ZERO + Span::from_secs(2);
    links[1].cut = (begin, begin + Span::from_secs(1));
    let (mut net, client, server) = connected(&links, &Config::default());
    Transfer::up(&mut net, client, server, 30_000_000).run(&mut net, Span::from_secs(60));
    let revived = net.happened(0, &Event::PathRevived { path: 1 }).unwrap();
    assert!(revived > begin + Span::from_secs(1) && revived < begin + Span::from_ms(2500), "{revived:?}");
    let bytes = carried(&mut net, server);
    assert!(bytes.iter().all(|&bytes| bytes > 5_000_000), "{bytes:?}");
}

#[test]
fn abandoned_path_frees_its_slot() {
    let links = [Link::default(); 3];
    let config = Config { max_paths: 2, ..Config::default() };
    let mut net = Net::new(&links, config.clone(), NO_RETRY);
    let client = net.connect(config);
    let server = net.handshake(client);
    assert_eq!(net.open_path(client, 1), 1);
    let now = net.now;
    let full = net.connection(0, client).open_path(now, crate::net::route(2));
    assert_eq!(full, Err(PathError::Limit));
    let mut transfer = Transfer::up(&mut net, client, server, 3_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 1_000_000);
    let now = net.now;
    net.connection(0, client).abandon_path(now, 0).unwrap();
    transfer.run(&mut net, Span::from_secs(10));
    assert!(net.happened(1, &Event::PathClosed { path: 0, code: 0x3e }).is_some());
    assert_eq!(net.open_path(client, 2), 2);
    let now = net.now;
    net.connection(0, client).abandon_path(now, 1).unwrap();
    net.run_for(Span::from_secs(2));
    let now = net.now;
    assert_eq!(net.connection(0, client).abandon_path(now, 2), Err(PathError::Last));
    Transfer::up(&mut net, client, server, 100_000).run(&mut net, Span::from_secs(10));
}

#[test]
fn backup_path_is_idle_until_the_other_fails() {
    let (mut net, client, server) = connected(&[shaped(50_000_000, 5); 2], &Config::default());
    net.connection(0, client).set_backup(1, true).unwrap();
    net.run_for(Span::from_ms(100));
    assert!(net.connection(1, server).paths().any(|path| path.id == 1 && path.backup));
    let before = carried(&mut net, server);
    let mut transfer = Transfer::up(&mut net, client, server, 8_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 3_000_000);
    let during = carried(&mut net, server);
    assert!(during[0] - before[0] > 3_000_000 && during[1] - before[1] < 20_000, "{before:?} {during:?}");
    let now = net.now;
    net.links.get_mut(&client_address(0)).unwrap().cut = (now, Time::NEVER);
    transfer.run(&mut net, Span::from_secs(20));
    assert!(carried(&mut net, server)[1] - during[1] > 3_000_000);
}

/// The path's MTU has shrunk: small probes are answered, and none of the large data packets that follow.
#[test]
fn shrunk_path_mtu_is_detected() {
    let (mut net, client, server) = connected(&[shaped(20_000_000, 10); 2], &Config::default());
    let mut transfer = Transfer::up(&mut net, client, server, 40_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 4_000_000);
    net.links.get_mut(&client_address(1)).unwrap().mtu = 1350;
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 12_000_000);
    let before = carried(&mut net, server);
    transfer.run(&mut net, Span::from_secs(30));
    let after = carried(&mut net, server);
    assert!(after[1] - before[1] > 7_000_000, "{before:?} {after:?}");
    let mtu = net.connection(0, client).paths().find(|path| path.id == 1).unwrap().mtu;
    assert!((1300..=1350).contains(&mtu), "{mtu}");
}

/// Its packets do not stay as small as they begin because there is always something else to send.
#[test]
fn path_opened_during_a_transfer_finds_its_mtu() {
    let config = Config::default();
    let links = [shaped(20_000_000, 10); 2];
    let mut net = Net::new(&links, config.clone(), NO_RETRY);
    let client = net.connect(config);
    let server = net.handshake(client);
    let mut transfer = Transfer::up(&mut net, client, server, 20_000_000);
    let mut path = None;
    net.until(Span::from_secs(10), |net| {
        transfer.pump(net);
        let now = net.now;
        if transfer.read > 1_000_000 && path.is_none() {
            path = Some(net.connection(0, client).open_path(now, crate::net::route(1)).unwrap());
        }
        transfer.read > 10_000_000
    });
    let mtus: Vec<u16> = net.connection(0, client).paths().map(|path| path.mtu).collect();
    assert_eq!(mtus, [1452, 1452]);
    transfer.run(&mut net, Span::from_secs(10));
}

#[test]
fn loss_and_reordering_on_every_path_lose_no_data() {
    let links = [(30, 2), (10, 9), (50, 20)].map(|(loss, ms)| Link { loss, ..shaped(10_000_000, ms) });
    let (mut net, client, server) = connected(&links, &Config::default());
    Transfer::up(&mut net, client, server, 3_000_000).run(&mut net, Span::from_secs(60));
}

#[test]
fn cuts_at_any_time_stall_for_less_than_a_second_and_mostly_for_a_quarter() {
    let mut stalls = Vec::new();
    for i in 0..20 {
        let mut links = [shaped(20_000_000, 20), shaped(20_000_000, 30)];
        links[i % 2].cut = (Time::ZERO + Span::from_ms(1250 + 74 * i as u64), Time::NEVER);
        let (mut net, client, server) = connected(&links, &Config::default());
        let mut transfer = Transfer::up(&mut net, client, server, 8_000_000);
        transfer.run(&mut net, Span::from_secs(20));
        assert!(net.happened(0, &Event::PathSuspected { path: i as u32 % 2 }).is_some(), "{i}");
        stalls.push(transfer.stall);
    }
    stalls.sort();
    assert!(stalls[stalls.len() / 2] <= Span::from_ms(250), "{stalls:?}");
    assert!(stalls[stalls.len() - 1] <= Span::from_secs(1), "{stalls:?}");
}
