//! Random early detection (Floyd and Jacobson, IEEE/ACM Transactions on Networking 1(4), 1993), in bytes.
//!
//! The average follows the queue at each arrival; after an idle period it decays as if small packets had
//! arrived meanwhile. Between the thresholds the spacing of marks is made uniform by counting (section 4).
//! Arithmetic is IEEE double with `+ - * /` only, which is the same on every machine.

use crate::net::spec::RedSpec;
use crate::rng::{Stream, uniform};
use crate::time::Time;

/// Decision on an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Congested,
}

#[derive(Clone, Debug)]
pub(crate) struct Red {
    spec: RedSpec,
    rng: Stream,
    average_bytes: f64,
    /// Packets since the last mark, while between the thresholds; -1: below the lower one.
    count: f64,
}

impl Red {
    pub(crate) fn new(spec: RedSpec, rng: Stream) -> Red {
        Red { spec, rng, average_bytes: 0.0, count: -1.0 }
    }

    pub(crate) fn ecn(&self) -> bool {
        self.spec.ecn
    }

    /// An arrival at `now` meets `backlog_bytes`; the port has been idle since `idle_since` if that is 0.
    pub(crate) fn arrival(
        &mut self,
        backlog_bytes: u64,
        now: Time,
        idle_since: Time,
        slot_ps: u64,
    ) -> Verdict {
        let w = self.spec.weight;
        if backlog_bytes == 0 {
            self.average_bytes *= power(1.0 - w, now.since(idle_since).ps() / slot_ps.max(1));
        }
        self.average_bytes += w * (backlog_bytes as f64 - self.average_bytes);
        let (min, max) = (self.spec.min_bytes as f64, self.spec.max_bytes as f64);
        if self.average_bytes < min {
            self.count = -1.0;
            return Verdict::Pass;
        }
        if self.average_bytes >= max {
            self.count = 0.0;
            return Verdict::Congested;
        }
        self.count += 1.0;
        let base = self.spec.max_probability * (self.average_bytes - min) / (max - min);
        let spread = 1.0 - self.count * base;
        if spread <= 0.0 || uniform(&mut self.rng) < base / spread {
            self.count = 0.0;
            return Verdict::Congested;
        }
        Verdict::Pass
    }
}

/// `base` to the `n`, by squaring.
fn power(mut base: f64, mut n: u64) -> f64 {
    let mut result = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            result *= base;
        }
        base *= base;
        n >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::spec::LimitSpec;
    use crate::rng::Streams;

    fn red(weight: f64) -> Red {
        let spec = RedSpec {
            limit: LimitSpec::Unlimited,
            min_bytes: 10_000,
            max_bytes: 30_000,
            max_probability: 0.1,
            weight,
            ecn: true,
        };
        Red::new(spec, Streams::new(1).stream("red"))
    }

    fn congested(red: &mut Red, backlog: u64, n: u32) -> u32 {
        let arrive = |_: &u32| red.arrival(backlog, Time::ZERO, Time::ZERO, 1) == Verdict::Congested;
        (0..n).filter(arrive).count() as u32
    }

    /// At a constant average half-way, p_b = 0.05 and the gap between marks is uniform on 1..1/p_b: mean
    /// (1 + 1/p_b)/2 = 10.5. 5 % tolerance is six standard deviations at 100,000 arrivals.
    #[test]
    fn marks_are_spaced_uniformly() {
        let marks = congested(&mut red(1.0), 20_000, 100_000);
        let gap = 100_000.0 / f64::from(marks);
        assert!((gap / 10.5 - 1.0).abs() < 0.05, "{gap}");
    }

    #[test]
    fn thresholds_bound_the_marking_region() {
        assert_eq!(congested(&mut red(1.0), 9_999, 1000), 0);
        assert_eq!(congested(&mut red(1.0), 30_000, 1000), 1000);
    }

    /// After n arrivals at a constant queue q the average is q (1 - (1-w)^n); idling undoes it.
    #[test]
    fn average_follows_and_decays() {
        let mut red = red(0.002);
        congested(&mut red, 10_000, 500);
        let expected = 10_000.0 * (1.0 - 0.998f64.powi(500));
        assert!((red.average_bytes - expected).abs() < 1e-6);
        red.arrival(0, Time::from_ps(500), Time::ZERO, 1);
        assert!((red.average_bytes - expected * 0.998f64.powi(501)).abs() < 1e-6);
    }
}
