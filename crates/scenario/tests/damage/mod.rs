//! Damaged TOML, for tests of readers that must not panic. The crate of ports takes this file by its path.

use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What any reader of TOML may stumble over.
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

/// One of `texts` with up to three pieces of it replaced, by what is above or `own`.
pub(crate) fn damaged(
    texts: Vec<&'static str>,
    own: &[&'static str],
) -> impl Strategy<Value = String> + use<> {
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
