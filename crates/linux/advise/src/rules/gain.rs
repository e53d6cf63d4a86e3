//! Goodput of several paths over TCP's. Every number has its measurement in docs/evidence; `docs/evidence/advise.md` compares the
//! results with measured outcomes.

use super::candidates::{Candidates, largest_rtt_us, paths};
use crate::facts::{Facts, Kind, Nic};
use serde::Serialize;

/// Bytes that Linux's scheduler gives one subflow at a time. Answers of up to that size keep the first path: the second NIC's
/// share was 0 for 1 and 10 kB, 1.5 % for 32 kB (docs/evidence/applications.md, "On a kernel").
const SCHEDULER_BURST_BYTES: u64 = 64 << 10;
/// Requests per second over MPTCP of TCP's, at 256 B, in a public report that docs/evidence/applications.md names. Our own run of
/// it says nothing, as the machine was busy.
const SMALL_REQUESTS_LOW: f64 = 0.78;
/// Payload of two paths over twice one path's: 1.96 to 1.98 of 2 (docs/evidence/applications.md, 40 and 100 MB).
const EFFICIENCY: f64 = 0.985;
/// Round trips by which the second subflow begins later: makes 1.2 of 1 MB and 1.8 of 10 MB at 200 Mb/s and 5 ms, measured 1.16
/// and 1.83 (docs/evidence/applications.md, "The paper", fig4).
const JOIN_RTTS: f64 = 2.0;
/// Initial window: ten segments (RFC 6928).
const INITIAL_WINDOW_BYTES: f64 = 14_600.0;
/// Least and most of the expected gain's excess over 1. LIA had 1.49 of an expected 1.97 where one other connection used the second
/// path (docs/demo.txt); a file between two loaded NICs 2.29 (docs/evidence/applications.md, rsync, congested).
const EXCESS_RANGE: (f64, f64) = (0.45, 1.35);
/// Transfers of this size are long at any usual round-trip time.
const LONG_BYTES: u64 = 100_000_000;
/// Ratio of round-trip times beyond which nothing is measured.
const MEASURED_RTT_RATIO: u64 = 5;
/// Rate of two unshaped paths between namespaces of one machine, the most that was measured (docs/evidence/hosts.md).
const MEASURED_RATE_BPS: u64 = 40_000_000_000;
/// Part of the time in which the receive window limits, from which that is said.
const NOTABLE_WINDOW_LIMIT: f64 = 0.1;

const APPLICATIONS: &str = "docs/evidence/applications.md";
const HOSTS: &str = "docs/evidence/hosts.md";
const NOT_MEASURED: &str = "not measured";

/// Goodput over TCP's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Least.
    pub low: f64,
    /// Expected; `None` where a fact is missing.
    pub expected: Option<f64>,
    /// Most.
    pub high: f64,
}

/// Reason for a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The reason.
    pub text: String,
    /// The measurement behind it, or "not measured".
    pub evidence: Option<&'static str>,
}

impl Gain {
    fn known(expected: f64) -> Self {
        let (least, most) = EXCESS_RANGE;
        let excess = expected - 1.0;
        let (low, high) =
            if excess < 0.0 { (expected, 1.0) } else { (1.0 + least * excess, 1.0 + most * excess) };
        Self { low, expected: Some(expected), high }
    }

    fn unknown(high: f64) -> Self {
        Self { low: 1.0, expected: None, high }
    }
}

/// Reasons as they are found.
struct Reasons<'a>(&'a mut Vec<Reason>);

impl Reasons<'_> {
    fn add(&mut self, text: impl Into<String>, evidence: Option<&'static str>) {
        self.0.push(Reason { text: text.into(), evidence });
    }
}

