//! Tests that the commands of the guides work as they are printed.

use crate::common::{folder, json, output, root};
use std::fs;

/// The commands for the simulator and for scenarios in the `sh` blocks of a guide, without their comments.
fn commands(guide: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("docs").join(guide)).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).map(|line| line.split(" #").next().unwrap().trim().to_owned());
    lines.filter(|l| l.contains("--engine sim") || l.starts_with("vmcc scenario")).collect()
}

#[test]
fn every_simulator_command_of_the_guide_on_running_works() {
    let dir = folder();
    let program = assert_cmd::cargo::cargo_bin("vmcc");
    let commands = commands("how-to/running.md");
    assert!(commands.len() >= 9, "{commands:?}");
    for command in commands {
        // The program of this build under its name, and what is piped into a filter without the filter.
        let line = command.split(" | ").next().unwrap();
        let script = format!("vmcc() {{ '{}' \"$@\"; }}\n{line}", program.display());
        let run =
            std::process::Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
        assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr));
    }
}

#[test]
fn own_algorithm_tutorial_works() {
    let dir = folder();
    let text = fs::read_to_string(root().join("docs/tutorial/own-algorithm.md")).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let commands: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert_eq!(commands.len(), 5, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.strip_prefix("vmcc ").unwrap().split(' ').collect();
        let run = output(dir.path(), &words);
        assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr));
    }
    for made in
        ["mylia.c", "mylia.csv", "mylia.toml", "first/report.html", "first/mylia.c", "gain/report.html"]
    {
        assert!(dir.path().join(made).exists(), "{made}");
    }
    // The lines that the page shows are those of the file.
    let code = text.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let file = fs::read_to_string(dir.path().join("mylia.c")).unwrap();
    assert!(code.lines().all(|line| file.contains(line.trim_start())), "{code}");
}

#[test]
fn listed_parameters_can_be_set() {
    let dir = folder();
    let text = String::from_utf8(output(dir.path(), &["algorithms"]).stdout).unwrap();
    let form = text.split("`vmcc run --set ").nth(1).unwrap().split('`').next().unwrap();
    assert_eq!(form, "params.ALGORITHM.PARAMETER=VALUE");
    let setting = form.replace("ALGORITHM.PARAMETER=VALUE", "vmcc.g=0.25");
    let arguments =
        ["run", "two.toml", "--engine", "sim", "--set", "cc=vmcc", "--set", &setting, "--out", "out"];
    let (_, document) = json(dir.path(), &arguments);
    assert_eq!(document["cases"][0]["set"]["params.vmcc.g"], 0.25);
}

/// `make demo` shows it while it builds.
#[test]
fn recorded_demo_matches_the_simulator() {
    let dir = folder();
    let printed = output(dir.path(), &["demo", "--engine", "sim", "--out", "out"]).stdout;
    let printed = String::from_utf8(printed).unwrap();
    let (table, _) = printed.split_once("Report:").unwrap();
    let recorded = fs::read_to_string(root().join("docs/demo.txt")).unwrap();
    let (_, recorded) = recorded.split_once("\n\n").unwrap();
    assert_eq!(
        recorded.trim_end(),
        table.trim_end(),
        "record it again: CONTRIBUTING.md, \"The recorded demo\""
    );
}
