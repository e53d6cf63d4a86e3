//! Tests that need root and this machine's kernel: one program, whose modules `scripts/test.sh` runs in a process each.

mod agent;
mod common;
mod kept;
mod killed;
mod machine;
mod nobody;
mod pair;
mod prometheus;
mod root {
    mod agents;
    mod algorithms;
    mod private;
}
mod wire;
