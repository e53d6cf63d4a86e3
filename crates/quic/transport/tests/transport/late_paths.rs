//! Late paths: one that becomes slow and lossy does not hold back a good one.

use crate::multipath::{connected, shaped};
use crate::net::{Link, Net, Transfer, client_address};
use vmcc_multipath::{Coupling, Scheduler};
use vmcc_transport::{Config, Handle, PathReport};
use vmcc_units::time::Span;

/// 10 Mbit/s that become slow, and 5 Mbit/s that stay.
const LINKS: [(u64, u64); 2] = [(10_000_000, 10), (5_000_000, 30)];

/// Path 0 loses nine of ten packets, and delivers the others after 1.4 s.
fn slow(link: &mut Link) {
    (link.rate, link.queue, link.loss, link.delay) = (500_000, 90_000, 900, Span::from_ms(700));
}

/// A transfer that has used both paths when the first becomes slow.
fn slowed(config: &Config) -> (Net, Handle, Transfer) {
    let links = LINKS.map(|(rate, delay_ms)| shaped(rate, delay_ms));
    let (mut net, client, server) = connected(&links, config);
    let mut transfer = Transfer::up(&mut net, client, server, 60_000_000);
    transfer.until(&mut net, Span::from_secs(10), |_, transfer| transfer.read > 2_000_000);
    slow(net.links.get_mut(&client_address(0)).unwrap());
    transfer.stall = Span::ZERO;
    (net, client, transfer)
}

fn run_for(net: &mut Net, transfer: &mut Transfer, span: Span) -> u64 {
    let (end, before) = (net.now + span, transfer.read);
    transfer.until(net, span + span, |net, _| net.now >= end);
    transfer.read - before
}

fn first_path(net: &mut Net, client: Handle) -> PathReport {
    net.connection(0, client).paths().next().unwrap()
}

#[test]
fn path_that_becomes_slow_and_lossy_does_not_stall_the_stream() {
    let all = [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Ecf, Scheduler::PipeCwnd];
    for scheduler in all {
        let (mut net, client, mut transfer) = slowed(&Config { scheduler, ..Config::default() });
        let bytes = run_for(&mut net, &mut transfer, Span::from_secs(3));
        // Of 5 Mbit/s, headers take 5 %.
        let good = 5e6 / 8.0 * 3.0;
        assert!(bytes as f64 > 0.8 * good, "{scheduler:?}: {bytes} of {good}");
        // It is noticed after two round trips, and 62 kB in its queue take 100 ms of the other path.
        assert!(transfer.stall < Span::from_ms(600), "{scheduler:?}: {:?}", transfer.stall);
        assert!(first_path(&mut net, client).late);
        let reinjected = net.connection(0, client).stats().reinjected_bytes;
        assert!((1..200_000).contains(&reinjected), "{scheduler:?}: {reinjected}");
    }
}

#[test]
fn late_path_carries_data_again_when_its_round_trips_are_usual() {
    for coupling in [Coupling::Separate, Coupling::Combined] {
        let (mut net, client, mut transfer) = slowed(&Config { coupling, ..Config::default() });
        run_for(&mut net, &mut transfer, Span::from_secs(3));
        let (rate, delay_ms) = LINKS[0];
        *net.links.get_mut(&client_address(0)).unwrap() = shaped(rate, delay_ms);
        transfer.until(&mut net, Span::from_secs(3), |net, _| !first_path(net, client).late);
        let before = first_path(&mut net, client).payload_out;
        run_for(&mut net, &mut transfer, Span::from_secs(4));
        let carried = first_path(&mut net, client).payload_out - before;
        // LIA opens a window slowly that losses have closed.
        assert!(carried > 250_000, "{coupling:?}: {carried}");
    }
}

#[test]
fn steady_paths_of_unlike_delay_and_loss_have_next_to_no_reinjection() {
    for (delays, losses) in [([10, 10], [0, 0]), ([5, 50], [0, 0]), ([10, 30], [50, 0]), ([10, 30], [0, 50])]
    {
        let links = [0, 1].map(|i| Link { loss: losses[i], ..shaped(10_000_000, delays[i]) });
        let (mut net, client, server) = connected(&links, &Config::default());
        let mut transfer = Transfer::up(&mut net, client, server, 10_000_000);
        transfer.run(&mut net, Span::from_secs(60));
        let reinjected = net.connection(0, client).stats().reinjected_bytes;
        assert!(reinjected < 10_000_000 / 20, "{delays:?} {losses:?}: {reinjected} bytes sent twice");
    }
}
