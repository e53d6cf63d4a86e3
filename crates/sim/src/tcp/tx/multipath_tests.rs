//! Several subflows: joins, schedulers, reinjection, closing, and the stream under loss and reordering.

use crate::packet::Packet;
use crate::tcp::config::{ReceiveBuffer, TcpConfig};
use crate::tcp::record::Closing;
use crate::tcp::testing::{Lab, Script, Setup, clean};
use crate::time::{Span, Time};
use crate::traffic::App;
use proptest::prelude::*;
use vmcc_multipath::Scheduler;

const MSS: u64 = 1428;

fn ms(n: u64) -> Time {
    Time::ZERO + Span::from_ms(n)
}

fn paths(delays_ms: &[u64]) -> Vec<(Span, Span)> {
    delays_ms.iter().map(|&d| (Span::from_ms(d), Span::from_us(120))).collect()
}

fn big_buffer() -> TcpConfig {
    TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 4 << 20 }, ..TcpConfig::default() }
}

fn two(segments: u64) -> Setup {
    Setup {
        algorithm: "lia",
        app: App::Sized { bytes: segments * MSS },
        config: big_buffer(),
        paths: paths(&[10, 10]),
        ..Setup::default()
    }
}

/// Loses every `n`th data packet of the first subflow: its window stays small.
fn lose_every(n: u32) -> Script {
    let mut seen = 0;
    Box::new(move |p: &mut Packet, _| {
        let counted = p.has(Packet::DATA) && p.tag == 0 && p.route.0 == 0;
        seen += u32::from(counted);
        (!(counted && seen % n == 0)).then_some(Span::ZERO)
    })
}

fn first_data(lab: &Lab, route: u32) -> Option<Time> {
    lab.data(route).first().map(|d| d.0)
}

#[test]
fn joins_start_after_data_is_acknowledged() {
    let mut lab = Lab::new(two(2000), clean());
    lab.run_ms(5000);
    let at = |route| first_data(&lab, route).map_or(0, |t| t.us() / 1000);
    assert_eq!(at(0), 20);
    // SYN at 40 ms, SYN-ACK at 60 ms, the fourth ACK at 80 ms: three round trips after the first subflow, as Linux does it
    // (6.18, captured at 100 ms: data at 0, its acknowledgment and the SYN at 101, data on the second at 305).
    assert_eq!(at(2), 80);
    assert_eq!(lab.flow().delivered_bytes, 2000 * MSS);
}

#[test]
fn two_paths_carry_about_half_each() {
    let mut lab = Lab::new(two(20_000), noisy(7, 1, 0));
    lab.run_ms(60_000);
    let (a, b) = (lab.data(0).len() as f64, lab.data(2).len() as f64);
    assert!(a / b > 0.8 && a / b < 1.3, "{a} {b}");
}

#[test]
fn lowest_rtt_path_is_preferred() {
    // Little data at a time: the fast path always has room.
    let app = App::OnOff { rate_bps: 1_000_000, on: Span::from_secs(1), off: Span::ZERO };
    let mut lab = Lab::new(Setup { app, paths: paths(&[40, 5]), ..two(1) }, clean());
    lab.run_ms(3000);
    assert!(lab.data(0).iter().all(|d| d.0 < ms(181)), "the slow path only until the fast one has joined");
    assert!(lab.data(2).len() > 200);
}

#[test]
fn round_robin_alternates() {
    let scheduler = Scheduler::RoundRobin;
    let app = App::OnOff { rate_bps: 1_000_000, on: Span::from_secs(1), off: Span::ZERO };
    let mut lab = Lab::new(Setup { app, scheduler, paths: paths(&[5, 5]), ..two(1) }, clean());
    lab.run_ms(2000);
    let order: Vec<u32> = lab
        .pipe
        .log
        .iter()
        .filter(|l| l.0 > ms(100) && l.1.has(Packet::DATA) && l.1.tag == 0)
        .map(|l| l.1.route.0)
        .collect();
    assert!(order.len() > 100);
    assert!(order.windows(2).all(|w| w[0] != w[1]), "{order:?}");
}

