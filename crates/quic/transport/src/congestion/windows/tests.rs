use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use vmcc_cc::{Algorithm, Params, State};
use vmcc_multipath::Rtt;
use vmcc_units::time::Span;

const MTU: u16 = 1200;
const PATHS: usize = 3;

/// Paths of different round trips, and what is out on each: when it was sent, and its bytes.
struct Bench {
    windows: Windows,
    rtts: [Rtt; PATHS],
    out: [VecDeque<(Time, u64)>; PATHS],
    now: Time,
}

impl Bench {
    fn new(coupling: Coupling) -> Bench {
        let algorithm = Algorithm::by_name("reno").unwrap();
        let mut bench = Bench {
            windows: Windows::new(coupling, 10, algorithm, Params::defaults(algorithm)),
            rtts: std::array::from_fn(|_| Rtt::default()),
            out: std::array::from_fn(|_| VecDeque::new()),
            now: Time::ZERO + Span::from_secs(1),
        };
        for slot in 0..PATHS {
            bench.rtts[slot].sample(Span::from_ms(10 + 40 * slot as u64), 0, 1, Span::from_ms(1));
            bench.windows.add_path(slot, MTU);
            if slot == 0 || coupling == Coupling::Separate {
                bench.with(slot, |windows, at| windows.begin(at));
            }
        }
        bench
    }

