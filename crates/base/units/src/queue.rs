//! The two quantities a queue is configured with, each in the unit its user thinks in.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::parse::{Problem, UnitError};
use crate::quantity::{BitsPerSec, Bytes, Nanos, Packets, text_form};

/// The size of a buffer: bytes or packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// `"150kB"`
    Bytes(Bytes),
    /// `"100pkt"`
    Packets(Packets),
}

/// The queue length at which marking starts: bytes, packets, or the time a packet would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Threshold {
    /// `"30kB"`
    Bytes(Bytes),
    /// `"20pkt"`
    Packets(Packets),
    /// `"1ms"`
    Time(Nanos),
}

impl Limit {
    /// In bytes, with packets of `packet` bytes; `None` on overflow.
    pub fn bytes(self, packet: Bytes) -> Option<Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Packets(count) => count.bytes(packet),
        }
    }
    /// Returns true for a limit of nothing.
    pub const fn is_zero(self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_zero(),
            Self::Packets(count) => count.is_zero(),
        }
    }
}

impl Threshold {
    /// In bytes at `rate` with packets of `packet` bytes; `None` on overflow.
    pub fn bytes(self, rate: BitsPerSec, packet: Bytes) -> Option<Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Packets(count) => count.bytes(packet),
            Self::Time(time) => rate.data_in(time),
        }
    }
}

const LIMIT: &str = "a buffer size in bytes or packets such as \"150kB\" or \"100pkt\"";
const THRESHOLD: &str =
    "a queue length in bytes, packets or waiting time such as \"30kB\", \"20pkt\" or \"1ms\"";

/// Among the attempts, the error that names a problem of the number rather than an unknown unit.
fn best_error(text: &str, expected: &'static str, attempts: &[&UnitError], known: &str) -> UnitError {
    let of_number = attempts
        .iter()
        .map(|e| &e.problem)
        .find(|p| !matches!(p, Problem::UnknownUnit { .. } | Problem::NoUnit(_)));
    let problem = match (of_number, &attempts[0].problem) {
        (Some(problem), _) => problem.clone(),
        (None, Problem::NoUnit(_)) => Problem::NoUnit(known.to_owned()),
        (None, Problem::UnknownUnit { unit, .. }) => {
            Problem::UnknownUnit { unit: unit.clone(), known: known.to_owned() }
        }
        (None, other) => other.clone(),
    };
    UnitError { text: text.to_owned(), expected, problem }
}

impl FromStr for Limit {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bytes = match text.parse::<Bytes>() {
            Ok(bytes) => return Ok(Self::Bytes(bytes)),
            Err(error) => error,
        };
        text.parse()
            .map(Self::Packets)
            .map_err(|packets| best_error(text, LIMIT, &[&bytes, &packets], "B, kB, MB, KiB, MiB, pkt"))
    }
}

impl FromStr for Threshold {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bytes = match text.parse::<Bytes>() {
            Ok(bytes) => return Ok(Self::Bytes(bytes)),
            Err(error) => error,
        };
        let packets = match text.parse::<Packets>() {
            Ok(packets) => return Ok(Self::Packets(packets)),
            Err(error) => error,
        };
        text.parse().map(Self::Time).map_err(|time| {
            best_error(text, THRESHOLD, &[&bytes, &packets, &time], "B, kB, MB, KiB, MiB, pkt, ns, us, ms, s")
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Packets(count) => count.fmt(f),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Packets(count) => count.fmt(f),
            Self::Time(time) => time.fmt(f),
        }
    }
}

text_form!(
    Limit,
    "a buffer size in bytes or packets such as \"150kB\" or \"100pkt\"",
    r"^\s*[0-9_]+(\.[0-9_]+)?\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|pkt)\s*$"
);
text_form!(
    Threshold,
    "a queue length in bytes, packets or waiting time such as \"30kB\", \"20pkt\" or \"1ms\"",
    r"^\s*[0-9_]+(\.[0-9_]+)?\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|pkt|ns|us|µs|ms|s|min)\s*$"
);
