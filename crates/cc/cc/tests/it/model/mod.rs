//! The equations of the papers in exact fractions. Nothing here is taken from the C: no fixed point, no clamping, no
//! shortcuts; every value is a ratio of big integers until it is compared.

use num_bigint::BigUint;
use num_traits::ToPrimitive;
use std::cmp::Ordering;

/// The paths of a connection: windows in packets, smoothed round-trip times in 1/8 us, packets between losses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    pub(crate) w: Vec<u32>,
    pub(crate) srtt: Vec<u32>,
    pub(crate) gap: Vec<u32>,
}

fn big(x: u32) -> BigUint {
    BigUint::from(x)
}

fn ratio(num: &BigUint, den: &BigUint) -> f64 {
    // Both far below 2^1023, and f64 carries 53 bits: the error is far below any bound that is tested.
    num.to_f64().expect("finite") / den.to_f64().expect("finite")
}

impl Paths {
    fn n(&self) -> usize {
        self.w.len()
    }

    /// 1/T_i times the product of all T.
    fn inverse(&self, i: usize) -> BigUint {
        (0..self.n()).filter(|j| *j != i).map(|j| big(self.srtt[j])).product()
    }

    /// The sum of w/T, times the product of all T.
    fn rate(&self) -> BigUint {
        (0..self.n()).map(|i| big(self.w[i]) * self.inverse(i)).sum()
    }

    /// RFC 6356: min(max(w/T^2) / (sum of w/T)^2, 1/w_r).
    pub(crate) fn lia(&self, r: usize) -> f64 {
        let best = (0..self.n()).map(|i| big(self.w[i]) * self.inverse(i).pow(2)).max().expect("paths");
        ratio(&best, &self.rate().pow(2)).min(1.0 / f64::from(self.w[r]))
    }

    /// draft-khalili: (w_r/T_r^2) / (sum of w/T)^2 + alpha_r/w_r.
    pub(crate) fn olia(&self, r: usize) -> f64 {
        let first = ratio(&(big(self.w[r]) * self.inverse(r).pow(2)), &self.rate().pow(2));
        first + self.olia_alpha(r) / f64::from(self.w[r])
    }

    fn olia_alpha(&self, r: usize) -> f64 {
        // l/T^2 as a fraction of integers: compared crosswise.
        let quality = |a: usize, b: usize| {
            let cross = |x: usize, y: usize| big(self.gap[x]) * big(self.srtt[y]).pow(2);
            cross(a, b).cmp(&cross(b, a))
        };
        let widest = *self.w.iter().max().expect("paths");
        let in_m = |i: usize| self.w[i] == widest;
        let in_b = |i: usize| (0..self.n()).all(|j| quality(i, j) != Ordering::Less);
        let c: Vec<usize> = (0..self.n()).filter(|i| in_b(*i) && !in_m(*i)).collect();
        let m = (0..self.n()).filter(|i| in_m(*i)).count();
        if c.contains(&r) {
            1.0 / (self.n() * c.len()) as f64
        } else if !c.is_empty() && in_m(r) {
            -1.0 / (self.n() * m) as f64
        } else {
            0.0
        }
    }

    /// The path with the largest w/T.
    fn fastest(&self) -> usize {
        (0..self.n()).max_by_key(|i| big(self.w[*i]) * self.inverse(*i)).expect("paths")
    }

    /// draft-walid: (x_r/T_r) / (sum of x)^2 * (1 + alpha)/2 * (4 + alpha)/5, alpha = x_m/x_r.
    pub(crate) fn balia(&self, r: usize) -> f64 {
        let m = self.fastest();
        let (x_r, x_m) = (big(self.w[r]) * self.inverse(r), big(self.w[m]) * self.inverse(m));
        // With alpha = x_m / x_r: (1 + alpha)(4 + alpha) = (x_r + x_m)(4 x_r + x_m) / x_r^2.
        let num = self.inverse(r) * (&x_r + &x_m) * (big(4) * &x_r + &x_m);
        ratio(&num, &(big(10) * &x_r * self.rate().pow(2)))
    }

    /// BALIA's w_r after a reduction: w - (w/2) min(alpha, 3/2), rounded down.
    pub(crate) fn balia_target(&self, r: usize) -> u32 {
        let m = self.fastest();
        let (x_r, x_m) = (big(self.w[r]) * self.inverse(r), big(self.w[m]) * self.inverse(m));
        let (num, den) = if big(2) * &x_m >= big(3) * &x_r { (big(3), big(2)) } else { (x_m, x_r) };
        // w (1 - num / (2 den)) = w (2 den - num) / (2 den)
        let left = big(self.w[r]) * (big(2) * &den - num) / (big(2) * den);
        left.to_u32().expect("at most w")
    }

    /// XMP: w_r / (sum of w T_min/T).
    pub(crate) fn xmp(&self, r: usize) -> f64 {
        let product: BigUint = self.srtt.iter().map(|t| big(*t)).product();
        let fastest = big(*self.srtt.iter().min().expect("paths"));
        ratio(&(big(self.w[r]) * product), &(self.rate() * fastest))
    }

    /// AMP: 1 / w_total.
    pub(crate) fn amp(&self) -> f64 {
        1.0 / self.w.iter().map(|w| f64::from(*w)).sum::<f64>()
    }

    /// EWTCP with a = 1/n^2: a / w.
    pub(crate) fn ewtcp(&self, r: usize) -> f64 {
        1.0 / ((self.n() * self.n()) as f64 * f64::from(self.w[r]))
    }
}

/// DCTCP's alpha with 256 fractional bits, g = 1/16.
pub(crate) struct Alpha(BigUint);

impl Alpha {
    pub(crate) fn one() -> Self {
        Self(BigUint::from(1u32) << 256)
    }

    pub(crate) fn update(&mut self, marked: u32, total: u32) {
        let fraction = (big(marked) << 256) / big(total);
        self.0 = (&self.0 * big(15) + fraction) / big(16);
    }

    pub(crate) fn value(&self) -> f64 {
        ratio(&self.0, &(BigUint::from(1u32) << 256))
    }
}

/// CUBIC's curve with C = 0.4: K in units of 10^-12 s.
pub(crate) struct Cubic {
    w_max: u32,
    k_ps: BigUint,
}

impl Cubic {
    pub(crate) fn new(w_max: u32, w_epoch: u32) -> Self {
        // K^3 = (W_max - w) / 0.4 s^3 = 2.5 (W_max - w) * 10^36 ps^3
        let cube = big(w_max - w_epoch) * BigUint::from(10u32).pow(36) * big(5) / big(2);
        Self { w_max, k_ps: cube.cbrt() }
    }

    /// t - K in seconds.
    fn offset_s(&self, t_us: u64) -> f64 {
        let t = BigUint::from(t_us) * big(1_000_000);
        if t >= self.k_ps {
            (t - &self.k_ps).to_f64().expect("finite") / 1e12
        } else {
            -((&self.k_ps - t).to_f64().expect("finite") / 1e12)
        }
    }

    pub(crate) fn w(&self, t_us: u64) -> f64 {
        f64::from(self.w_max) + 0.4 * self.offset_s(t_us).powi(3)
    }

    /// Packets per second.
    pub(crate) fn slope(&self, t_us: u64) -> f64 {
        1.2 * self.offset_s(t_us).powi(2)
    }
}
