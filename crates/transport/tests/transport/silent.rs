//! A path that is silent and has to do, because there is no other.

use crate::multipath::{connected, shaped};
use crate::net::{Net, Transfer, client_address};
use vmcc_transport::{Config, Coupling, Event, Handle};
use vmcc_units::time::{Span, Time};

/// Path 0 is cut and found silent, path 1 is given up: the first is alone, and has been for two seconds.
fn alone(config: &Config) -> (Net, Handle, Transfer) {
    let (mut net, client, server) = connected(&[shaped(20_000_000, 10); 2], config);
    let mut transfer = Transfer::up(&mut net, client, server, 10_000_000);
    net.until(Span::from_secs(10), |net| {
        transfer.pump(net);
        transfer.read > 2_000_000
    });
    let now = net.now;
    net.links.get_mut(&client_address(0)).unwrap().cut = (now, Time::NEVER);
    net.until(Span::from_secs(10), |net| {
        transfer.pump(net);
        net.happened(0, &Event::PathSuspected { path: 0 }).is_some()
    });
    let now = net.now;
    net.connection(0, client).abandon_path(now, 1).unwrap();
    let (end, before) = (now + Span::from_secs(2), net.sent);
    let window = net.connection(0, client).paths().map(|path| path.cwnd_pkt).max().unwrap();
    net.until(Span::from_secs(10), |net| {
        transfer.pump(net);
        net.now > end
    });
    assert!(net.sent - before < u64::from(window) + 100, "{} packets into silence", net.sent - before);
    (net, client, transfer)
}

const BOTH: [Coupling; 2] = [Coupling::Separate, Coupling::Combined];

#[test]
fn what_it_carries_is_sent_by_the_next_path_that_opens() {
    for coupling in BOTH {
        let (mut net, client, mut transfer) = alone(&Config { coupling, ..Config::default() });
        net.open_path(client, 1);
        let opened = net.now;
        net.until(Span::from_secs(60), |net| {
            transfer.pump(net);
            transfer.is_done()
        });
        // 8 MB of 20 Mbit/s, and slow start.
        assert!(net.now.since(opened) < Span::from_secs(5), "{coupling:?} {:?}", net.now.since(opened));
    }
}

#[test]
fn it_goes_on_when_it_answers() {
    for coupling in BOTH {
        let (mut net, _, mut transfer) = alone(&Config { coupling, ..Config::default() });
        net.links.get_mut(&client_address(0)).unwrap().cut = (Time::NEVER, Time::NEVER);
        let mended = net.now;
        net.until(Span::from_secs(60), |net| {
            transfer.pump(net);
            transfer.is_done()
        });
        assert!(net.now.since(mended) < Span::from_secs(9), "{coupling:?} {:?}", net.now.since(mended));
    }
}
