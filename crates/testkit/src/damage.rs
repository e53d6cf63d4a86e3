//! Damaged TOML, for tests of readers that must not panic.

use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Pieces of text that upset readers of TOML.
const SPLICES: &[&str] = &[
    "",
    "\"",
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    ",",
    ".",
    "\n",
    "-1",
    "0",
    "1e308",
    "nan",
    "99999999999999999999",
    "\"0mbit\"",
    "\"18446744073709551615bit\"",
    "\u{0}",
    "é",
    "true",
    "2020-01-01",
];

/// Strategy: one of `texts` with up to three pieces replaced, from a common list and `own`.
pub fn damaged(texts: Vec<&'static str>, own: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    let splices = [SPLICES, own].concat();
    let cuts = prop::collection::vec((any::<Index>(), 0usize..12, select(splices)), 1..4);
    (select(texts), cuts).prop_map(|(text, cuts)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, length, splice) in cuts {
            let start = at.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, splice.chars());
        }
        text.into_iter().collect()
    })
}
