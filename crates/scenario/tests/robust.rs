//! No text and no option makes the loader panic, and what it accepts it can write and read again.

use proptest::prelude::*;
use vmcc_scenario::{Document, Overrides};

fn try_plan(text: &str, options: Vec<String>) {
    if let Ok(document) = Document::parse("x", text) {
        let _ = document.plan(&Overrides { set: options, ..Overrides::default() });
    }
}

/// Built-in scenarios to damage.
fn base() -> impl Strategy<Value = &'static str> {
    let texts: Vec<&'static str> = vmcc_scenario::builtin::all().iter().map(|b| b.text).collect();
    proptest::sample::select(texts)
}

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
    "kind",
    "name",
    "[sweep]",
    "[[traffic]]",
    "[[event]]",
    "[topology]",
    "\u{0}",
    "é",
    "true",
    "2020-01-01",
    "a.b.c = 1",
    "\"*\"",
    "mean(",
    "')'",
    "(((((((((",
    "via = []",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(text in "\\PC{0,200}") {
        try_plan(&text, Vec::new());
    }

    #[test]
    fn damaged_scenarios(
        text in base(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, prop::sample::select(SPLICES)), 1..4),
    ) {
        let mut text: Vec<char> = text.chars().collect();
        for (at, length, splice) in cuts {
            let start = at.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, splice.chars());
        }
        try_plan(&text.into_iter().collect::<String>(), Vec::new());
    }

    #[test]
    fn any_option(key in "[a-z_.0-9]{0,20}", value in "\\PC{0,20}") {
        try_plan(vmcc_scenario::builtin::find("demo").unwrap().text, vec![format!("{key}={value}")]);
    }

    #[test]
    fn any_claim(check in "[a-z_(), =<>'&|!0-9.*/+-]{0,60}") {
        let text = format!(
            "title='t'\nduration='1s'\n[topology]\nkind='parallel-paths'\npaths=2\nrate='1mbit'\ndelay='1ms'\n\
             [[traffic]]\nkind='bulk'\n[[claim]]\nid='c'\ncheck=\"{check}\"\n"
        );
        try_plan(&text, Vec::new());
    }
}