/// `None` where there is one path, or the application is not known.
pub(super) fn of(facts: &Facts, candidates: &Candidates<'_>, reasons: &mut Vec<Reason>) -> Option<Gain> {
    let mut reasons = Reasons(reasons);
    if !candidates.several() {
        reasons
            .add("one interface has one path: nothing can be gained, and nothing survives its failure", None);
        return None;
    }
    if facts.application.closes_listener {
        reasons.add(
            "the server closes the listening socket of a data connection, as FTP servers do: the second subflow is refused, and \
             the connection keeps one path",
            Some(APPLICATIONS),
        );
        return Some(Gain::known(1.0));
    }
    let gain = of_application(facts, candidates, &mut reasons)?;
    Some(on_this_host(gain, facts, candidates, &mut reasons))
}

fn of_application(facts: &Facts, candidates: &Candidates<'_>, reasons: &mut Reasons<'_>) -> Option<Gain> {
    let application = &facts.application;
    match (application.kind, application.size_bytes) {
        (Some(Kind::RequestResponse), Some(size)) if size <= SCHEDULER_BURST_BYTES => {
            reasons.add(
                "Linux keeps responses of up to 64 KiB on one path: no rate is gained; a failed path is survived",
                Some(APPLICATIONS),
            );
            reasons.add(
                "the processor time of MPTCP for small requests: a public report has 0.78 of TCP's requests",
                Some(NOT_MEASURED),
            );
            Some(Gain { low: SMALL_REQUESTS_LOW, expected: Some(1.0), high: 1.0 })
        }
        (Some(Kind::RequestResponse), None) => {
            reasons.add(
                "the size of responses decides: give it (`--size`), or watch the application (`--watch`)",
                None,
            );
            None
        }
        (None, None) => {
            reasons.add(
                "the application is not known: give `--application` and `--size`, or watch it (`--watch`)",
                None,
            );
            None
        }
        (kind, size) => {
            let ratio = capacity(facts, candidates, reasons)?;
            match kind {
                Some(Kind::RequestResponse) => {
                    Some(large_responses(facts, candidates, size.unwrap_or(0), ratio, reasons))
                }
                _ => Some(transfers(facts, candidates, size, ratio, reasons)),
            }
        }
    }
}

/// Rate of all paths over TCP's, as far as the application can use it.
enum Capacity {
    Known { ratio: f64, first_bps: u64 },
    Between { most: f64 },
}

fn capacity(facts: &Facts, candidates: &Candidates<'_>, reasons: &mut Reasons<'_>) -> Option<Capacity> {
    let names = |nics: &[&Nic]| nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", ");
    if candidates.share_one() {
        let lower = candidates.first()?.lower.as_deref().unwrap_or_default();
        reasons.add(
            format!(
                "{} and {} are parts of {lower}: they share its rate, and a second path adds none",
                candidates.first()?.name,
                names(candidates.further())
            ),
            Some(APPLICATIONS),
        );
        return Some(Capacity::Known { ratio: 1.0, first_bps: candidates.first()?.rate_bps.unwrap_or(0) });
    }
    let Some((first_bps, total_bps)) = candidates.rates_bps() else {
        let unknown = candidates.unknown_rates().join(", ");
        reasons.add(format!("the rate of {unknown} is not known: give it (`--rate NIC=RATE`)"), None);
        return Some(Capacity::Between { most: candidates.apart() as f64 });
    };
    if first_bps == 0 {
        return None;
    }
    let demand = facts.application.demand_bps.unwrap_or(u64::MAX);
    let ratio = total_bps.min(demand) as f64 / first_bps.min(demand).max(1) as f64;
    if demand <= first_bps {
        reasons.add(
            format!("the application offers {} by itself, which the first path carries: the network is not the limit", rate(demand)),
            Some(APPLICATIONS),
        );
    } else {
        reasons.add(
            format!("the paths together carry {}, TCP's path {}", rate(total_bps), rate(first_bps)),
            None,
        );
    }
    Some(Capacity::Known { ratio, first_bps })
}

