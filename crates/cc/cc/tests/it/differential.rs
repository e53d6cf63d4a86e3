//! The algorithms against an independent model: exact fractions of big integers, written from the equations of the
//! papers. Windows up to 2^20 packets, round-trip times from 10 us to 10 s, 2 to 8 paths; random with every order
//! of magnitude as likely as any other, and the edges of the ranges. `VMCC_TEST_SCALE` multiplies the cases.

use crate::model::Paths;
use vmcc_cc::trace::{Seeded, Source};
use vmcc_cc::{
    Algorithm, Cause, Event, EventFlags, Group, MAX_CWND_PKT, MAX_SRTT_8US, Params, Path, Slot, SlotFlags,
};

const ONE_Q40: f64 = (1u64 << 40) as f64;
const MIN_SRTT_8US: u32 = 80;

fn cases(base: u32) -> u32 {
    base * std::env::var("VMCC_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// Ranges of the windows and RTTs of paths.
#[derive(Clone, Copy)]
struct Range {
    max_w: u32,
    srtt_8us: (u32, u32),
}

const FULL: Range = Range { max_w: MAX_CWND_PKT, srtt_8us: (MIN_SRTT_8US, MAX_SRTT_8US) };
const USUAL: Range = Range { max_w: 5000, srtt_8us: (400, 4_000_000) };

fn pick(numbers: &mut Seeded, low: u32, high: u32) -> u32 {
    match numbers.below(8).expect("endless") {
        0 => low,
        1 => high,
        _ => numbers.wide(high).expect("endless").max(low),
    }
}

fn paths(numbers: &mut Seeded, range: Range) -> Paths {
    let n = 2 + numbers.below(7).expect("endless") as usize;
    let mut all = Paths::default();
    for i in 0..n {
        let alike = i > 0 && numbers.below(4).expect("endless") == 0;
        all.w.push(if alike { all.w[0] } else { pick(numbers, 1, range.max_w) });
        let (low, high) = range.srtt_8us;
        all.srtt.push(if alike { all.srtt[0] } else { pick(numbers, low, high) });
        all.gap.push(if alike { all.gap[0] } else { pick(numbers, 0, 1 << 20) });
    }
    all
}

struct Bench {
    algorithm: Algorithm,
    params: Params,
    group: Group,
    paths: Paths,
}

impl Bench {
    fn new(name: &str, paths: Paths) -> Self {
        let algorithm = Algorithm::by_name(name).expect("in the registry");
        let slot = |i: usize| Slot {
            flags: SlotFlags::ESTABLISHED,
            cwnd_pkt: paths.w[i],
            ssthresh_pkt: paths.w[i],
            srtt_8us: paths.srtt[i],
            pub_words: [0, u64::from(paths.gap[i])],
        };
        let group = (0..paths.w.len()).map(slot).collect();
        Self { algorithm, params: Params::defaults(algorithm), group, paths }
    }

    fn event(&self, r: usize) -> Event {
        Event {
            now_us: 1_000_000,
            flags: EventFlags::CWND_LIMITED,
            self_index: r as u32,
            cwnd_pkt: self.paths.w[r],
            ssthresh_pkt: self.paths.w[r],
            srtt_8us: self.paths.srtt[r],
            snd_una: 10,
            snd_nxt: 20,
            ..Event::default()
        }
    }

    fn path(&self, r: usize) -> Path {
        let mut path = Path::default();
        let start = Event { snd_una: 0, snd_nxt: 0, ..self.event(r) };
        self.algorithm.init(&start, &mut path, Some(&self.group), &self.params);
        path
    }

    /// Growth of path `r` for one packet, in packets.
    fn increase(&self, r: usize) -> f64 {
        let (mut event, mut path) = (self.event(r), self.path(r));
        event.acked_pkt = self.paths.gap[r];
        self.algorithm.on_ack(&event, &mut path, Some(&self.group), &self.params);
        event.acked_pkt = 1;
        let decision = self.algorithm.on_grow(&event, &mut path, Some(&self.group), &self.params);
        let w = decision.cwnd().unwrap_or(event.cwnd_pkt);
        f64::from(w) - f64::from(event.cwnd_pkt) + path.credit_q40 as f64 / ONE_Q40
    }

    fn cut(&self, r: usize, cause: Cause) -> u32 {
        let (event, mut path) = (Event { cause, ..self.event(r) }, self.path(r));
        let decision = self.algorithm.on_congestion(&event, &mut path, Some(&self.group), &self.params);
        decision.cwnd().or(decision.ssthresh()).expect("a reduction answers")
    }
}

/// Runs `check` on many connections and returns the largest error it found.
fn worst(seed: u64, count: u32, range: Range, mut check: impl FnMut(&Paths, usize) -> f64) -> f64 {
    let mut numbers = Seeded(seed);
    let mut largest = (0.0, String::new());
    for _ in 0..count {
        let paths = paths(&mut numbers, range);
        let r = numbers.below(paths.w.len() as u32).expect("endless") as usize;
        // At the top of the range there is no room to grow.
        if paths.w[r] == MAX_CWND_PKT {
            continue;
        }
        let error = check(&paths, r);
        if error > largest.0 || error.is_nan() {
            largest = (error, format!("{paths:?}, path {r}"));
        }
    }
    println!("largest error {:.3e}: {}", largest.0, largest.1);
    largest.0
}

fn relative(found: f64, want: f64) -> f64 {
    (found - want).abs() / want
}

/// The others that share LIA's law must agree with it in every bit.
fn lia_error(paths: &Paths, r: usize) -> f64 {
    let found = Bench::new("lia", paths.clone()).increase(r);
    for name in ["vmcc", "vmcc_awake", "vmsched", "awake"] {
        assert_eq!(
            Bench::new(name, Paths { gap: vec![0; paths.w.len()], ..paths.clone() }).increase(r),
            found
        );
    }
    relative(found, paths.lia(r))
}

#[test]
fn lia_matches_floating_point_in_usual_ranges() {
    let range = Range { max_w: 5000, ..FULL };
    assert!(worst(1, cases(20_000), range, lia_error) < 6e-7);
}

#[test]
fn lia_matches_floating_point_over_the_full_range() {
    assert!(worst(2, cases(20_000), FULL, lia_error) < 1e-4);
}

fn olia_error(paths: &Paths, r: usize) -> f64 {
    (Bench::new("olia", paths.clone()).increase(r) - paths.olia(r)).abs()
}

#[test]
fn olia_matches_floating_point_in_usual_ranges() {
    assert!(worst(3, cases(15_000), USUAL, olia_error) < 1e-6);
}

#[test]
fn olia_matches_floating_point_over_the_full_range() {
    assert!(worst(4, cases(15_000), FULL, olia_error) < 1e-4);
}

#[test]
fn olia_alphas_sum_to_zero() {
    worst(5, cases(5000), FULL, |paths, _| {
        let sum: i64 = (0..paths.w.len()).map(|r| olia_alpha(paths, r)).sum();
        assert_eq!(sum, 0, "{paths:?}");
        0.0
    });
}

/// alpha in units of 1/(8 lcm(1..8)), from what OLIA publishes for observers.
fn olia_alpha(paths: &Paths, r: usize) -> i64 {
    let bench = Bench::new("olia", paths.clone());
    let (mut event, mut path) = (bench.event(r), bench.path(r));
    event.acked_pkt = paths.gap[r];
    bench.algorithm.on_ack(&event, &mut path, Some(&bench.group), &bench.params);
    event.acked_pkt = 1;
    bench.algorithm.on_grow(&event, &mut path, Some(&bench.group), &bench.params);
    let (divisor, negative) = (path.pub_words[0] & 0xffff_ffff, path.pub_words[0] >> 32 != 0);
    if divisor == 0 {
        return 0;
    }
    // Every n and |C|, |M| is at most 8, so the unit is a multiple of each divisor.
    let unit = 840 * 840;
    assert_eq!(unit % divisor as i64, 0);
    if negative { -(unit / divisor as i64) } else { unit / divisor as i64 }
}

#[test]
fn balia_increase_matches_floating_point() {
    let error = |paths: &Paths, r| relative(Bench::new("balia", paths.clone()).increase(r), paths.balia(r));
    assert!(worst(6, cases(20_000), FULL, error) < 2.6e-4);
}

#[test]
fn balia_decrease_is_exact() {
    worst(7, cases(10_000), FULL, |paths, r| {
        let want = paths.balia_target(r).max(1);
        assert_eq!(Bench::new("balia", paths.clone()).cut(r, Cause::Loss), want, "{paths:?}, path {r}");
        assert_eq!(Bench::new("balia", paths.clone()).cut(r, Cause::Ece), want);
        0.0
    });
}

#[test]
fn xmp_shift_matches_floating_point() {
    // The sum is short by up to 2^-16 per path, delta by up to 2^-20.
    let error = |paths: &Paths, r| {
        let want = paths.xmp(r);
        let bench = Bench::new("xmp", Paths { gap: vec![0; paths.w.len()], ..paths.clone() });
        // Growth stops at the top of the range; what was cut off there is not an error.
        let room = f64::from(MAX_CWND_PKT - paths.w[r]);
        if want >= room { 0.0 } else { ((bench.increase(r) - want).abs() - 1e-6).max(0.0) / want }
    };
    assert!(worst(8, cases(10_000), FULL, error) < 2e-4);
}

#[test]
fn amp_and_ewtcp_increase_match_floating_point() {
    worst(9, cases(5000), FULL, |paths, r| {
        let amp = Bench::new("amp", paths.clone()).increase(r);
        let ewtcp = Bench::new("ewtcp", paths.clone()).increase(r);
        assert!((amp - paths.amp()).abs() < 2.0 / ONE_Q40, "{paths:?}");
        assert!((ewtcp - paths.ewtcp(r)).abs() < 2.0 / ONE_Q40, "{paths:?}");
        0.0
    });
}

/// alpha over windows with random marks, and the cut at the end.
#[test]
fn dctcp_alpha_and_reduction_match_floating_point() {
    let dctcp = Algorithm::by_name("dctcp").expect("in the registry");
    let params = Params::defaults(dctcp);
    let mut numbers = Seeded(10);
    for _ in 0..cases(400) {
        let mut path = Path::default();
        let mut event = Event { now_us: 1, cwnd_pkt: 10, ssthresh_pkt: 10, ..Event::default() };
        dctcp.init(&event, &mut path, None, &params);
        let mut model = crate::model::Alpha::one();
        for _ in 0..40 {
            let total = pick(&mut numbers, 1, 1 << 20);
            let marked = if numbers.below(3) == Some(0) { 0 } else { pick(&mut numbers, 0, total) };
            for (acked, ece, ends) in [(total - marked, false, marked == 0), (marked, true, true)] {
                if acked == 0 {
                    continue;
                }
                event.acked_pkt = acked;
                event.flags = EventFlags::CWND_LIMITED.with(EventFlags::ECE, ece);
                event.snd_una = if ends { event.snd_nxt.wrapping_add(1) } else { event.snd_una };
                event.snd_nxt = event.snd_nxt.max(event.snd_una);
                dctcp.on_ack(&event, &mut path, None, &params);
            }
            model.update(marked, total);
            let found = path.pub_words[0] as f64 / f64::from(1u32 << 30);
            assert!(
                (found - model.value()).abs() < 17.0 / f64::from(1u32 << 30),
                "{found} {}",
                model.value()
            );
        }
        event.cwnd_pkt = pick(&mut numbers, 4, MAX_CWND_PKT);
        event.cause = Cause::Ece;
        let decision = dctcp.on_congestion(&event, &mut path, None, &params);
        let want = f64::from(event.cwnd_pkt) * (1.0 - model.value() / 2.0);
        let found = decision.ssthresh().expect("answers");
        assert!((f64::from(found) - want).abs() <= 1.02, "{found} {want}");
    }
}

/// W(t) of CUBIC, seen through the increase at a tiny round-trip time.
#[test]
fn cubic_curve_matches_floating_point() {
    let cubic = Algorithm::by_name("cubic").expect("in the registry");
    let params = Params::defaults(cubic);
    let mut numbers = Seeded(11);
    let mut checked = 0;
    for _ in 0..cases(5000) {
        let w_max = pick(&mut numbers, 10, MAX_CWND_PKT);
        let mut path = Path::default();
        let mut event = Event {
            now_us: 1,
            cwnd_pkt: w_max,
            ssthresh_pkt: w_max,
            srtt_8us: 8,
            acked_pkt: 1,
            flags: EventFlags::CWND_LIMITED,
            cause: Cause::Loss,
            ..Event::default()
        };
        cubic.init(&event, &mut path, None, &params);
        let decision = cubic.on_congestion(&event, &mut path, None, &params);
        event.ssthresh_pkt = decision.ssthresh().expect("answers");
        event.cwnd_pkt = event.ssthresh_pkt;
        cubic.on_grow(&event, &mut path, None, &params);
        let curve = crate::model::Cubic::new(w_max, event.ssthresh_pkt);
        let t_us = u64::from(pick(&mut numbers, 1000, 200_000_000));
        let (want, slope) = (curve.w(t_us), curve.slope(t_us));
        event.cwnd_pkt = (want / 1.2) as u32;
        // Below the Reno estimate, or out of range: another rule applies.
        if want < f64::from(event.ssthresh_pkt) + 2.0 || want >= f64::from(MAX_CWND_PKT) {
            continue;
        }
        (event.now_us, event.ssthresh_pkt) = (1 + t_us, event.cwnd_pkt);
        path.credit_q40 = 0;
        let decision = cubic.on_grow(&event, &mut path, None, &params);
        let grown = f64::from(decision.cwnd().unwrap_or(event.cwnd_pkt)) - f64::from(event.cwnd_pkt)
            + path.credit_q40 as f64 / ONE_Q40;
        let found = f64::from(event.cwnd_pkt) * (1.0 + grown);
        let allowed = slope * 0.0021 + 0.004 + 1e-9 * want;
        assert!((found - want).abs() < allowed, "W_max {w_max}, t {t_us}: {found} instead of {want}");
        checked += 1;
    }
    assert!(checked > 1000, "{checked}");
}
