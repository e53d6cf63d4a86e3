//! Reasons for reductions in Linux that the wrapper reports to an algorithm, in both orders of Linux's callbacks: before 6.16 and since.

use crate::inside;
use crate::reductions;
use std::time::Duration;
use vmcc_lab::guest::{Accel, GuestOptions};

/// Under a clock of instructions: what else the machine does changes nothing.
fn run_inside(series: &str, prefix: &str) {
    let time_limit = Duration::from_secs(3_600);
    let options = GuestOptions { accel: Some(Accel::Counted), time_limit, ..GuestOptions::default() };
    inside::run_inside_as(module_path!(), series, &[prefix], options);
}

#[test]
fn timeless_reductions_on_the_oldest_kernel() {
    run_inside("6.1", "inside_");
}

#[test]
fn timeless_reductions_match_linux_dctcp() {
    run_inside("7", "beside_inside");
}

/// Not under a clock of instructions: nothing depends on times.
#[test]
fn guest_any_receiver_counts_marks_with_accecn() {
    inside::run_inside(module_path!(), "7", &["accecn_in_guest"], Duration::from_secs(580));
}

#[test]
fn timeless_accecn_beside_each_mark_echoed() {
    run_inside("7", "beside_rfc3168_inside");
}

/// The rest of the matrix: `cargo test ... --test guest reductions:: -- --ignored on_linux_6_12`.
#[test]
#[ignore = "on demand: the oldest kernel has the one order; the comparison on the newest and root_reductions, the other"]
fn on_linux_6_12() {
    run_inside("6.12", "inside_");
}

#[test]
#[ignore = "on demand, as 6.12"]
fn on_linux_6_18() {
    run_inside("6.18", "inside_");
}

#[test]
#[ignore = "on demand, as 6.12"]
fn on_linux_7() {
    run_inside("7", "inside_");
}

/// The table of docs/evidence/kernels.md.
#[test]
#[ignore = "on demand: takes a quarter of an hour, and dctcp has both kinds of reduction"]
fn on_linux_7_match_linux_modules_with_1_2_and_8_flows() {
    run_inside("7", "beside_long_inside");
}

#[test]
#[ignore = "runs in a guest"]
fn beside_inside() {
    reductions::reference::beside_the_kernels_own(&["dctcp"], &[1], 30);
}

#[test]
#[ignore = "runs in a guest"]
fn beside_long_inside() {
    reductions::reference::beside_the_kernels_own(&reductions::reference::ALGORITHMS, &[1, 2, 8], 30);
}

#[test]
#[ignore = "runs in a guest"]
fn accecn_in_guest_receivers() {
    reductions::accecn::any_receiver_counts_marks();
}

#[test]
#[ignore = "runs in a guest"]
fn accecn_in_guest_clients() {
    reductions::accecn::any_client_requests_it();
}

#[test]
#[ignore = "runs in a guest"]
fn beside_rfc3168_inside() {
    reductions::accecn::as_with_each_mark_echoed();
}

#[test]
#[ignore = "runs in a guest"]
fn inside_marks_are_answered_as_marks() {
    reductions::marks_are_answered_as_marks("10mbit", &[2], 5, 1);
}

#[test]
#[ignore = "runs in a guest"]
fn inside_marks_that_end_a_recovery() {
    reductions::ends::an_ack_that_ends_a_recovery_is_answered_by_what_it_echoes();
}

#[test]
#[ignore = "runs in a guest"]
fn inside_undone_without_sack() {
    reductions::undo::what_is_undone_without_sack_is_restored();
}
