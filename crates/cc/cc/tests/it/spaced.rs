//! `drizzle` where round trips last microseconds.

use vmcc_cc::{Algorithm, Cause, Event, EventFlags, Host, Params};

/// A path that is marked until it spaces its packets.
fn spaced(rtt_us: u32) -> (Algorithm, Params, Host, Event) {
    let drizzle = Algorithm::by_name("drizzle").expect("in the registry");
    let params = Params::defaults(drizzle);
    let mut host = Host { ssthresh_pkt: 2, ..Host::new(2) };
    let mut event = Event {
        now_us: 1_000,
        flags: EventFlags::CWND_LIMITED | EventFlags::ECE,
        srtt_8us: 8 * rtt_us,
        min_rtt_us: rtt_us,
        rtt_us,
        acked_pkt: 1,
        in_flight_pkt: 2,
        ..Event::default()
    };
    drizzle.begin(&event, &mut host, None, &params);
    for _ in 0..200 {
        step(drizzle, &params, &mut host, &mut event);
    }
    assert!(gap_q4(&host) > 0, "marks alone make it space packets");
    (drizzle, params, host, event)
}

fn step(drizzle: Algorithm, params: &Params, host: &mut Host, event: &mut Event) {
    event.now_us += u64::from(event.rtt_us);
    event.snd_una = event.snd_una.wrapping_add(1);
    event.snd_nxt = event.snd_una.wrapping_add(2);
    event.cwnd_pkt = host.cwnd_pkt;
    event.ssthresh_pkt = host.ssthresh_pkt;
    event.state = host.state;
    event.cause = Cause::None;
    drizzle.step(event, host, None, params);
}

/// As `struct drizzle` keeps them, after 16 bytes of DCTCP's.
fn gap_q4(host: &Host) -> u32 {
    host.path.priv_words[2] as u32
}

fn average_q4(host: &Host) -> u32 {
    host.path.priv_words[3] as u32
}

#[test]
fn average_follows_samples_of_few_microseconds() {
    let (drizzle, params, mut host, mut event) = spaced(3);
    event.rtt_us = 7;
    for _ in 0..100 {
        step(drizzle, &params, &mut host, &mut event);
    }
    let average_us = f64::from(average_q4(&host)) / 16.0;
    assert!((average_us - 7.0).abs() <= 0.5, "{average_us} us after 100 samples of 7");
}

/// The end of the spacing is always reported to the host, by a decision with a gap of 0.
#[test]
fn spacing_ends_only_by_a_decision() {
    for rtt_us in [1, 2, 3, 5, 10, 50] {
        let (drizzle, params, mut host, mut event) = spaced(rtt_us);
        for round in 0..2_000 {
            let before = gap_q4(&host);
            event.rtt_us = if round % 7 == 0 { 4 * rtt_us } else { 1 };
            event.flags = event.flags.with(EventFlags::ECE, round % 3 == 0);
            step(drizzle, &params, &mut host, &mut event);
            let told = host.decision.gap_us() == Some(0);
            assert!(before == 0 || gap_q4(&host) > 0 || told, "round {round} of {rtt_us} us");
        }
    }
}
