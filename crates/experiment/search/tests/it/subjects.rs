//! Scenarios that suit no search are refused, with a remedy.

use crate::searches::plan;
use std::sync::atomic::AtomicBool;
use vmcc_search::{Execution, Property, SearchError, Settings, Strategy, Subject, search};
use vmcc_sim::Simulator;

const PATHS: &str = "kind = \"parallel-paths\"\npaths = 2\nrate = \"10mbit\"\ndelay = \"5ms\"";
const BULK: &str = "[[traffic]]\nkind = \"bulk\"";

fn scenario(topology: &str, rest: &str) -> String {
    format!("title = \"x\"\nduration = \"3s\"\n{rest}\n[topology]\n{topology}\n")
}

fn refusal(text: &str) -> String {
    let error = Subject::new(&plan(text), None).unwrap_err();
    format!("{error}; {}", error.remedy().expect("a remedy"))
}

#[test]
fn unsuitable_scenarios_are_refused_with_cause_and_remedy() {
    let fat_tree = "kind = \"fat-tree\"\nk = 4\nrate = \"10mbit\"\ndelay = \"1ms\"";
    let cases = [
        (scenario(PATHS, &format!("sweep.cc = [\"lia\", \"olia\"]\n{BULK}")), ["2 cases", "--set cc=VALUE"]),
        (scenario(fat_tree, BULK), ["0 named paths", "parallel-paths"]),
        (scenario(PATHS, "[[traffic]]\nkind = \"sized\"\nsize = \"1MB\""), ["is `sized`", "make it `bulk`"]),
        (scenario(PATHS, &format!("{BULK}\ncompeting = true")), ["no traffic is under test", "kind `bulk`"]),
        (
            scenario(PATHS, &format!("{BULK}\ncc = \"lia\"\n{BULK}\ncc = \"olia\"")),
            ["2 congestion controls", "competing = true"],
        ),
        (
            scenario(PATHS, &format!("{BULK}\n[[event]]\nat = \"1s\"\nkind = \"set-backup\"\npath = \"a\"")),
            ["cannot be compared with one TCP connection", "events of subflows"],
        ),
        (scenario(PATHS, &format!("warmup = \"2950ms\"\n{BULK}")), ["no time for changes", "`duration`"]),
    ];
    for (text, expected) in cases {
        let message = refusal(&text);
        assert!(expected.iter().all(|part| message.contains(part)), "{expected:?}: {message}");
    }
}

#[test]
fn small_budget_is_refused_with_the_least() {
    let text = scenario(PATHS, BULK);
    let subject = Subject::new(&plan(&text), None).unwrap();
    let settings =
        Settings { properties: Property::ALL.to_vec(), budget: 215, seed: 1, strategy: Strategy::Random };
    let stop = AtomicBool::new(false);
    let how = Execution { jobs: 1, stop: &stop, progress: &|_| {} };
    let error = search(&subject, &Simulator::default(), &settings, &how).unwrap_err();
    assert!(matches!(error, SearchError::Unsuitable { .. }), "{error}");
    assert_eq!(error.remedy(), Some("give at least 216"));
}

#[test]
fn control_follows_the_need_for_ecn_and_the_users_choice() {
    let of = |cc: &str, control: Option<&str>| {
        let text = scenario(PATHS, &format!("host.cc = \"{cc}\"\n{BULK}"));
        Subject::new(&plan(&text), control).map(|subject| subject.control().to_owned())
    };
    assert_eq!(of("lia", None).unwrap(), "reno");
    assert_eq!(of("vmcc", None).unwrap(), "dctcp");
    assert_eq!(of("lia", Some("cubic")).unwrap(), "cubic");
    assert!(of("lia", Some("cubik")).unwrap_err().to_string().contains("cubik"));
}
