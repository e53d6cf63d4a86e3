//! The published detectors of shared bottlenecks, `events` (mTCP) and `statistics` (RFC 8382), against their formulas in
//! floating point and against matching by augmenting paths.

use std::collections::VecDeque;

use vmcc_cc::trace::{Seeded, Source};
use vmcc_cc::{Algorithm, Decision, Event, EventFlags, Group, Params, Sharing, Slot, SlotFlags, State};

const RTT_US: u32 = 1000;

/// Two paths that hear what a test tells them.
struct Paths {
    params: Params,
    group: Group,
    sharing: Sharing,
    srtt_us: u32,
}

impl Paths {
    fn new(detector: &str, interval_ms: f64) -> Self {
        let vmcc = Algorithm::by_name("vmcc").expect("in the registry");
        let mut params = Params::defaults(vmcc);
        params.set("detector", detector).expect("a choice");
        params.set("interval", interval_ms).expect("in range");
        let slot = Slot { flags: SlotFlags::ESTABLISHED, srtt_8us: 8 * RTT_US, ..Slot::default() };
        let group = [slot; 2].into_iter().collect();
        Self { params, group, sharing: Sharing::default(), srtt_us: RTT_US }
    }

    fn ack(&mut self, path: usize, now_us: u64, state: State, rtt_us: u32) -> Decision {
        let event = Event {
            now_us,
            flags: EventFlags::CWND_LIMITED,
            state,
            self_index: path as u32,
            cwnd_pkt: 20,
            ssthresh_pkt: 20,
            srtt_8us: 8 * self.srtt_us,
            min_rtt_us: RTT_US,
            rtt_us,
            acked_pkt: 1,
            ..Event::default()
        };
        self.params.algorithm().detect(&event, &self.group, &mut self.sharing, &self.params)
    }

    /// A reduction begins; whether the path asks to be closed.
    fn reduces(&mut self, path: usize, now_us: u64) -> bool {
        self.ack(path, now_us, State::Open, RTT_US);
        self.ack(path, now_us, State::Recovery, RTT_US).close_in_favor_of().is_some()
    }
}

/// The largest number of disjoint pairs nearer than `interval`, by augmenting paths.
fn matched(s: &[i64], t: &[i64], lag: i64, interval: i64) -> usize {
    fn augment(i: usize, near: &[Vec<usize>], seen: &mut [bool], of: &mut [Option<usize>]) -> bool {
        near[i].iter().any(|&j| {
            !std::mem::replace(&mut seen[j], true)
                && (of[j].is_none_or(|other| augment(other, near, seen, of)) && {
                    of[j] = Some(i);
                    true
                })
        })
    }
    let reaches = |a: &i64| (0..t.len()).filter(|&j| (a - t[j] - lag).abs() < interval).collect();
    let near: Vec<Vec<usize>> = s.iter().map(reaches).collect();
    let mut of = vec![None; t.len()];
    (0..s.len()).filter(|&i| augment(i, &near, &mut vec![false; t.len()], &mut of)).count()
}

/// Chernoff's bound for a share of one half, with a probability of 0.05 over 81 lags.
fn least_events(p: f64) -> f64 {
    let half = 0.5f64;
    let divergence = half * (half / p).ln() + half * (half / (1.0 - p)).ln();
    (81.0f64 / 0.05).ln() / divergence
}

/// Result of mTCP's test on the last 15 events of each path; `None` while there are too few.
fn correlated(events: [&VecDeque<i64>; 2], began: [i64; 2], now: i64, interval: i64) -> Option<bool> {
    let from = |i: usize| if events[i].len() < 15 { began[i] } else { events[i][0] };
    let from = from(0).max(from(1));
    let [s, t] = events.map(|all| all.iter().copied().filter(|at| *at >= from).collect::<Vec<_>>());
    let (fewer, more) = (s.len().min(t.len()), s.len().max(t.len()));
    let p = 2.0 * interval as f64 * more as f64 / (now - from) as f64;
    if p >= 0.5 || (fewer as f64) < least_events(p) {
        return None;
    }
    let rtt = i64::from(RTT_US);
    let best = (0..=80).map(|k| matched(&s, &t, k * rtt / 40 - rtt, interval)).max().expect("81");
    Some(2 * best > fewer)
}

#[test]
fn sample_bound_matches_chernoff() {
    // By the shorter mean interval, in units of the interval within which events match.
    for (spacing, least) in [(15.0, 20.0), (20.0, 15.0), (25.0, 13.0), (50.0, 8.0)] {
        assert_eq!(least_events(2.0 / spacing).ceil(), least, "events every {spacing} intervals");
    }
}

