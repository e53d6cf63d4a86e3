//! Random loss and delay on the wire.

use rand_xoshiro::rand_core::Rng;

use crate::net::spec::{JitterSpec, LossSpec};
use crate::rng::{Stream, uniform};
use crate::time::{Span, Time};

#[derive(Clone, Debug)]
pub(crate) struct Impairment {
    loss: Option<LossSpec>,
    jitter: Option<JitterSpec>,
    loss_rng: Stream,
    jitter_rng: Stream,
    bad: bool,
    last_arrival: Time,
}

impl Impairment {
    pub(crate) fn new(
        loss: Option<LossSpec>,
        jitter: Option<JitterSpec>,
        loss_rng: Stream,
        jitter_rng: Stream,
    ) -> Impairment {
        Impairment { loss, jitter, loss_rng, jitter_rng, bad: false, last_arrival: Time::ZERO }
    }

    pub(crate) fn set_loss(&mut self, loss: Option<LossSpec>) {
        self.loss = loss;
        self.bad = false;
    }

    /// True if the next packet is lost.
    pub(crate) fn loses(&mut self) -> bool {
        match self.loss {
            None => false,
            Some(LossSpec::Bernoulli(p)) => uniform(&mut self.loss_rng) < p,
            Some(LossSpec::GilbertElliott { to_bad, to_good, loss_good, loss_bad }) => {
                let turns = uniform(&mut self.loss_rng) < if self.bad { to_good } else { to_bad };
                self.bad ^= turns;
                uniform(&mut self.loss_rng) < if self.bad { loss_bad } else { loss_good }
            }
        }
    }

    /// Arrival time, with jitter, of a packet that would arrive at `at` without it.
    pub(crate) fn jittered(&mut self, at: Time) -> Time {
        let Some(JitterSpec { max, keep_order }) = self.jitter else { return at };
        let draw = u128::from(self.jitter_rng.next_u64()) * (u128::from(max.ps()) + 1);
        let mut arrival = at + Span::from_ps((draw >> 64) as u64);
        if keep_order {
            arrival = arrival.max(self.last_arrival + Span::from_ps(1));
        }
        self.last_arrival = arrival;
        arrival
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;

    fn impairment(loss: Option<LossSpec>, jitter: Option<JitterSpec>) -> Impairment {
        let streams = Streams::new(1);
        Impairment::new(loss, jitter, streams.stream("loss"), streams.stream("jitter"))
    }

    /// Five standard deviations of a binomial with n = 10^6: 0.0005.
    #[test]
    fn bernoulli_loss_has_its_rate() {
        let mut wire = impairment(Some(LossSpec::Bernoulli(0.01)), None);
        let lost = (0..1_000_000).filter(|_| wire.loses()).count();
        assert!((lost as f64 / 1e6 - 0.01).abs() < 0.0005, "{lost}");
    }

    /// Stationary loss = to_bad / (to_bad + to_good) with loss only and always in the bad state; bursts
    /// last 1 / to_good packets on average. 3 % tolerance: four deviations at some 20,000 bursts.
    #[test]
    fn gilbert_elliott_loss_has_its_rate_and_burst_length() {
        let spec = LossSpec::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.0, loss_bad: 1.0 };
        let mut wire = impairment(Some(spec), None);
        let lost: Vec<bool> = (0..2_000_000).map(|_| wire.loses()).collect();
        let losses = lost.iter().filter(|&&l| l).count() as f64;
        let bursts = lost.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
        assert!((losses / 2e6 / (0.01 / 0.26) - 1.0).abs() < 0.03, "{losses}");
        assert!((losses / bursts / 4.0 - 1.0).abs() < 0.03, "{}", losses / bursts);
    }

    #[test]
    fn jitter_is_uniform_and_optionally_keeps_order() {
        let max = Span::from_us(10);
        let mut wire = impairment(None, Some(JitterSpec { max, keep_order: false }));
        let base = Time::from_ps(1_000_000_000);
        let delays: Vec<u64> = (0..100_000).map(|_| wire.jittered(base).since(base).ps()).collect();
        assert!(delays.iter().all(|&d| d <= max.ps()));
        let mean = delays.iter().sum::<u64>() as f64 / 1e5;
        assert!((mean / 5e6 - 1.0).abs() < 0.01, "{mean}");

        let mut wire = impairment(None, Some(JitterSpec { max, keep_order: true }));
        let arrivals: Vec<Time> =
            (0..1000).map(|i| wire.jittered(base + Span::from_ns(100).times(i))).collect();
        assert!(arrivals.is_sorted_by(|a, b| a < b));
    }

    /// The share of packets that arrive after one sent later (RFC 4737), sent every `spacing`, each delayed by up to
    /// `jitter` by itself: one minus the mean, over a packet's own delay u, of the chances of all later ones, k
    /// spacings behind, to be delayed by no less than u - k spacing.
    fn overtaken(jitter: f64, spacing: f64) -> f64 {
        const STEPS: u32 = 100_000;
        let stays = |u: f64| {
            let ahead = (1..).map(|k| u - f64::from(k) * spacing).take_while(|ahead| *ahead > 0.0);
            ahead.map(|ahead| 1.0 - ahead / jitter).product::<f64>()
        };
        let points = (0..STEPS).map(|i| stays((f64::from(i) + 0.5) / f64::from(STEPS) * jitter));
        1.0 - points.sum::<f64>() / f64::from(STEPS)
    }

    #[test]
    fn reordering_rate_follows_jitter_and_spacing() {
        // Up to two spacings only the next one can: (j - s)^2 / (2 j^2).
        assert!((overtaken(2.0, 1.0) - 0.125).abs() < 1e-6 && overtaken(1.0, 1.0) == 0.0);
        for jitter_us in [50, 100, 150, 200, 1000, 5000] {
            let jitter = JitterSpec { max: Span::from_us(jitter_us), keep_order: false };
            let mut wire = impairment(None, Some(jitter));
            let n = 200_000;
            let mut arrivals: Vec<(Time, u64)> =
                (0..n).map(|i| (wire.jittered(Time::ZERO + Span::from_us(100).times(i)), i)).collect();
            arrivals.sort_unstable();
            let mut latest = 0;
            let late = arrivals.iter().filter(|(_, i)| {
                latest = latest.max(*i);
                latest > *i
            });
            let (share, expected) = (late.count() as f64 / n as f64, overtaken(jitter_us as f64, 100.0));
            // Five standard deviations of a binomial; neighbours' fates hang together.
            assert!((share - expected).abs() < 0.006, "{jitter_us} us: {share}, expected {expected}");
        }
    }
}
