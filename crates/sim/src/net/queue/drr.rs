//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), with the round time that MQ-ECN needs.
//!
//! MQ-ECN (Bai et al., NSDI 2016) gives queue i the threshold K_i = min(quantum_i / T_round, C) x RTT x
//! lambda. T_round is a moving average (weight 1/4) of the time between two visits to a queue; a queue that
//! empties contributes at least its last packet's transmission time. While the port idles, the average
//! decays by a quarter per MTU time, and to zero after ten.

use std::collections::VecDeque;

use crate::net::queue::{ClassQueue, Next};
use crate::net::rate::wire_ps;
use crate::time::{Span, Time};

/// Idle slots after which nothing is left of the average.
const MAX_IDLE_SLOTS: u64 = 10;
/// Packet whose transmission time is one idle slot.
const SLOT_BYTES: u64 = 1500;

#[derive(Clone, Debug)]
struct ClassState {
    quantum_bytes: u64,
    deficit: u64,
    /// The quantum of this visit has been added to the deficit.
    granted: bool,
    /// Start of this queue's round.
    since: Time,
}

/// Scheduler state of a port.
#[derive(Clone, Debug)]
pub(crate) struct Drr {
    classes: Vec<ClassState>,
    active: VecDeque<usize>,
    round: RoundTime,
}

impl Drr {
    pub(crate) fn new(quanta_bytes: impl Iterator<Item = u32>) -> Drr {
        let state = |q: u32| ClassState {
            quantum_bytes: q.max(1).into(),
            deficit: 0,
            granted: false,
            since: Time::ZERO,
        };
        Drr {
            classes: quanta_bytes.map(state).collect(),
            active: VecDeque::new(),
            round: RoundTime::default(),
        }
    }

    /// Queue `class` has become backlogged.
    pub(crate) fn activate(&mut self, class: usize, now: Time, ps_per_byte_q16: u64) {
        if self.active.is_empty() {
            self.round.idle_until(now, wire_ps(SLOT_BYTES, ps_per_byte_q16));
        }
        let state = &mut self.classes[class];
        (state.deficit, state.granted, state.since) = (0, false, now);
        self.active.push_back(class);
    }

    /// Next queue in the round; the caller then sends that queue's head and calls [`Drr::sent`].
    pub(crate) fn next(&mut self, queues: &[ClassQueue], now: Time) -> Next {
        while let Some(&class) = self.active.front() {
            let state = &mut self.classes[class];
            if !state.granted {
                state.granted = true;
                state.deficit += state.quantum_bytes;
            }
            let size = queues[class].head_size().map_or(0, u64::from);
            if size <= state.deficit {
                state.deficit -= size;
                return Next::Queue(class);
            }
            state.granted = false;
            self.round.sample(now.since(state.since));
            state.since = now;
            self.active.rotate_left(1);
        }
        Next::Empty
    }

    /// The head of `class` has been taken out at `now` and occupies the wire for `wire`.
    pub(crate) fn sent(&mut self, class: usize, empty: bool, now: Time, wire: Span) {
        if !empty {
            return;
        }
        self.active.pop_front();
        self.round.sample(now.since(self.classes[class].since).max(wire));
        if self.active.is_empty() {
            self.round.idle_since = now + wire;
        }
    }

    /// MQ-ECN's threshold of `class` when that of the whole port is `port_bytes`.
    pub(crate) fn mq_ecn_threshold(&self, class: usize, port_bytes: u64, ps_per_byte_q16: u64) -> u64 {
        self.round.threshold(port_bytes, wire_ps(self.classes[class].quantum_bytes, ps_per_byte_q16))
    }

    /// Forgets everything that waits (the queues have been emptied).
    pub(crate) fn clear(&mut self) {
        self.active.clear();
    }
}

/// Smoothed time of a round.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTime {
    ps: u64,
    idle_since: Time,
}

impl RoundTime {
    fn sample(&mut self, sample: Span) {
        self.ps = (3 * self.ps + sample.ps()) / 4;
    }

    fn idle_until(&mut self, now: Time, slot_ps: u64) {
        let slots = now.since(self.idle_since).ps() / slot_ps.max(1);
        if slots > MAX_IDLE_SLOTS {
            self.ps = 0;
        }
        for _ in 0..slots.min(MAX_IDLE_SLOTS) {
            self.ps = self.ps * 3 / 4;
        }
    }

