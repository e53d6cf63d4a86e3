//! Exact decimal text to integer base units and back. No floating point: `"0.1s"` is exactly 100,000,000 ns.

use std::fmt;

/// Error of reading a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}: {problem}")]
#[non_exhaustive]
pub struct UnitError {
    /// The text as given.
    pub text: String,
    /// The expected form, with an example.
    pub expected: &'static str,
    /// The fault.
    pub problem: Problem,
}

/// Fault in the text of a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No digits, or something other than digits and one decimal point before the unit.
    #[error("it does not start with a decimal number")]
    NotANumber,
    /// A number without unit.
    #[error("the unit is missing (one of {0})")]
    NoUnit(String),
    /// A unit that this quantity does not have.
    #[error("unknown unit `{unit}` (one of {known})")]
    UnknownUnit {
        /// The unit as given.
        unit: String,
        /// The units that are known.
        known: String,
    },
    /// More precise than the base unit.
    #[error("it is finer than the smallest unit, {0}")]
    TooFine(&'static str),
    /// Larger than 2^64 - 1 base units.
    #[error("it is too large")]
    Overflow,
}

/// The units of one quantity: the first is the base unit (scale 1); the rest in rising order.
pub(crate) struct Units {
    pub(crate) expected: &'static str,
    pub(crate) names: &'static [(&'static str, u64)],
    /// Units accepted in text but never printed, such as alternative spellings.
    pub(crate) aliases: &'static [(&'static str, u64)],
}

impl Units {
    fn scale(&self, unit: &str) -> Option<u64> {
        self.names.iter().chain(self.aliases).find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
    }

    fn known(&self) -> String {
        self.names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn parse(&self, text: &str) -> Result<u64, UnitError> {
        self.parse_inner(text.trim()).map_err(|problem| UnitError {
            text: text.to_owned(),
            expected: self.expected,
            problem,
        })
    }

    fn parse_inner(&self, text: &str) -> Result<u64, Problem> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| !part.is_empty() && part.bytes().any(|b| b.is_ascii_digit());
        if !digits(whole) || (number.contains('.') && !digits(fraction)) || fraction.contains('.') {
            return Err(Problem::NotANumber);
        }
        let unit = unit.trim();
        if unit.is_empty() {
            return Err(Problem::NoUnit(self.known()));
        }
        let scale = self.scale(unit).ok_or_else(|| Problem::UnknownUnit {
            unit: unit.chars().take(16).collect(),
            known: self.known(),
        })?;
        let whole = decimal(whole)?.checked_mul(u128::from(scale)).ok_or(Problem::Overflow)?;
        let value = whole.checked_add(self.fraction(fraction, scale)?).ok_or(Problem::Overflow)?;
        u64::try_from(value).map_err(|_| Problem::Overflow)
    }

    fn fraction(&self, digits: &str, scale: u64) -> Result<u128, Problem> {
        let digits = digits.trim_end_matches(['0', '_']);
        if digits.is_empty() {
            return Ok(0);
        }
        let places = digits.bytes().filter(u8::is_ascii_digit).count();
        // A unit is at most 10^19 base units, so more places than that cannot be exact.
        if places > 19 {
            return Err(Problem::TooFine(self.names[0].0));
        }
        let scaled = decimal(digits)?.checked_mul(u128::from(scale)).ok_or(Problem::Overflow)?;
        let divisor = 10u128.pow(places as u32);
        if scaled % divisor == 0 { Ok(scaled / divisor) } else { Err(Problem::TooFine(self.names[0].0)) }
    }

    /// Prints in the largest unit that needs at most three decimals, so that the text reads back exactly.
    pub(crate) fn print(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |scale: u64| {
            let thousandth = || scale.is_multiple_of(1000) && value.is_multiple_of(scale / 1000);
            value >= scale && (value.is_multiple_of(scale) || thousandth())
        };
        let (name, scale) =
            self.names.iter().rev().find(|(_, scale)| fits(*scale)).copied().unwrap_or(self.names[0]);
        let (whole, rest) = (value / scale, value % scale);
        if rest == 0 {
            return write!(f, "{whole}{name}");
        }
        let thousandths = format!("{:03}", rest / (scale / 1000));
        write!(f, "{whole}.{}{name}", thousandths.trim_end_matches('0'))
    }
}

fn decimal(digits: &str) -> Result<u128, Problem> {
    digits.bytes().filter(u8::is_ascii_digit).try_fold(0u128, |value, digit| {
        value.checked_mul(10).and_then(|v| v.checked_add(u128::from(digit - b'0'))).ok_or(Problem::Overflow)
    })
}