#[test]
fn round_robin_without_window_check_waits_for_the_full_one() {
    // Strict alternation: neither path can be more than a turn ahead.
    let scheduler = Scheduler::RoundRobin;
    let slow = vec![(Span::from_ms(5), Span::from_us(120)), (Span::from_ms(20), Span::from_us(480))];
    let mut lab = Lab::new(Setup { scheduler, paths: slow, ..two(3000) }, clean());
    lab.hosts.tcp.conns[0].selector.strict_turns = true;
    lab.run_ms(20_000);
    let joined = first_data(&lab, 2).expect("the second path was used");
    let fast = lab.data(0).iter().filter(|d| d.0 >= joined).count() as i64;
    let slow = lab.data(2).len() as i64;
    assert!((fast - slow).abs() <= 4, "{fast} {slow}");
}

#[test]
fn redundant_delivers_as_soon_as_the_first_path_does() {
    // The first path loses every tenth packet, the second none, at four times the delay.
    let setup = |scheduler, delays: &[u64]| Setup { scheduler, paths: paths(delays), ..two(400) };
    let mut alone = Lab::new(setup(Scheduler::LowestRtt, &[5]), lose_every(10));
    let mut both = Lab::new(setup(Scheduler::Redundant, &[5, 20]), lose_every(10));
    alone.run_ms(30_000);
    both.run_ms(30_000);
    let (alone, flow) = (alone.flow(), both.flow());
    assert!(flow.received <= alone.received, "{:?} {:?}", flow.received, alone.received);
    assert_eq!(flow.delivered_bytes, 400 * MSS);
    // Every segment that the first path had to repeat was also on the second.
    assert!(both.data(2).len() > 200);
}

#[test]
fn redundant_goodput_equals_that_of_the_best_path() {
    let mut lab = Lab::new(Setup { scheduler: Scheduler::Redundant, ..two(4000) }, clean());
    lab.run_ms(20_000);
    let best = Span::from_us(120).times(4000);
    assert!(lab.flow().received.since(Time::ZERO) >= best, "{:?}", lab.flow().received);
}

#[test]
fn ecf_and_blest_leave_a_much_slower_path_alone() {
    let config =
        TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 40 * MSS + 100 }, ..TcpConfig::default() };
    let slow_share = |scheduler| {
        let setup = Setup { scheduler, config: config.clone(), paths: paths(&[2, 100]), ..two(20_000) };
        let mut lab = Lab::new(setup, lose_every(40));
        lab.run_ms(600_000);
        assert_eq!(lab.flow().delivered_bytes, 20_000 * MSS);
        (lab.data(2).len(), lab.flow().received)
    };
    let (default, default_end) = slow_share(Scheduler::LowestRtt);
    let (blest, blest_end) = slow_share(Scheduler::Blest);
    let (ecf, ecf_end) = slow_share(Scheduler::Ecf);
    assert!(blest < default && ecf < default, "{blest} {ecf} {default}");
    assert!(blest_end <= default_end && ecf_end <= default_end, "{blest_end:?} {ecf_end:?} {default_end:?}");
}

#[test]
fn backup_is_idle_until_a_failure() {
    let dead_from = ms(300);
    let script =
        Box::new(move |p: &mut Packet, now| (!(p.route.0 < 2 && now >= dead_from)).then_some(Span::ZERO));
    let mut lab = Lab::new(Setup { backup: vec![1], ..two(8000) }, script);
    lab.run_ms(60_000);
    let backup = lab.data(2);
    assert!(backup.iter().all(|d| d.0 > dead_from), "unused while the regular path works");
    assert_eq!(lab.flow().delivered_bytes, 8000 * MSS);
    assert!(lab.flow().received.since(Time::ZERO) < Span::from_secs(5), "{:?}", lab.flow().received);
}

#[test]
fn dead_path_loses_no_data() {
    let script = Box::new(move |p: &mut Packet, now| {
        (!((2..4).contains(&p.route.0) && now >= ms(200))).then_some(Span::ZERO)
    });
    let mut lab = Lab::new(two(5000), script);
    lab.run_ms(60_000);
    let flow = lab.flow();
    assert_eq!(flow.delivered_bytes, 5000 * MSS);
    assert!(flow.subflows[0].sender.reinjected > 0);
    assert!(flow.received.since(Time::ZERO) < Span::from_secs(4), "{:?}", flow.received);
}

