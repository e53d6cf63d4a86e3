//! Traffic through a port, on the host's kernel and in guests.
#![allow(dead_code, unreachable_pub, reason = "each program uses its part")]

pub mod exchange;
pub mod layer3;
pub mod turns;
