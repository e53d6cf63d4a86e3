//! Served ports whose record or queues are not as vmcc left them.

use crate::wire::Pair;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const RECORDS: &str = "/run/vmcc/ports";

fn record(pair: &Pair) -> PathBuf {
    let records = pair.records();
    assert_eq!(records.len(), 1, "{records:?}");
    PathBuf::from(RECORDS).join(&records[0])
}

type Damage = fn(&PathBuf);

/// Damages to a record.
const DAMAGES: [(&str, Damage); 5] = [
    ("corrupt", |path| fs::write(path, "{\"port\":").unwrap()),
    ("empty", |path| fs::write(path, "").unwrap()),
    ("deleted", |path| fs::remove_file(path).unwrap()),
    ("a FIFO", |path| {
        fs::remove_file(path).unwrap();
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }),
    ("a link", |path| {
        fs::remove_file(path).unwrap();
        let other = path.with_extension("precious");
        fs::write(&other, "precious").unwrap();
        symlink(other, path).unwrap();
    }),
];

/// Checks that a damage's file beside the record is unchanged, and removes it.
fn assert_untouched(path: &Path) {
    let other = path.with_extension("precious");
    if other.exists() {
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious", "a link was followed");
        fs::remove_file(other).unwrap();
    }
}

#[test]
fn root_mark_port_without_a_record_is_listed_changed_and_removed() {
    let pair = Pair::new();
    pair.tc("qdisc add dev p0 root handle 7: pfifo limit 77");
    let before = pair.queues();
    for (what, damage) in DAMAGES {
        for end in [&["unmark", "p0"][..], &["unmark", "--all"]] {
            assert_eq!(pair.json(&["mark", "p0", "--rate", "20mbit"]).0, 0, "{what}");
            let path = record(&pair);
            damage(&path);
            let (code, list) = pair.json(&["mark", "--list"]);
            assert_eq!((code, &list["ports"][0]["rate_bps"]), (0, &20_000_000.into()), "{what}: {list}");
            assert_eq!(pair.json(&["clean"]).1["ports"], json!([]), "{what}: it was left on purpose");
            assert_untouched(&path);
            let (code, said) = pair.json(&["mark", "p0", "--rate", "30mbit"]);
            assert_eq!((code, &said["changed"]), (0, &true.into()), "{what}: {said}");
            damage(&record(&pair));
            assert_eq!(pair.json(end).0, 0, "{what}");
            assert_eq!(pair.queues(), before, "{what}");
            assert_untouched(&path);
            assert_eq!(pair.records(), Vec::<String>::new(), "{what}");
        }
    }
    pair.tc("qdisc del dev p0 root");
    pair.assert_nothing_left();
}

#[test]
fn root_mark_budget_member_without_a_record_is_listed_and_removed() {
    let pair = Pair::new();
    let before = pair.queues();
    let index = pair.ip("-o link show p0");
    let suffix = format!("-{}.json", index.split(':').next().unwrap());
    for (what, damage) in DAMAGES {
        assert_eq!(pair.json(&["mark", "p0", "--vm", "db1=50mbit:shared"]).0, 0, "{what}");
        for name in pair.records() {
            let path = PathBuf::from(RECORDS).join(&name);
            damage(&path);
        }
        let (_, list) = pair.json(&["mark", "--list"]);
        assert_eq!(list["ports"][0]["members"], json!(["p0"]), "{what}: {list}");
        assert_eq!(pair.json(&["unmark", "--all"]).0, 0, "{what}");
        assert_eq!(pair.queues(), before, "{what}");
        let left = pair.records();
        for name in &left {
            assert!(name.ends_with("precious"), "{what}: {name} {suffix}");
            let path = PathBuf::from(RECORDS).join(name);
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
            fs::remove_file(path).unwrap();
        }
    }
    pair.assert_nothing_left();
}

/// Changes by somebody else, with a part of the reported difference.
const OTHERS: [(&str, &str); 5] = [
    ("qdisc del dev p0 root", "its queues are gone"),
    ("qdisc replace dev p0 root handle 8001: pfifo limit 9", "pfifo 8001:"),
    ("class change dev p0 parent c0de: classid c0de:1 htb rate 1mbit", "another one than was set"),
    ("filter del dev p0 egress", "its program is gone"),
    ("filter del dev p0 parent c0de:", "joins the first class instead of the last"),
];

#[test]
fn root_mark_reports_and_repairs_foreign_changes() {
    for (other, says) in OTHERS {
        let pair = Pair::new();
        let before = pair.queues();
        assert_eq!(pair.json(&["mark", "p0", "--rate", "20mbit", "--classes", "a:dscp=46,b"]).0, 0);
        assert_eq!(pair.json(&["mark", "p0", "--stats"]).1.get("differences"), None);
        pair.tc(other);
        let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
        assert_eq!(code, 1, "{other}: {stats}");
        assert!(stats["differences"][0].as_str().unwrap().contains(says), "{other}: {stats}");
        let list = pair.text(&["mark", "--list"]);
        assert!(list.contains(says) && list.contains("vmcc mark p0 --repair"), "{other}: {list}");
        if other.contains("root") {
            assert!(!list.contains("20mbit") && stats.get("rate_bps").is_none(), "{other}: {list}");
        }
        // Of a port without its program nothing is known but that.
        let unknown = list.contains("its own queue") || list.contains("no rate");
        assert!(stats["classes"] != json!([]) || !unknown, "{other}: {list}");
        let (code, said) = pair.json(&["mark", "p0", "--repair"]);
        assert_eq!((code, said["repaired"].as_array().map(Vec::len)), (0, Some(1)), "{other}: {said}");
        let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
        assert_eq!((code, &stats["rate_bps"]), (0, &20_000_000.into()), "{other}: {stats}");
        println!("{other}");
        pair.judge_share("-t 2", 20, 0.7);
        assert_eq!(pair.json(&["unmark", "p0"]).0, 0, "{other}");
        if other.contains("pfifo") {
            assert!(pair.tc("qdisc show dev p0").contains("pfifo 8001:"), "what was there last is back");
        } else {
            assert_eq!(pair.queues(), before, "{other}");
            pair.assert_nothing_left();
        }
    }
}

