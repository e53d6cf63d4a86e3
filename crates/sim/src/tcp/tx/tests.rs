//! Scripted packets: what is retransmitted, when, and what becomes of the window.

use crate::packet::Packet;
use crate::tcp::config::{EcnMode, LossDetection, ReceiveBuffer, TcpConfig};
use crate::tcp::testing::{Lab, Setup, clean, lose};
use crate::time::{Span, Time};
use crate::traffic::App;

pub(super) fn ms(n: u64) -> Time {
    Time::ZERO + Span::from_ms(n)
}

pub(super) fn sized(segments: u64) -> App {
    App::Sized { bytes: segments * 1448 }
}

#[test]
fn handshake_is_followed_by_ten_then_twenty_packets() {
    let mut lab = Lab::new(Setup { app: sized(70), ..Setup::default() }, clean());
    lab.run_ms(1000);
    let data = lab.data(0);
    let at = |t: Time| data.iter().filter(|d| d.0 == t).count();
    // One round trip of 20 ms for the handshake, then slow start with every segment acknowledged at first.
    assert_eq!((at(ms(20)), at(ms(40)), at(ms(60))), (10, 20, 40));
    let flow = lab.flow();
    assert_eq!(flow.established, ms(20));
    assert_eq!(flow.received, ms(70));
    assert_eq!(flow.delivered_bytes, 70 * 1448);
    assert_eq!(flow.retransmits(), 0);
}

#[test]
fn short_last_segment_keeps_its_length() {
    let mut lab = Lab::new(Setup { app: App::Sized { bytes: 3001 }, ..Setup::default() }, clean());
    lab.run_ms(1000);
    assert_eq!(lab.flow().delivered_bytes, 3001);
    let sizes: Vec<u16> = lab
        .pipe
        .log
        .iter()
        .filter(|l| l.1.has(Packet::DATA) && l.1.tag == 0)
        .map(|l| l.1.size_bytes)
        .collect();
    assert_eq!(sizes, [1500, 1500, 105 + 52]);
}

#[test]
fn every_second_segment_is_acked_after_quick_acks() {
    let config = TcpConfig { quick_acks: 0, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(10), config, ..Setup::default() }, clean());
    lab.run_ms(1000);
    let acks: Vec<u32> = lab
        .pipe
        .log
        .iter()
        .filter(|l| l.1.has(Packet::ACK) && !l.1.has(Packet::SYN))
        .map(|l| l.1.ack)
        .collect();
    assert_eq!(acks, [2, 4, 6, 8, 10]);
}

#[test]
fn single_segment_waits_for_the_delayed_ack() {
    let config = TcpConfig { quick_acks: 0, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(1), config, ..Setup::default() }, clean());
    lab.run_ms(1000);
    assert_eq!(lab.flow().acknowledged, ms(20 + 10 + 40 + 10));
}

#[test]
fn single_loss_is_repaired_in_one_round_trip() {
    let mut lab = Lab::new(Setup { app: sized(200), ..Setup::default() }, lose(&[30]));
    lab.run_ms(2000);
    let again: Vec<_> = lab.data(0).into_iter().filter(|d| d.2).collect();
    // Segments 10-29 leave at 40 ms, 30-69 at 60 ms; the third SACK above 30 arrives at 80 ms.
    assert_eq!(again, [(ms(80), 30, true)]);
    let flow = lab.flow();
    assert_eq!(flow.delivered_bytes, 200 * 1448);
    assert_eq!((flow.timeouts(), flow.subflows[0].sender.recoveries), (0, 1));
    assert_eq!(flow.subflows[0].ssthresh_pkt, 20, "half of 40");
}

#[test]
fn losses_of_one_window_cause_one_reduction() {
    let mut lab = Lab::new(Setup { app: sized(400), ..Setup::default() }, lose(&[31, 33, 40, 41, 42, 68]));
    lab.run_ms(2000);
    let again: Vec<u32> = lab.data(0).into_iter().filter(|d| d.2).map(|d| d.1).collect();
    assert_eq!(again, [31, 33, 40, 41, 42, 68]);
    let flow = lab.flow();
    assert_eq!((flow.timeouts(), flow.subflows[0].sender.recoveries), (0, 1));
    assert_eq!(flow.delivered_bytes, 400 * 1448);
}

