//! Redistribution of the turns of a class that has nothing more to send, and its delay.

use crate::port::turns::{port, show, spread, stops};

const REPETITIONS: usize = 10;

#[test]
fn root_port_idle_class_yields_its_turns() {
    let stops = stops(&port("htb", false), None, REPETITIONS);
    show("host, htb, lent", &stops);
    // Judged by the order of packets, which no busy machine changes: two round trips' bytes from the last packet on.
    let second = spread(&stops, |stop| stop.first_bytes(2.0 * stop.rtt_bytes()).second).median();
    assert!((second * 1.5 - 1.0).abs() < 0.05, "{second} instead of 2/3");
}

#[test]
fn root_port_idle_class_turns_stay_unused_under_hard_caps() {
    let stops = stops(&port("htb", true), None, REPETITIONS);
    show("host, htb, capped", &stops);
    // A busy machine sends less.
    let used = spread(&stops, |stop| stop.window(0.0, 10.0 * stop.rtt_ns).used).median();
    assert!(used < 3.0 / 7.0 * 1.05, "{used} of the port instead of 3/7");
}
