//! Settings that cannot be built, and where they stand.

use std::collections::BTreeSet;
use vmcc_config::BadValue;

use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos, Threshold};

use crate::{Discipline, Loss, Marking, Queue};

/// Fault of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key, as a path from the top of the scenario.
    pub path: String,
    /// The fault, and the expected form.
    pub message: String,
    /// A name that does not exist, and those that do.
    pub unknown: Option<(String, Vec<String>)>,
}

impl From<Fault> for BadValue {
    fn from(fault: Fault) -> Self {
        let help = fault
            .unknown
            .and_then(|(name, known)| vmcc_config::did_you_mean(&name, known.iter().map(String::as_str)));
        Self { path: fault.path, of_key: false, message: fault.message, help }
    }
}

/// Nothing, or what is wrong.
pub type Check = Result<(), Fault>;

/// A fault at a key.
pub fn fault(path: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault { path: path.into(), message: message.into(), unknown: None }
}

/// Fails with `message` at `path` unless `holds`.
///
/// # Errors
/// If it does not hold.
pub fn require(holds: bool, path: &str, message: &str) -> Check {
    if holds { Ok(()) } else { Err(fault(path, message)) }
}

/// Keeps a typing error from filling memory.
pub const MAX_COUNT: u32 = 65_536;

pub(crate) fn count(value: u32, key: &str) -> Check {
    require((1..=MAX_COUNT).contains(&value), &format!("topology.{key}"), &format!("from 1 to {MAX_COUNT}"))
}

pub(crate) fn unique(names: &[String], path: impl Fn(usize) -> String) -> Check {
    let mut seen = BTreeSet::new();
    for (index, own) in names.iter().enumerate() {
        name(own, &path(index))?;
        require(seen.insert(own), &path(index), &format!("another one is called `{own}`"))?;
    }
    Ok(())
}

/// A name that results and engines can use as it is.
pub(crate) fn name(name: &str, path: &str) -> Check {
    let usable = !name.is_empty()
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    require(usable, path, "a name is 1 to 64 letters, digits, `-`, `_` or `.`")
}

/// 100 Tbit/s: a 64-byte packet still takes 5 ps.
const MAX_RATE: BitsPerSec = BitsPerSec::new(100_000_000_000_000);

/// A packet of 65,535 bytes takes 64 bits of picoseconds in steps of 2^-16 at least this fast.
pub(crate) const MIN_RATE: BitsPerSec = BitsPerSec::new(2_000);

/// A rate.
///
/// # Errors
/// What is wrong with it.
pub fn rate(rate: BitsPerSec, path: &str) -> Check {
    require(!rate.is_zero(), path, "a rate of zero carries nothing")?;
    require(rate >= MIN_RATE, path, "the rate must be at least 2kbit")?;
    require(rate <= MAX_RATE, path, "the rate must be at most 100tbit")
}

/// A delay.
///
/// # Errors
/// What is wrong with it.
pub fn delay(delay: Nanos, path: &str) -> Check {
    require(delay <= Nanos::from_secs(600), path, "a delay is at most 600s")
}

/// A loss.
///
/// # Errors
/// What is wrong with it.
pub fn loss(loss: &Loss, path: &str) -> Check {
    let share = (0.0..=1.0).contains(&loss.probability);
    require(share, path, "a loss probability is a number from 0 to 1")?;
    let burst = loss.burst.is_none_or(|burst| burst.get() >= 1);
    require(burst, path, "the mean burst of losses is at least 1pkt")
}

pub(crate) fn buffer(limit: Limit, mtu: Bytes, path: &str) -> Check {
    let bytes = limit.bytes(mtu).ok_or_else(|| fault(path, "this buffer overflows 64 bits"))?;
    require(bytes >= mtu, path, &format!("the buffer must hold at least one packet of the MTU ({mtu})"))?;
    require(bytes <= Bytes::new(1 << 40), path, "a buffer is at most 1 TiB")
}

