//! A fault of a configuration text: its place, and the remedy.

use std::fmt;

/// A fault of a text or of an override.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file, the built-in scenario's name, or the override (`--set key=value`).
    pub file: String,
    /// The place in the text; absent for overrides.
    pub place: Option<Place>,
    /// The key, as a path from the top of the scenario.
    pub key: Option<String>,
    /// The fault, and the expected form.
    pub message: String,
    /// Remedy, such as the nearest valid name.
    pub help: Option<String>,
}

/// A place in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// In characters, within the line.
    pub length: usize,
    /// The line itself.
    pub text: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(place) = &self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        if let Some(key) = &self.key {
            write!(f, ": `{key}`")?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(place) = &self.place {
            let number = place.line.to_string();
            let margin = " ".repeat(number.len());
            let indent = " ".repeat(place.column.saturating_sub(1));
            write!(f, "\n{margin} |\n{number} | {}\n", place.text)?;
            write!(f, "{margin} | {indent}{}", "^".repeat(place.length.max(1)))?;
        }
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

impl Place {
    /// The place of a byte range of `text`; the range may be anything.
    pub(crate) fn of(text: &str, range: std::ops::Range<usize>) -> Self {
        let mut start = range.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let line = text[line_start..line_end].trim_end_matches('\r');
        let mut end = range.end.clamp(start, line_end);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // Very long lines would drown the message.
        let shown: String = line.chars().take(160).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let column = text[line_start..start].chars().count() + 1;
        Self {
            line: text[..start].matches('\n').count() + 1,
            column,
            length: text[start..end.max(start)].chars().count().min(160usize.saturating_sub(column - 1)),
            text: shown,
        }
    }
}
