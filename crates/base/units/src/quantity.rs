//! The four quantities, generated from one description each.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::parse::{UnitError, Units};

/// Serde through `Display` and `FromStr`, and a JSON schema of the text form.
macro_rules! text_form {
    ($name:ident, $description:literal, $pattern:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($description)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $description, "pattern": $pattern })
            }
        }
    };
}
pub(crate) use text_form;

macro_rules! quantity {
    (
        $(#[$doc:meta])* $name:ident, $units:ident, $expected:literal, $pattern:literal,
        [$(($unit:literal, $scale:expr)),+], [$(($alias:literal, $alias_scale:expr)),*]
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        pub(crate) const $units: Units = Units {
            expected: $expected,
            names: &[$(($unit, $scale)),+],
            aliases: &[$(($alias, $alias_scale)),*],
        };

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);
            /// The largest value.
            pub const MAX: Self = Self(u64::MAX);

            /// From a count of base units.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }
            /// The count of base units.
            pub const fn get(self) -> u64 {
                self.0
            }
            /// Returns true for zero.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
            /// The sum, or `None` on overflow.
            pub fn checked_add(self, other: Self) -> Option<Self> {
                self.0.checked_add(other.0).map(Self)
            }
            /// The difference, or `None` if `other` is larger.
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                self.0.checked_sub(other.0).map(Self)
            }
            /// The product with a plain number, or `None` on overflow.
            pub fn checked_mul(self, factor: u64) -> Option<Self> {
                self.0.checked_mul(factor).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $units.print(self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                $units.parse(text).map(Self)
            }
        }

        text_form!($name, $expected, $pattern);
    };
}

quantity!(
    /// A duration or a moment since the start of a run, in nanoseconds (up to 584 years).
    Nanos, TIME, "a time such as \"50us\", \"2.5ms\" or \"10s\"",
    r"^\s*[0-9_]+(\.[0-9_]+)?\s*(ns|us|µs|ms|s|min)\s*$",
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)],
    [("µs", 1_000), ("min", 60_000_000_000)]
);

quantity!(
    /// An amount of data, in bytes. `kB` is 1000 bytes, `KiB` 1024.
    Bytes, DATA, "an amount of data such as \"1500B\", \"150kB\" or \"64KiB\"",
    r"^\s*[0-9_]+(\.[0-9_]+)?\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*$",
    [("B", 1), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)],
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)]
);

quantity!(
    /// A data rate, in bits per second, written as `tc` writes it (`kbit` is 1000 bit/s).
    BitsPerSec, RATE, "a rate such as \"600mbit\" or \"10gbit\" (bits per second)",
    r"^\s*[0-9_]+(\.[0-9_]+)?\s*(bit|kbit|mbit|gbit|tbit)\s*$",
    [("bit", 1), ("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000), ("tbit", 1_000_000_000_000)],
    []
);

quantity!(
    /// A number of packets.
    Packets, COUNT, "a number of packets such as \"100pkt\"",
    r"^\s*[0-9_]+(\.0+)?\s*(pkt)\s*$",
    [("pkt", 1)],
    [("pkts", 1)]
);

impl Nanos {
    /// From microseconds; saturates.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }
    /// From milliseconds; saturates.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
    /// From seconds; saturates.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }
    /// In seconds, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// As the standard library's duration.
    pub const fn to_duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl Packets {
    /// The bytes of this many packets of `packet` bytes each; `None` on overflow.
    pub fn bytes(self, packet: Bytes) -> Option<Bytes> {
        packet.checked_mul(self.0)
    }
}

impl BitsPerSec {
    /// Time that `data` takes at this rate, in picoseconds, rounded up; `None` at rate zero or on overflow.
    pub fn transmit_ps(self, data: Bytes) -> Option<u64> {
        let bits = u128::from(data.0) * 8;
        let ps = bits.checked_mul(1_000_000_000_000)?.div_ceil(u128::from(self.0).max(1));
        if self.0 == 0 { None } else { u64::try_from(ps).ok() }
    }
    /// Time that `data` takes at this rate, rounded up to a nanosecond; `None` at rate zero or on overflow.
    pub fn transmit_time(self, data: Bytes) -> Option<Nanos> {
        self.transmit_ps(data).map(|ps| Nanos(ps.div_ceil(1_000)))
    }
    /// The data carried in `time` at this rate, rounded down; `None` on overflow.
    pub fn data_in(self, time: Nanos) -> Option<Bytes> {
        let bytes = u128::from(self.0).checked_mul(u128::from(time.0))? / 8_000_000_000;
        u64::try_from(bytes).ok().map(Bytes)
    }
    /// As bytes per second, rounded down.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }
}