/// The queues of a port; answers how many there are.
pub(crate) fn queue(queue: &Queue, path: &str) -> Check {
    let weights = format!("{path}.weights");
    match queue.kind {
        Discipline::Fifo => {
            require(
                queue.weights.is_empty(),
                &weights,
                "a `fifo` has one queue; weights need kind = \"drr\"",
            )?;
            let quantum = format!("{path}.quantum");
            require(queue.quantum.is_none(), &quantum, "only kind = \"drr\" has a quantum")?;
        }
        Discipline::Drr | Discipline::Priority => {
            let count = (1..=64).contains(&queue.weights.len());
            require(count, &weights, "expected one weight per queue, from 1 to 64 queues")?;
            let positive = queue.weights.iter().all(|w| (1..=1_000_000).contains(w));
            require(positive, &weights, "a weight is a whole number from 1 to 1000000")?;
        }
    }
    require(
        queue.lending || queue.kind == Discipline::Drr,
        &format!("{path}.lending"),
        "only the queues of kind \"drr\" have shares to be capped at",
    )?;
    let quantum = queue.quantum.is_none_or(|q| !q.is_zero() && q <= Bytes::new(1 << 30));
    require(quantum, &format!("{path}.quantum"), "a quantum is from 1B to 1GiB")
}

/// Shares that are ceilings are rates of their own.
pub(crate) fn shares(queue: &Queue, port_rate: BitsPerSec, path: &str) -> Check {
    let all: u64 = queue.weights.iter().map(|weight| u64::from(*weight)).sum();
    let least = queue.weights.iter().min().map_or(0, |weight| u128::from(*weight));
    let share = u128::from(port_rate.get()) * least / u128::from(all.max(1));
    let enough = queue.lending || queue.kind != Discipline::Drr || share >= u128::from(MIN_RATE.get());
    require(
        enough,
        &format!("{path}.weights"),
        "without lending, every queue's share of the rate must be at least 2kbit",
    )
}

/// A rule, given the port's rate and buffer.
pub(crate) fn marking(
    marking: &Marking,
    port_rate: BitsPerSec,
    limit: Limit,
    mtu: Bytes,
    path: &str,
) -> Check {
    let room = limit.bytes(mtu).unwrap_or(Bytes::MAX);
    let bytes = |threshold: Threshold, key: &str| {
        let at = format!("{path}.{key}");
        let bytes =
            threshold.bytes(port_rate, mtu).ok_or_else(|| fault(&*at, "this threshold overflows 64 bits"))?;
        let reachable =
            format!("the queue never gets this long: its buffer is {limit} ({room}), this is {bytes}");
        require(bytes < room, &at, &reachable)?;
        Ok::<Bytes, Fault>(bytes)
    };
    match marking {
        Marking::None => Ok(()),
        Marking::Threshold(rule) => bytes(rule.at, "at").map(|_| ()),
        Marking::Red(rule) => {
            let (min, max) = (bytes(rule.min, "min")?, bytes(rule.max, "max")?);
            require(min < max, &format!("{path}.min"), "`min` must be below `max`")?;
            let probability = rule.probability > 0.0 && rule.probability <= 1.0;
            require(probability, &format!("{path}.probability"), "a probability above 0 and at most 1")?;
            let weight = rule.weight > 0.0 && rule.weight <= 1.0;
            require(weight, &format!("{path}.weight"), "a weight above 0 and at most 1")
        }
        Marking::MqEcn(rule) | Marking::Tcn(rule) => {
            let lambda = rule.lambda > 0.0 && rule.lambda <= 1000.0;
            require(lambda, &format!("{path}.lambda"), "lambda is above 0 and at most 1000")?;
            let rtt = rule.rtt.is_none_or(|rtt| !rtt.is_zero() && rtt <= Nanos::from_secs(600));
            require(rtt, &format!("{path}.rtt"), "an RTT is above 0s and at most 600s")
        }
    }
}
