//! One window for all paths, and paths retained by `min_paths`.

use crate::multipath::{connected, shaped, silence};
use crate::net::{Link, Net, Transfer, client_address, route};
use vmcc_cc::{Algorithm, Params};
use vmcc_multipath::Coupling;
use vmcc_transport::{Config, Event, Handle};
use vmcc_units::time::{Span, Time};

fn config(coupling: Coupling) -> Config {
    let algorithm = Algorithm::by_name("reno").unwrap();
    Config { algorithm, params: Params::defaults(algorithm), coupling, ..Config::default() }
}

/// The window of the sender's paths, and what is in flight on each: packets, and bytes of a packet.
fn windows(net: &mut Net, client: Handle) -> Vec<(u32, u64, u16)> {
    net.connection(0, client).paths().map(|path| (path.cwnd_pkt, path.in_flight, path.mtu)).collect()
}

fn bits_per_second(bytes: u64, took: Span) -> f64 {
    bytes as f64 * 8.0 / took.secs_f64()
}

/// Timeouts may send beyond any window; so may the two packets that an acknowledgment allowed before it closed the window.
#[test]
fn combined_window_bounds_bytes_in_flight() {
    for loss in [0, 10, 40] {
        let links = [5, 30, 60].map(|ms| Link { loss, ..shaped(10_000_000, ms) });
        let (mut net, client, server) = connected(&links, &config(Coupling::Combined));
        let mut transfer = Transfer::up(&mut net, client, server, 3_000_000);
        let (mut before, mut fullest) = (0, 0.0_f64);
        let mut last_cwnd = 0;
        net.until(Span::from_secs(120), |net| {
            transfer.pump(net);
            let all = windows(net, client);
            let (cwnd, mtu) = (all[0].0, all.iter().map(|own| u64::from(own.2)).min().unwrap());
            assert!(all.iter().all(|own| own.0 == cwnd), "{all:?}");
            let in_flight: u64 = all.iter().map(|own| own.1).sum();
            let probes = 2 * all.len() as u64;
            let most = u64::from(cwnd.max(last_cwnd)) * mtu + probes * 1452;
            assert!(in_flight <= before.max(most), "{in_flight} of {most}: {all:?}");
            fullest = fullest.max(in_flight as f64 / (u64::from(cwnd) * mtu) as f64);
            (before, last_cwnd) = (in_flight, cwnd);
            transfer.is_done()
        });
        assert!(fullest > 0.9, "the window is used: {fullest}");
        net.run_for(Span::from_secs(2));
        let left = windows(&mut net, client);
        assert!(left.iter().all(|own| own.1 == 0), "all has been acknowledged: {left:?}");
    }
}

/// Section 3.1.1 of the paper: the one window is what the worst path leaves of it, less than a good path has alone.
#[test]
fn lossy_path_limits_others_only_with_a_combined_window() {
    let bytes = 10_000_000;
    let rate = |coupling, links: &[Link]| {
        let (mut net, client, server) = connected(links, &config(coupling));
        let took = Transfer::up(&mut net, client, server, bytes).run(&mut net, Span::from_secs(300));
        bits_per_second(bytes, took)
    };
    let good = shaped(20_000_000, 20);
    let links = [good, Link { loss: 30, ..good }];
    let (alone, separate) = (rate(Coupling::Separate, &links[..1]), rate(Coupling::Separate, &links));
    let combined = rate(Coupling::Combined, &links);
    assert!(separate > 0.98 * alone, "{separate} {alone}");
    assert!(combined < 0.7 * alone, "{combined} {alone}");
    // Where nothing is lost but by full queues, it takes both.
    let clean = rate(Coupling::Combined, &[good; 2]);
    assert!(clean > 1.3 * alone, "{clean} {alone}");
}

