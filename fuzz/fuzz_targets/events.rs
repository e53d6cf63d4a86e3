//! Any sequence of events, any state: no algorithm may crash, or break what holds for all of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vmcc_cc::trace::{Bytes, Conduct, Source, Walk, vary_params};
use vmcc_cc::{Algorithm, MAX_PATHS, Params};

include!("../body.rs");

fuzz_target!(|data: &[u8]| fuzz_events(data));
