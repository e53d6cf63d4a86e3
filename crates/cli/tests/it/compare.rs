//! `vmcc compare`: two result folders.

use crate::common::{folder, json, output, refused};
use std::fs;
use std::path::Path;

fn run(dir: &Path, out: &str, extra: &[&str]) {
    let (code, _) = json(dir, &[&["run", "two.toml", "--engine", "sim", "--out", out], extra].concat());
    assert_eq!(code, 0);
}

#[test]
fn equal_seeds_give_no_difference() {
    let dir = folder();
    run(dir.path(), "a", &[]);
    run(dir.path(), "b", &[]);
    let (code, found) =
        json(dir.path(), &["compare", "a", "b", "--fail-if", "goodput < 0%", "--fail-if", "rtt.p99 > 0"]);
    assert_eq!((code, found["cases"].as_array().map(Vec::len)), (0, Some(2)), "{found:#}");
    for case in found["cases"].as_array().unwrap() {
        assert!(case["metrics"].as_object().unwrap().len() > 10, "{case:#}");
        for compared in case["metrics"].as_object().unwrap().values() {
            assert_eq!(compared["difference"], 0.0, "{compared}");
        }
    }
}

#[test]
fn lower_link_rate_lowers_goodput_in_every_case() {
    let dir = folder();
    run(dir.path(), "a", &[]);
    run(dir.path(), "b", &["--set", "topology.rate=10mbit"]);
    let (code, found) =
        json(dir.path(), &["compare", "a", "b", "--fail-if", "goodput < -20%", "--fail-if", "goodput > 2%"]);
    assert_eq!(code, 1);
    let failed = |condition: &serde_json::Value| (condition["case"].clone(), condition["failed"].clone());
    let found: Vec<_> = found["conditions"].as_array().unwrap().iter().map(failed).collect();
    let expected = [("reno", true), ("lia", true), ("reno", false), ("lia", false)];
    assert_eq!(found, expected.map(|(case, failed)| (case.into(), failed.into())));
    let done = output(dir.path(), &["compare", "b", "a", "--fail-if", "goodput < -20%"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && text.contains("goodput_bps") && text.contains("differs"), "{text}");
    assert!(text.contains("goodput_bps < -20.00 %") && text.contains("pass"), "{text}");
}

/// Each row of a comparison has the difference beside both means, at 80 columns too, and no zero has a sign.
#[test]
fn differences_stand_beside_the_means() {
    let dir = folder();
    run(dir.path(), "a", &[]);
    run(dir.path(), "b", &["--set", "topology.rate=10mbit"]);
    for (before, after, mark) in [("a", "b", true), ("a", "a", false)] {
        let text = String::from_utf8(output(dir.path(), &["compare", before, after]).stdout).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let header: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(header, ["CASE", "METRIC", "BEFORE", "AFTER", "DIFFERENCE"], "{text}");
        assert_eq!(text.matches("DIFFERENCE").count(), 1, "one block: {text}");
        let goodput = text.lines().find(|line| line.contains(" goodput_bps ")).unwrap();
        assert_eq!((goodput.ends_with(" % *"), text.contains("* differs")), (mark, mark), "{text}");
        assert!(!text.contains("-0.000") && !text.contains("+0.000"), "{text}");
    }
}

/// The same delays in another spelling are the same cases.
#[test]
fn cases_are_matched_by_value() {
    let dir = folder();
    run(dir.path(), "a", &["--set", "cc=lia", "--set", "topology.delay=2ms,4ms"]);
    run(dir.path(), "b", &["--set", "cc=lia", "--set", "topology.delay=4000us,2000us"]);
    let (code, found) = json(dir.path(), &["compare", "a", "b", "--fail-if", "goodput < 0%"]);
    let names: Vec<_> = found["cases"].as_array().unwrap().iter().map(|case| case["name"].clone()).collect();
    assert_eq!((code, names), (0, vec!["4000us".into(), "2000us".into()]), "{found:#}");
    assert_eq!(
        (found["only_before"].clone(), found["only_after"].clone()),
        (serde_json::json!([]), serde_json::json!([]))
    );
}

#[test]
fn incomparable_folders_are_named() {
    let dir = folder();
    run(dir.path(), "a", &[]);
    run(dir.path(), "other", &["--set", "cc=olia,balia"]);
    fs::create_dir(dir.path().join("half")).unwrap();
    assert!(refused(dir.path(), &["compare", "a", "nowhere"], 2).contains("nowhere"));
    assert!(refused(dir.path(), &["compare", "half", "a"], 2).contains("half"));
    let text = fs::read_to_string(dir.path().join("a/summary.json")).unwrap();
    fs::write(dir.path().join("half/summary.json"), &text[..text.len() / 2]).unwrap();
    assert!(refused(dir.path(), &["compare", "a", "half"], 2).contains("half/summary.json"));
    let message = refused(dir.path(), &["compare", "a", "other"], 2);
    assert!(message.contains("a and other have no case in common"), "{message}");
    let message = refused(dir.path(), &["compare", "a", "a", "--fail-if", "goodputt < 1%"], 2);
    assert!(message.contains("`goodputt`") && message.contains("goodput_bps"), "{message}");
    assert!(refused(dir.path(), &["compare", "a", "a", "--fail-if", "goodput"], 2).contains("goodput < -2%"));
}
