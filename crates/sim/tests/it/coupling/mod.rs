//! Coupled increases in floating point: windows under independent random loss, round trip by round trip.
//!
//! An independent model of LIA (RFC 6356 section 3), OLIA (R. Khalili et al., CoNEXT 2012) and BALIA (Q. Peng et al., ToN 2016)
//! for paths of equal round-trip time. No slow start, no queue, no fixed point, no packets.

/// SplitMix64.
struct Rng(u64);

impl Rng {
    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct Path {
    w: f64,
    /// OLIA: packets between the last two losses, and since the last.
    gaps: [f64; 2],
}

impl Path {
    fn gap(&self) -> f64 {
        self.gaps[0].max(self.gaps[1])
    }
}

/// Mean window of a connection in packets, all `count` paths together, when each packet is lost with probability `loss`.
pub(crate) fn mean_window(law: &str, count: usize, loss: f64, round_trips: u32) -> f64 {
    let mut rng = Rng(7);
    let first = 1.2 / loss.sqrt() / count as f64;
    let mut paths: Vec<Path> = (0..count).map(|_| Path { w: first, gaps: [1.0 / loss; 2] }).collect();
    let warmup = round_trips / 10;
    let mut total = 0.0;
    for round in 0..warmup + round_trips {
        let grown: Vec<f64> = paths.iter().map(|path| path.w * increase(law, &paths, path)).collect();
        let max = paths.iter().map(|path| path.w).fold(0.0, f64::max);
        for (path, grown) in paths.iter_mut().zip(grown) {
            path.gaps[1] += path.w;
            if rng.uniform() < 1.0 - (1.0 - loss).powf(path.w) {
                path.gaps = [path.gaps[1], 0.0];
                let cut = if law == "balia" { (max / path.w).min(1.5) / 2.0 } else { 0.5 };
                path.w -= path.w * cut;
            } else {
                path.w += grown;
            }
            path.w = path.w.max(if law == "lia" || count == 1 { 2.0 } else { 1.0 });
        }
        if round >= warmup {
            total += paths.iter().map(|path| path.w).sum::<f64>();
        }
    }
    total / f64::from(round_trips)
}

/// Growth of one path per acknowledged packet.
fn increase(law: &str, paths: &[Path], own: &Path) -> f64 {
    let sum: f64 = paths.iter().map(|path| path.w).sum();
    let max = paths.iter().map(|path| path.w).fold(0.0, f64::max);
    match law {
        "lia" => (max / (sum * sum)).min(1.0 / own.w),
        "olia" => own.w / (sum * sum) + olia_alpha(paths, own) / own.w,
        "balia" => {
            let alpha = max / own.w;
            own.w / (sum * sum) * (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0
        }
        _ => unreachable!("{law} has no model"),
    }
}

fn olia_alpha(paths: &[Path], own: &Path) -> f64 {
    // Windows are compared in whole packets, as hosts have them.
    let widest = paths.iter().map(|path| path.w.floor()).fold(0.0, f64::max);
    let longest = paths.iter().map(Path::gap).fold(0.0, f64::max);
    let is_max = |path: &Path| path.w.floor() == widest;
    let is_best = |path: &Path| path.gap() == longest && !is_max(path);
    let (max, best) =
        (paths.iter().filter(|p| is_max(p)).count(), paths.iter().filter(|p| is_best(p)).count());
    let n = paths.len() as f64;
    match () {
        _ if best == 0 => 0.0,
        _ if is_best(own) => 1.0 / (n * best as f64),
        _ if is_max(own) => -1.0 / (n * max as f64),
        _ => 0.0,
    }
}
