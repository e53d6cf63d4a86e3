//! Transfers over healthy carriers: aggregation, memory bounds, streams both ways.

use crate::net::{CLIENT, SERVER, Transfer, World};
use vmcc_multipath::Scheduler;
use vmcc_tcp::{Config, Dir, Event};
use vmcc_units::time::Span;

/// Goodput of one stream in Mbit/s.
fn goodput_mbps(config: Config, carriers: &[(u64, u64)], size: u64) -> f64 {
    let mut world = World::connected(config, carriers);
    let begin = world.now;
    let mut transfer = Transfer::new(&mut world, CLIENT, size);
    assert!(transfer.run(&mut world), "{} of {size} bytes", transfer.read);
    size as f64 * 8.0 / 1e6 / world.now.since(begin).secs_f64()
}

#[test]
fn two_carriers_aggregate_their_rates() {
    // Two seconds' worth.
    for (carriers, sum) in [
        ([(10, 5), (10, 5)], 20.0),
        ([(10, 5), (5, 5)], 15.0),
        ([(10, 5), (5, 50)], 15.0),
        ([(10, 50), (10, 50)], 20.0),
        ([(200, 5), (50, 5)], 250.0),
    ] {
        let size = (sum * 1e6 / 8.0 * 2.0) as u64;
        let rate = goodput_mbps(Config::default(), &carriers, size);
        let alone = goodput_mbps(Config::default(), &carriers[..1], size / 4);
        println!("{carriers:?}: {rate:.2} of {sum} Mbit/s, the first alone {alone:.2}");
        assert!(rate >= 0.95 * sum, "{carriers:?}: {rate:.2} of {sum} Mbit/s");
        assert!(alone <= carriers[0].0 as f64, "the control: one carrier gives no more than its rate");
    }
}

#[test]
fn every_scheduler_delivers_all_data() {
    use Scheduler::{Blest, Ecf, LowestRtt, PipeCwnd, Redundant, RoundRobin};
    for scheduler in [LowestRtt, RoundRobin, Redundant, Blest, Ecf, PipeCwnd] {
        let config = Config { scheduler, ..Config::default() };
        let mut world = World::connected(config, &[(10, 5), (10, 50)]);
        let mut transfer = Transfer::new(&mut world, CLIENT, 3_000_000);
        assert!(transfer.run(&mut world), "{scheduler:?}: {} bytes", transfer.read);
        let repeated = world.end(CLIENT).stats().repeated_bytes;
        println!("{scheduler:?}: {repeated} bytes repeated, {:?}", transfer.longest_stall());
        assert_eq!(scheduler == Redundant, repeated > 1_000_000, "{scheduler:?}: {repeated}");
    }
}

#[test]
fn eight_carriers_work_together() {
    let carriers = [(5, 5), (5, 10), (5, 15), (5, 20), (5, 25), (5, 30), (5, 35), (5, 40)];
    let rate = goodput_mbps(Config::default(), &carriers, 50_000_000);
    assert!(rate >= 0.95 * 40.0, "{rate}");
}

#[test]
fn ninth_carrier_is_refused() {
    let mut world = World::connected(Config::default(), &[(5, 5); 8]);
    assert!(world.dial(5, 5).is_none());
}

#[test]
fn streams_run_in_both_directions_at_once() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 20)]);
    let mut up = Transfer::new(&mut world, CLIENT, 5_000_000);
    let mut down = Transfer::new(&mut world, SERVER, 5_000_000);
    let begin = world.now;
    let complete = world.now + Span::from_secs(60);
    while world.now < complete && !(up.complete && down.complete) {
        up.pump(&mut world);
        down.pump(&mut world);
        world.step();
    }
    assert!(up.complete && down.complete);
    // 40 Mbit each way over 20 Mbit/s: 2 s; half as much again for acknowledgments that share the queues.
    assert!(world.now.since(begin) < Span::from_secs(3), "{:?}", world.now.since(begin));
}

