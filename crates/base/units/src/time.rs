//! Time in integer picoseconds, since a start that the user chooses: of a simulation, of a program.
//!
//! One byte at 100 Gbit/s lasts 80 ps, so picoseconds keep serialization exact at every usual rate, and a
//! `u64` of them covers 213 days. Arithmetic saturates instead of wrapping: an instant beyond the range
//! becomes [`Time::NEVER`].

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// An instant: picoseconds since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The start.
    pub const ZERO: Time = Time(0);
    /// Later than every event.
    pub const NEVER: Time = Time(u64::MAX);

    /// The instant `ps` picoseconds after the start.
    #[inline]
    pub const fn from_ps(ps: u64) -> Time {
        Time(ps)
    }

    /// Picoseconds since the start.
    #[inline]
    pub const fn ps(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the start, rounded down.
    #[inline]
    pub const fn us(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds since the start, for output.
    pub fn secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// Time elapsed since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest span.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of picoseconds.
    #[inline]
    pub const fn from_ps(ps: u64) -> Span {
        Span(ps)
    }

    /// A span of nanoseconds; saturates.
    #[inline]
    pub const fn from_ns(ns: u64) -> Span {
        Span(ns.saturating_mul(1_000))
    }

    /// A span of microseconds; saturates.
    #[inline]
    pub const fn from_us(us: u64) -> Span {
        Span(us.saturating_mul(1_000_000))
    }

    /// A span of milliseconds; saturates.
    #[inline]
    pub const fn from_ms(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000_000))
    }

    /// A span of seconds; saturates.
    #[inline]
    pub const fn from_secs(s: u64) -> Span {
        Span(s.saturating_mul(1_000_000_000_000))
    }

    /// Picoseconds.
    #[inline]
    pub const fn ps(self) -> u64 {
        self.0
    }

    /// Whole nanoseconds, rounded down.
    #[inline]
    pub const fn ns(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole microseconds, rounded down.
    #[inline]
    pub const fn us(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds, for output.
    pub fn secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// `n` times this span; saturates.
    #[inline]
    pub const fn times(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }

    /// This span divided by `n`, rounded down; `n` must not be 0.
    #[inline]
    pub const fn div(self, n: u64) -> Span {
        Span(self.0 / n)
    }
}

/// Addition and subtraction of a span; saturates.
macro_rules! arithmetic {
    ($type:ident) => {
        impl Add<Span> for $type {
            type Output = $type;
            #[inline]
            fn add(self, d: Span) -> $type {
                $type(self.0.saturating_add(d.0))
            }
        }

        impl AddAssign<Span> for $type {
            #[inline]
            fn add_assign(&mut self, d: Span) {
                *self = *self + d;
            }
        }

        impl Sub<Span> for $type {
            type Output = $type;
            #[inline]
            fn sub(self, d: Span) -> $type {
                $type(self.0.saturating_sub(d.0))
            }
        }
    };
}

arithmetic!(Time);
arithmetic!(Span);

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER { f.write_str("never") } else { write!(f, "{}ps", self.0) }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ps", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::NEVER + Span::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO - Span::from_ps(1), Time::ZERO);
        assert_eq!(Time::ZERO.since(Time::from_ps(7)), Span::ZERO);
        assert_eq!(Span::from_secs(u64::MAX), Span::MAX);
    }

    #[test]
    fn times_and_spans_convert_between_units() {
        assert_eq!(Span::from_ms(3).us(), 3000);
        assert_eq!((Time::ZERO + Span::from_us(2)).us(), 2);
        assert_eq!((Time::ZERO + Span::from_ns(1500)).since(Time::ZERO).ns(), 1500);
    }
}