#[test]
fn data_of_a_silent_path_leaves_the_combined_window() {
    for cut in [0, 1] {
        let mut links = [shaped(20_000_000, 20), shaped(20_000_000, 30)];
        let begin = Time::ZERO + Span::from_ms(1700);
        links[cut].cut = (begin, begin + Span::from_secs(4));
        let (mut net, client, server) = connected(&links, &config(Coupling::Combined));
        let mut transfer = Transfer::up(&mut net, client, server, 30_000_000);
        let path = cut as u32;
        let of_it = |net: &mut Net| {
            let mut paths = net.connection(0, client).paths();
            paths.find(|path| path.id == cut as u32).map(|path| (path.failed, path.in_flight)).unwrap()
        };
        transfer.until(&mut net, Span::from_secs(20), |net, _| net.now > begin && of_it(net).0);
        assert_eq!(of_it(&mut net), (true, 0));
        let (read, at) = (transfer.read, net.now);
        let mut fullest = 0.0_f64;
        net.until(Span::from_secs(20), |net| {
            transfer.pump(net);
            let (silent, in_flight) = of_it(net);
            assert!(!silent || in_flight == 0, "questions count");
            let other = windows(net, client)[1 - cut];
            let full = other.1 as f64 / (f64::from(other.0) * f64::from(other.2));
            fullest = fullest.max(if net.now > begin + Span::from_secs(3) { full } else { 0.0 });
            net.now > begin + Span::from_secs(4)
        });
        assert!(fullest > 0.9, "{cut}: the other path has the whole window: {fullest}");
        // Half of the window that both had grows by a packet in a round trip.
        let rate = bits_per_second(transfer.read - read, net.now.since(at));
        assert!(rate > 0.5 * 20e6, "{cut}: the other path is used: {rate}");
        // Windows of their own would not be in one reduction, that of the path that is left too.
        assert!(transfer.stall < Span::from_ms(500), "{cut}: {:?}", transfer.stall);
        transfer.run(&mut net, Span::from_secs(60));
        assert!(net.happened(0, &Event::PathRevived { path }).is_some());
        let bytes: Vec<u64> = net.connection(1, server).paths().map(|path| path.bytes.0).collect();
        assert!(bytes[cut] > 4_000_000, "it is used again: {bytes:?}");
        net.run_for(Span::from_secs(2));
        assert!(windows(&mut net, client).iter().all(|own| own.1 == 0));
    }
}

/// Nothing that was sent in four seconds arrived, on whichever path: that the other had answered just before is no answer.
#[test]
fn outage_of_all_paths_is_persistent_congestion() {
    for delays in [[10, 20], [20, 10], [15, 15]] {
        let links = delays.map(|ms| shaped(20_000_000, ms));
        let (mut net, client, server) = connected(&links, &config(Coupling::Combined));
        let mut transfer = Transfer::up(&mut net, client, server, 30_000_000);
        let pump = |net: &mut Net, transfer: &mut Transfer, until: Time| {
            let mut least = u32::MAX;
            net.until(Span::from_secs(10), |net| {
                transfer.pump(net);
                least = least.min(windows(net, client)[0].0);
                net.now > until
            });
            least
        };
        let begin = net.now + Span::from_secs(1);
        let end = begin + Span::from_secs(4);
        assert!(pump(&mut net, &mut transfer, begin) >= 10);
        for i in 0..2 {
            net.links.get_mut(&client_address(i)).unwrap().cut = (begin, end);
        }
        pump(&mut net, &mut transfer, end);
        // Questions are twice as far apart each time.
        let least = pump(&mut net, &mut transfer, end + Span::from_secs(5));
        assert!(least <= 3, "{delays:?}: {least}");
        transfer.run(&mut net, Span::from_secs(60));
    }
}

/// An abandoned path that kept its bytes would hold the others back for ever.
#[test]
fn abandoned_path_frees_its_bytes_in_flight() {
    let links = [shaped(20_000_000, 10); 3];
    let (mut net, client, server) = connected(&links[..2], &config(Coupling::Combined));
    let mut transfer = Transfer::up(&mut net, client, server, 60_000_000);
    let mut newest = 1;
    for i in 0..12 {
        net.run_for(Span::from_ms(150));
        transfer.until(&mut net, Span::from_secs(5), |net, _| {
            net.connection(0, client).paths().any(|path| path.id == newest && path.in_flight > 5_000)
        });
        let (now, reductions) = (net.now, |net: &mut Net| -> u64 {
            net.connection(0, client).paths().map(|path| path.reductions).sum()
        });
        let (before, gone) = (reductions(&mut net), newest);
        let of_it = net.connection(0, client).paths().find(|path| path.id == gone).unwrap().reductions;
        net.connection(0, client).abandon_path(now, gone).unwrap();
        assert_eq!(reductions(&mut net), before - of_it, "{i}: to give a path up is no loss");
        net.run_for(Span::from_ms(400));
        newest = net.open_path(client, 1);
    }
    let (read, at) = (transfer.read, net.now);
    transfer.until(&mut net, Span::from_secs(10), |net, _| net.now > at + Span::from_secs(3));
    let rate = bits_per_second(transfer.read - read, net.now.since(at));
    assert!(rate > 0.7 * 40e6, "{rate}");
}

