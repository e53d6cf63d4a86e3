//! Recoveries in vain, and what shows it.

use crate::packet::Packet;
use crate::tcp::config::{ReceiveBuffer, TcpConfig};
use crate::tcp::testing::{Lab, Script, Setup, lose};
use crate::time::{Span, Time};
use crate::traffic::App;

fn ms(n: u64) -> Time {
    Time::ZERO + Span::from_ms(n)
}

fn config() -> TcpConfig {
    TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 64 << 20 }, ..TcpConfig::default() }
}

fn sized(segments: u64) -> App {
    App::Sized { bytes: segments * 1448 }
}

/// Holds the first transmission of one segment back.
fn hold(seq: u32, extra: Span) -> Script {
    Box::new(move |p, _| {
        let held = p.has(Packet::DATA) && p.tag == 0 && p.seq == seq && !p.has(Packet::RETRANSMIT);
        Some(if held { extra } else { Span::ZERO })
    })
}

/// The timestamp that the late original echoes is older than the retransmission (RFC 3522; `tcp_try_undo_recovery`,
/// `tcp_try_undo_partial`).
#[test]
fn timestamps_undo_a_spurious_retransmission() {
    let mut lab = Lab::new(
        Setup { app: sized(400), config: config(), ..Setup::default() },
        hold(30, Span::from_ms(15)),
    );
    lab.run_ms(3000);
    let flow = lab.flow();
    let sender = flow.subflows[0].sender;
    assert_eq!((sender.recoveries, sender.retransmits, sender.undone), (1, 1, 1));
    assert!(flow.subflows[0].cwnd_pkt >= 40, "{}", flow.subflows[0].cwnd_pkt);
    assert!(flow.subflows[0].ssthresh_pkt > 1000, "{}", flow.subflows[0].ssthresh_pkt);
    assert_eq!(flow.delivered_bytes, 400 * 1448);
}

/// Within a millisecond timestamps are equal; the duplicate at the receiver tells (RFC 3708; `tcp_try_undo_dsack`).
#[test]
fn dsack_undoes_a_spurious_retransmission_with_a_coarse_clock() {
    let paths = vec![(Span::from_us(50), Span::from_ns(100))];
    let mut lab = Lab::new(
        Setup { app: sized(400), config: config(), paths, ..Setup::default() },
        hold(30, Span::from_us(115)),
    );
    lab.run_ms(3000);
    let flow = lab.flow();
    let sender = flow.subflows[0].sender;
    assert_eq!((sender.recoveries, sender.retransmits, sender.undone), (1, 1, 1));
    assert_eq!(flow.subflows[0].receiver.duplicates, 1);
    assert!(flow.subflows[0].ssthresh_pkt > 1000, "{}", flow.subflows[0].ssthresh_pkt);
}

/// F-RTO needs new data or several originals; a lone segment's timestamp tells at once (`tcp_try_undo_loss`).
#[test]
fn timestamps_undo_a_spurious_timeout() {
    let script = Box::new(|p: &mut Packet, now: Time| {
        let held = p.has(Packet::DATA) && p.tag == 0 && now >= ms(60);
        Some(if held { ms(470).since(now) } else { Span::ZERO })
    });
    let config = TcpConfig { tlp: false, ..config() };
    let mut lab = Lab::new(Setup { app: sized(31), config, ..Setup::default() }, script);
    lab.run_ms(5000);
    let flow = lab.flow();
    let sender = flow.subflows[0].sender;
    assert_eq!((sender.timeouts, sender.undone + sender.spurious_timeouts), (1, 1), "{sender:?}");
    assert!(flow.subflows[0].cwnd_pkt >= 30, "{}", flow.subflows[0].cwnd_pkt);
}

#[test]
fn real_losses_are_not_undone() {
    for lost in [&[30][..], &[31, 33, 40, 41, 42, 68], &[395, 396, 397, 398, 399], &[0]] {
        let mut lab = Lab::new(Setup { app: sized(400), config: config(), ..Setup::default() }, lose(lost));
        lab.run_ms(9000);
        let flow = lab.flow();
        let sender = flow.subflows[0].sender;
        assert_eq!(sender.undone, 0, "{lost:?} {sender:?}");
        assert!(flow.subflows[0].ssthresh_pkt < 400, "{lost:?}");
        assert_eq!(flow.delivered_bytes, 400 * 1448);
    }
}

