//! JSON as far as qlog needs it, written at the end of a text.

use std::fmt::Write as _;
use vmcc_units::time::Span;

/// The fields of an object that is being written.
pub(super) struct Fields<'a> {
    out: &'a mut String,
    first: bool,
}

/// The elements of an array that is being written.
pub(super) struct Elements<'a> {
    out: &'a mut String,
    first: bool,
}

/// An object at the end of `out`.
pub(super) fn object(out: &mut String, write: impl FnOnce(&mut Fields<'_>)) {
    out.push('{');
    write(&mut Fields { out, first: true });
    out.push('}');
}

fn comma(out: &mut String, first: &mut bool) {
    if !std::mem::take(first) {
        out.push(',');
    }
}

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // The record separator, above all: nothing in a text may begin a record.
            c if c.is_control() => put(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a string takes everything");
}

/// Milliseconds, to the microsecond.
fn milliseconds(out: &mut String, time: Span) {
    let us = time.us();
    put(out, format_args!("{}.{:03}", us / 1000, us % 1000));
}

impl Fields<'_> {
    fn key(&mut self, key: &str) -> &mut String {
        comma(self.out, &mut self.first);
        put(self.out, format_args!("\"{key}\":"));
        self.out
    }

    pub(super) fn number(&mut self, key: &str, value: u64) {
        put(self.key(key), format_args!("{value}"));
    }

    pub(super) fn time(&mut self, key: &str, value: Span) {
        milliseconds(self.key(key), value);
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        quoted(self.key(key), value);
    }

    /// Bytes in hexadecimal.
    pub(super) fn bytes(&mut self, key: &str, value: &[u8]) {
        let out = self.key(key);
        out.push('"');
        value.iter().for_each(|byte| put(out, format_args!("{byte:02x}")));
        out.push('"');
    }

    /// Writes a flag that is usually false.
    pub(super) fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.key(key).push_str("true");
        }
    }

    pub(super) fn object(&mut self, key: &str, write: impl FnOnce(&mut Fields<'_>)) {
        object(self.key(key), write);
    }

    pub(super) fn array(&mut self, key: &str, write: impl FnOnce(&mut Elements<'_>)) {
        let out = self.key(key);
        out.push('[');
        write(&mut Elements { out, first: true });
        out.push(']');
    }
}

impl Elements<'_> {
    pub(super) fn object(&mut self, write: impl FnOnce(&mut Fields<'_>)) {
        comma(self.out, &mut self.first);
        object(self.out, write);
    }

    pub(super) fn text(&mut self, value: &str) {
        comma(self.out, &mut self.first);
        quoted(self.out, value);
    }

    pub(super) fn numbers(&mut self, low: u64, high: u64) {
        comma(self.out, &mut self.first);
        match low == high {
            true => put(self.out, format_args!("[{low}]")),
            false => put(self.out, format_args!("[{low},{high}]")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_text_and_record_separators() {
        let mut out = String::new();
        object(&mut out, |all| {
            all.text("a", "\"\\\u{1e}\n\u{9b}ö");
            all.array("b", |list| {
                list.numbers(1, 1);
                list.numbers(2, 3);
                list.object(|one| one.time("ms", Span::from_us(12_034)));
            });
            all.flag("no", false);
            all.flag("yes", true);
            all.bytes("id", &[0, 0xff]);
        });
        let want = r#"{"a":"\"\\\u001e\u000a\u009bö","b":[[1],[2,3],{"ms":12.034}],"yes":true,"id":"00ff"}"#;
        assert_eq!(out, want);
    }
}