    fn with<T>(&mut self, slot: usize, f: impl FnOnce(&mut Windows, &CcContext<'_>) -> T) -> T {
        let at = CcContext { now: self.now, slot, rtt: &self.rtts[slot], una: 0, next: 0, waiting: true };
        f(&mut self.windows, &at)
    }

    fn send(&mut self, slot: usize, bytes: u64) {
        self.now += Span::from_us(10);
        self.out[slot].push_back((self.now, bytes));
        self.with(slot, |windows, at| windows.on_sent(at, bytes));
    }

    /// Sends on each in turn for as long as it may.
    fn fill(&mut self) {
        for slot in (0..PATHS).cycle().take(1000) {
            if self.windows.of(slot).has_room() {
                self.send(slot, MTU.into());
            }
        }
    }

    /// This many of a path's oldest packets are lost; as many as given after them arrive.
    fn ack(&mut self, slot: usize, lost: usize, arrive: usize) {
        self.now += Span::from_ms(1);
        let mut acked = Acked::default();
        for i in 0..lost + arrive {
            let Some((sent, bytes)) = self.out[slot].pop_front() else { break };
            self.windows.free(slot, 1, bytes);
            if i < lost {
                acked.lost = Some(sent);
            } else {
                (acked.bytes, acked.packets, acked.newest) = (acked.bytes + bytes, acked.packets + 1, sent);
            }
        }
        match acked.lost.filter(|_| acked.packets == 0) {
            Some(newest) => self.with(slot, |windows, at| windows.on_lost(at, newest, 1)),
            None => drop(self.with(slot, |windows, at| windows.on_ack(at, &acked))),
        }
    }

    fn close(&mut self, slot: usize) {
        let packets = self.out[slot].drain(..).count();
        self.windows.close(slot, packets as u64);
    }

    fn check(&self) {
        let own: Vec<u64> = self.out.iter().map(|out| out.iter().map(|(_, bytes)| bytes).sum()).collect();
        for slot in 0..PATHS {
            assert_eq!(self.windows.in_flight(slot), own[slot]);
            let all = if self.windows.is_combined() { own.iter().sum() } else { own[slot] };
            assert_eq!(self.windows.of(slot).in_flight, all, "{slot} {own:?}");
        }
        let out: usize = self.out.iter().map(VecDeque::len).sum();
        assert_eq!(self.windows.sent - self.windows.gone, out as u64, "rounds would not end");
    }
}

#[test]
fn combined_window_limits_bytes_in_flight_of_all_paths() {
    let mut bench = Bench::new(Coupling::Combined);
    bench.fill();
    assert_eq!(bench.out.iter().map(VecDeque::len).sum::<usize>(), 10, "the initial window, once");
    assert!((0..PATHS).all(|slot| !bench.windows.of(slot).has_room()));
    let mut bench = Bench::new(Coupling::Separate);
    bench.fill();
    assert!(bench.out.iter().all(|out| out.len() == 10));
}

#[test]
fn combined_window_is_reduced_once_per_loss_event() {
    let mut bench = Bench::new(Coupling::Combined);
    bench.fill();
    bench.ack(1, 1, 1);
    assert!((0..PATHS).all(|slot| bench.windows.of(slot).state == State::Recovery));
    assert_eq!(bench.windows.of(0).ssthresh, 5, "half of ten");
    // Others of the same flight, on another path.
    bench.ack(2, 1, 1);
    assert_eq!((bench.windows.of(0).ssthresh, bench.windows.of(0).reductions), (5, 1));
    assert_eq!([0, 1, 2].map(|slot| bench.windows.reductions(slot)), [0, 1, 0], "where it came from");
    // What was sent since arrives on yet another one: the reduction is over.
    bench.ack(0, 0, 4);
    bench.fill();
    let sent_since = bench.out[0].len();
    bench.ack(0, 0, sent_since);
    assert_eq!((bench.windows.of(2).state, bench.windows.of(2).ssthresh), (State::Open, 5));

    let mut bench = Bench::new(Coupling::Separate);
    bench.fill();
    bench.ack(1, 1, 1);
    let windows = [0, 1, 2].map(|slot| (bench.windows.of(slot).state, bench.windows.of(slot).cwnd));
    assert_eq!((windows[0], windows[2]), ((State::Open, 10), (State::Open, 10)));
    assert_eq!(windows[1].0, State::Recovery);
}

#[test]
fn combined_window_grows_by_one_packet_per_round() {
    let mut bench = Bench::new(Coupling::Combined);
    bench.fill();
    bench.ack(0, 1, 1);
    for _ in 0..3 {
        bench.fill();
        (0..PATHS).for_each(|slot| bench.ack(slot, 0, 100));
    }
    bench.fill();
    let (before, mut rounds) = (bench.windows.of(0).cwnd, 0);
    for _ in 0..20 {
        bench.fill();
        (0..PATHS).for_each(|slot| bench.ack(slot, 0, 100));
        rounds += 1;
    }
    let grown = bench.windows.of(0).cwnd - before;
    assert!(grown.abs_diff(rounds) <= 2, "{grown} packets in {rounds} rounds, as one connection");
}

#[test]
fn combined_window_grows_for_acks_of_any_path() {
    let mut bench = Bench::new(Coupling::Combined);
    bench.windows.set_mtu(0, 1452);
    assert_eq!(bench.windows.of(0).mtu, MTU);
    bench.fill();
    bench.ack(0, 1, 1);
    (0..PATHS).for_each(|slot| bench.ack(slot, 0, 100));
    let mut before = 0;
    for round in 0..20 {
        while bench.windows.of(0).has_room() {
            bench.send(0, 1452);
        }
        bench.ack(0, 0, 100);
        before = if round == 3 { bench.windows.of(0).cwnd } else { before };
    }
    let grown = bench.windows.of(0).cwnd - before;
    assert!(grown > 10, "{grown} packets in 16 rounds that were full");
}

#[test]
fn combined_window_counts_packets_of_the_smallest_mtu() {
    let algorithm = Algorithm::by_name("reno").unwrap();
    let mut windows = Windows::new(Coupling::Combined, 10, algorithm, Params::defaults(algorithm));
    for (slot, mtu) in [1400, 1200, 1300].into_iter().enumerate() {
        windows.add_path(slot, mtu);
    }
    assert_eq!(windows.of(2).mtu, 1200);
    windows.close(1, 0);
    assert_eq!(windows.of(2).mtu, 1300);
    windows.set_mtu(2, 1450);
    assert_eq!(windows.of(0).mtu, 1400);
    windows.set_silent(2, true);
    windows.set_mtu(2, 1200);
    assert_eq!(windows.of(0).mtu, 1400, "it looks for a size that passes");
    windows.set_silent(2, false);
    assert_eq!(windows.of(0).mtu, 1200);
    windows.close(0, 0);
    windows.close(2, 0);
    assert!(windows.of(0).mtu >= 1200, "nobody divides by nothing");
    windows.add_path(0, 1250);
    assert_eq!(windows.of(0).mtu, 1250);
}

#[test]
fn silent_path_is_no_persistent_congestion_of_a_combined_window() {
    for (coupling, answers, state) in [
        (Coupling::Combined, true, State::Open),
        (Coupling::Combined, false, State::Loss),
        (Coupling::Separate, true, State::Loss),
    ] {
        let mut bench = Bench::new(coupling);
        bench.fill();
        let oldest = bench.out[1][0].0;
        // Sent before, and acknowledged meanwhile: that is no answer.
        bench.ack(0, 0, 1);
        let newest = oldest + Span::from_secs(1);
        if answers {
            bench.now = newest;
            bench.send(0, MTU.into());
            bench.ack(0, 0, 100);
        }
        let long = Span::from_ms(500);
        bench.with(1, |windows, at| windows.on_all_lost(at, (oldest, newest), long));
        assert_eq!(bench.windows.of(1).state, state, "{coupling:?} {answers}");
    }
}

proptest! {
    /// Whatever happens to paths: nothing that is in flight is forgotten, and nothing is remembered that is not.
    #[test]
    fn bytes_in_flight_are_conserved(
        combined in any::<bool>(),
        steps in prop::collection::vec((0..6u8, 0..PATHS, 0..4usize, 0..12usize), 1..120)
    ) {
        let mut bench = Bench::new(if combined { Coupling::Combined } else { Coupling::Separate });
        for (what, slot, lost, arrive) in steps {
            match what {
                0 => bench.fill(),
                1 | 2 => bench.ack(slot, lost, arrive),
                3 => bench.send(slot, 40 + 300 * lost as u64), // a probe: windows do not hold it back
                4 => {
                    bench.close(slot);
                    bench.windows.add_path(slot, MTU + 10 * arrive as u16);
                }
                _ => bench.windows.restart(slot, bench.now),
            }
            bench.check();
            prop_assert!(bench.windows.of(slot).cwnd > 0);
        }
        (0..PATHS).for_each(|slot| bench.close(slot));
        bench.check();
    }
}
