//! The commands that run nothing.

use crate::common::{self, folder, json, output, refused, vmcc};
use predicates::prelude::*;
use std::fs;

#[test]
fn algorithms_list_source_and_parameter_ranges() {
    let dir = folder();
    let (code, document) = json(dir.path(), &["algorithms"]);
    assert_eq!(code, 0);
    let algorithms = document["algorithms"].as_array().unwrap();
    assert_eq!(algorithms.len(), vmcc_cc::Algorithm::all().len());
    for algorithm in algorithms {
        assert!(!algorithm["source"].as_str().unwrap().is_empty(), "{algorithm}");
        assert!(algorithm["coupled"].is_boolean() && algorithm["needs_ecn"].is_boolean());
        for parameter in algorithm["parameters"].as_array().unwrap() {
            let range = parameter["min"].is_number() && parameter["max"].is_number();
            assert!(range || !parameter["choices"].as_array().unwrap().is_empty(), "{parameter}");
            assert!(parameter["unit"].is_string() && !parameter["default"].is_null(), "{parameter}");
        }
    }
    vmcc(dir.path()).arg("algorithms").assert().success().stdout(predicate::str::contains("vmcc"));
}

#[test]
fn metrics_list_place_unit_engines_and_meaning() {
    let dir = folder();
    let (code, document) = json(dir.path(), &["metrics"]);
    assert_eq!(code, 0);
    let metrics = document["metrics"].as_array().unwrap();
    for metric in metrics {
        let filled = |key: &str| metric[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(["name", "title", "unit", "kind", "over", "meaning"].into_iter().all(filled), "{metric}");
        assert!(["places", "engines"].iter().all(|k| !metric[*k].as_array().unwrap().is_empty()), "{metric}");
    }
    let goodput = metrics.iter().find(|m| m["name"] == "goodput_bps").unwrap();
    assert_eq!((&goodput["unit"], &goodput["engines"][1]), (&"bit/s".into(), &"kernel".into()));
    assert!(document["schema"]["properties"]["ce_marks"]["description"].is_string());
    let listed = predicate::str::contains("paths.<path>.METRIC").and(predicate::str::contains("rtt_us *"));
    vmcc(dir.path()).arg("metrics").assert().success().stdout(listed);
}

#[test]
fn every_builtin_scenario_is_listed_shown_and_valid() {
    let dir = folder();
    let (code, document) = json(dir.path(), &["scenarios"]);
    assert_eq!(code, 0);
    let scenarios = document["scenarios"].as_array().unwrap();
    assert!(scenarios.iter().any(|s| s["name"] == "demo"));
    for scenario in scenarios {
        let name = scenario["name"].as_str().unwrap();
        let shown = output(dir.path(), &["scenario", "show", name]);
        let file = dir.path().join("copy.toml");
        fs::write(&file, shown.stdout).unwrap();
        let (code, document) = json(dir.path(), &["scenario", "check", "copy.toml"]);
        assert_eq!((code, &document["valid"]), (0, &true.into()), "{name}");
        assert_eq!(document["scenario"]["cases"], scenario["cases"], "{name}");
    }
}

#[test]
fn schema_is_a_json_schema_of_a_table() {
    let dir = folder();
    let (code, schema) = json(dir.path(), &["scenario", "schema"]);
    assert_eq!(code, 0);
    assert!(schema["properties"]["topology"].is_object() && schema["$schema"].is_string());
    let plain = output(dir.path(), &["scenario", "schema"]);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&plain.stdout).unwrap(), schema);
}

#[test]
fn invalid_scenario_is_refused_with_line_key_and_remedy() {
    let dir = folder();
    let text = common::SCENARIO.replace("duration = \"300ms\"", "duratoin = \"300ms\"");
    fs::write(dir.path().join("bad.toml"), text).unwrap();
    let message = refused(dir.path(), &["scenario", "check", "bad.toml"], 2);
    assert!(message.contains("bad.toml:3") && message.contains("duratoin"), "{message}");
    assert!(message.contains("help: ") && message.contains("`duration`"), "{message}");
    let (code, document) = json(dir.path(), &["scenario", "check", "bad.toml"]);
    assert_eq!((code, &document["error"]["exit"]), (2, &2.into()));
}

#[test]
fn unknown_names_get_suggestions() {
    let dir = folder();
    assert!(refused(dir.path(), &["run", "dmeo"], 2).contains("demo"));
    let message = refused(dir.path(), &["run", "two.toml", "--set", "cc=vmmc"], 2);
    assert!(message.contains("vmmc") && message.contains("vmcc"), "{message}");
}

#[test]
fn missing_scenario_file_error_has_a_remedy() {
    let dir = folder();
    fs::create_dir(dir.path().join("sub")).unwrap();
    let message = refused(dir.path(), &["scenario", "check", "sub"], 2);
    assert!(message.contains("`sub`") && message.contains("is a directory"), "{message}");
    for missing in ["nosuch.toml", "sub/nosuch.toml"] {
        let message = refused(dir.path(), &["run", missing], 2);
        assert!(message.contains(missing) && message.contains("help: "), "{message}");
        assert!(message.contains("vmcc scenario show"), "{message}");
    }
}

