//! The options of `vmcc top`.

use clap::{Args, ValueEnum};
use vmcc_units::Nanos;

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Sampling interval, 100ms to 60min
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Nanos,

    /// Sort key of the connections
    #[arg(long, value_enum, default_value_t = SortKey::Goodput)]
    pub(crate) sort: SortKey,

    /// Only connections with this in their token, algorithm, addresses, devices or verdicts
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,

    /// Sample twice, one interval apart, print all connections and exit
    #[arg(long)]
    pub(crate) once: bool,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    /// Payload acknowledged and received per second, the most first
    Goodput,
    /// Congestion windows of all paths, the most first
    Cwnd,
    /// The longest smoothed round-trip time first
    Rtt,
    /// The highest alpha of any path first
    Alpha,
    /// The highest share of marked packets first
    Marked,
    /// By token
    Connection,
    /// By name
    Algorithm,
}

/// Bounds of the sampling interval: processor time at one end, a responsive screen at the other.
fn interval(text: &str) -> Result<Nanos, String> {
    const MIN: f64 = 0.1;
    const MAX: f64 = 3600.0;
    let interval: Nanos = text.parse().map_err(|e| format!("{e}"))?;
    if (MIN..=MAX).contains(&interval.as_secs_f64()) {
        Ok(interval)
    } else {
        Err("give 100ms to 60min".to_owned())
    }
}
