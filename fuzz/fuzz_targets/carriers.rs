//! Anything that a peer, or who is on the way to it, may say on TCP carriers: no crash, no record without end, no timer in the past.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vmcc_tcp::{Acceptor, Binding, CarrierInfo, Config, Dir, Greeting, Secrets, Session};
use vmcc_units::time::{Span, Time};

include!("../carriers_body.rs");

fuzz_target!(|data: &[u8]| fuzz_carriers(data));