#[test]
fn full_buffers_at_both_ends_do_not_deadlock() {
    // Nobody reads until both have written all that they may; then both read.
    let config = Config { connection_window: 100_000, stream_window: 100_000, ..Config::default() };
    let mut world = World::connected(config, &[(10, 5), (10, 20)]);
    let streams = [CLIENT, SERVER].map(|end| world.end(end).open_stream(Dir::Uni).unwrap());
    for end in [CLIENT, SERVER] {
        while world.end(end).write(streams[end], &[0; 50_000]).unwrap() > 0 {}
    }
    world.run_for(Span::from_secs(5));
    let mut read = [0_u64; 2];
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..2_000 {
        for end in [CLIENT, SERVER] {
            while let Ok(Some(len @ 1..)) = world.end(1 - end).read(streams[end], &mut buffer) {
                read[end] += len as u64;
            }
        }
        world.run_for(Span::from_ms(5));
    }
    let kept = Config::default().send_window;
    assert_eq!(read, [kept; 2], "all that was written has arrived");
}

#[test]
fn first_window_of_a_stream_is_announced_and_grows() {
    let config = Config { first_stream_window: 30_000, reserved_stream_window: 10_000, ..Config::default() };
    let mut world = World::connected(config, &[(10, 5), (10, 5)]);
    let stream = world.end(CLIENT).open_stream(Dir::Uni).unwrap();
    assert_eq!(world.end(CLIENT).write(stream, &[5; 400_000]).unwrap(), 400_000);
    world.run_for(Span::from_secs(1));
    // Nobody has read: no more has come than was announced, and no rule was broken.
    let received: u64 = world.end(SERVER).carriers().map(|own| own.bytes_in).sum();
    assert!((10_000..11_000).contains(&received), "{received}");
    let (mut read, mut buffer) = (0, vec![0; 1 << 16]);
    for _ in 0..1_000 {
        while let Ok(Some(len @ 1..)) = world.end(SERVER).read(stream, &mut buffer) {
            read += len;
        }
        world.run_for(Span::from_ms(5));
    }
    assert_eq!(read, 400_000);
}

#[test]
fn backup_carrier_is_used_only_while_no_other_can_carry() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    world.end(CLIENT).set_backup(1, true);
    let stream = world.end(CLIENT).open_stream(Dir::Uni).unwrap();
    world.end(CLIENT).write(stream, &[5; 400_000]).unwrap();
    world.run_for(Span::from_secs(2));
    let sent = |world: &mut World, carrier| {
        world.end(CLIENT).carriers().find(|own| own.carrier == carrier).map_or(0, |own| own.bytes_out)
    };
    assert!(sent(&mut world, 0) > 400_000 && sent(&mut world, 1) < 10_000);
    world.kill(0);
    world.end(CLIENT).write(stream, &[5; 400_000]).unwrap();
    world.run_for(Span::from_secs(2));
    assert!(sent(&mut world, 1) > 400_000);
}

#[test]
fn unread_stream_bounds_memory() {
    let config = Config { connection_window: 200_000, stream_window: 100_000, ..Config::default() };
    let mut world = World::connected(config, &[(100, 5), (100, 5)]);
    let stream = world.end(CLIENT).open_stream(Dir::Uni).unwrap();
    let mut written = 0;
    for _ in 0..200 {
        written += world.end(CLIENT).write(stream, &[0; 50_000]).unwrap();
        world.run_for(Span::from_ms(20));
    }
    let received: u64 = world.end(SERVER).carriers().map(|own| own.bytes_in).sum();
    assert!(received < 110_000, "the stream's window and its headers: {received}");
    assert!(written as u64 <= Config::default().send_window + 100_000, "{written}");
}

#[test]
fn reset_reaches_the_peer() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    let stream = world.end(CLIENT).open_stream(Dir::Bi).unwrap();
    world.end(CLIENT).write(stream, b"some").unwrap();
    assert!(world.run_until(|world| {
        world.saw(SERVER, |event| matches!(event, Event::StreamReadable { .. })).is_some()
    }));
    world.end(CLIENT).reset(stream, 7).unwrap();
    world.run_for(Span::from_secs(1));
    assert_eq!(world.end(SERVER).read(stream, &mut [0; 10]), Err(vmcc_tcp::StreamError::Reset(7)));
}

#[test]
fn idle_session_sends_one_probe_per_carrier_and_interval() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    world.run_for(Span::from_secs(1));
    let sent = |world: &mut World| world.end(CLIENT).carriers().map(|own| own.bytes_out).sum::<u64>();
    let before = sent(&mut world);
    world.run_for(Span::from_secs(100));
    let bytes = sent(&mut world) - before;
    let probes = 100_000_000 / Config::default().keep_alive.us();
    // A probe is 3 bytes, an acknowledgment of the peer's probe about 6, on two carriers.
    assert!((probes..=probes * 2 * 12).contains(&bytes), "{bytes} bytes for {probes} probes");
}