#[test]
fn wrong_use_exits_2_also_in_json() {
    let dir = folder();
    for arguments in [&["frobnicate"][..], &["run"], &["run", "two.toml", "--runs", "0"], &["mark", "eth0"]] {
        assert_eq!(output(dir.path(), arguments).status.code(), Some(2), "{arguments:?}");
        let (code, document) = json(dir.path(), arguments);
        assert_eq!(code, 2);
        assert!(document["error"]["message"].is_string(), "{document}");
    }
    assert_eq!(output(dir.path(), &["--help"]).status.code(), Some(0));
    assert_eq!(output(dir.path(), &["run", "--version"]).status.code(), Some(0));
}

#[test]
fn invalid_marking_thresholds_are_refused() {
    let dir = folder();
    assert!(refused(dir.path(), &["mark", "eth0", "--threshold", "30furlongs"], 2).contains("--threshold"));
    assert!(refused(dir.path(), &["mark", "eth0", "--threshold", "200us"], 2).contains("--rate"));
    assert!(refused(dir.path(), &["mark", "eth0", "--threshold", "0B"], 2).contains("--threshold"));
}

#[test]
fn output_without_a_terminal_has_no_color() {
    let dir = folder();
    for arguments in [&["algorithms"][..], &["run", "nothing"], &["doctor"], &["--help"]] {
        let output = output(dir.path(), arguments);
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{arguments:?}");
    }
}

#[test]
fn closed_pipe_is_no_error() {
    let dir = folder();
    let program = assert_cmd::cargo::cargo_bin("vmcc");
    let line = format!("'{}' algorithms --json | head -c 10; echo \"${{PIPESTATUS[0]}}\"", program.display());
    let output =
        std::process::Command::new("bash").args(["-c", &line]).current_dir(dir.path()).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("0\n"));
}

#[test]
fn completions_and_manual_pages_are_generated() {
    let dir = folder();
    for shell in ["bash", "zsh", "fish"] {
        let output = output(dir.path(), &["internal", "completions", shell]);
        assert!(output.status.success() && output.stdout.len() > 1000, "{shell}");
    }
    let man = dir.path().join("man");
    fs::create_dir(&man).unwrap();
    assert!(output(dir.path(), &["internal", "man", "man"]).status.success());
    assert!(common::names(&man).contains(&"vmcc-run.1".to_owned()));
    refused(dir.path(), &["internal", "man", "missing"], 3);
}

#[test]
fn doctor_reports_each_engine_with_its_obstacles() {
    let dir = folder();
    let (code, document) = json(dir.path(), &["doctor"]);
    assert_eq!((code, &document["engines"]["sim"]["usable"]), (0, &true.into()));
    for engine in ["kernel", "guest"] {
        let state = &document["engines"][engine];
        assert!(state["usable"] == true || state["reason"].is_string(), "{engine}: {state}");
    }
}

#[test]
fn endless_files_are_refused_by_every_command() {
    let dir = folder();
    let result = dir.path().join("result");
    std::fs::create_dir(&result).unwrap();
    let pipe = |name: &str| {
        let made = std::process::Command::new("mkfifo").arg(dir.path().join(name)).status().unwrap();
        assert!(made.success());
    };
    pipe("pipe.toml");
    pipe("result/summary.json");
    for (arguments, says) in [
        (["scenario", "check", "/dev/zero"], "longer than 1048576 bytes"),
        (["run", "/dev/zero", "--quiet"], "longer than 1048576 bytes"),
        (["scenario", "check", "pipe.toml"], "nobody writes to"),
        (["report", "result", "--json"], "no regular file"),
    ] {
        let output =
            common::vmcc(dir.path()).args(arguments).timeout(std::time::Duration::from_secs(60)).output();
        let output = output.unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
}

#[test]
fn unwritable_output_fails_the_command() {
    let run = |arguments: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vmcc"));
        command.args(arguments).stdout(full).output().unwrap()
    };
    let done = run(&["algorithms"]);
    let message = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{message}");
    assert!(message.contains("done, but its answer") && message.contains("mp_reno"), "{message}");
    assert_eq!(run(&["--help"]).status.code(), Some(1));
    // What went wrong before says more, and was not done.
    let failed = run(&["scenario", "check", "/nowhere.toml", "--json"]);
    let message = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(2), "{message}");
    assert!(message.contains("/nowhere.toml") && !message.contains("done"), "{message}");
}

#[test]
fn advice_refuses_invalid_options() {
    let dir = folder();
    for (option, value) in [
        ("--to", "db:0"),
        ("--to", ""),
        ("--rate", "eth0"),
        ("--rate", "eth0=0mbit"),
        ("--demand", "0mbit"),
        ("--watch", "0s"),
        ("--concurrency", "0"),
        ("--application", "web"),
        ("--size", "40"),
    ] {
        refused(dir.path(), &["advise", option, value], 2);
    }
}
