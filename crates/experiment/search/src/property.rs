//! Properties of a congestion control, as claims that compare it with one TCP connection on each path.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use vmcc_scenario::ClaimSpec;

/// Case of the connections under test.
pub(crate) const TESTED: &str = "tested";

/// Least share of the best path's TCP goodput (RFC 6356, goal 1: as much as one flow on the best path). The rest is tolerance.
const BEST_PATH_SHARE: f64 = 0.8;
/// Least share that a competing connection keeps, of what it has beside one TCP connection on its path (RFC 6356, goal 2).
const FAIR_SHARE: f64 = 0.6;
/// Share below which a connection starves.
const STARVATION_SHARE: f64 = 0.1;
/// Largest ratio of mean queues, beyond [`QUEUE_SLACK_BYTES`].
const QUEUE_RATIO: f64 = 2.0;
const QUEUE_SLACK_BYTES: f64 = 15_000.0;
/// Longest time without progress, beyond twice that of the path that stalls least.
const STALL_SLACK_US: f64 = 1_000_000.0;
/// Largest number of retransmissions: this share of what is delivered, beyond three times those of TCP on all paths.
const RETRANSMIT_SHARE: f64 = 0.25;
/// Payload of a full segment, in bits.
const SEGMENT_BITS: f64 = 11_584.0;

/// A property that a search tries to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// Goodput of at least 80 % of one TCP connection's on the best path (RFC 6356, goal 1).
    BestPath,
    /// A competing TCP connection keeps at least 60 % of what it has beside one TCP connection (RFC 6356, goal 2).
    FairShare,
    /// No connection, tested or competing, has less than a tenth of what it has in the comparison.
    Starvation,
    /// Mean queues of at most twice those of one TCP connection, and 15 kB.
    Queue,
    /// No time without in-order delivery longer than 1 s and twice that of TCP on the best path.
    Stall,
    /// Fewer retransmissions than a quarter of what is delivered and three times those of TCP on all paths.
    Livelock,
}

impl Property {
    /// All, in the order of tables.
    pub const ALL: [Self; 6] =
        [Self::BestPath, Self::FairShare, Self::Starvation, Self::Queue, Self::Stall, Self::Livelock];

    /// Name, as in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BestPath => "best-path",
            Self::FairShare => "fair-share",
            Self::Starvation => "starvation",
            Self::Queue => "queue",
            Self::Stall => "stall",
            Self::Livelock => "livelock",
        }
    }

    /// Violation, in words.
    pub const fn violation(self) -> &'static str {
        match self {
            Self::BestPath => "less goodput than TCP on the best path",
            Self::FairShare => "takes more from a competing connection than one TCP does",
            Self::Starvation => "a connection starves",
            Self::Queue => "longer queues than TCP",
            Self::Stall => "stalls while TCP makes progress",
            Self::Livelock => "retransmits instead of delivering",
        }
    }

    /// Its claims in a network: it holds if all of them do.
    pub(crate) fn claims(self, seen: &Comparison<'_>) -> Vec<ClaimSpec> {
        let claim = |id: String, check: String| ClaimSpec {
            id,
            paper: None,
            check,
            note: None,
            analysis: None,
            kernel_analysis: None,
        };
        let one = |check: String| vec![claim(self.name().to_owned(), check)];
        let of_rivals = |least: f64| -> Vec<ClaimSpec> {
            let check = |(label, path): &(String, usize)| {
                let metric = format!("traffic.{label}.goodput_bps");
                let check = format!(
                    "{} >= {least} * {}",
                    tested("mean", &metric),
                    seen.control("mean", &metric, *path)
                );
                claim(format!("{}-of-{label}", self.name()), check)
            };
            seen.rivals.iter().map(check).collect()
        };
        match self {
            Self::BestPath => one(format!(
                "{} >= {BEST_PATH_SHARE} * {}",
                tested("mean", "goodput_bps"),
                seen.of_controls("max", "mean", "goodput_bps")
            )),
            Self::FairShare => of_rivals(FAIR_SHARE),
            Self::Starvation => {
                let metric = "flow_goodput_bps.min";
                let own = format!(
                    "{} >= {STARVATION_SHARE} * {}",
                    tested("mean", metric),
                    seen.of_controls("max", "mean", metric)
                );
                [one(own), of_rivals(STARVATION_SHARE)].concat()
            }
            Self::Queue => {
                let check = |path: usize| {
                    let name = &seen.paths[path];
                    let metric = format!("paths.{name}.queue_bytes.mean");
                    let control = seen.control("mean", &metric, path);
                    let check = format!(
                        "{} <= {QUEUE_RATIO} * {control} + {QUEUE_SLACK_BYTES}",
                        tested("mean", &metric)
                    );
                    claim(format!("{}-of-{name}", self.name()), check)
                };
                (0..seen.paths.len()).map(check).collect()
            }
            Self::Stall => one(format!(
                "{} <= {STALL_SLACK_US} + 2 * {}",
                tested("max", "stalled_us.max"),
                seen.of_controls("min", "max", "stalled_us.max")
            )),
            Self::Livelock => {
                let all = seen.controls("mean", "retransmits");
                let per_bps = RETRANSMIT_SHARE * seen.window_s / SEGMENT_BITS;
                one(format!(
                    "{} <= 3 * ({}) + {per_bps:.9} * {}",
                    tested("mean", "retransmits"),
                    all.join(" + "),
                    tested("mean", "goodput_bps")
                ))
            }
        }
    }
}

/// Names that claims are made of.
pub(crate) struct Comparison<'a> {
    pub(crate) paths: &'a [String],
    /// Competing TCP connections of one path each: label, index of the path.
    pub(crate) rivals: &'a [(String, usize)],
    /// Time after the warm-up.
    pub(crate) window_s: f64,
}

impl Comparison<'_> {
    fn control(&self, function: &str, metric: &str, path: usize) -> String {
        format!("{function}({metric}, variant='{}')", control(&self.paths[path]))
    }

    /// The value of each control.
    fn controls(&self, function: &str, metric: &str) -> Vec<String> {
        (0..self.paths.len()).map(|path| self.control(function, metric, path)).collect()
    }

    /// The largest or smallest value of all controls.
    fn of_controls(&self, pick: &str, function: &str, metric: &str) -> String {
        match self.controls(function, metric).as_slice() {
            [one] => one.clone(),
            several => format!("{pick}({})", several.join(", ")),
        }
    }
}

/// Case of one TCP connection on a path.
pub(crate) fn control(path: &str) -> String {
    format!("tcp on {path}")
}

fn tested(function: &str, metric: &str) -> String {
    format!("{function}({metric}, variant='{TESTED}')")
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Property {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|property| property.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("there is no property `{name}`; the properties are {known}")
        })
    }
}
