//! Tests that load no algorithm. Each module has a `/run` and a BPF file system of its own.

mod bad_input;
mod port_exchange;
mod port_htb;
mod port_turns;
mod window;