fn transfers(
    facts: &Facts,
    candidates: &Candidates<'_>,
    size: Option<u64>,
    capacity: Capacity,
    reasons: &mut Reasons<'_>,
) -> Gain {
    let (ratio, first_bps) = match capacity {
        Capacity::Known { ratio, .. } if ratio < 1.0 + f64::EPSILON => return Gain::known(1.0),
        Capacity::Known { ratio, first_bps } => (ratio, first_bps),
        Capacity::Between { most } => return Gain::unknown(most),
    };
    let Some(size) = size.map(|size| size.saturating_mul(connections(facts))) else {
        return Gain::known(ratio * EFFICIENCY);
    };
    match largest_rtt_us(facts, candidates) {
        Some(rtt_us) => {
            let expected = of_transfer(size, product_bytes(first_bps, rtt_us), ratio);
            if expected < super::WORTH {
                reasons.add(
                    format!(
                        "{} are too short for the second path, which begins two round trips later",
                        bytes(size)
                    ),
                    Some(APPLICATIONS),
                );
            }
            Gain::known(expected)
        }
        None if size >= LONG_BYTES => Gain::known(ratio * EFFICIENCY),
        None => {
            reasons.add(
                "the round-trip time decides at this size, and is not known: give a port (`--to HOST:PORT`)",
                None,
            );
            Gain::unknown(ratio)
        }
    }
}

/// Time over TCP divided by the time over all paths, in round trips: slow start up to the product of rate and round-trip time,
/// then the rate; further subflows begin [`JOIN_RTTS`] later.
fn of_transfer(size: u64, product: f64, ratio: f64) -> f64 {
    let rounds = (product / INITIAL_WINDOW_BYTES).log2().max(0.0);
    let products = size as f64 / product;
    (products + rounds) / (products / (ratio * EFFICIENCY) + rounds + JOIN_RTTS)
}

/// On kept connections: bursts alternate between the subflows, the first path has the odd one. Of 200 kB more than a fifth came by
/// the second path (docs/evidence/applications.md, "On a kernel"); the rest of the curve follows from the burst alone.
fn large_responses(
    facts: &Facts,
    candidates: &Candidates<'_>,
    size: u64,
    capacity: Capacity,
    reasons: &mut Reasons<'_>,
) -> Gain {
    let bursts = size.div_ceil(SCHEDULER_BURST_BYTES);
    let by_first = (bursts.div_ceil(2) * SCHEDULER_BURST_BYTES).min(size);
    let most = size as f64 / by_first.max(1) as f64;
    reasons.add("Linux gives each path 64 KiB of a response in turn", Some(APPLICATIONS));
    let (ratio, first_bps) = match capacity {
        Capacity::Known { ratio, .. } if ratio < 1.0 + f64::EPSILON => return Gain::known(1.0),
        Capacity::Known { ratio, first_bps } => (ratio.min(most) * EFFICIENCY, first_bps),
        Capacity::Between { most: all } => return Gain::unknown(all.min(most)),
    };
    let Some(rtt_us) = largest_rtt_us(facts, candidates) else {
        reasons.add("the round-trip time is not known (`--to HOST:PORT`): taken as short", None);
        return Gain::known(ratio);
    };
    let products = size.saturating_mul(connections(facts)) as f64 / product_bytes(first_bps, rtt_us);
    Gain::known((products + 1.0) / (products / ratio + 1.0))
}

