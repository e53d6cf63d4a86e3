//! The fuzz target's body over random steps: what a fuzzer finds is added here as a case.

use proptest::prelude::*;
use vmcc_tcp::{Acceptor, Binding, CarrierInfo, Config, Dir, Greeting, Secrets, Session};
use vmcc_units::time::{Span, Time};

include!("../../../../../fuzz/carriers_body.rs");

/// A step whose bytes are frames more often than not.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let frame = prop::sample::select(vec![
        1_u8, 2, 4, 5, 8, 10, 12, 14, 15, 16, 17, 18, 0x1c, 0x20, 0x22, 0x23, 0x24, 0x25, 0x27,
    ]);
    (any::<u8>(), 0..4_u8, frame, prop::collection::vec(0..70_u8, 0..60)).prop_map(
        |(what, carrier, frame, bytes)| {
            let mut step = vec![what, carrier, bytes.len() as u8 + 1, frame];
            step.extend(bytes);
            step
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_peer_input_keeps_or_ends_a_session_cleanly(steps in prop::collection::vec(step(), 0..60)) {
        fuzz_carriers(&steps.concat());
    }
}
