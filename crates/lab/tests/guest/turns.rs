//! Redistribution of an idle class's turns among the others, and its delay: on both backends, on paths with a delay, and to the packet,
//! since the guest's clock counts its instructions.

use crate::inside;
use crate::port::turns::{Stop, port, show, spread, stops};
use std::time::Duration;
use vmcc_lab::guest::{Accel, GuestOptions};

/// Emulation takes 4 s for each; docs/evidence/marking.md has ten.
const REPETITIONS: usize = 4;

fn run_inside(prefix: &str) {
    let time_limit = Duration::from_secs(3_600);
    let options = GuestOptions { accel: Some(Accel::Counted), time_limit, ..GuestOptions::default() };
    inside::run_inside_as(module_path!(), "6.18", &[prefix], options);
}

#[test]
fn timeless_turns_of_an_idle_class() {
    run_inside("inside_lent_by_bpf");
}

#[test]
#[ignore = "on demand: root::private::port_turns has the same for the host's own queues"]
fn on_linux_6_18_turns() {
    run_inside("inside_");
}

/// Within two round trips of its last packet the others have its share, in proportion, and the port is full.
fn lent(backend: &str, delay: Option<&str>) {
    let stops = stops(&port(backend, false), delay, REPETITIONS);
    show(&format!("guest, {backend}, lent, netem {}", delay.unwrap_or("-")), &stops);
    let settled = spread(&stops, Stop::settled_rtts).median();
    assert!(settled <= 2.0, "{settled} round trips");
}

/// They have what they had.
fn capped(backend: &str) {
    let stops = stops(&port(backend, true), Some("2ms"), REPETITIONS);
    show(&format!("guest, {backend}, capped, netem 2ms"), &stops);
    for number in 0..5 {
        let length = |stop: &Stop| 2.0 * stop.rtt_ns;
        let window = |stop: &Stop| stop.window(f64::from(number) * length(stop), length(stop));
        let used = spread(&stops, |stop| window(stop).used).median();
        let second = spread(&stops, |stop| window(stop).second).median();
        assert!((used * 7.0 / 3.0 - 1.0).abs() < 0.05, "{used} of the port instead of 3/7");
        assert!((second * 1.5 - 1.0).abs() < 0.05, "{second} instead of 2/3");
    }
}

#[test]
#[ignore = "runs in a guest"]
fn inside_lent_by_htb() {
    lent("htb", Some("2ms"));
}

#[test]
#[ignore = "runs in a guest"]
fn inside_lent_by_bpf() {
    lent("bpf", None);
    lent("bpf", Some("2ms"));
}

#[test]
#[ignore = "runs in a guest"]
fn inside_capped() {
    capped("htb");
    capped("bpf");
}