#[test]
fn rfc_6675_declares_loss_after_three_segments_above() {
    let config = TcpConfig { loss_detection: LossDetection::Rfc6675, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(200), config, ..Setup::default() }, lose(&[30, 31]));
    lab.run_ms(2000);
    let again: Vec<_> = lab.data(0).into_iter().filter(|d| d.2).collect();
    assert_eq!(again, [(ms(80), 30, true), (ms(80), 31, true)]);
    assert_eq!(lab.flow().subflows[0].sender.recoveries, 1);
}

#[test]
fn reordering_within_the_window_causes_no_reduction() {
    // Segment 30 overtaken by two: never three above it, and delivered before its quarter RTT is over.
    let script = Box::new(|p: &mut Packet, _| {
        let late = p.has(Packet::DATA) && p.seq == 30 && p.tag == 0;
        Some(if late { Span::from_us(250) } else { Span::ZERO })
    });
    let paths = vec![(Span::from_ms(10), Span::from_us(100))];
    let mut lab = Lab::new(Setup { app: sized(200), paths, ..Setup::default() }, script);
    lab.run_ms(2000);
    assert_eq!(lab.flow().retransmits(), 0);
    assert_eq!(lab.flow().subflows[0].sender.recoveries, 0);
}

#[test]
fn rack_detects_lost_retransmission_before_the_timer() {
    let mut seen = 0;
    let script = Box::new(move |p: &mut Packet, _| {
        let hit = p.has(Packet::DATA) && p.seq == 30 && p.tag == 0;
        seen += u32::from(hit);
        (!(hit && seen <= 2)).then_some(Span::ZERO)
    });
    let config =
        TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 4 << 20 }, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(400), config, ..Setup::default() }, script);
    lab.run_ms(2000);
    let times: Vec<Time> = lab.data(0).into_iter().filter(|d| d.2 && d.1 == 30).map(|d| d.0).collect();
    assert_eq!(times.len(), 2);
    assert!(times[1].since(times[0]) < Span::from_ms(45), "{times:?}");
    assert_eq!(lab.flow().timeouts(), 0);
    assert_eq!(lab.flow().delivered_bytes, 400 * 1448);
}

#[test]
fn tail_loss_probe_repairs_a_lost_tail() {
    let mut lab = Lab::new(Setup { app: sized(30), ..Setup::default() }, lose(&[29]));
    lab.run_ms(2000);
    let flow = lab.flow();
    // The tail left at 40 ms, the last ACK came at 60 ms: probe after 2 * 20 ms + 200 ms for a lone segment.
    let again: Vec<_> = lab.data(0).into_iter().filter(|d| d.2).collect();
    assert_eq!(again.len(), 1);
    assert_eq!((flow.subflows[0].sender.probes, flow.timeouts()), (1, 0));
    assert_eq!(flow.delivered_bytes, 30 * 1448);
}

#[test]
fn lost_tail_of_several_segments_is_probed_early() {
    let mut lab = Lab::new(Setup { app: sized(30), ..Setup::default() }, lose(&[26, 27, 28, 29]));
    lab.run_ms(2000);
    let again: Vec<_> = lab.data(0).into_iter().filter(|d| d.2).collect();
    // ACK of 25 at 60 ms, probe after 2 SRTT + 2 ms; its SACK reveals the others a round trip on.
    assert_eq!(again[0], (ms(102), 29, true));
    assert_eq!(again[1], (ms(122), 26, true));
    assert_eq!(again.len(), 4);
    assert_eq!(lab.flow().timeouts(), 0);
}

#[test]
fn silence_causes_backed_off_timeouts() {
    let script = Box::new(|p: &mut Packet, now| {
        (!(p.has(Packet::DATA) && p.tag == 0 && now < ms(2000))).then_some(Span::ZERO)
    });
    let config = TcpConfig { tlp: false, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(5), config, ..Setup::default() }, script);
    lab.run_ms(20_000);
    let heads: Vec<Time> = lab.data(0).into_iter().filter(|d| d.1 == 0).map(|d| d.0).collect();
    // RTO = 20 ms + 200 ms, then doubled: 20, 240, 680, 1560, 3320 ms.
    assert_eq!(heads, [ms(20), ms(240), ms(680), ms(1560), ms(3320)]);
    assert_eq!(lab.flow().timeouts(), 4);
    assert_eq!(lab.flow().delivered_bytes, 5 * 1448);
}

