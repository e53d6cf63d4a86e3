//! `vmcc mark` and `vmcc unmark` as an operator uses them, with real traffic.

use crate::wire::Pair;
use serde_json::Value;

#[test]
fn root_mark_serves_a_port_until_it_is_unmarked() {
    let pair = Pair::new();
    let before = pair.queues();
    let (code, said) = pair.json(&["mark", "p0", "--rate", "60mbit", "--classes", "gold:4:dscp=46,rest:1"]);
    assert_eq!(
        (code, &said["changed"], &said["stats"]["classes"][0]["name"]),
        (0, &false.into(), &"gold".into()),
        "{said}"
    );
    assert!(said["backend_reason"].as_str().is_some_and(|why| !why.is_empty()), "{said}");

    pair.judge_share("-t 3 -S 184", 60, 25.0 / 60.0);
    let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
    let (gold, rest) = (&stats["classes"][0], &stats["classes"][1]);
    let count = |class: &Value, key: &str| class[key].as_u64().unwrap();
    assert_eq!((code, &stats["schema"], &stats["rate_bps"]), (0, &1.into(), &60_000_000.into()), "{stats}");
    assert!(count(gold, "packets") > 5_000 && count(gold, "bytes") > 10_000_000, "{stats}");
    assert!(count(rest, "packets") < 100, "{stats}");

    let (_, list) = pair.json(&["mark", "--list"]);
    assert_eq!(
        (list["ports"].as_array().unwrap().len(), &list["ports"][0]["port"]),
        (1, &"p0".into()),
        "{list}"
    );
    let table = pair.text(&["mark", "--list"]);
    assert!(table.contains("p0:") && table.contains("gold") && table.contains("THRESHOLD"), "{table}");
    let metrics = pair.text(&["mark", "--list", "--prometheus"]);
    assert!(metrics.contains("vmcc_port_class_packets_total{port=\"p0\",class=\"gold\"}"), "{metrics}");
    assert!(pair.text(&["status"]).contains("p0"));

    let (code, said) = pair.json(&["mark", "p0", "--rate", "20mbit"]);
    assert_eq!(
        (code, &said["changed"], &said["stats"]["rate_bps"]),
        (0, &true.into(), &20_000_000.into()),
        "{said}"
    );
    assert_eq!(said["removed_classes"], serde_json::json!(["gold", "rest"]), "{said}");
    assert_eq!(said["settings"]["marking"]["rule"], "mq-ecn", "{said}");
    pair.judge_share("-t 2", 20, 0.75);
    let text = pair.text(&["mark", "p0", "--rate", "20mbit", "--classes", "a:3,b", "--threshold", "30kB"]);
    for part in ["was served already", "20mbit", "by weight: a 3, b 1", "marks above 30kB", "removed: all"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(text.lines().count(), 2, "{text}");

    assert_eq!(pair.json(&["clean"]).0, 0);
    assert_eq!(pair.json(&["mark", "p0", "--stats"]).0, 0, "served on purpose: no leftover");
    let (code, said) = pair.json(&["unmark", "p0"]);
    assert_eq!(
        (code, &said["was_marking"], &said["stats"]["port"]),
        (0, &true.into(), &"p0".into()),
        "{said}"
    );
    assert_eq!(pair.json(&["unmark", "p0"]).1["was_marking"], false);
    assert_eq!(pair.queues(), before);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_applies_a_file_and_unmark_all_releases_every_port() {
    let pair = Pair::new();
    pair.file("port.toml", "rate = \"50mbit\"\nmarking = { rule = \"threshold\", at = \"30kB\" }\n");
    assert_eq!(pair.json(&["mark", "p0", "--config", "port.toml"]).0, 0);
    assert_eq!(pair.json(&["mark", "lo", "--threshold", "30kB", "--rate", "1gbit"]).0, 0);
    pair.judge_share("-t 2", 50, 0.8);
    let (_, stats) = pair.json(&["mark", "p0", "--stats"]);
    let class = &stats["classes"][0];
    assert_eq!(class["threshold_bytes"], 30_000, "{stats}");
    assert!(class["marked"].as_u64().unwrap() > 2, "{stats}");
    let (code, said) = pair.json(&["unmark", "--all"]);
    assert_eq!((code, &said["unmarked"]), (0, &serde_json::json!(["lo", "p0"])), "{said}");
    assert!(pair.text(&["mark", "--list"]).contains("serves no port"));
    pair.assert_nothing_left();
}

#[test]
fn root_mark_in_the_foreground_shows_counters_and_ends_on_sigterm() {
    let pair = Pair::new();
    let before = pair.queues();
    let mut held = pair.foreground(&["--rate", "50mbit"]);
    assert!(
        pair.refused(&["mark", "p0", "--rate", "10mbit"], 2).contains("running vmcc"),
        "nobody takes it away"
    );
    assert!(pair.refused(&["unmark", "p0"], 2).contains(&held.id().to_string()), "the holder is named");
    assert_eq!(pair.json(&["mark", "p0", "--stats"]).0, 0, "counters are for everybody");
    held.signal("TERM");
    let (code, out) = held.end();
    assert_eq!(code, Some(130));
    assert!(out.contains("CLASS") && out.contains("no longer served"), "{out}");
    assert_eq!(pair.queues(), before);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_killed_in_the_foreground_is_cleaned_or_taken_over() {
    let pair = Pair::new();
    let before = pair.queues();
    let kill = || {
        let mut held = pair.foreground(&["--rate", "50mbit"]);
        held.signal("KILL");
        held.end();
    };
    kill();
    assert_eq!(pair.json(&["mark", "p0", "--stats"]).1["rate_bps"], 50_000_000, "whole, not half");
    let (code, cleaned) = pair.json(&["clean"]);
    assert_eq!((code, &cleaned["ports"]), (0, &serde_json::json!(["p0"])), "{cleaned}");
    assert_eq!(pair.queues(), before);

    kill();
    let (code, said) = pair.json(&["mark", "p0", "--rate", "30mbit"]);
    assert_eq!((code, &said["changed"]), (0, &true.into()), "{said}");
    assert!(pair.refused(&["mark", "p0", "--rate", "40mbit", "--foreground"], 2).contains("unmark"));
    assert_eq!(pair.json(&["mark", "p0", "--stats"]).1["rate_bps"], 30_000_000, "as it was");
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    assert_eq!(pair.queues(), before);

    kill();
    let mut held = pair.foreground(&["--rate", "20mbit"]);
    held.signal("INT");
    assert_eq!(held.end().0, Some(130));
    assert_eq!(pair.queues(), before);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_detects_a_deleted_port() {
    let pair = Pair::new();
    let held = pair.foreground(&["--rate", "50mbit"]);
    pair.ip("link del p0");
    let (code, _) = held.end();
    assert_eq!(code, Some(3));
    pair.assert_nothing_left();

    let pair = Pair::new();
    assert_eq!(pair.json(&["mark", "p0", "--rate", "50mbit"]).0, 0);
    pair.ip("link del p0");
    assert!(pair.refused(&["mark", "p0", "--stats"], 2).contains("no port `p0`"));
    let (code, said) = pair.json(&["unmark", "p0"]);
    assert_eq!((code, &said["was_marking"]), (0, &false.into()), "{said}");
    pair.assert_nothing_left();
}
