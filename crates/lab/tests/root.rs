//! Tests that need root and this machine's kernel: one program, whose modules `scripts/test.sh` runs in a process each.

mod common;
mod port;
mod reductions;
mod root {
    mod agents;
    mod algorithms;
    mod private;
}
mod switch;