/// The network's own duplicates are more than what was sent again.
#[test]
fn duplicates_of_the_network_undo_nothing() {
    // A duplicate of the network looks like an ACK with a DSACK, which comes before anything was sent again.
    let paths = vec![(Span::from_ms(10), Span::from_us(100)); 1];
    let mut lab =
        Lab::new(Setup { app: sized(400), config: config(), paths, ..Setup::default() }, lose(&[30, 31]));
    lab.run_ms(95);
    let copy = lab.pipe.log.iter().find(|l| l.1.has(Packet::DATA) && l.1.seq == 20).map(|l| l.1);
    for _ in 0..5 {
        lab.inject(copy.expect("segment 20 was sent"));
    }
    lab.run_ms(3000);
    let sender = lab.flow().subflows[0].sender;
    assert_eq!((sender.recoveries, sender.undone), (1, 0), "{sender:?}");
    assert!(lab.flow().subflows[0].receiver.duplicates >= 5);
}

fn retransmissions(lab: &Lab, from: Time, to: Time) -> usize {
    lab.data(0).iter().filter(|d| d.2 && d.0 >= from && d.0 < to).count()
}

/// Every fiftieth packet comes 13 ms late, at an RTT of 20: more than one and two quarters of it, less than three.
#[test]
fn persistent_reordering_stops_causing_retransmissions() {
    let script: Script = Box::new(|p: &mut Packet, _| {
        let late = p.has(Packet::DATA) && p.tag == 0 && p.seq % 50 == 49 && !p.has(Packet::RETRANSMIT);
        Some(if late { Span::from_ms(13) } else { Span::ZERO })
    });
    let config = TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 100 * 1448 }, ..config() };
    let paths = vec![(Span::from_ms(10), Span::from_us(100))];
    let mut lab = Lab::new(Setup { app: App::Bulk, config, paths, ..Setup::default() }, script);
    lab.run_ms(8000);
    let early = retransmissions(&lab, ms(0), ms(1000));
    let late = retransmissions(&lab, ms(2000), ms(8000));
    assert!(early > 0 && late == 0, "{early} then {late}");
    assert_eq!(lab.flow().timeouts(), 0);
}

/// Holds the first transmissions of segments `from..to` back by 15 ms.
fn hold_many(from: u32, to: u32) -> Script {
    Box::new(move |p, _| {
        let first = p.has(Packet::DATA) && p.tag == 0 && !p.has(Packet::RETRANSMIT);
        let held = first && (from..to).contains(&p.seq);
        Some(if held { Span::from_ms(15) } else { Span::ZERO })
    })
}

/// `tcp_try_undo_partial`: while retransmissions are under way that the late originals make needless, no more follow.
#[test]
fn late_originals_end_the_retransmissions() {
    // Later than three duplicates, less late than a quarter of the RTT.
    let paths = vec![(Span::from_ms(50), Span::from_us(100))];
    let mut lab =
        Lab::new(Setup { app: sized(1000), config: config(), paths, ..Setup::default() }, hold_many(80, 130));
    lab.run_ms(3000);
    let is_late = |l: &&(Time, Packet, bool)| l.1.route.0 == 1 && l.1.ack > 80;
    let told = lab.pipe.log.iter().find(is_late).map(|l| l.0 + Span::from_ms(50)).unwrap();
    let (before, after) = (retransmissions(&lab, ms(0), told), retransmissions(&lab, told, ms(3000)));
    assert!(before > 3 && before < 50 && after == 0, "{before} then {after}");
    assert_eq!(lab.flow().subflows[0].sender.undone, 1);
}

/// It looks for reordering first, though both late segments were sent again: the third, three milliseconds late, is waited for.
#[test]
fn late_originals_reveal_reordering() {
    let script: Script = Box::new(|p, _| {
        let first = p.has(Packet::DATA) && p.tag == 0 && !p.has(Packet::RETRANSMIT);
        let extra = match p.seq {
            40 | 41 if first => 15,
            400 if first => 3,
            _ => 0,
        };
        Some(Span::from_ms(extra))
    });
    let paths = vec![(Span::from_ms(10), Span::from_us(100))];
    let mut lab = Lab::new(Setup { app: sized(1000), config: config(), paths, ..Setup::default() }, script);
    lab.run_ms(3000);
    let sender = lab.flow().subflows[0].sender;
    assert_eq!((sender.retransmits, sender.undone), (2, 1), "{sender:?}");
}
