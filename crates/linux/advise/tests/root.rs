//! Tests that need root and this machine's kernel: one program, whose modules `scripts/test.sh` runs in a process each.

mod root {
    mod private;
}
