use super::*;
use vmcc_units::time::Span;

const MTU: u64 = 1200;

struct Bench {
    cc: Controller,
    window: Window,
    rtt: Rtt,
    now: Time,
    una: u64,
    next: u64,
}

impl Bench {
    fn new(algorithm: &str) -> Bench {
        let algorithm = Algorithm::by_name(algorithm).unwrap();
        let mut bench = Bench {
            cc: Controller::new(algorithm, Params::defaults(algorithm)),
            window: Window::new(10, MTU as u16),
            rtt: Rtt::default(),
            now: Time::ZERO + Span::from_secs(1),
            una: 0,
            next: 0,
        };
        bench.rtt.sample(Span::from_ms(10), 0, 1, Span::from_ms(1));
        bench.with(|window, cc, at| window.begin(cc, at));
        bench
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Window, &mut Controller, &CcContext<'_>) -> T) -> T {
        let at = CcContext {
            now: self.now,
            slot: 0,
            rtt: &self.rtt,
            una: self.una,
            next: self.next,
            waiting: true,
        };
        f(&mut self.window, &mut self.cc, &at)
    }

    /// Fills the window.
    fn fill(&mut self) {
        while self.window.has_room() {
            self.next += 1;
            self.with(|window, _, at| window.on_sent(at, MTU, window.in_flight_pkt() + 1 >= window.cwnd));
        }
    }

    /// This many arrive a round trip later, some with a mark; one may be lost.
    fn ack(&mut self, packets: u32, marked: u32, lost: bool) {
        let newest = self.now;
        self.now += Span::from_ms(10);
        self.una += u64::from(packets) + u64::from(lost);
        self.window.in_flight -= MTU * (u64::from(packets) + u64::from(lost));
        let acked = Acked {
            bytes: MTU * u64::from(packets),
            packets,
            marked,
            rtt_us: 10_000,
            newest,
            lost: lost.then_some(newest),
            lost_packets: lost.into(),
        };
        self.with(|window, cc, at| window.on_ack(cc, at, &acked));
    }
}

#[test]
fn slow_start_doubles_where_the_window_limits_only() {
    let mut bench = Bench::new("reno");
    bench.fill();
    bench.ack(10, 0, false);
    assert_eq!(bench.window.cwnd, 20);
    bench.next += 1;
    bench.with(|window, _, at| window.on_sent(at, MTU, false));
    bench.ack(1, 0, false);
    assert_eq!(bench.window.cwnd, 20, "one packet of twenty needs no larger window");
}

#[test]
fn loss_halves_the_window_once_per_round_trip() {
    let mut bench = Bench::new("reno");
    bench.fill();
    bench.ack(4, 0, true);
    assert_eq!((bench.window.state, bench.window.ssthresh), (State::Recovery, 5));
    let ssthresh = bench.window.ssthresh;
    // The rest of the same flight, with another loss in it.
    let acked = Acked {
        bytes: 3 * MTU,
        packets: 3,
        newest: bench.window.since - Span::from_ms(1),
        lost: Some(bench.window.since - Span::from_ms(1)),
        ..Acked::default()
    };
    bench.window.in_flight -= 4 * MTU;
    bench.with(|window, cc, at| window.on_ack(cc, at, &acked));
    assert_eq!((bench.window.state, bench.window.ssthresh), (State::Recovery, ssthresh));
    bench.now += Span::from_ms(1);
    bench.fill();
    bench.ack(1, 0, false);
    assert_eq!((bench.window.state, bench.window.cwnd), (State::Open, ssthresh));
}

#[test]
fn ecn_marks_are_counted_exactly() {
    let alpha = |marked| {
        let mut bench = Bench::new("dctcp");
        for _ in 0..200 {
            bench.window.cwnd = 64;
            bench.fill();
            let out = bench.window.in_flight_pkt();
            bench.ack(out, out * marked / 8, false);
            bench.now += Span::from_ms(1);
        }
        bench.cc.algorithm.alpha(&bench.window.path).unwrap()
    };
    assert!(alpha(8) > 0.99 && alpha(0) < 0.01);
    assert!(alpha(2) < alpha(4) && alpha(4) < alpha(6));
}

#[test]
fn persistent_congestion_restarts_slow_start() {
    let mut bench = Bench::new("reno");
    bench.fill();
    bench.window.in_flight = 0;
    bench.with(|window, cc, at| window.on_persistent_congestion(cc, at, 0));
    assert_eq!((bench.window.state, bench.window.cwnd), (State::Loss, 1));
    bench.now += Span::from_ms(1);
    bench.fill();
    bench.ack(1, 0, false);
    assert_eq!((bench.window.state, bench.window.cwnd), (State::Open, 2));
}

/// As `awake` does for a round trip after its machine was off.
#[test]
fn algorithm_can_set_a_pacing_gap() {
    let mut bench = Bench::new("awake");
    bench.window.ssthresh = 10;
    bench.fill();
    bench.ack(2, 0, false);
    assert_eq!(bench.window.gap_us, 0);
    bench.now += Span::from_ms(90);
    bench.ack(2, 0, false);
    assert_eq!(bench.window.gap_us, 1000, "ten packets over 10 ms");
    bench.fill();
    bench.now = Time::from_ps(bench.now.ps() - Span::from_ms(5).ps());
    bench.ack(1, 0, false);
    assert_eq!(bench.window.gap_us, 1000);
    bench.fill();
    bench.ack(1, 0, false);
    assert_eq!(bench.window.gap_us, 0);
}

#[test]
fn reduction_is_undone_when_every_loss_was_spurious() {
    for (losses, arrived, undone) in [(1, 1, true), (3, 3, true), (3, 2, false)] {
        let mut bench = Bench::new("cubic");
        bench.fill();
        let before = (bench.window.cwnd, bench.window.ssthresh);
        let declared_at = bench.now;
        bench.with(|window, cc, at| window.on_lost(cc, at, declared_at, losses));
        assert_eq!(bench.window.state, State::Recovery);
        let earlier = declared_at - Span::from_ms(1);
        bench.with(|window, cc, at| window.on_spurious_loss(cc, at, earlier));
        assert_eq!(bench.window.state, State::Recovery, "a loss of an earlier reduction");
        for _ in 0..arrived {
            bench.with(|window, cc, at| window.on_spurious_loss(cc, at, declared_at));
        }
        let state = if undone { State::Open } else { State::Recovery };
        assert_eq!(bench.window.state, state, "{arrived} of {losses}");
        assert_eq!((bench.window.cwnd, bench.window.ssthresh) == before, undone, "{arrived} of {losses}");
    }
}