#[test]
fn closed_subflow_data_are_reinjected() {
    let mut lab = Lab::new(two(4000), clean());
    lab.run_ms(150);
    let out = lab.hosts.tcp.subs[1].board.out();
    assert!(out > 0);
    // What was on its way is lost with the path.
    lab.pipe.script = Box::new(|p: &mut Packet, _| (p.route.0 < 2).then_some(Span::ZERO));
    lab.hosts.tcp.with_tx_for_test(&mut lab.pipe, 0, |tx| {
        tx.close_subflow(1, Closing::Shared);
        tx.push(None);
    });
    lab.run_ms(60_000);
    let flow = lab.flow();
    assert_eq!(flow.delivered_bytes, 4000 * MSS);
    assert_eq!((flow.subflows[1].closed, flow.subflows[1].established), (Some(Closing::Shared), false));
    // Once each; what had arrived and was acknowledged on the other path meanwhile need not be.
    let reinjected = flow.subflows[0].sender.reinjected;
    assert!((u64::from(out) - 2..=u64::from(out)).contains(&reinjected), "{reinjected} of {out} in flight");
    assert_eq!(flow.subflows[0].sender.reinjected_bytes, reinjected * MSS);
    let group = lab.hosts.tcp.conns[0].group.as_ref().expect("two subflows");
    assert_eq!(group.path[1], vmcc_cc::Slot::default(), "its slot is free");
}

#[test]
fn blocked_receive_window_is_reinjected_on_the_fast_path() {
    // The slow path holds the oldest segment while the window is full: it is sent again on the fast one.
    let config =
        TcpConfig { receive_buffer: ReceiveBuffer::Fixed { bytes: 30 * MSS + 100 }, ..TcpConfig::default() };
    let mut lab = Lab::new(Setup { config, paths: paths(&[2, 100]), ..two(20_000) }, lose_every(40));
    lab.run_ms(600_000);
    let flow = lab.flow();
    assert_eq!(flow.delivered_bytes, 20_000 * MSS);
    assert!(flow.subflows[0].sender.reinjected > 0);
}

/// Only data in order is delivered to the application: a dead path stalls it until its data is sent again.
#[test]
fn only_data_in_order_is_delivered() {
    let script = Box::new(move |p: &mut Packet, now| {
        (!((2..4).contains(&p.route.0) && now >= ms(200))).then_some(Span::ZERO)
    });
    let mut lab = Lab::new(Setup { app: App::Sized { bytes: 5000 * MSS + 7 }, ..two(1) }, script);
    let mut most_held = 0;
    for at_ms in 50..3000 {
        lab.run_ms(at_ms);
        let arrived: u64 = lab.flow().subflows.iter().map(|s| s.receiver.bytes).sum();
        let delivered = lab.flow().delivered_bytes;
        let next = u64::from(lab.hosts.tcp.rx_conns[0].next());
        assert_eq!(delivered, (next * MSS).min(5000 * MSS + 7), "at {at_ms} ms");
        most_held = most_held.max(arrived - delivered);
    }
    assert!(most_held > 100 * MSS, "the path's failure left a gap: {most_held}");
    assert_eq!(lab.flow().delivered_bytes, 5000 * MSS + 7);
}

/// 40 bytes of options: timestamps 12, data ACK 12, and 16 for SACK: one range (RFC 2018, RFC 8684 section 3.3).
#[test]
fn sack_ranges_fit_the_option_space() {
    let most = |paths: &[u64]| {
        let mut lab = Lab::new(Setup { paths: self::paths(paths), ..two(4000) }, lose_every(7));
        lab.run_ms(3000);
        lab.pipe.most_sack_ranges
    };
    assert_eq!((most(&[10]), most(&[10, 10])), (3, 1));
}

