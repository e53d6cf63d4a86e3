//! Shares of carriers, and records of writes of any size.

use crate::net::{CLIENT, World};
use proptest::prelude::*;
use vmcc_multipath::Scheduler;
use vmcc_tcp::{CarrierStats, Config, Dir, MAX_RECORD};
use vmcc_units::time::Span;

/// Schedulers that send each byte once and never wait.
const SINGLE: [Scheduler; 3] = [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::PipeCwnd];

fn config(scheduler: Scheduler) -> Config {
    Config { scheduler, reinject_late: false, keep_alive: Span::ZERO, ..Config::default() }
}

/// Bytes that each carrier has been given.
fn bytes_out(world: &mut World) -> Vec<u64> {
    world.end(CLIENT).carriers().map(|own| own.bytes_out).collect()
}

/// Writes of these sizes, each after the time that follows it; `check` runs after every event.
fn write_all(world: &mut World, writes: &[(usize, Span)], mut check: impl FnMut(&mut World, u64)) {
    let stream = world.end(CLIENT).open_stream(Dir::Uni).unwrap();
    for &(len, pause) in writes {
        assert_eq!(world.end(CLIENT).write(stream, &vec![7; len]), Ok(len), "the windows are larger");
        let until = world.now + pause;
        loop {
            world.step_to(until);
            world.pump();
            check(world, stream);
            if world.now >= until {
                break;
            }
        }
    }
}

/// Largest difference between two carriers that are fast enough for all writes.
fn largest_lead(carriers: usize, writes: &[(usize, Span)]) -> u64 {
    let mut world = World::connected(config(Scheduler::RoundRobin), &vec![(1000, 5); carriers]);
    let begin = bytes_out(&mut world);
    let mut lead = 0;
    write_all(&mut world, writes, |world, _| {
        let now = bytes_out(world);
        let sent = now.iter().zip(&begin).map(|(now, begin)| now - begin);
        lead = lead.max(sent.clone().max().unwrap() - sent.min().unwrap());
    });
    lead
}

#[test]
fn round_robin_shares_writes_of_16_kib_between_carriers() {
    // The headers of a record displace a few bytes of each write, which become a record of their own.
    let lead = largest_lead(2, &[(16 << 10, Span::from_ms(13)); 100]);
    assert!(lead <= MAX_RECORD as u64, "{lead} bytes");
}

/// Usable carrier whose TCP would send at once.
fn idle_carrier(world: &mut World) -> Option<u64> {
    let takes_data = |own: &CarrierStats| own.open && !own.suspect && !own.late;
    let usable: Vec<_> = world.end(CLIENT).carriers().filter(takes_data).map(|own| own.carrier).collect();
    let of_link = |carrier: &u64| {
        let link = world.links.iter().find(|link| link.ids[CLIENT] == Some(*carrier));
        link.is_some_and(|link| link.pipes[CLIENT].is_hungry())
    };
    usable.into_iter().find(of_link)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn round_robin_shares_differ_by_a_record_for_any_writes(
        carriers in 2..=5usize,
        sizes in prop::collection::vec(prop_oneof![1..100usize, 16_300..16_500usize, 1..50_000usize], 1..6),
        pause_ms in 1..20u64,
    ) {
        let writes: Vec<_> = sizes.iter().cycle().take(60).map(|&len| (len, Span::from_ms(pause_ms))).collect();
        let lead = largest_lead(carriers, &writes);
        prop_assert!(lead <= MAX_RECORD as u64, "{} bytes", lead);
    }

    #[test]
    fn no_write_waits_while_a_carrier_could_send(
        scheduler in prop::sample::select(SINGLE.to_vec()),
        carriers in prop::collection::vec((1..50u64, 0..50u64), 1..4),
        writes in prop::collection::vec((prop_oneof![1..100usize, 1..40_000usize], 0..30_000u64), 1..80),
    ) {
        let mut world = World::connected(config(scheduler), &carriers);
        let writes: Vec<_> = writes.into_iter().map(|(len, us)| (len, Span::from_us(us))).collect();
        write_all(&mut world, &writes, |world, stream| {
            let waiting = world.end(CLIENT).unsent(stream);
            assert!(waiting == 0 || idle_carrier(world).is_none(), "{waiting} bytes wait: {:?}", idle_carrier(world));
        });
    }
}

/// Records outstanding after 60 kB, and after a hundred small writes behind them.
fn records_of_small_writes(scheduler: Scheduler, carriers: &[(u64, u64)]) -> (usize, usize) {
    let mut world = World::connected(config(scheduler), carriers);
    let records = |world: &mut World| world.end(CLIENT).carriers().map(|own| own.outstanding).sum::<usize>();
    let size = 60_000 * carriers.len();
    let mut before = 0;
    write_all(&mut world, &[(size, Span::from_us(1))], |world, _| before = records(world));
    let mut after = 0;
    write_all(&mut world, &[(100, Span::from_us(1)); 100], |world, _| after = records(world));
    (before, after)
}

#[test]
fn small_writes_join_one_record_while_carriers_are_busy() {
    for scheduler in SINGLE {
        for carriers in [&[(10, 5)][..], &[(10, 5), (10, 5)]] {
            let (before, after) = records_of_small_writes(scheduler, carriers);
            println!("{scheduler:?}, {} carriers: {before} records, then {after}", carriers.len());
            assert!(after <= before + 1, "{scheduler:?}: {before} records, then {after}");
        }
    }
}

#[test]
fn small_writes_leave_at_once_on_idle_carriers() {
    let mut world = World::connected(config(Scheduler::LowestRtt), &[(10, 5), (10, 5)]);
    let writes = [(100, Span::from_ms(2)); 50];
    write_all(&mut world, &writes, |world, stream| assert_eq!(world.end(CLIENT).unsent(stream), 0));
}