#[test]
fn matching_of_reductions_is_maximum() {
    const INTERVAL: i64 = 500;
    let (mut shared, mut apart, mut unknown) = (0, 0, 0);
    for seed in 0..300 {
        let mut draws = Seeded(seed);
        let mut paths = Paths::new("events", INTERVAL as f64 / 1e3);
        let (mut kept, mut began) = ([VecDeque::new(), VecDeque::new()], [0i64; 2]);
        let mut now = 1_000_000u64;
        for (path, began) in began.iter_mut().enumerate() {
            paths.ack(path, now, State::Open, RTT_US);
            *began = (now + 2 * u64::from(RTT_US)) as i64 | 1;
        }
        let mut of_path_1 = 0;
        let spread = 12_000 + draws.below(20_000).expect("endless");
        for _ in 0..40 {
            now += 5_000 + u64::from(draws.below(spread).expect("endless"));
            // Both, one after the other, or one of them.
            let what = draws.below(4).expect("endless");
            let which: &[usize] = [&[0, 1][..], &[1, 0], &[0], &[1]][what as usize];
            for &path in which {
                now += 1 + u64::from(draws.below(1500).expect("endless"));
                let closes = paths.reduces(path, now);
                kept[path].push_back(now as i64);
                if kept[path].len() > 15 {
                    kept[path].pop_front();
                }
                of_path_1 += path;
                if path == 0 || of_path_1 % 4 != 0 {
                    assert!(!closes, "seed {seed}: not a time to look");
                    continue;
                }
                let says = correlated([&kept[0], &kept[1]], began, now as i64, INTERVAL);
                match says {
                    Some(true) => shared += 1,
                    Some(false) => apart += 1,
                    None => unknown += 1,
                }
                assert_eq!(closes, says == Some(true), "seed {seed}, at {now}: {says:?}");
                paths.sharing.evidence[0] = 0;
            }
        }
    }
    assert!(shared > 50 && apart > 50 && unknown > 50, "{shared} shared, {apart} apart, {unknown} unknown");
}

/// Section 3 of RFC 8382 for one path, in floating point; delays in units of T.
#[derive(Default)]
struct Summary {
    samples: Vec<f64>,
    intervals: usize,
    last_mean: f64,
    long_mean: f64,
    skewness: f64,
    variability: f64,
    oscillation: f64,
    above: bool,
    congested: bool,
}

impl Summary {
    fn turn(&mut self) {
        let n = self.samples.len() as f64;
        let mean = self.samples.iter().sum::<f64>() / n;
        let share =
            |which: &dyn Fn(&f64) -> bool| self.samples.iter().filter(|d| which(d)).count() as f64 / n;
        let skewness = share(&|d| *d < self.long_mean) - share(&|d| *d > self.long_mean);
        let variability = self.samples.iter().map(|d| (d - self.last_mean).abs()).sum::<f64>() / n;
        let over = |length: usize, of: usize| of.min(length) as f64;
        if self.intervals > 0 {
            self.skewness += (skewness - self.skewness) / over(30, self.intervals);
            self.variability += (variability - self.variability) / over(30, self.intervals);
            let was = self.above;
            if (mean - self.long_mean).abs() > 0.7 * self.variability {
                self.above = mean > self.long_mean;
            }
            let crosses = f64::from(u8::from(was != self.above));
            self.oscillation += (crosses - self.oscillation) / over(50, self.intervals);
        }
        self.intervals += 1;
        self.long_mean += (mean - self.long_mean) / over(30, self.intervals);
        self.last_mean = mean;
        self.congested = self.skewness < if self.congested { 0.3 } else { 0.1 };
        self.samples.clear();
    }
}

/// By how much two paths are in one group, below 0, or are not; the decisive difference.
fn apart(x: &Summary, y: &Summary) -> f64 {
    let variability = (x.variability - y.variability).abs() / x.variability.max(y.variability);
    [
        (x.oscillation - y.oscillation).abs() - 0.1,
        variability - 0.1,
        (x.skewness - y.skewness).abs() - 0.15,
        if x.congested && y.congested { -1.0 } else { 1.0 },
    ]
    .into_iter()
    .fold(-1.0, f64::max)
}

#[test]
fn path_groups_match_rfc_8382() {
    const T_US: u64 = 4 * RTT_US as u64;
    const ACKS: u64 = 20;
    let (mut together, mut not) = (0, 0);
    for seed in 0..60 {
        let mut draws = Seeded(seed);
        let mut paths = Paths::new("statistics", T_US as f64 / 1e3);
        let mut models = [Summary::default(), Summary::default()];
        // Queues that are full most of the time, and emptied now and then, alike or not.
        let depth = [800, 800 + 400 * (seed as u32 % 3)];
        let mut waits_us = [0u32; 2];
        for interval in 0..150u64 {
            for ack in 0..ACKS {
                for path in 0..2 {
                    let more = draws.below(60).expect("endless");
                    let emptied = draws.below(100).expect("endless") == 0;
                    waits_us[path] = if emptied { 0 } else { (waits_us[path] + more).min(depth[path]) };
                    let rtt_us = RTT_US + waits_us[path];
                    let now_us = 1_000_000 + interval * T_US + ack * T_US / ACKS;
                    let decision = paths.ack(path, now_us, State::Open, rtt_us);
                    if ack == 0 && interval > 0 {
                        models[path].turn();
                        let [x, y] = &models;
                        let margin = apart(x, y);
                        if path == 1 && interval > 51 && margin.abs() > 0.002 {
                            let closes = decision.close_in_favor_of().is_some();
                            assert_eq!(closes, margin < 0.0, "seed {seed}, interval {interval}: {margin}");
                            together += u32::from(closes);
                            not += u32::from(!closes);
                        }
                        assert!(
                            interval > 45 || decision.close_in_favor_of().is_none(),
                            "before N intervals"
                        );
                    }
                    models[path].samples.push(f64::from(rtt_us) / T_US as f64);
                }
            }
        }
    }
    assert!(together > 100 && not > 100, "{together} together, {not} not");
}
