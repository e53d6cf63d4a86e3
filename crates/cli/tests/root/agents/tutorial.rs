//! The tutorial, as it is printed, on a machine of its own: from the package to a path that is closed.

use crate::common::root;
use crate::machine::{Machine, package_of};
use crate::pair::Pair;
use std::fs;
use vmcc_testkit::terminal::Terminal;

/// Prelude for the tutorial's commands here: the test is root, has built the package, and stays in one shell.
const HERE: &str = "set -e; cd /opt; sudo() { \"$@\"; }; make() { :; }\n";
const LIVE: &str = "vmcc top";

/// The blocks of commands, in their order.
fn blocks() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/tutorial/shared-path.md")).unwrap();
    let blocks =
        text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().trim().to_owned());
    blocks.collect()
}

/// The device of each path that is shown, with what was found.
fn found(lines: &[String]) -> Vec<(String, String)> {
    let words = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let paths = words.filter(|words| words.len() == 10 && words[1] == "->");
    paths.map(|words| (words[3].to_owned(), words[9].to_owned())).collect()
}

#[test]
fn root_tutorial_commands_work() {
    let pair = Pair::new();
    let machine = Machine::start(&pair.here);
    machine.run("mkdir /opt/target");
    let package = machine.put(&package_of("VMCC_NEW_PACKAGE", pair.dir.path(), "0.0.1"));
    machine.run(&format!("mv {} /opt/target", package.display()));
    let mut screen = None;
    let mut closed = false;
    for block in blocks() {
        if block.ends_with(LIVE) {
            screen = Some(Terminal::start(&machine.command(&format!("{HERE}{block}")), 24, 80));
            continue;
        }
        let moves = screen.as_ref().filter(|_| block.contains("master br0"));
        if let Some(screen) = moves {
            screen.shows("two paths that are apart", |lines| {
                let apart = |device: &str| (device.to_owned(), "apart".to_owned());
                let found = found(lines);
                found.contains(&apart("eth0")) && found.contains(&apart("eth1"))
            });
        }
        // Not into a pipe, which what goes on in the background would keep open.
        let line = format!("exec >>/opt/said 2>&1; {HERE}{block}");
        let done = machine.command(&line).status().unwrap();
        assert!(done.success(), "{block}\n{}", machine.run("cat /opt/said"));
        if let Some(screen) = moves {
            screen.shows("a path that was closed, and one that is left", |lines| {
                lines.iter().any(|line| line.starts_with(" 10.81.1.1 -> 10.81.0.2 closed "))
                    && found(lines).iter().any(|(device, _)| device == "eth0")
            });
            closed = true;
        }
    }
    assert!(closed, "the page has the block that moves a vNIC");
}