/// Circumstances that move the range.
fn on_this_host(gain: Gain, facts: &Facts, candidates: &Candidates<'_>, reasons: &mut Reasons<'_>) -> Gain {
    let host = &facts.host;
    let mut gain = gain;
    if let (Some(load), Some(processors)) = (host.load, host.processors)
        && load >= f64::from(processors)
    {
        reasons.add(
            format!("{processors} processors have a load of {load:.1}: where they are the limit, a second path adds nothing"),
            Some(NOT_MEASURED),
        );
        gain.low = gain.low.min(1.0);
    }
    if host.throttled_cgroups > 0 {
        reasons.add(
            format!(
                "{} cgroups here ran out of their processor quota (`vmcc status` names them)",
                host.throttled_cgroups
            ),
            None,
        );
    }
    if candidates.rates_bps().is_some_and(|(_, total)| total > MEASURED_RATE_BPS) {
        reasons.add("above 40 Gbit/s copying and the lock of a connection limit it: two unshaped paths carried 40 to 48", Some(HOSTS));
        gain.low = gain.low.min(1.0);
    }
    let least = |nic: &Nic| paths(facts, nic).filter_map(|path| path.rtt_us).min();
    let rtts: Vec<u64> = candidates.all().iter().copied().filter_map(least).collect();
    if let (Some(least), Some(most)) = (rtts.iter().min(), rtts.iter().max())
        && *most > least.saturating_mul(MEASURED_RTT_RATIO)
    {
        reasons.add(
            format!(
                "round-trip times of {:.1} and {:.1} ms: a slow path can hold up the fast one",
                ms(*least),
                ms(*most)
            ),
            Some(NOT_MEASURED),
        );
        gain.low = gain.low.min(1.0);
    }
    if let Some(share) =
        facts.application.receive_window_limited.filter(|share| *share >= NOTABLE_WINDOW_LIMIT)
    {
        reasons.add(
            format!("the peer's receive window limits {:.0} % of the time: a larger `tcp_rmem` there helps TCP, too", share * 100.0),
            None,
        );
    }
    reasons.add(
        "whether the paths share a bottleneck beyond this host cannot be seen from its settings; `vmcc up --guard` finds it in \
         running connections",
        None,
    );
    gain
}

fn connections(facts: &Facts) -> u64 {
    u64::from(facts.application.concurrency.unwrap_or(1).max(1))
}

/// Product of rate and round-trip time.
fn product_bytes(rate_bps: u64, rtt_us: u64) -> f64 {
    (rate_bps as f64 * rtt_us as f64 / 8e6).max(1.0)
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

/// A rate as people write it.
pub(super) fn rate(bps: u64) -> String {
    let scaled = |unit: u64| bps as f64 / unit as f64;
    match bps {
        1_000_000_000.. => format!("{} Gbit/s", Short(scaled(1_000_000_000))),
        1_000_000.. => format!("{} Mbit/s", Short(scaled(1_000_000))),
        _ => format!("{bps} bit/s"),
    }
}

/// A size as people write it.
fn bytes(bytes: u64) -> String {
    let scaled = |unit: u64| Short(bytes as f64 / unit as f64);
    match bytes {
        1_000_000_000.. => format!("{} GB", scaled(1_000_000_000)),
        1_000_000.. => format!("{} MB", scaled(1_000_000)),
        1_000.. => format!("{} kB", scaled(1_000)),
        _ => format!("{bytes} B"),
    }
}

/// At most two decimals.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.2}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_gain_more_the_longer_they_are() {
        // 200 Mb/s and 5 ms: docs/evidence/applications.md, fig4.
        let gain = |size| of_transfer(size, product_bytes(200_000_000, 5_000), 2.0);
        let gains: Vec<f64> = [1, 1_000, 100_000, 1_000_000, 10_000_000, u64::MAX].map(gain).to_vec();
        assert!(gains.is_sorted(), "{gains:?}");
        assert!(gains[2] < 1.0 && gains[5] < 2.0 && gains[5] > 1.9, "{gains:?}");
    }

    #[test]
    fn gain_range_contains_the_expected_gain() {
        for expected in [0.5, 1.0, 1.1, 1.97, 7.0] {
            let gain = Gain::known(expected);
            assert!(gain.low <= expected && expected <= gain.high, "{gain:?}");
        }
    }

    #[test]
    fn quantities_are_printed_with_their_unit() {
        assert_eq!(
            [0, 999, 200_000_000, 2_500_000_000].map(rate),
            ["0 bit/s", "999 bit/s", "200 Mbit/s", "2.5 Gbit/s"]
        );
        assert_eq!([1, 64_000, 1_500_000].map(bytes), ["1 B", "64 kB", "1.5 MB"]);
    }
}
