//! What the wrapper tells an algorithm about why Linux reduces, in both orders in which Linux calls back: before 6.16
//! and since.
#![cfg(feature = "root-tests")]

#[path = "switch/guests.rs"]
mod guests;
#[path = "../../host/tests/ports/mod.rs"]
mod ports;
mod reductions;

use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);

#[test]
fn guest_reductions_on_the_oldest_kernel() {
    guests::run_inside("6.1", "inside_marks", LIMIT);
}

#[test]
fn guest_reductions_on_the_newest_kernel() {
    guests::run_inside("7", "inside_marks", LIMIT);
}

/// The rest of the matrix: `cargo test ... --test guest_reductions -- --ignored on_the_kernels_between`.
#[test]
#[ignore = "on demand: the oldest and the newest kernel have both orders"]
fn on_the_kernels_between() {
    for series in ["6.12", "6.18"] {
        guests::run_inside(series, "inside_marks", LIMIT);
    }
}

#[test]
#[ignore = "runs in a guest"]
fn inside_marks_are_answered_as_marks() {
    reductions::marks_are_answered_as_marks("20mbit", &[2], 5);
}
