//! Sent and received packets, and their fate.

pub(crate) mod received;
pub(crate) mod reordering;
pub(crate) mod sent;
pub(crate) mod space;

use vmcc_units::time::Span;

/// Timers are not finer than this (RFC 9002 section 6.1.2).
pub(crate) const GRANULARITY: Span = Span::from_ms(1);
