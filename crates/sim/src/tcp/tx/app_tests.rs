//! Applications that write or read at a rate, and the buffers between them and the network.

use super::TAG_PROBE;
use crate::packet::Packet;
use crate::tcp::config::{ReceiveBuffer, TcpConfig};
use crate::tcp::testing::{Lab, Setup, clean};
use crate::time::{Span, Time};
use crate::traffic::App;

const MSS: u64 = 1448;

fn ms(n: u64) -> Time {
    Time::ZERO + Span::from_ms(n)
}

fn window(segments: u64) -> TcpConfig {
    TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: segments * MSS }, ..TcpConfig::default() }
}

fn paced(chunk_bytes: u64, bytes: u64) -> App {
    App::Paced { rate_bps: 8_000_000, chunk_bytes, bytes: Some(bytes) }
}

#[test]
fn writer_keeps_its_rate_and_nagle_merges_short_segments() {
    for chunk_bytes in [1, 1000, 10_000, 1_000_000] {
        let mut lab = Lab::new(Setup { app: paced(chunk_bytes, 1_000_000), ..Setup::default() }, clean());
        lab.run_ms(5000);
        let flow = lab.flow();
        assert_eq!(flow.delivered_bytes, 1_000_000, "{chunk_bytes}");
        // Connected at 20 ms; the last chunk is due when all others have had their time, and arrives 10 ms later.
        let due_us = 20_000 + (1_000_000 - chunk_bytes);
        let late_us = flow.received.us() - due_us;
        assert!(late_us >= 10_000 || chunk_bytes == 1, "{chunk_bytes}: {late_us}");
        // A million at once takes slow start's round trips; Nagle's algorithm holds the rest for one at most.
        assert!(
            late_us <= if chunk_bytes == 1_000_000 { 150_000 } else { 40_000 },
            "{chunk_bytes}: {late_us}"
        );
        // 691 full segments, and a short one per round trip of 20 ms.
        let sent = flow.subflows[0].sender.sent;
        assert!((691..=760).contains(&sent), "{chunk_bytes}: {sent}");
    }
}

#[test]
fn writer_catches_up_after_a_full_buffer() {
    // Nothing is acknowledged from 200 to 700 ms, and the buffer holds an eighth of what is due then.
    let script = Box::new(|p: &mut Packet, now: Time| {
        let held = p.has(Packet::ACK) && now >= ms(200) && now < ms(700);
        Some(if held { ms(700).since(now) } else { Span::ZERO })
    });
    let config = TcpConfig { send_buffer_bytes: 60_000, tlp: false, ..TcpConfig::default() };
    let app = App::Paced { rate_bps: 8_000_000, chunk_bytes: 1000, bytes: None };
    let mut lab = Lab::new(Setup { app, config, ..Setup::default() }, script);
    lab.run_ms(650);
    let blocked = lab.flow().delivered_bytes;
    assert!(blocked < 210_000 + 60_000, "{blocked}");
    lab.run_ms(2020);
    // A rate for two seconds, but for what is on its way.
    let delivered = lab.flow().delivered_bytes;
    assert!((1_940_000..=2_000_000).contains(&delivered), "{delivered}");
}

#[test]
fn unacknowledged_data_fit_the_send_buffer() {
    for segments in [1, 2, 30, 300] {
        let config = TcpConfig { send_buffer_bytes: segments * MSS, ..window(10_000) };
        let mut lab = Lab::new(Setup { app: App::Bulk, config, ..Setup::default() }, clean());
        lab.run_ms(10_000);
        let rounds = lab.flow().delivered_bytes / MSS / segments;
        // 499 round trips; a lone segment waits 40 ms more for its ACK; the first ones are slow start's.
        let expected = if segments == 1 { 155..=180 } else { 480..=500 };
        assert!(expected.contains(&rounds), "{segments}: {rounds}");
    }
}

/// `sk_stream_is_writeable`: who waits is woken when a third is free, not by every ACK.
#[test]
fn blocked_writer_resumes_when_a_third_is_free() {
    let config = TcpConfig { send_buffer_bytes: 30 * MSS, ..window(10_000) };
    let paths = vec![(Span::from_ms(10), Span::from_us(100))];
    let mut lab = Lab::new(Setup { app: App::Bulk, config, paths, ..Setup::default() }, clean());
    lab.run_ms(1000);
    let data: Vec<Time> = lab.data(0).iter().map(|d| d.0).filter(|&t| t > ms(500)).collect();
    let bursts = data.chunk_by(|a, b| a == b).map(<[Time]>::len).collect::<Vec<_>>();
    assert!(bursts[1..bursts.len() - 1].iter().all(|&n| n >= 10), "{bursts:?}");
}

#[test]
fn multipath_send_buffer_scales_with_subflows() {
    let config = TcpConfig { send_buffer_bytes: 20 * 1428, ..window(10_000) };
    let paths = vec![(Span::from_ms(10), Span::ZERO); 2];
    let mut lab =
        Lab::new(Setup { algorithm: "lia", app: App::Bulk, config, paths, ..Setup::default() }, clean());
    lab.run_ms(10_000);
    // Half of it would be 250 at most; the last segment of an odd number waits for its ACK.
    let rounds = lab.flow().delivered_bytes / 1428 / 40;
    assert!((300..=500).contains(&rounds), "{rounds}");
}

