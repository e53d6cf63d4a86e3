//! Arbitrary frames in authenticated packets and arbitrary datagrams: errors are those of the standard.

use proptest::prelude::*;
use vmcc_quic_testkit::pair::Pair;
use vmcc_transport::Ecn;
use vmcc_units::time::{Span, Time};

/// A frame that is nearly right: a type of those that are, and numbers that are mostly small.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let kinds: Vec<u64> = (0..=0x1e).chain([0x30, 0x31, 0x3e, 0x3f]).chain(0x3e75..=0x3e7c).collect();
    let number = prop_oneof![6 => 0..20u64, 2 => 0..10_000u64, 1 => 0..1u64 << 62];
    (
        prop::sample::select(kinds),
        prop::collection::vec(number, 0..8),
        prop::collection::vec(any::<u8>(), 0..40),
    )
        .prop_map(|(kind, numbers, rest)| {
            let mut frame = Vec::new();
            for n in [kind].into_iter().chain(numbers) {
                match n {
                    0..0x40 => frame.push(n as u8),
                    0x40..0x4000 => frame.extend((n as u16 | 0x4000).to_be_bytes()),
                    _ => frame.extend((n | 3 << 62).to_be_bytes()),
                }
            }
            frame.extend(rest);
            frame
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_peer_frames_keep_or_close_the_connection(
        packets in prop::collection::vec((0..2usize, prop::collection::vec(frame(), 1..4)), 1..12)
    ) {
        let mut pair = Pair::new();
        for (i, (end, frames)) in packets.into_iter().enumerate() {
            pair.say(end, 1000 + i as u32, &frames.concat());
            pair.exchange();
            pair.pass_time();
            let mut buffer = [0; 4000];
            if let Some(connection) = pair.handles[end].and_then(|handle| pair.ends[end].connection(handle)) {
                let _ = connection.read(0, &mut buffer);
                while connection.read_datagram().is_some() {}
            }
        }
        for _ in 0..5 {
            pair.exchange();
            pair.pass_time();
        }
    }

    #[test]
    fn any_datagrams_of_unknown_peers_leave_no_state(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1500), 1..5)) {
        let mut pair = Pair::new();
        for mut datagram in datagrams {
            for end in 0..2 {
                pair.ends[end].handle_datagram(pair.now, Pair::route(end), Ecn::NotEct, &mut datagram);
            }
        }
        pair.exchange();
        prop_assert_eq!(pair.ends[1].connections(), 1);
    }
}

#[test]
fn protocol_violations_close_with_the_right_error_code() {
    for (frames, code) in [
        (&[0x08, 0x03, 1][..], 0x05), // a stream of ours that was not opened
        (&[0x0c, 0x00, 0xbf, 0xff, 0xff, 0xff, 1], 0x03), // beyond flow control
        (&[0x04, 0x00, 0x00, 0x01], 0x06), // a final size below what was sent
        (&[0x08, 0x7f, 0xfc, 1], 0x04), // too many streams
        (&[0x02, 0x44, 0x00, 0x00, 0x00, 0x00], 0x0a), // an acknowledgment of what was not sent
        (&[0x1e], 0x0a),              // HANDSHAKE_DONE of a client
        (&[0x40, 0x21], 0x07),        // a frame that does not exist
        (&[0x7e, 0x7a, 0x80], 0x07),  // a frame that ends too early
        (&[0xff], 0x07),
    ] {
        let mut pair = Pair::new();
        pair.say(1, 1000, frames);
        let mut out = Vec::new();
        pair.ends[1].poll_transmit(pair.now, &mut out).expect("CONNECTION_CLOSE");
        let handle = pair.handles[1].unwrap();
        let error = pair.ends[1].connection(handle).unwrap().error().cloned();
        let Some(vmcc_transport::ConnectionError::Transport(error)) = error else {
            panic!("{frames:02x?}: {error:?}");
        };
        assert_eq!(error.code, code, "{frames:02x?}: {error}");
    }
}

#[test]
fn amplification_limited_server_arms_no_timer() {
    let mut server = Pair::server();
    let (mut now, mut out) = (Time::ZERO + Span::from_secs(1), Vec::new());
    // An Initial packet with a PING, in a datagram of 1200 bytes, and its small siblings.
    for pn in 0..4_u8 {
        let mut packet = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 9, 0];
        let rest: usize = if pn == 0 { 1200 - 19 } else { 60 };
        packet.extend((rest as u16 | 0x4000).to_be_bytes());
        packet.extend([pn, 1]);
        packet.resize(19 + rest, 0);
        server.handle_datagram(now, Pair::route(1), Ecn::NotEct, &mut packet);
        while server.poll_transmit(now, &mut out).is_some() {}
    }
    assert_eq!(server.connections(), 1);
    let mut wakes = 0;
    while let Some(at) = server.poll_timeout() {
        now = now.max(at);
        server.handle_timeout(now);
        while server.poll_transmit(now, &mut out).is_some() {}
        wakes += 1;
        assert!(wakes < 200, "it is woken up for nothing at {now:?}");
    }
    assert!(server.is_idle());
}

#[test]
fn connection_id_churn_uses_bounded_memory() {
    let mut pair = Pair::new();
    for seq in 2..5000_u32 {
        let mut frame = vec![0x7e, 0x78, 0];
        for _ in 0..2 {
            frame.extend((seq | 0x8000_0000).to_be_bytes());
        }
        frame.push(8);
        frame.extend([seq.to_be_bytes(), [7; 4]].concat());
        frame.extend([seq.to_be_bytes(); 4].concat());
        pair.say(1, 1000 + seq, &frame);
    }
    let handle = pair.handles[1].unwrap();
    let error = pair.ends[1].connection(handle).unwrap().error().cloned();
    assert!(matches!(error, Some(vmcc_transport::ConnectionError::Transport(_))), "{error:?}");
}
