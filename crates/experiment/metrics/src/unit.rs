//! Units, and figures as people read them.

/// The unit of a figure. It is the end of the metric's name, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second.
    BitsPerSecond,
    /// Microseconds.
    Microseconds,
    /// Bytes.
    Bytes,
    /// Packets, or segments.
    Packets,
    /// A count of what the metric's name says.
    Count,
    /// A pure number: a share, an index, a factor.
    Ratio,
    /// CPU seconds per gigabyte (10^9 bytes).
    SecondsPerGigabyte,
    /// Joules per gigabyte (10^9 bytes).
    JoulesPerGigabyte,
    /// Something counted, per byte.
    PerByte,
    /// Something counted, per second.
    PerSecond,
}

/// A unit for figures: what to divide by, and its name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Divisor.
    pub divisor: f64,
    /// Name, empty for a pure number.
    pub unit: &'static str,
}

/// The endings that say a unit.
const ENDINGS: [(&str, Unit); 8] = [
    ("_bps", Unit::BitsPerSecond),
    ("_us", Unit::Microseconds),
    ("_bytes", Unit::Bytes),
    ("_pkt", Unit::Packets),
    ("_s_per_gb", Unit::SecondsPerGigabyte),
    ("_j_per_gb", Unit::JoulesPerGigabyte),
    ("_per_byte", Unit::PerByte),
    ("_per_s", Unit::PerSecond),
];

impl Unit {
    /// The unit that a name's ending says.
    pub fn of_name(name: &str) -> Option<Self> {
        ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, unit)| *unit)
    }

    /// A name without the ending that says its unit.
    pub fn cut_from(name: &str) -> &str {
        ENDINGS.iter().find_map(|(ending, _)| name.strip_suffix(ending)).unwrap_or(name)
    }

    /// Its symbol, as values are stored; `1` for pure numbers.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::BitsPerSecond => "bit/s",
            Self::Microseconds => "µs",
            Self::Bytes => "B",
            Self::Packets => "packets",
            Self::Count | Self::Ratio => "1",
            Self::SecondsPerGigabyte => "s/GB",
            Self::JoulesPerGigabyte => "J/GB",
            Self::PerByte => "1/B",
            Self::PerSecond => "1/s",
        }
    }

    /// The unit for display in which `largest` reads well.
    pub fn scale(self, largest: f64) -> Scale {
        let steps = self.steps();
        let smallest = steps[steps.len() - 1];
        let (divisor, unit) =
            steps.iter().find(|(from, _)| largest.abs() >= *from).copied().unwrap_or(smallest);
        Scale { divisor, unit }
    }

    /// Units for display, each with its divisor, the largest first.
    fn steps(self) -> &'static [(f64, &'static str)] {
        match self {
            Self::BitsPerSecond => &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")],
            Self::Microseconds => &[(1e6, "s"), (1e3, "ms"), (1.0, "µs")],
            Self::Bytes => &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
            Self::Packets => &[(1.0, "packets")],
            Self::PerSecond => &[(1e3, "k/s"), (1.0, "/s")],
            // The column's title says the rest.
            Self::Count
            | Self::Ratio
            | Self::SecondsPerGigabyte
            | Self::JoulesPerGigabyte
            | Self::PerByte => &[(1.0, "")],
        }
    }
}

/// A figure with as many digits as a person wants to read: about four.
pub fn digits(value: f64) -> String {
    let magnitude = value.abs();
    let text = if value == 0.0 || (magnitude >= 100.0 && value.fract() == 0.0) || magnitude >= 1000.0 {
        format!("{value:.0}")
    } else if magnitude >= 100.0 {
        format!("{value:.1}")
    } else if magnitude >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    };
    // A zero has no sign, whether it is one or too small for these digits.
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|byte| matches!(byte, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

/// A figure whose unit is not known, with a prefix for millions and more.
pub fn compact(value: f64) -> String {
    match value.abs() {
        m if m >= 1e9 => format!("{} G", digits(value / 1e9)),
        m if m >= 1e6 => format!("{} M", digits(value / 1e6)),
        _ => digits(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_about_four_digits() {
        assert_eq!(
            [-0.0, 0.1234, 1.0, 93.456, 123.456, 123.0, 12345.6, -0.0004, -0.0006].map(digits),
            ["0", "0.123", "1.00", "93.46", "123.5", "123", "12346", "0.000", "-0.001"]
        );
        assert_eq!([1.5, 2606.0, 153_586_333.0, 2e10].map(compact), ["1.50", "2606", "153.6 M", "20.00 G"]);
    }
}