#[test]
fn send_buffer_of_one_packet_suffices() {
    let receive_buffer = ReceiveBuffer::Auto { initial_bytes: 3000, max_bytes: 3000 };
    let config = TcpConfig { receive_buffer, ..TcpConfig::default() };
    let read_rate_bps = Some(100 * 8 * MSS);
    let app = App::Sized { bytes: 20 * MSS };
    let mut lab = Lab::new(Setup { app, config, read_rate_bps, ..Setup::default() }, clean());
    lab.run_ms(20_000);
    assert_eq!(lab.flow().delivered_bytes, 20 * MSS);
    assert_eq!(lab.flow().retransmits(), 0);
}

/// Linux: `tcp_probe0_base` is the timeout, `tcp_send_probe0` doubles it, `tcp_ack_probe` counts from the answer.
#[test]
fn zero_window_probes_back_off() {
    let read_rate_bps = Some(8 * MSS / 60);
    let app = App::Sized { bytes: 100 * MSS };
    let mut lab = Lab::new(Setup { app, config: window(10), read_rate_bps, ..Setup::default() }, clean());
    lab.run_ms(30_000);
    let probes: Vec<u64> =
        lab.pipe.log.iter().filter(|l| l.1.tag == TAG_PROBE).map(|l| l.0.us() / 1000).collect();
    // Ten segments leave at 20 ms, one is read at once, an eleventh follows at 40 ms and is acknowledged at 60 ms with
    // the window shut. The timeout is 20 + 200 ms; answers take 20 ms.
    let mut expected = vec![60 + 220];
    for doublings in 1..7 {
        expected.push(expected[doublings - 1] + 20 + (220 << doublings));
    }
    assert_eq!(probes, expected);
    assert_eq!((lab.flow().timeouts(), lab.flow().retransmits()), (0, 0));
}

#[test]
fn timeout_is_restored_after_a_zero_window() {
    let script = Box::new(|p: &mut Packet, now: Time| {
        (!(p.has(Packet::DATA) && p.tag == 0 && now > ms(9000) && now < ms(9500))).then_some(Span::ZERO)
    });
    let config = TcpConfig { tlp: false, ..window(10) };
    let read_rate_bps = Some(8 * MSS / 10);
    let app = App::Sized { bytes: 12 * MSS };
    let mut lab = Lab::new(Setup { app, config, read_rate_bps, ..Setup::default() }, script);
    lab.run_ms(30_000);
    let last: Vec<Time> = lab.data(0).into_iter().filter(|d| d.1 == 11).map(|d| d.0).collect();
    assert!(last.len() == 1 || last[1].since(last[0]) < Span::from_ms(230), "{last:?}");
    assert_eq!(lab.flow().delivered_bytes, 12 * MSS);
}

#[test]
fn dead_subflow_does_not_keep_the_window_closed() {
    // The first path dies while the reader is slow: updates, probes and data go over the second.
    let script =
        Box::new(|p: &mut Packet, now: Time| (!(p.route.0 < 2 && now > ms(500))).then_some(Span::ZERO));
    let config = window(30);
    let paths = vec![(Span::from_ms(10), Span::from_us(100)); 2];
    let app = App::Sized { bytes: 400 * 1428 };
    let read_rate_bps = Some(100 * 8 * 1428);
    let setup = Setup { algorithm: "lia", app, config, paths, read_rate_bps, ..Setup::default() };
    let mut lab = Lab::new(setup, script);
    lab.run_ms(20_000);
    let flow = lab.flow();
    assert_eq!(flow.delivered_bytes, 400 * 1428);
    // 370 of 400 must have been read at a hundred per second, but for the time in which the path is found to be dead.
    assert!(flow.received > ms(3600) && flow.received < ms(5500), "{:?}", flow.received);
}

#[test]
fn reader_rate_limits_the_connection() {
    for (rate_bps, buffer) in [(1_000_000, 3000), (8_000_000, 1 << 30), (40_000_000, 6 << 20)] {
        let receive_buffer = ReceiveBuffer::Auto { initial_bytes: buffer.min(131_072), max_bytes: buffer };
        let config = TcpConfig { receive_buffer, ..TcpConfig::default() };
        let setup = Setup { app: App::Bulk, config, read_rate_bps: Some(rate_bps), ..Setup::default() };
        let mut lab = Lab::new(setup, clean());
        lab.run_ms(2000);
        let early = lab.flow().delivered_bytes;
        lab.run_ms(12_000);
        let bps = (lab.flow().delivered_bytes - early) * 8 / 10;
        // One packet of buffer is one per round trip and delayed ACK: 1448 bytes in 60 ms.
        let expected = if buffer == 3000 { 193_000 } else { rate_bps };
        assert!(bps.abs_diff(expected) < expected / 20, "{rate_bps}: {bps}");
    }
}