#[test]
fn spurious_timeout_is_undone() {
    // The path holds everything back until 470 ms: the timer expires, but the originals arrive.
    let script = Box::new(|p: &mut Packet, now: Time| {
        let held = p.has(Packet::DATA) && p.tag == 0 && now >= ms(60);
        Some(if held { ms(470).since(now) } else { Span::ZERO })
    });
    let config = TcpConfig { tlp: false, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(400), config, ..Setup::default() }, script);
    lab.run_ms(5000);
    let sender = lab.flow().subflows[0].sender;
    assert_eq!(sender.timeouts, 1);
    assert_eq!(sender.spurious_timeouts, 1);
    assert!(sender.retransmits <= 2, "{sender:?}");
    assert!(lab.flow().subflows[0].cwnd_pkt >= 40);
}

#[test]
fn classic_ecn_reduces_once_per_window_until_cwr() {
    let script = Box::new(|p: &mut Packet, _| {
        if p.has(Packet::ECT) && p.seq == 35 {
            p.flags |= Packet::CE;
        }
        Some(Span::ZERO)
    });
    let config = TcpConfig { ecn: EcnMode::Classic, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(300), config, ..Setup::default() }, script);
    lab.run_ms(3000);
    let flow = lab.flow();
    assert_eq!(flow.subflows[0].sender.ecn_cuts, 1);
    assert!(flow.subflows[0].sender.ece_acks > 1, "repeated until CWR");
    assert_eq!(flow.retransmits(), 0);
    let cwr: Vec<u32> = lab.pipe.log.iter().filter(|l| l.1.has(Packet::CWR)).map(|l| l.1.seq).collect();
    assert_eq!(cwr.len(), 1);
    let late = lab.pipe.log.iter().filter(|l| l.1.has(Packet::ECE) && l.1.ack > cwr[0] + 2).count();
    assert_eq!(late, 0, "CWR ends the echo");
}

#[test]
fn first_ce_mark_and_cwr_are_acked_at_once() {
    let script = Box::new(|p: &mut Packet, _| {
        if p.has(Packet::ECT) && p.seq == 34 {
            p.flags |= Packet::CE;
        }
        Some(Span::ZERO)
    });
    let config = TcpConfig { ecn: EcnMode::Classic, quick_acks: 0, ..TcpConfig::default() };
    let paths = vec![(Span::from_ms(10), Span::from_us(100))];
    let mut lab = Lab::new(Setup { app: sized(300), config, paths, ..Setup::default() }, script);
    lab.run_ms(3000);
    let acks = |p: &Packet| p.has(Packet::ACK) && !p.has(Packet::SYN);
    let acked: Vec<u32> = lab.pipe.log.iter().filter(|l| acks(&l.1)).map(|l| l.1.ack).collect();
    let cwr = lab.pipe.log.iter().find(|l| l.1.has(Packet::CWR)).map_or(0, |l| l.1.seq);
    for seq in [34, 35, cwr] {
        assert!(acked.contains(&(seq + 1)), "{seq} waited for the next one: {acked:?}");
    }
    assert!(!acked.contains(&37), "two quick ACKs, no more: {acked:?}");
}

/// Every packet is marked, and a timeout has left a window of one. The reduction ends at ssthresh (Linux
/// `tcp_end_cwnd_reduction`), which is two at least, so delayed ACKs no longer pace the flow.
#[test]
fn window_grows_after_a_timeout_despite_marks() {
    for (algorithm, ecn) in [("reno", EcnMode::Classic), ("cubic", EcnMode::Classic), ("dctcp", EcnMode::Off)]
    {
        let script = Box::new(|p: &mut Packet, now| {
            if p.has(Packet::ECT) {
                p.flags |= Packet::CE;
            }
            let data = p.has(Packet::DATA) && p.tag == 0;
            (!(data && now >= ms(60) && now < ms(250))).then_some(Span::ZERO)
        });
        let config = TcpConfig { ecn, ..TcpConfig::default() };
        let mut lab = Lab::new(Setup { algorithm, app: App::Bulk, config, ..Setup::default() }, script);
        lab.run_ms(4000);
        assert!(lab.flow().timeouts() > 0, "{algorithm}");
        let sent = lab.data(0).iter().filter(|d| d.0 > ms(3000)).count();
        // Two packets per round trip of 20 ms; a window of one would wait 40 ms more for each ACK: 17.
        assert!((60..=110).contains(&sent), "{algorithm}: {sent} packets in a second");
    }
}

