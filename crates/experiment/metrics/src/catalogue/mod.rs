//! Every metric, once. [`all`] is the list; adding an entry to it is what makes a metric known everywhere.

pub mod columns;
mod entries;
mod links;
mod lives;
mod tables;

use crate::reduce::Reduce;
use crate::unit::{Scale, Unit};

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name in results and claims, with the unit at its end where it has one.
    pub name: &'static str,
    /// Places of a result that hold it.
    pub places: &'static [Place],
    /// Its unit.
    pub unit: Unit,
    /// One number, or a distribution.
    pub kind: Kind,
    /// Which part of a run it is about.
    pub span: Span,
    /// Engines that observe it.
    pub engines: Engines,
    /// Title for users: in lists, and of plots over time.
    pub title: &'static str,
    /// Columns of the table of cases, and plots over flows: a statistic (empty for the number itself) and its title.
    /// `*` is a path's name.
    pub shown: &'static [(&'static str, &'static str)],
    /// Its exact definition.
    pub meaning: &'static str,
    /// Reduction of the engines' observations to it.
    pub reduce: Reduce,
}

/// A place in a result that has figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The run.
    Run,
    /// One path.
    Path,
    /// One of several queues of a path's port.
    Class,
    /// One entry of traffic.
    Traffic,
    /// One tier of links of a multi-stage network.
    Tier,
    /// Transfers and requests of one range of sizes ([`SIZES`]).
    Size,
    /// One connection or transfer: a column of `flows.parquet`.
    Flow,
    /// A value over time: `series.parquet`.
    Series,
}

/// The shape of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number, counted.
    Count,
    /// One number.
    Number,
    /// A distribution over samples, reduced to [`STATISTICS`].
    Distribution,
}

/// Which part of a run a metric is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// From the end of the warm-up to the end of the run.
    Window,
    /// All of it, slow start included.
    Run,
    /// The interval that ends at a sample's time.
    Interval,
    /// The life of the connection.
    Life,
}

/// Which engines observe a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engines {
    /// All of them, with the same meaning.
    All,
    /// The simulator.
    Simulator,
    /// Those that run on kernels.
    Kernels,
    /// The same, on a machine that has counters of energy, or of instructions.
    Counters,
}

/// The figures of a distribution; without one, its mean is meant.
pub const STATISTICS: [&str; 7] = ["mean", "p50", "p99", "p999", "min", "max", "samples"];

/// Ranges of sizes, each with its largest in bytes.
pub const SIZES: [(&str, u64); 5] = [
    ("up_to_10kB", 10_000),
    ("up_to_100kB", 100_000),
    ("up_to_1MB", 1_000_000),
    ("up_to_10MB", 10_000_000),
    ("above_10MB", u64::MAX),
];

/// Index of the range of a size, in [`SIZES`].
pub fn range_of_size(bytes: u64) -> usize {
    SIZES.partition_point(|(_, largest)| *largest < bytes)
}

/// Every metric, in the order of tables.
pub fn all() -> &'static [Metric] {
    static ALL: [Metric; entries::ALL.len() + tables::ALL.len() + lives::ALL.len() + links::ALL.len()] = {
        let mut all = [entries::ALL[0]; _];
        let (first, rest) = all.split_at_mut(entries::ALL.len());
        let (second, rest) = rest.split_at_mut(tables::ALL.len());
        let (third, fourth) = rest.split_at_mut(lives::ALL.len());
        first.copy_from_slice(entries::ALL);
        second.copy_from_slice(tables::ALL);
        third.copy_from_slice(lives::ALL);
        fourth.copy_from_slice(links::ALL);
        all
    };
    &ALL
}

/// Every metric of a place.
pub fn of(place: Place) -> impl Iterator<Item = &'static Metric> {
    all().iter().filter(move |metric| metric.places.contains(&place))
}

/// The metric of this name at this place.
pub fn at(place: Place, name: &str) -> Option<&'static Metric> {
    of(place).find(|metric| metric.name == name)
}

/// The first metric of this name, wherever it stands: all of one name have one unit and one title.
pub fn named(name: &str) -> Option<&'static Metric> {
    all().iter().find(|metric| metric.name == name)
}

/// A metric's own name, out of a dotted one that says where it stands and which statistic it is.
pub fn base_name(dotted: &str) -> &str {
    let mut parts = dotted.rsplit('.');
    let last = parts.next().unwrap_or(dotted);
    if STATISTICS.contains(&last) { parts.next().unwrap_or(dotted) } else { last }
}

/// The unit in which `largest` of the figure `name` reads well: that of the catalogue, else of the name's ending.
pub fn scale_of(name: &str, largest: f64) -> Scale {
    let base = base_name(name);
    let listed = named(base).map(|metric| metric.unit);
    listed.or_else(|| Unit::of_name(base)).unwrap_or(Unit::Ratio).scale(largest)
}

impl Metric {
    /// Its name and, of a distribution, those of its figures.
    pub fn figure_names(&self) -> Vec<String> {
        let own = std::iter::once(self.name.to_owned());
        let statistics = STATISTICS.iter().filter(|_| self.kind == Kind::Distribution);
        own.chain(statistics.map(|s| format!("{}.{s}", self.name))).collect()
    }
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Run, Self::Path, Self::Class, Self::Traffic, Self::Tier, Self::Size, Self::Flow, Self::Series];

    /// The place as text for users: the prefix of a metric's name, or the file that holds it.
    pub fn pattern(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Path => "paths.<path>",
            Self::Class => "paths.<path>.class.<queue>",
            Self::Traffic => "traffic.<entry>",
            Self::Tier => "tier.<from>-<to>",
            Self::Size => "size.<range>",
            Self::Flow => "flows.parquet",
            Self::Series => "series.parquet",
        }
    }
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Number => "number",
            Self::Distribution => "distribution",
        }
    }
}

impl Span {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Run => "run",
            Self::Interval => "interval",
            Self::Life => "life",
        }
    }
}

impl Engines {
    /// Their names: `sim`, and `kernel` for this host's kernel as well as a guest's.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::All => &["sim", "kernel"],
            Self::Simulator => &["sim"],
            Self::Kernels | Self::Counters => &["kernel"],
        }
    }
}

#[cfg(test)]
mod tests;
