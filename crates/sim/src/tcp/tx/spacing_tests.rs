//! Packets that an algorithm wants apart.

use super::tests::ms;
use crate::packet::Packet;
use crate::tcp::testing::{Lab, Setup};
use crate::time::{Span, Time};
use crate::traffic::App;

const RTT: Span = Span::from_ms(20);

/// Drizzle over a path that marks everything for three seconds and nothing afterwards.
fn marked_for_a_while() -> Lab {
    let script = Box::new(|p: &mut Packet, now: Time| {
        if p.has(Packet::ECT) && p.has(Packet::DATA) && now < ms(3000) {
            p.flags |= Packet::CE;
        }
        Some(Span::ZERO)
    });
    let mut lab = Lab::new(Setup { algorithm: "drizzle", app: App::Bulk, ..Setup::default() }, script);
    lab.run_ms(6000);
    lab
}

/// Data packets sent from `from` to `to`, in ms: time, and whether CWR requests an immediate ACK.
fn sent(lab: &Lab, from: u64, to: u64) -> Vec<(Time, bool)> {
    let inside =
        lab.pipe.log.iter().filter(|(at, p, _)| p.has(Packet::DATA) && *at >= ms(from) && *at < ms(to));
    inside.map(|(at, p, _)| (*at, p.has(Packet::CWR))).collect()
}

#[test]
fn marks_below_the_minimum_window_space_single_packets() {
    let lab = marked_for_a_while();
    let spaced = sent(&lab, 1500, 3000);
    assert!(spaced.len() >= 3, "it goes on: {}", spaced.len());
    assert!(spaced.iter().all(|(_, cwr)| *cwr), "each asks to be acknowledged at once");
    let shortest = spaced.windows(2).map(|pair| pair[1].0.since(pair[0].0)).min().unwrap();
    // Two packets in a round trip would be the smallest window.
    assert!(shortest > Span::from_ps(RTT.ps() / 2), "{shortest:?}");
    // Acknowledged after a round trip, and not after the receiver's 40 ms.
    let acks: Vec<Time> =
        lab.pipe.log.iter().filter(|(_, p, _)| !p.has(Packet::DATA) && p.route.0 == 1).map(|l| l.0).collect();
    for (at, _) in &spaced[..spaced.len() - 1] {
        assert!(acks.contains(&(*at + Span::from_ms(10))), "{at:?}");
    }
    assert_eq!(lab.flow().retransmits(), 0, "who waits is not taken to have lost something");
}

#[test]
fn spacing_shrinks_without_marks_until_windows_limit_again() {
    let lab = marked_for_a_while();
    let (spaced, later) = (sent(&lab, 2000, 3000).len(), sent(&lab, 5000, 6000).len());
    assert!(later > 4 * spaced, "{spaced} {later}");
    assert!(sent(&lab, 5000, 6000).iter().any(|(_, cwr)| !cwr), "in windows");
}
