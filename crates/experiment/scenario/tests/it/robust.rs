//! No text and no option makes the loader panic, and what it accepts it can write and read again.

use proptest::prelude::*;
use vmcc_scenario::{Document, Overrides};
use vmcc_testkit::damage::damaged;

fn try_plan(text: &str, options: Vec<String>) {
    if let Ok(document) = Document::parse("x", text) {
        let _ = document.plan(&Overrides { set: options, ..Overrides::default() });
    }
}

/// Built-in scenarios to damage.
fn texts() -> Vec<&'static str> {
    vmcc_scenario::builtin::all().iter().map(|b| b.text).collect()
}

/// Of this language.
const SPLICES: &[&str] = &[
    "kind",
    "name",
    "[sweep]",
    "[[traffic]]",
    "[[event]]",
    "[topology]",
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
    fn any_bytes_are_parsed_or_refused(text in "\\PC{0,200}") {
        try_plan(&text, Vec::new());
    }

    #[test]
    fn damaged_scenarios_do_not_panic(text in damaged(texts(), SPLICES)) {
        try_plan(&text, Vec::new());
    }

    #[test]
    fn any_option_is_applied_or_refused(key in "[a-z_.0-9]{0,20}", value in "\\PC{0,20}") {
        try_plan(vmcc_scenario::builtin::find("demo").unwrap().text, vec![format!("{key}={value}")]);
    }

    #[test]
    fn any_claim_is_parsed_or_refused(check in "[a-z_(), =<>'&|!0-9.*/+-]{0,60}") {
        let text = format!(
            "title='t'\nduration='1s'\n[topology]\nkind='parallel-paths'\npaths=2\nrate='1mbit'\ndelay='1ms'\n\
             [[traffic]]\nkind='bulk'\n[[claim]]\nid='c'\ncheck=\"{check}\"\n"
        );
        try_plan(&text, Vec::new());
    }
}
