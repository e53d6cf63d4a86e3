//! Head-of-line blocking: delays in order against a model, by scheduler.

use crate::net::{CLIENT, SERVER, World};
use vmcc_multipath::Scheduler;
use vmcc_tcp::{Config, Dir};
use vmcc_units::time::{Span, Time};

const MESSAGE: usize = 1000;
const MESSAGES: usize = 200;
const INTERVAL: Span = Span::from_ms(5);

/// Sends a message per interval over carriers of 5 and 50 ms; delays until each can be read in order, and carriers' shares of bytes.
fn delays(scheduler: Scheduler) -> (Vec<Span>, Vec<u64>) {
    let config = Config { scheduler, reinject_late: false, ..Config::default() };
    let mut world = World::connected(config, &[(10, 5), (10, 50)]);
    let stream = world.end(CLIENT).open_stream(Dir::Uni).unwrap();
    let begin = world.now + Span::from_ms(200);
    let sent_at = |i: usize| begin + INTERVAL.times(i as u64);
    let (mut sent, mut read, mut delays) = (0, 0, Vec::new());
    let mut buffer = [0; MESSAGE];
    while delays.len() < MESSAGES {
        while sent < MESSAGES && world.now >= sent_at(sent) {
            assert_eq!(world.end(CLIENT).write(stream, &[1; MESSAGE]), Ok(MESSAGE));
            sent += 1;
        }
        while let Ok(Some(len @ 1..)) = world.end(SERVER).read(stream, &mut buffer) {
            read += len;
            while (delays.len() + 1) * MESSAGE <= read {
                delays.push(world.now.since(sent_at(delays.len())));
            }
        }
        let next = if sent < MESSAGES { sent_at(sent) } else { world.now + INTERVAL };
        world.step_to(next);
    }
    let shares = world.end(CLIENT).carriers().map(|own| own.bytes_out).collect();
    (delays, shares)
}

/// Model of in-order delivery: a message is readable once it and all before it have arrived.
fn in_order(one_way: impl Fn(usize) -> Span) -> Vec<Span> {
    let mut latest = Time::ZERO;
    (0..MESSAGES)
        .map(|i| {
            let sent = Time::ZERO + INTERVAL.times(i as u64);
            latest = latest.max(sent + one_way(i));
            latest.since(sent)
        })
        .collect()
}

fn median(mut delays: Vec<Span>) -> Span {
    delays.sort();
    delays[delays.len() / 2]
}

#[test]
fn head_of_line_delays_follow_the_model() {
    // A message takes 0.8 ms of a link of 10 Mbit/s. Tolerance: another one before it, and the step of the test's clock.
    let tolerance = Span::from_ms(2);
    let fast = Span::from_ms(5) + Span::from_us(830);
    let slow = Span::from_ms(50) + Span::from_us(830);
    for (scheduler, model) in [
        (Scheduler::LowestRtt, in_order(|_| fast)),
        // Every other message blocks those behind it.
        (Scheduler::RoundRobin, in_order(|i| if i % 2 == 0 { fast } else { slow })),
    ] {
        let (measured, shares) = delays(scheduler);
        let (model, measured) = (median(model), median(measured));
        println!("{scheduler:?}: model {model:?}, measured {measured:?}, shares {shares:?}");
        assert!(
            measured + tolerance > model && measured < model + tolerance,
            "{scheduler:?}: {measured:?}, model {model:?}"
        );
    }
}

#[test]
fn estimating_schedulers_do_not_block_a_thin_stream() {
    let worst = |scheduler| delays(scheduler).0.into_iter().max().unwrap();
    let blocked = worst(Scheduler::RoundRobin);
    for scheduler in [Scheduler::LowestRtt, Scheduler::Ecf, Scheduler::Blest] {
        let delay = worst(scheduler);
        println!("{scheduler:?}: worst {delay:?}; round-robin {blocked:?}");
        assert!(delay.times(3) < blocked, "{scheduler:?}: {delay:?}, round-robin {blocked:?}");
    }
}