/// It begins with small packets, and has none of the window yet.
#[test]
fn unvalidated_path_does_not_shrink_a_combined_window() {
    let (good, config) = (shaped(20_000_000, 20), config(Coupling::Combined));
    let links = [good, Link { cut: (Time::ZERO, Time::NEVER), ..good }];
    let (mut net, client, server) = connected(&links[..1], &config);
    net.links.insert(client_address(1), links[1]);
    let mut transfer = Transfer::up(&mut net, client, server, 30_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 4_000_000);
    let begin = net.now;
    net.connection(0, client).open_path(begin, route(1)).unwrap();
    let mut fullest = 0.0_f64;
    net.until(Span::from_secs(10), |net| {
        transfer.pump(net);
        let all = windows(net, client);
        assert_eq!(all.len(), 2, "it is still asked");
        // What was sent before has been acknowledged by then.
        let seen = net.now > begin + Span::from_ms(300);
        fullest = fullest.max(if seen { all[0].1 as f64 / f64::from(all[0].0) } else { 0.0 });
        net.now > begin + Span::from_secs(1)
    });
    assert!(fullest > 1400.0, "{fullest} bytes for each packet of the window");
}

/// A detector that takes all paths for one bottleneck.
fn accuses_all(min_paths: u32) -> Config {
    let algorithm = Algorithm::by_name("vmcc").unwrap();
    let mut params = Params::defaults(algorithm);
    for (name, value) in
        [("detector", 1.0), ("theta", 1000.0), ("phi", 1.0), ("trigger", 10.0), ("early", 86_400_000.0)]
    {
        params.set(name, value).unwrap();
    }
    Config { algorithm, params, min_paths, ..Config::default() }
}

fn left(config: &Config) -> usize {
    let link = Link { mark_above: 20_000, queue: 300_000, ..shaped(20_000_000, 10) };
    let (mut net, client, server) = connected(&[link; 4], config);
    Transfer::up(&mut net, client, server, 8_000_000).run(&mut net, Span::from_secs(60));
    net.connection(0, client).paths().count()
}

#[test]
fn min_paths_bounds_abandonment() {
    for (min_paths, expected) in [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (8, 4)] {
        assert_eq!(left(&accuses_all(min_paths)), expected, "{min_paths}");
    }
}

#[test]
fn suspect_paths_do_not_count_for_min_paths() {
    let link = Link { mark_above: 20_000, queue: 300_000, ..shaped(20_000_000, 10) };
    let mut links = [link; 3];
    // Nothing is marked until one of them is cut.
    links.iter_mut().for_each(|link| link.mark_above = u64::MAX);
    let (mut net, client, server) = connected(&links, &accuses_all(2));
    let mut transfer = Transfer::up(&mut net, client, server, 30_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 2_000_000);
    silence(&mut net, &mut transfer, 2);
    for i in 0..2 {
        net.links.get_mut(&route(i).local).unwrap().mark_above = 20_000;
    }
    transfer.run(&mut net, Span::from_secs(60));
    let marked: Vec<u64> = net.connection(0, client).paths().map(|path| path.marked_packets).collect();
    assert!(marked[0] > 20 && marked[1] > 20, "both would have asked: {marked:?}");
    let open = net.connection(0, client).paths().filter(|path| path.open && !path.failed).count();
    assert_eq!(open, 2, "two that work are left");
}

/// The detector reports two paths as one; only one of the two answers.
#[test]
fn no_path_is_abandoned_for_a_silent_one() {
    let link = Link { queue: 300_000, mark_above: u64::MAX, ..shaped(20_000_000, 10) };
    let (mut net, client, server) = connected(&[link; 3], &accuses_all(1));
    let mut transfer = Transfer::up(&mut net, client, server, 60_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 2_000_000);
    silence(&mut net, &mut transfer, 1);
    // The first asks, and of the others none has a mark to tell it from another.
    net.links.get_mut(&client_address(0)).unwrap().mark_above = 20_000;
    transfer.run(&mut net, Span::from_secs(60));
    let left: Vec<_> = net.connection(0, client).paths().map(|path| (path.id, path.marked_packets)).collect();
    let of = |id| left.iter().find(|own| own.0 == id);
    assert!(of(0).is_some_and(|own| own.1 > 20), "it would have asked, and is in use: {left:?}");
}

/// Nothing to compare: a connection with one window has one path for its algorithm.
#[test]
fn combined_window_disables_bottleneck_detection() {
    assert_eq!(left(&Config { coupling: Coupling::Combined, ..accuses_all(1) }), 4);
}
