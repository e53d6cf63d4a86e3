//! Round-trip estimation and the retransmission timeout (RFC 6298, as Linux computes it).
//!
//! Modelled: Linux's estimator in microseconds, with the variance kept over one round trip
//! (`tcp_rtt_estimator`), damped increases when the RTT falls, a floor under the variance term rather than
//! under the sum, exponential backoff, and a windowed minimum.
//! Not modelled: jiffy rounding of the timeout.

use vmcc_units::time::{Span, Time};

/// Linux keeps the minimum RTT over 300 s (`tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW: Span = Span::from_secs(300);

/// Bounds of the retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoLimits {
    /// Before the first sample.
    pub initial: Span,
    /// Largest, backoff included.
    pub max: Span,
}

/// Smoothed RTT, its deviation, the minimum and the timeout of one path.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    /// Smoothed RTT in 1/8 us; 0 before the first sample.
    pub srtt_8us: u32,
    /// Deviation in 1/4 us.
    mdev_4us: u32,
    /// Largest deviation of the current round trip.
    mdev_max_4us: u32,
    /// The term added to the smoothed RTT, in 1/4 us... of which a quarter counts: see [`Rtt::rto`].
    rttvar_4us: u32,
    /// The round trip over which `mdev_max_4us` is taken ends when this segment is acknowledged.
    round_end: u32,
    /// Doublings of the timeout since the last sample.
    pub backoff: u8,
    /// Smallest RTT of the window.
    pub min_rtt: Span,
    min_rtt_at: Time,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt {
            srtt_8us: 0,
            mdev_4us: 0,
            mdev_max_4us: 0,
            rttvar_4us: 0,
            round_end: 0,
            backoff: 0,
            min_rtt: Span::MAX,
            min_rtt_at: Time::ZERO,
        }
    }
}

impl Rtt {
    /// The windowed minimum from the newest sample of an ACK.
    #[inline]
    pub fn sample_min(&mut self, now: Time, rtt: Span) {
        if rtt <= self.min_rtt || now.since(self.min_rtt_at) > MIN_RTT_WINDOW {
            self.min_rtt = rtt;
            self.min_rtt_at = now;
        }
    }

    /// A sample; `una` and `nxt` tell when a round trip has passed. `rto_min` is the floor under the variance term.
    #[inline]
    pub fn sample(&mut self, rtt: Span, una: u32, nxt: u32, rto_min: Span) {
        let m = (rtt.us() as u32).max(1);
        let floor_4us = rto_min.us() as u32;
        self.backoff = 0;
        if self.srtt_8us == 0 {
            self.srtt_8us = m << 3;
            self.mdev_4us = m << 1;
            self.rttvar_4us = self.mdev_4us.max(floor_4us);
            self.mdev_max_4us = self.rttvar_4us;
            self.round_end = nxt;
            return;
        }
        let err = i64::from(m) - i64::from(self.srtt_8us >> 3);
        self.srtt_8us = (i64::from(self.srtt_8us) + err).max(1) as u32;
        let mut deviation = err.abs() - i64::from(self.mdev_4us >> 2);
        if err < 0 && deviation > 0 {
            // The RTT fell sharply: that is no reason for a longer timeout.
            deviation >>= 3;
        }
        self.mdev_4us = (i64::from(self.mdev_4us) + deviation) as u32;
        if self.mdev_4us > self.mdev_max_4us {
            self.mdev_max_4us = self.mdev_4us;
            self.rttvar_4us = self.rttvar_4us.max(self.mdev_max_4us);
        }
        if una > self.round_end {
            if self.mdev_max_4us < self.rttvar_4us {
                self.rttvar_4us -= (self.rttvar_4us - self.mdev_max_4us) >> 2;
            }
            self.round_end = nxt;
            self.mdev_max_4us = floor_4us;
        }
    }

    /// Smoothed RTT; zero before the first sample.
    #[inline]
    pub fn srtt(&self) -> Span {
        Span::from_ps(u64::from(self.srtt_8us) * 125_000)
    }

    /// Mean deviation in microseconds (`mdev` holds four times it).
    pub fn deviation_us(&self) -> u32 {
        self.mdev_4us >> 2
    }

    /// The timeout, backoff included.
    #[inline]
    pub fn rto(&self, limits: RtoLimits) -> Span {
        let base = if self.srtt_8us == 0 {
            limits.initial
        } else {
            Span::from_us(u64::from((self.srtt_8us >> 3) + self.rttvar_4us))
        };
        if self.backoff == 0 {
            return if base < limits.max { base } else { limits.max };
        }
        base.times(1 << self.backoff.min(16)).min(limits.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RtoLimits = RtoLimits { initial: Span::from_secs(1), max: Span::from_secs(120) };
    const RTO_MIN: Span = Span::from_ms(200);

    fn us(n: u64) -> Span {
        Span::from_us(n)
    }

    #[test]
    fn first_sample_sets_srtt_and_a_floored_variance() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(LIMITS), Span::from_secs(1));
        rtt.sample(us(100), 0, 10, RTO_MIN);
        assert_eq!(rtt.srtt(), us(100));
        assert_eq!(rtt.rto(LIMITS), us(200_100));
    }

    #[test]
    fn rfc6298_without_floor() {
        // SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR = 3 R (RFC 6298 section 2.2).
        let mut rtt = Rtt::default();
        rtt.sample(us(1000), 0, 10, Span::ZERO);
        assert_eq!(rtt.rto(LIMITS), us(3000));
        // SRTT = 7/8 * 1000 + 1/8 * 1800 = 1100; RTTVAR = 3/4 * 500 + 1/4 * 800 = 575; RTO = 3400.
        rtt.sample(us(1800), 5, 10, Span::ZERO);
        assert_eq!(rtt.srtt(), us(1100));
        assert_eq!(rtt.rto(LIMITS), us(3400));
    }

    #[test]
    fn backoff_doubles_up_to_the_ceiling() {
        let mut rtt = Rtt::default();
        rtt.sample(us(100), 0, 10, RTO_MIN);
        rtt.backoff = 3;
        assert_eq!(rtt.rto(LIMITS), us(1_600_800));
        rtt.backoff = 40;
        assert_eq!(rtt.rto(LIMITS), LIMITS.max);
    }

    #[test]
    fn minimum_expires_after_its_window() {
        let mut rtt = Rtt::default();
        rtt.sample_min(Time::ZERO, us(10));
        rtt.sample_min(Time::from_ps(us(5).ps()), us(20));
        assert_eq!(rtt.min_rtt, us(10));
        rtt.sample_min(Time::ZERO + Span::from_secs(301), us(20));
        assert_eq!(rtt.min_rtt, us(20));
    }
}
