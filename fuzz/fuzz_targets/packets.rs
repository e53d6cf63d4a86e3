//! Arbitrary frames in authenticated packets, and arbitrary unauthenticated datagrams: no end may crash, stand still without a timer, or
//! exceed its memory bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vmcc_quic_testkit::pair::Pair;
use vmcc_transport::Ecn;

/// Each step: which end and what (one byte), how many bytes (two), and these.
fn play(mut data: &[u8]) {
    let mut pair = Pair::new();
    let mut number = 1000;
    while let [what, high, low, rest @ ..] = data {
        let len = (usize::from(*high) << 8 | usize::from(*low)) % 1400;
        let (bytes, rest) = rest.split_at(len.min(rest.len()));
        data = rest;
        let end = usize::from(what & 1);
        match what >> 1 & 3 {
            0 | 1 => {
                number += 1 + u32::from(what >> 3);
                pair.say(end, number, bytes);
            }
            2 => {
                let mut datagram = bytes.to_vec();
                pair.ends[end].handle_datagram(pair.now, Pair::route(end), Ecn::NotEct, &mut datagram);
            }
            _ => pair.pass_time(),
        }
        pair.exchange();
        read(&mut pair, end);
    }
    assert!(pair.ends.iter().all(|end| end.connections() <= 2));
}

fn read(pair: &mut Pair, end: usize) {
    let mut buffer = [0; 4000];
    let Some(connection) = pair.handles[end].and_then(|handle| pair.ends[end].connection(handle)) else { return };
    let _ = connection.read(0, &mut buffer);
    while connection.read_datagram().is_some() {}
}

fuzz_target!(|data: &[u8]| play(data));
