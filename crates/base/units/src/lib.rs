//! Quantities with their unit in the type: [`Nanos`], [`Bytes`], [`BitsPerSec`], [`Packets`], and the two
//! quantities a queue is configured with, [`Limit`] and [`Threshold`].
//!
//! Each is an unsigned 64-bit integer in one base unit, read from text that names its unit (`"100mbit"`,
//! `"2.5ms"`, `"64KiB"`, `"100pkt"`) and printed as text that reads back to the same value. There is no
//! arithmetic between different units beyond the few named conversions, and all arithmetic is checked.
//!
//! [`time`] is what runs calculate with: instants and lengths of time in picoseconds.

mod parse;
mod quantity;
mod queue;
pub mod time;

pub use parse::{Problem, UnitError};
pub use quantity::{BitsPerSec, Bytes, Nanos, Packets};
pub use queue::{Limit, Threshold};

#[cfg(test)]
mod tests;