#[test]
fn root_mark_releases_a_port_that_lost_its_program() {
    let pair = Pair::new();
    let before = pair.queues();
    assert_eq!(pair.json(&["mark", "p0", "--rate", "20mbit"]).0, 0);
    pair.tc("qdisc del dev p0 clsact");
    assert_eq!(pair.json(&["unmark", "p0"]).1["was_marking"], true);
    assert_eq!(pair.queues(), before);
    assert_eq!(pair.json(&["unmark", "p0"]).1["was_marking"], false);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_reports_and_repairs_a_damaged_budget() {
    for (other, says) in [
        ("link set {} down", "is down"),
        ("link del {}", "not whole"),
        ("qdisc del dev {} root", "its queues are gone"),
    ] {
        let pair = Pair::new();
        let before = pair.queues();
        assert_eq!(pair.json(&["mark", "p0", "--vm", "db1=50mbit:shared", "--threshold", "100kB"]).0, 0);
        let links = pair.ip("-o link show");
        let device = links.split_whitespace().find(|word| word.starts_with("vmccb")).unwrap();
        let command = other.replace("{}", device.trim_end_matches(':'));
        if command.starts_with("qdisc") {
            pair.tc(&command);
        } else {
            pair.ip(&command);
        }
        let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
        assert!(
            code == 1 && stats["differences"][0].as_str().unwrap().contains(says),
            "{command}: {code} {stats}"
        );
        assert!(pair.text(&["mark", "--list"]).contains("vmcc mark p0 --repair"), "{command}");
        let (code, said) = pair.json(&["mark", "p0", "--repair"]);
        assert_eq!(code, 0, "{command}: {said}");
        assert_eq!(pair.json(&["mark", "p0", "--stats"]).0, 0, "{command}");
        println!("{command}");
        pair.judge_share("-t 2", 50, 0.6);
        assert_eq!(pair.json(&["unmark", "p0"]).0, 0, "{command}");
        assert_eq!(pair.queues(), before, "{command}");
        pair.assert_nothing_left();
    }
}

/// Repair of one port creates another device, which the packets of the other port do not enter yet.
#[test]
fn root_mark_reports_and_repairs_a_budget_recreated_without_a_port() {
    let pair = Pair::new();
    let before = pair.queues();
    pair.join("p1", 80);
    for port in ["p0", "p1"] {
        assert_eq!(pair.json(&["mark", port, "--vm", "db1=50mbit:shared", "--threshold", "100kB"]).0, 0);
    }
    let links = pair.ip("-o link show");
    let device = links.split_whitespace().find(|word| word.starts_with("vmccb")).unwrap();
    pair.ip(&format!("link del {}", device.trim_end_matches(':')));
    assert_eq!(pair.json(&["mark", "p1", "--repair"]).0, 0);
    let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
    assert!(code == 1 && !stats["differences"].as_array().unwrap().is_empty(), "{code} {stats}");
    let (code, said) = pair.json(&["mark", "p0", "--repair"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(pair.json(&["mark", "p0", "--stats"]).0, 0);
    pair.judge_share("-t 2", 50, 0.6);
    for port in ["p0", "p1"] {
        assert_eq!(pair.json(&["unmark", port]).0, 0);
    }
    pair.ip("link del p1");
    assert_eq!(pair.queues(), before);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_ignores_a_foreign_device_named_like_a_budget() {
    let pair = Pair::new();
    pair.ip("link add vmccb0a1b2c3d type bridge");
    assert!(!pair.text(&["mark", "--list"]).contains("vmccb0a1b2c3d"));
    assert_eq!(pair.json(&["mark", "p0", "--vm", "db1=50mbit:shared"]).0, 0);
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    assert_eq!(pair.json(&["clean"]).0, 0);
    assert!(pair.ip("-o link show").contains("vmccb0a1b2c3d"));
    pair.ip("link del vmccb0a1b2c3d");
    pair.assert_nothing_left();
}

#[test]
fn root_mark_repair_of_a_whole_port_changes_nothing() {
    let pair = Pair::new();
    assert!(pair.refused(&["mark", "p0", "--repair"], 2).contains("not served"));
    assert_eq!(pair.json(&["mark", "p0", "--rate", "20mbit"]).0, 0);
    let served = pair.queues();
    let (code, said) = pair.json(&["mark", "p0", "--repair"]);
    assert_eq!((code, &said["repaired"]), (0, &json!([])), "{said}");
    assert_eq!(pair.queues(), served);
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    pair.assert_nothing_left();
}
