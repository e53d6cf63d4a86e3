//! Nanoseconds per hook, by algorithm and number of subflows: `cargo run --release -p vmcc-cc --example cost`.
//!
//! Each figure is the best of several runs over connections whose windows and round-trip times differ from path to
//! path and change with every call, as in a simulation. `on_grow` is congestion avoidance, the expensive case.

use std::hint::black_box;
use std::time::Instant;
use vmcc_cc::trace::{Seeded, Source};
use vmcc_cc::{
    Algorithm, Cause, Decision, Event, EventFlags, Group, Host, Params, Path, Sharing, Slot, State,
};

const CALLS: u32 = 20_000;
const RUNS: u32 = 60;
const DETECTOR: &str = "detector";

type Hook = fn(&Algorithm, &Event, &mut Path, Option<&Group>, &Params) -> Decision;

fn group(paths: usize) -> Group {
    let slot = |i: usize| {
        let slot = Host::new(20 + 13 * i as u32).slot(8 * (200 + 37 * i as u32));
        Slot { pub_words: [slot.pub_words[0], 1000 + 10 * i as u64], ..slot }
    };
    (0..paths).map(slot).collect()
}

fn event(flags: EventFlags) -> Event {
    Event {
        now_us: 1,
        flags,
        cause: Cause::Ece,
        cwnd_pkt: 20,
        ssthresh_pkt: 10,
        srtt_8us: 1600,
        min_rtt_us: 180,
        rtt_us: 200,
        acked_pkt: 1,
        in_flight_pkt: 20,
        ..Event::default()
    }
}

/// Best nanoseconds per call of one hook.
fn measure(algorithm: Algorithm, paths: usize, hook: Hook) -> f64 {
    let params = Params::defaults(algorithm);
    let mut group = group(paths);
    let mut event = event(EventFlags::CWND_LIMITED);
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let mut path = Path::default();
        algorithm.init(&event, &mut path, Some(&group), &params);
        // An example measures reality: here the clock is the subject.
        let start = Instant::now();
        for i in 0..CALLS {
            event.now_us += 10;
            event.snd_una = event.snd_una.wrapping_add(1);
            event.snd_nxt = event.snd_una.wrapping_add(20);
            event.srtt_8us = 1600 + (i & 63);
            event.cwnd_pkt = 20 + (i >> 4 & 15);
            let sibling = &mut group.path[(i as usize % paths).max(1) % paths];
            sibling.srtt_8us = 1700 + (i >> 2 & 127);
            let several = (paths > 1).then_some(&group);
            black_box(hook(&algorithm, black_box(&event), &mut path, several, &params));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    best
}

/// Best nanoseconds per ACK of detection: eight paths in unrelated queues, each with this many ACKs per round trip, of which
/// it reduces its window in one of eight.
fn detection(params: &Params, acks_per_round: u64) -> f64 {
    const PATHS: usize = 8;
    const ROUND_US: u64 = 1000;
    let algorithm = params.algorithm();
    let group = group(PATHS);
    let mut sharing = Sharing::default();
    let mut draws = Seeded(1);
    let mut event = Event { min_rtt_us: 500, snd_una: 0, ..event(EventFlags::CWND_LIMITED) };
    event.srtt_8us = 8 * ROUND_US as u32;
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let waits: Vec<u32> = (0..CALLS).map(|_| 700 + draws.below(600).expect("endless")).collect();
        let start = Instant::now();
        for (i, rtt_us) in waits.iter().enumerate() {
            event.self_index = (i % PATHS) as u32;
            if event.self_index == 0 {
                event.now_us += ROUND_US / acks_per_round;
            }
            event.rtt_us = *rtt_us;
            let round = event.now_us / ROUND_US + 3 * u64::from(event.self_index);
            event.state = if round.is_multiple_of(8) { State::Cwr } else { State::Open };
            event.snd_una = event.snd_una.wrapping_add(1);
            black_box(algorithm.detect(black_box(&event), &group, &mut sharing, params));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    best
}

/// Each kind of detection that an algorithm has, with times of about a round trip.
fn detectors() -> Vec<Params> {
    let mut all = Vec::new();
    for algorithm in Algorithm::all().filter(|algorithm| algorithm.info().detects) {
        let kinds =
            algorithm.info().params.iter().find(|info| info.name == DETECTOR).expect("it has a choice");
        for kind in kinds.choices {
            let mut params = Params::defaults(algorithm);
            params
                .set(DETECTOR, *kind)
                .and_then(|()| params.set("interval", 1.0))
                .expect("it is one of them");
            all.push(params);
        }
    }
    all
}

fn main() {
    println!("ns per call, best of {RUNS} runs of {CALLS} calls");
    println!("{:10} {:>8} {:>24} {:>15}", "", "on_ack", "on_grow", "on_congestion");
    println!("{:10} {:>8} {:>8}{:>8}{:>8} {:>15}", "subflows", "8", "1", "2", "8", "8");
    for algorithm in Algorithm::all() {
        let grow = |paths| measure(algorithm, paths, |a, e, p, g, k| a.on_grow(e, p, g, k));
        let ack = measure(algorithm, 8, |a, e, p, g, k| a.on_ack(e, p, g, k));
        let cut = measure(algorithm, 8, |a, e, p, g, k| a.on_congestion(e, p, g, k));
        let name = algorithm.name();
        println!("{name:10} {ack:8.1} {:8.1}{:8.1}{:8.1} {cut:15.1}", grow(1), grow(2), grow(8));
    }
    println!("\ndetect, 8 subflows, by ACKs per subflow and round trip");
    for params in detectors() {
        let name = params.values().find(|(info, _)| info.name == DETECTOR);
        let name = name.map_or("", |(info, value)| info.choices[value as usize]);
        let figures = [10, 20, 40].map(|acks| format!("{acks}: {:.1}", detection(&params, acks)));
        println!("{name:12} {}", figures.join("   "));
    }
}