/// Reductions for marks end at the parameter `floor`, though a reduction is gradual and ends at ssthresh.
#[test]
fn parameter_floor_bounds_a_marked_window() {
    let least = |algorithm, params| {
        let script = Box::new(|p: &mut Packet, _| {
            if p.has(Packet::ECT) {
                p.flags |= Packet::CE;
            }
            Some(Span::ZERO)
        });
        let mut lab = Lab::new(Setup { algorithm, params, app: App::Bulk, ..Setup::default() }, script);
        lab.run_ms(3000);
        lab.flow().subflows[0].cwnd_pkt
    };
    for algorithm in ["dctcp", "vmcc"] {
        let floors: [&[(&str, f64)]; 4] = [&[("floor", 1.0)], &[], &[("floor", 4.0)], &[("floor", 16.0)]];
        assert_eq!(floors.map(|params| least(algorithm, params)), [1, 2, 4, 16], "{algorithm}");
    }
}

/// Linux leaves the state after a timeout for fast recovery when RACK finds a retransmission lost.
#[test]
fn retransmission_lost_after_a_timeout_starts_a_new_recovery() {
    let mut of_one = 0;
    let script = Box::new(move |p: &mut Packet, _| {
        let data = p.has(Packet::DATA) && p.tag == 0;
        of_one += u32::from(data && p.seq == 1);
        let lost = data && (!p.has(Packet::RETRANSMIT) || p.seq == 1 && of_one == 2);
        (!lost).then_some(Span::ZERO)
    });
    let config = TcpConfig { tlp: false, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(10), config, ..Setup::default() }, script);
    lab.run_ms(5000);
    let flow = lab.flow();
    assert_eq!((flow.timeouts(), flow.subflows[0].sender.recoveries), (1, 1));
    assert_eq!(flow.delivered_bytes, 10 * 1448);
}

#[test]
fn accecn_echoes_exactly_the_marked_segments() {
    let script = Box::new(|p: &mut Packet, _| {
        if p.has(Packet::DATA) && (36..39).contains(&p.seq) {
            p.flags |= Packet::CE;
        }
        Some(Span::ZERO)
    });
    let config = TcpConfig { ecn: EcnMode::Accurate, quick_acks: 0, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(100), config, ..Setup::default() }, script);
    lab.run_ms(3000);
    let mut last = 0;
    let mut echoed = 0;
    for (_, p, _) in lab.pipe.log.iter().filter(|l| l.1.has(Packet::ACK) && !l.1.has(Packet::SYN)) {
        if p.has(Packet::ECE) {
            echoed += p.ack - last;
        }
        last = p.ack;
    }
    assert_eq!(echoed, 3);
    assert_eq!(lab.flow().subflows[0].sender.ecn_cuts, 1);
}

#[test]
fn fixed_receive_window_limits_bytes_in_flight() {
    let config =
        TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 20 * 1448 }, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(400), config, ..Setup::default() }, clean());
    lab.run_ms(3000);
    let data = lab.data(0);
    for t in [60, 80, 100] {
        assert_eq!(data.iter().filter(|d| d.0 == ms(t)).count(), 20);
    }
    assert!(lab.flow().subflows[0].cwnd_pkt < 60, "a window that is not used does not grow");
}

#[test]
fn autotuned_receive_window_grows_with_the_flow() {
    let mut lab = Lab::new(Setup { app: sized(3000), ..Setup::default() }, clean());
    lab.run_ms(3000);
    let most = lab.pipe.log.iter().map(|l| l.1.window).max();
    assert!(most > Some(500), "{most:?}");
    // 3000 segments by doubling from 10: about nine round trips.
    assert!(lab.flow().received < ms(300), "{:?}", lab.flow().received);
}

#[test]
fn slow_reader_closes_the_window_without_loss() {
    let config =
        TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 20 * 1448 }, ..TcpConfig::default() };
    let setup = Setup { app: sized(100), config, read_rate_bps: Some(100 * 8 * 1448), ..Setup::default() };
    let mut lab = Lab::new(setup, clean());
    lab.run_ms(5000);
    let flow = lab.flow();
    assert_eq!(flow.delivered_bytes, 100 * 1448);
    assert_eq!(flow.retransmits(), 0);
    // 80 segments must be read at 100 per second before the last 20 have room.
    assert!(flow.received > ms(700) && flow.received < ms(1200), "{:?}", flow.received);
}

