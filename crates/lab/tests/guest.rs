//! Tests that boot guests: one program, whose modules `scripts/test.sh` runs in a process each.

mod common;
mod descheduled;
mod guest {
    mod boot;
    mod descheduled;
    mod netem;
    mod platforms;
    mod port;
    mod qdisc;
    mod reductions;
    mod taps;
    mod turns;
}
mod inside;
mod port;
mod reductions;
mod switch;
