//! Patterns of on and off times from a file beside the scenario.

use std::fs;
use std::path::{Path, PathBuf};
use vmcc_scenario::model::EventKind;
use vmcc_scenario::{Document, Overrides};
use vmcc_units::Nanos;

const SCENARIO: &str = "title = 't'\nduration = '1s'\n[host]\ncc = 'lia'\n[topology]\nkind = 'parallel-paths'\npaths = 2\n\
                        rate = '20mbit'\ndelay = '5ms'\n[[traffic]]\nkind = 'bulk'\n[[event]]\nkind = 'deschedule'\nat = '0s'\n\
                        host = 'client'\nrecorded = 'off/one.csv'\n";

/// A folder of its own for each test, with the scenario and the file that it names.
fn folder(test: &str, file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recorded-{test}"));
    fs::create_dir_all(folder.join("off")).unwrap();
    fs::write(folder.join("off/one.csv"), file).unwrap();
    fs::write(folder.join("s.toml"), SCENARIO).unwrap();
    folder
}

fn fault(folder: &Path) -> String {
    Document::load(&folder.join("s.toml")).unwrap_err().to_string()
}

#[test]
fn recorded_pairs_are_read_from_a_file_beside_the_scenario() {
    let folder = folder("good", "on_us,off_us\n# of a guest\n30000,90177\n\n 12000, 91000\n");
    let document = Document::load(&folder.join("s.toml")).unwrap();
    let plan = document.plan(&Overrides::default()).unwrap();
    let events = &plan.cases[0].scenario.event;
    let [one] = events.as_slice() else { panic!("{events:?}") };
    let EventKind::Deschedule(pattern) = &one.kind else { panic!("{one:?}") };
    let pair = |on, off| (Nanos::from_micros(on), Nanos::from_micros(off));
    assert_eq!(pattern.recorded, [pair(30_000, 90_177), pair(12_000, 91_000)]);
}

#[test]
fn recorded_file_faults_name_their_line() {
    for (name, file, expected) in [
        ("word", "30000,90000\n30000,soon\n", "off/one.csv:2: \"soon\" is no time"),
        ("alone", "30000\n", "off/one.csv:1: \"30000\" is no pair"),
        ("negative", "30000,-1\n", "off/one.csv:1: \"-1\" is no time"),
        ("fraction", "1.5,3\n", "off/one.csv:1: \"1.5\" is no time"),
        ("empty", "on_us,off_us\n", "there is no pair in it"),
        // What holds for pairs in the scenario itself.
        ("awake", "30000,0\n", "the host would never be off"),
        ("asleep", "0,30000\n", "the host does not run between two pairs"),
    ] {
        let said = fault(&folder(name, file));
        assert!(said.contains(expected) && said.contains("s.toml:16"), "{name}: {said}");
    }
}

#[test]
fn recorded_file_must_exist_be_bounded_and_in_the_folder() {
    let folder = folder("elsewhere", &"1,1\n".repeat(2 << 20));
    assert!(fault(&folder).contains("longer than 4194304 bytes"), "{}", fault(&folder));
    fs::remove_file(folder.join("off/one.csv")).unwrap();
    assert!(fault(&folder).contains("cannot be read"), "{}", fault(&folder));
    for outside in ["../one.csv", "/etc/passwd", ""] {
        fs::write(folder.join("s.toml"), SCENARIO.replace("off/one.csv", outside)).unwrap();
        assert!(fault(&folder).contains("no file in the scenario's folder"), "{}", fault(&folder));
    }
    let said = Document::parse("s.toml", SCENARIO).unwrap_err().to_string();
    assert!(said.contains("there is no folder"), "{said}");
}