#[test]
fn lost_window_update_is_recovered_by_a_probe() {
    let config =
        TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 10 * 1448 }, ..TcpConfig::default() };
    // ACKs that open the window again are lost for a while.
    let script = Box::new(|p: &mut Packet, now: Time| {
        let update = p.has(Packet::ACK) && p.ack >= 11 && p.window >= 1 && now < ms(400);
        (!update).then_some(Span::ZERO)
    });
    let setup = Setup { app: sized(40), config, read_rate_bps: Some(40 * 8 * 1448), ..Setup::default() };
    let mut lab = Lab::new(setup, script);
    lab.run_ms(10_000);
    assert_eq!(lab.flow().delivered_bytes, 40 * 1448);
    assert!(lab.pipe.log.iter().any(|l| l.1.tag == super::TAG_PROBE));
}

#[test]
fn idle_sender_restarts_from_the_initial_window() {
    let app = App::RequestResponse {
        request_bytes: 300 * 1448,
        response_bytes: 100,
        count: 2,
        think: Span::from_secs(3),
    };
    let mut lab = Lab::new(Setup { app, ..Setup::default() }, clean());
    lab.run_ms(10_000);
    assert_eq!(lab.hosts.tcp.responses().len(), 2);
    let second = lab.hosts.tcp.responses()[1].asked;
    let burst = lab.data(0).into_iter().filter(|d| d.0 == second).count();
    assert_eq!(burst, 10);
}

#[test]
fn requests_take_one_round_trip_each() {
    let app =
        App::RequestResponse { request_bytes: 1000, response_bytes: 5000, count: 3, think: Span::from_ms(7) };
    let mut lab = Lab::new(Setup { app, ..Setup::default() }, clean());
    lab.run_ms(10_000);
    let responses = lab.hosts.tcp.responses();
    assert_eq!(responses.len(), 3);
    // The first includes the handshake; the others are one round trip.
    assert_eq!(responses[0].answered.since(responses[0].asked), Span::from_ms(40));
    assert_eq!(responses[1].answered.since(responses[1].asked), Span::from_ms(20));
    assert_eq!(responses[1].asked.since(responses[0].answered), Span::from_ms(7));
    assert_eq!(lab.flow().responses, 3);
}

#[test]
fn lost_syn_is_retransmitted_after_a_second() {
    let mut lost = false;
    let script = Box::new(move |p: &mut Packet, _| {
        let hit = p.has(Packet::SYN) && !std::mem::replace(&mut lost, true);
        (!hit).then_some(Span::ZERO)
    });
    let mut lab = Lab::new(Setup { app: sized(1), ..Setup::default() }, script);
    lab.run_ms(5000);
    assert_eq!(lab.flow().established, ms(1020));
}

/// Linux since 6.5: `tcp_retransmit_timer` doubles a SYN's timeout only after `tcp_syn_linear_timeouts` of them, and
/// `tcp_write_timeout` adds these to `tcp_syn_retries`. A connection must get into a full queue that others keep full.
#[test]
fn syn_retransmissions_are_linear_four_times_then_exponential() {
    let script = Box::new(|p: &mut Packet, _| (!p.has(Packet::SYN)).then_some(Span::ZERO));
    let mut lab = Lab::new(Setup { app: sized(1), ..Setup::default() }, script);
    lab.run_ms(400_000);
    let sent: Vec<u64> = lab.pipe.log.iter().map(|(at, _, _)| at.ps() / 1_000_000_000_000).collect();
    assert_eq!(sent, [0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67]);
}

#[test]
fn pacing_spreads_the_window() {
    let config = TcpConfig { pacing: true, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { app: sized(100), config, ..Setup::default() }, clean());
    lab.run_ms(3000);
    let data = lab.data(0);
    // Ten packets over half the round trip of 20 ms: one per millisecond.
    let gaps: Vec<Span> = data[..10].windows(2).map(|w| w[1].0.since(w[0].0)).collect();
    assert!(gaps.iter().all(|&g| g == Span::from_ms(1)), "{gaps:?}");
    assert_eq!(lab.flow().delivered_bytes, 100 * 1448);
}