#[test]
fn path_that_blocks_the_window_is_halved_once_per_its_rtt() {
    let mut lab = Lab::new(Setup { app: App::Bulk, paths: paths(&[2, 100]), ..two(1) }, clean());
    lab.run_ms(500);
    lab.hosts.tcp.with_tx_for_test(&mut lab.pipe, 0, |tx| {
        let head = tx.conn.una;
        assert!(tx.conn.nxt > head);
        (tx.subs[0].rtt.srtt_8us, tx.subs[1].rtt.srtt_8us) = (32_000, 1_600_000);
        tx.conn.edge = tx.conn.nxt;
        tx.conn.carry(head, 1, true);
        tx.subs[0].cwnd = tx.subs[0].board.in_flight() + 5;
        tx.subs[1].cwnd = 10;
        tx.subs[1].ssthresh = 8;
        let mut touched = 0;
        tx.relieve_window(&mut touched);
        assert_eq!((tx.subs[1].cwnd, tx.subs[1].ssthresh), (5, 4));
        assert_eq!(touched, 1, "the head went out again on the fast path");
        tx.conn.carry(head, 1, true);
        tx.now += Span::from_ms(190);
        tx.relieve_window(&mut touched);
        assert_eq!(tx.subs[1].cwnd, 5, "many round trips of the fast path are not one of its own");
        tx.now += Span::from_ms(20);
        tx.relieve_window(&mut touched);
        assert_eq!(tx.subs[1].cwnd, 2);
    });
}

fn schedulers() -> impl Strategy<Value = Scheduler> {
    prop_oneof![
        Just(Scheduler::LowestRtt),
        Just(Scheduler::RoundRobin),
        Just(Scheduler::Redundant),
        Just(Scheduler::Blest),
        Just(Scheduler::Ecf),
        Just(Scheduler::PipeCwnd),
    ]
}

fn noisy(seed: u64, loss_percent: u64, jitter_us: u64) -> Script {
    let mut state = seed | 1;
    let mut next = move || {
        // xorshift64*: any deterministic noise will do here.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    };
    Box::new(move |_, _| {
        let lost = next() % 100 < loss_percent;
        let extra = Span::from_us(next() % (jitter_us + 1));
        (!lost).then_some(extra)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every sized flow completes under loss and reordering in both directions, each byte delivered once.
    #[test]
    fn every_flow_completes(
        seed in any::<u64>(),
        loss_percent in 0u64..=10,
        jitter_us in prop_oneof![Just(0u64), Just(300), Just(20_000)],
        delays in prop::collection::vec(1u64..40, 1..=4),
        segments in 1u64..400,
        tail in 0u64..MSS,
        scheduler in schedulers(),
        strict_turns in any::<bool>(),
        window_segments in 4u64..300,
    ) {
        let bytes = segments * MSS + tail;
        let config = TcpConfig {
            receive_buffer: ReceiveBuffer::Fixed { bytes: window_segments * 1448 },
            ..TcpConfig::default()
        };
        let app = App::Sized { bytes };
        let setup = Setup { algorithm: "lia", app, config, scheduler, paths: paths(&delays), ..Setup::default() };
        let mut lab = Lab::new(setup, noisy(seed, loss_percent, jitter_us));
        lab.hosts.tcp.conns[0].selector.strict_turns = strict_turns;
        lab.run_until(Time::ZERO + Span::from_secs(3600));
        let flow = lab.flow();
        prop_assert_eq!(flow.delivered_bytes, bytes);
        prop_assert!(flow.received != Time::NEVER && flow.acknowledged != Time::NEVER);
    }

    /// Counters of the scoreboard agree with its marks, and the flight never exceeds window or buffer.
    #[test]
    fn bytes_in_flight_stay_within_their_limits(seed in any::<u64>(), loss_percent in 0u64..=5, jitter in 0u64..3000) {
        let mut setup = two(1500);
        setup.config.receive_buffer = ReceiveBuffer::Fixed { bytes: 100 * MSS };
        let mut lab = Lab::new(setup, noisy(seed, loss_percent, jitter));
        for at_ms in (50..4000).step_by(7) {
            lab.run_ms(at_ms);
            let conn = &lab.hosts.tcp.conns[0];
            prop_assert!(conn.nxt - conn.una <= 100);
            for sf in &lab.hosts.tcp.subs {
                prop_assert!(sf.board.is_consistent());
            }
        }
    }
}
