//! Late carriers: one that becomes slow does not hold back a good one.

use crate::net::{CLIENT, SERVER, Transfer, World};
use vmcc_multipath::Scheduler;
use vmcc_tcp::{CarrierStats, Config};
use vmcc_units::time::Span;

/// A transfer over two carriers of 10 and 5 Mbit/s, whose first falls to 1 Mbit/s and 700 ms one way.
fn slowed(scheduler: Scheduler) -> (World, Transfer) {
    let mut world = World::connected(Config { scheduler, ..Config::default() }, &[(10, 10), (5, 30)]);
    let mut transfer = Transfer::new(&mut world, CLIENT, 40_000_000);
    transfer.run_for(&mut world, Span::from_secs(2));
    set_first(&mut world, 1, 700);
    (world, transfer)
}

fn set_first(world: &mut World, rate_mbps: u64, delay_ms: u64) {
    let pipe = &mut world.links[0].pipes[CLIENT];
    (pipe.rate_mbps, pipe.delay) = (rate_mbps, Span::from_ms(delay_ms));
}

fn first(world: &mut World) -> CarrierStats {
    world.end(CLIENT).carriers().next().unwrap()
}

#[test]
fn carrier_that_becomes_slow_does_not_stall_the_stream() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Ecf] {
        let (mut world, mut transfer) = slowed(scheduler);
        let (before, arrivals) = (transfer.read, transfer.arrivals.len());
        transfer.run_for(&mut world, Span::from_secs(3));
        let (bytes, good) = (transfer.read - before, 5e6 / 8.0 * 3.0);
        assert!(bytes as f64 > 0.8 * good, "{scheduler:?}: {bytes} of {good}");
        transfer.arrivals.drain(..arrivals);
        let stall = transfer.longest_stall();
        assert!(stall < Span::from_ms(700), "{scheduler:?}: {stall:?}");
        assert!(first(&mut world).late);
        let stats = world.end(CLIENT).stats();
        assert!((1..300_000).contains(&stats.returned_bytes), "{scheduler:?}: {stats:?}");
        assert_eq!(world.end(SERVER).stats().returned_bytes, 0);
    }
}

#[test]
fn late_carrier_carries_data_again_when_its_round_trips_are_usual() {
    let (mut world, mut transfer) = slowed(Scheduler::LowestRtt);
    transfer.run_for(&mut world, Span::from_secs(4));
    set_first(&mut world, 10, 10);
    transfer.run_for(&mut world, Span::from_secs(3));
    assert!(!first(&mut world).late);
    let before = first(&mut world).bytes_out;
    transfer.run_for(&mut world, Span::from_secs(4));
    let carried = first(&mut world).bytes_out - before;
    assert!(carried > 2_000_000, "{carried}");
}
