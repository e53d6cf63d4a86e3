//! The `bpf` backend of a port keeps what every backend promises. It takes Linux 6.16 with `CONFIG_NET_SCH_BPF`, so
//! all of it runs in guests.

use crate::inside::run_inside;
use crate::switch::{Bridge, conformance, mixed};
use std::time::Duration;
use vmcc_port::Backend;

const LIMIT: Duration = Duration::from_secs(600);

/// The first series that has it: `cargo test ... --test guest qdisc:: -- --ignored on_linux_6_18`. The platforms' tests run on
/// it as well.
#[test]
#[ignore = "on demand: the newest kernel has all of it"]
fn on_linux_6_18() {
    run_inside(module_path!(), "6.18", &["inside_", "more_"], LIMIT);
}

#[test]
#[ignore = "on demand: what this has beside the newest, tests of the host's own queues have too"]
fn on_linux_7_more() {
    run_inside(module_path!(), "7", &["more_"], LIMIT);
}

#[test]
fn guest_qdisc_on_the_newest_kernel() {
    run_inside(module_path!(), "7", &["inside_"], LIMIT);
}

#[test]
fn timeless_qdisc_is_refused_where_the_kernel_lacks_it() {
    run_inside(module_path!(), "6.12", &["without_it"], LIMIT);
}

#[test]
#[ignore = "runs in a guest"]
fn inside_weights_4_2_1() {
    conformance::shares_follow_weights_within_the_rate("auto", Backend::Bpf, &[4, 2, 1]);
}

#[test]
#[ignore = "runs in a guest"]
fn more_weights_2_1() {
    conformance::shares_follow_weights_within_the_rate("bpf", Backend::Bpf, &[2, 1]);
}

#[test]
#[ignore = "runs in a guest"]
fn inside_marks_and_limits() {
    conformance::marks_ecn_at_the_threshold_and_drops_the_rest_at_its_limit("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_thresholds() {
    conformance::thresholds_follow_the_round("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_changes() {
    conformance::changes_under_traffic_lose_no_packet("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_detaching() {
    conformance::detaching_loses_no_waiting_packet("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_priority() {
    conformance::the_first_class_comes_first("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_sparse() {
    conformance::a_sparse_flow_comes_first_in_its_class("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_guarantee() {
    conformance::a_guarantee_comes_before_the_order("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_ecn_connections_leave_others_their_share() {
    mixed::ecn_connections_leave_others_their_share("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_datagram_flood_leaves_others_their_share() {
    mixed::datagram_flood_leaves_others_their_share("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn more_raised_rate() {
    conformance::a_raised_rate_holds_at_once("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn more_run_times() {
    conformance::run_times_are_counted("bpf");
}

/// `auto` falls back and says so; `bpf` says what is missing, and leaves the port as it was.
#[test]
#[ignore = "runs in a guest"]
fn without_it() {
    let bridge = Bridge::new(1);
    let before = bridge.queues(0);
    let error = bridge.try_attach(0, "rate = '40mbit'\nbackend = 'bpf'\n").err().expect("it cannot");
    println!("{error}");
    assert!(error.to_string().contains("CONFIG_NET_SCH_BPF"), "{error}");
    assert_eq!(bridge.queues(0), before, "as before");
    let port = bridge.attach(0, "rate = '40mbit'\n");
    assert_eq!(port.detach().unwrap().backend, Backend::Htb);
}
