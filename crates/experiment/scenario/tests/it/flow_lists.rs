//! Transfers from a file beside the scenario.

use std::fs;
use std::path::Path;
use vmcc_scenario::Document;

const SCENARIO: &str = "title = 't'\nduration = '1s'\n[host]\ncc = 'lia'\n[topology]\nkind = 'dumbbell'\npairs = 2\n\
                        rate = '20mbit'\ndelay = '5ms'\n[[traffic]]\nkind = 'flows'\nflows = 'list.csv'\n";

fn fault(name: &str, file: &str, scenario: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("flow-lists-{name}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("list.csv"), file).unwrap();
    fs::write(folder.join("s.toml"), scenario).unwrap();
    Document::load(&folder.join("s.toml")).map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn faults_name_file_line_and_column() {
    let head = "start_us,src,dst,size_bytes\n";
    let one = |line: &str| format!("{head}0,left0,right0,1\n{line}\n");
    for (name, file, expected) in [
        ("good", one("# a comment\n\n 5, right1 ,left0,7,more"), ""),
        (
            "column",
            "start_us,src,dst\n0,left0,right0\n".to_owned(),
            "list.csv:1: there is no column `size_bytes`",
        ),
        ("cell", one("5,left0"), "list.csv:3: no cell for `size_bytes`"),
        ("empty-cell", one("5,,right0,9"), "list.csv:3: no cell for `src`"),
        ("negative", one("-5,left0,right0,9"), "list.csv:3: \"-5\" is no whole number (`start_us`)"),
        ("fraction", one("5,left0,right0,9.5"), "list.csv:3: \"9.5\" is no whole number (`size_bytes`)"),
        ("none", head.to_owned(), "there is no transfer in it"),
        ("nothing", String::new(), "there is no transfer in it"),
        // What holds for transfers in the scenario itself.
        ("host", one("5,left9,right0,9"), "no host of this topology is called `left9` (transfer 2)"),
        ("itself", one("5,left0,left0,9"), "a host does not send to itself"),
        ("zero", one("5,left0,right0,0"), "nothing to send"),
        ("late", one("99999999999999999999,left0,right0,1"), "is no whole number"),
    ] {
        let said = fault(name, &file, SCENARIO);
        assert!(said.contains(expected) && (expected.is_empty() == said.is_empty()), "{name}: {said}");
    }
    let said = fault("from", &one(""), &format!("{SCENARIO}from = 'left0'\n"));
    assert!(said.contains("each listed transfer has its own hosts"), "{said}");
}