    fn threshold(&self, port_bytes: u64, quantum_ps: u64) -> u64 {
        if self.ps <= quantum_ps {
            return port_bytes;
        }
        (u128::from(port_bytes) * u128::from(quantum_ps) / u128::from(self.ps)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::queue::QueuedPacket;
    use crate::net::rate::ps_per_byte_q16;
    use crate::net::spec::LimitSpec;

    const GBIT: u64 = 1_000_000_000;
    const PORT_BYTES: u64 = 30_000;
    const PACKET: u16 = 1538;
    const WIRE: Span = Span::from_ns(12_304);

    /// K_i for a round of `round_ps` at 1 Gbit/s.
    fn threshold(round_ps: u64, quantum: u32) -> u64 {
        let mut drr = Drr::new([quantum].into_iter());
        drr.round.ps = round_ps;
        drr.mq_ecn_threshold(0, PORT_BYTES, ps_per_byte_q16(GBIT))
    }

    #[test]
    fn threshold_is_shared_among_backlogged_queues() {
        let round = |queues: u64| queues * WIRE.ps();
        assert_eq!([1, 2, 8].map(|n| threshold(round(n), 1538)), [30_000, 15_000, 3_750]);
        assert_eq!([3, 1].map(|w| threshold(round(4), 1538 * w)), [22_500, 7_500]);
        assert_eq!(threshold(0, 1538), PORT_BYTES);
    }

    #[test]
    fn round_time_is_smoothed() {
        let mut round = RoundTime::default();
        let mut seen = Vec::new();
        for _ in 0..4 {
            round.sample(Span::from_ns(24_608));
            seen.push((round.ps, round.threshold(PORT_BYTES, WIRE.ps())));
        }
        let expected =
            [(6_152_000, 30_000), (10_766_000, 30_000), (14_226_500, 25_945), (16_821_875, 21_942)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn round_time_decays_while_idle() {
        let after = |slots: u64| {
            let mut round = RoundTime { ps: 16_821_875, idle_since: Time::ZERO };
            round.idle_until(Time::ZERO + Span::from_us(12).times(slots), Span::from_us(12).ps());
            round.ps
        };
        assert_eq!(after(0), 16_821_875);
        assert!(after(10).abs_diff(947_300) < 50, "{}", after(10));
        assert_eq!(after(11), 0);
    }

    /// Bytes each of two always-backlogged queues gets in 10,000 packets.
    fn shares(quanta: [u32; 2], sizes: [u16; 2]) -> [u64; 2] {
        let mut queues = [0, 1].map(|_| ClassQueue::new(LimitSpec::Unlimited, None));
        let mut drr = Drr::new(quanta.into_iter());
        let mut now = Time::ZERO;
        let waiting = |c: usize| QueuedPacket { id: 0, size: sizes[c], since: Time::ZERO };
        for c in [0, 1] {
            drr.activate(c, now, ps_per_byte_q16(GBIT));
            queues[c].push(waiting(c));
        }
        let mut bytes = [0; 2];
        for _ in 0..10_000 {
            let Next::Queue(c) = drr.next(&queues, now) else { panic!("backlogged port idles") };
            queues[c].push(waiting(c));
            let size = queues[c].pop().unwrap().size;
            bytes[c] += u64::from(size);
            let wire = Span::from_ps(wire_ps(size.into(), ps_per_byte_q16(GBIT)));
            drr.sent(c, false, now, wire);
            now += wire;
        }
        bytes
    }

    /// Shares follow the quanta whatever the packet sizes: within one quantum plus one packet over the
    /// whole backlogged period (Shreedhar and Varghese, lemma 2), here below 1 %.
    #[test]
    fn shares_follow_quanta() {
        for (quanta, sizes) in
            [([1500, 1500], [1500, 300]), ([6000, 1500], [1500, 1500]), ([4500, 1500], [64, 1500])]
        {
            let bytes = shares(quanta, sizes);
            let want = f64::from(quanta[0]) / f64::from(quanta[1]);
            let got = bytes[0] as f64 / bytes[1] as f64;
            assert!((got / want - 1.0).abs() < 0.01, "{quanta:?} {sizes:?}: {got}");
        }
    }

    /// Two backlogged equal queues: the measured round is two packets, so each gets half the threshold.
    #[test]
    fn measured_round_halves_the_threshold_of_two_queues() {
        let mut queues = [0, 1].map(|_| ClassQueue::new(LimitSpec::Unlimited, None));
        let mut drr = Drr::new([1538, 1538].into_iter());
        let mut now = Time::ZERO;
        for (c, queue) in queues.iter_mut().enumerate() {
            drr.activate(c, now, ps_per_byte_q16(GBIT));
            (0..200).for_each(|id| queue.push(QueuedPacket { id, size: PACKET, since: now }));
        }
        for _ in 0..100 {
            let Next::Queue(c) = drr.next(&queues, now) else { panic!("backlogged port idles") };
            queues[c].pop().unwrap();
            drr.sent(c, false, now, WIRE);
            now += WIRE;
        }
        let k = drr.mq_ecn_threshold(0, PORT_BYTES, ps_per_byte_q16(GBIT));
        assert!(k.abs_diff(15_000) <= 15, "{k}");
    }
}
