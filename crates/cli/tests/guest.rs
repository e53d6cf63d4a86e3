//! Tests that boot guests: one program, whose modules `scripts/test.sh` runs in a process each.

mod common;
mod guest {
    mod descheduled;
    mod doctor;
    mod guard;
    mod mark;
    mod upgrade;
}
mod inside;
