//! Bad input and faults of `vmcc mark`: each is refused with its reason and changes nothing, or is cleaned up behind.

use crate::wire::Pair;
use serde_json::json;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Arguments behind `vmcc mark p0`, and what the refusal says.
const BAD: &[(&[&str], &[&str])] = &[
    (&["--rate", "0bit"], &["--rate", "zero"]),
    (&["--rate", "fast"], &["--rate", "fast"]),
    (&["--rate", "-5mbit"], &["--rate: `-5mbit`"]),
    (&["--rate", "5mbit", "--buffer", "-1kB"], &["--buffer: `-1kB`"]),
    (&["--rate", "5mbit", "--threshold", "-1kB"], &["--threshold: `-1kB`"]),
    (&["--rate", "5mbit", "--rtt", "-1ms"], &["--rtt: `-1ms`"]),
    (&["--rate", "5mbit", "--lambda", "-1"], &["--lambda", "above 0"]),
    (&["--rate", "5mbit", "--phantom", "-1"], &["--phantom", "0.5 to 1"]),
    (
        &["--rate", "5mbit", "--classes", "a,b", "--queue", "fifo"],
        &["--queue: `fifo`", "use `drr`", "`priority`"],
    ),
    (&["--rate", "10mbit", "--classes", "a:0,b:1"], &["--classes", "`a`", "weight", "at least 1"]),
    (&["--rate", "10mbit", "--classes", "a:1:dscp=64,b"], &["--classes", "`a`", "64", "0 to 63"]),
    (&["--rate", "10mbit", "--classes", "a:1:dscp=1,b:1:dscp=1"], &["--classes", "`b`", "claimed"]),
    (
        &["--rate", "10mbit", "--classes", "a:guarantee=6mbit,b:guarantee=5mbit"],
        &["--classes", "guarantees", "11mbit", "10mbit", "lower a guarantee"],
    ),
    (&["--rate", "10mbit", "--classes", "a:ceiling=20mbit,b"], &["--classes", "20mbit", "10mbit"]),
    (&["--threshold", "30kB", "--classes", "a:guarantee=5mbit,b"], &["`a`", "no rate", "`rate`"]),
    (
        &["--rate", "10mbit", "--threshold", "90kB", "--buffer", "60kB"],
        &["--threshold", "90kB", "never marks", "60kB", "raise `buffer`"],
    ),
    (&["--rate", "10mbit", "--rtt", "1s", "--buffer", "60kB"], &["--rtt", "1.25MB", "never marks"]),
    (&["--rate", "10mbit", "--buffer", "100B"], &["--buffer", "100B", "MTU"]),
    (&["--rate", "10mbit", "--lambda", "0"], &["--lambda", "above 0"]),
    (&["--rate", "10mbit", "--phantom", "0.2"], &["--phantom", "0.5 to 1"]),
    (&["--marking", "mq-ecn"], &["--marking", "there is none", "`rate`"]),
    (&["--rate", "10mbit", "--marking", "red"], &["--marking", "red", "mq-ecn"]),
    (
        &["--rate", "10mbit", "--classes", "a:cgroup=no-such.slice,b"],
        &["--classes", "no-such.slice", "cgroup"],
    ),
    (&[], &["nothing says how", "--config"]),
];

#[test]
fn root_mark_refuses_bad_input_without_changes() {
    let pair = Pair::new();
    for (arguments, says) in BAD {
        let said = pair.refused(&[&["mark", "p0"], *arguments].concat(), 2);
        assert!(said.contains("help: "), "{arguments:?}: no remedy: {said}");
        for part in *says {
            assert!(said.contains(part), "{arguments:?}: no {part:?} in {said}");
        }
    }
    assert!(pair.refused(&["mark", "p9", "--rate", "1mbit"], 2).contains("`p9`"));
    assert!(pair.refused(&["mark", "p9", "--stats"], 2).contains("`p9`"));
    assert!(pair.refused(&["unmark", "p9"], 2).contains("`p9`"));
    assert!(pair.refused(&["mark", "p0", "--stats"], 2).contains("mark --list"));
    pair.assert_nothing_left();
}

#[test]
fn root_mark_reports_descriptor_exhaustion() {
    let pair = Pair::new();
    let mut refused = 0;
    for files in (4..96).step_by(4) {
        let before = pair.queues();
        let done = pair.with_open_files(files, &["mark", "p0", "--rate", "20mbit"]);
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() {
            break;
        }
        assert_eq!(pair.queues(), before, "{files} files");
        // With fewer than the C library needs it does not even start.
        if text.contains("error: ") {
            refused += 1;
            assert_eq!(done.status.code(), Some(3), "{files} files: {text}");
            assert!(text.contains("ulimit -n") && !text.contains("doctor"), "{files} files: {text}");
        }
    }
    assert!(refused > 3, "{refused}");
    assert_eq!(pair.json(&["unmark", "p0"]).1["was_marking"], true);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_refuses_bad_input_and_keeps_serving() {
    let pair = Pair::new();
    assert_eq!(pair.json(&["mark", "p0", "--rate", "20mbit"]).0, 0);
    for (arguments, _) in BAD {
        pair.refused(&[&["mark", "p0"], *arguments].concat(), 2);
    }
    let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
    assert_eq!((code, &stats["rate_bps"]), (0, &20_000_000.into()), "{stats}");
    pair.json(&["unmark", "p0"]);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_names_the_line_of_a_bad_file() {
    let pair = Pair::new();
    let text =
        "rate = \"10mbit\"\nqueue = \"drr\"\n[[class]]\nname = \"a\"\nweight = 0\n[[class]]\nname = \"b\"\n";
    pair.file("bad.toml", text);
    let said = pair.refused(&["mark", "p0", "--config", "bad.toml"], 2);
    assert!(said.contains("bad.toml:5") && said.contains("weight"), "{said}");
    // What only the port itself shows is found at its place too.
    pair.file("bad.toml", "rate = \"10mbit\"\nbuffer = \"100B\"\n");
    let said = pair.refused(&["mark", "p0", "--config", "bad.toml"], 2);
    assert!(said.contains("bad.toml:2") && said.contains("MTU"), "{said}");
    pair.file("bad.toml", "raet = \"10mbit\"\n");
    let said = pair.refused(&["mark", "p0", "--config", "bad.toml"], 2);
    assert!(said.contains("bad.toml:1") && said.contains("`rate`"), "{said}");
    assert!(pair.refused(&["mark", "p0", "--config", "missing.toml"], 2).contains("missing.toml"));
    pair.assert_nothing_left();
}

#[test]
fn root_mark_refuses_a_rule_on_a_port_without_a_queue() {
    let pair = Pair::new();
    for rule in
        [&["--threshold", "30kB"][..], &["--marking", "tcn"], &["--threshold", "20pkt", "--buffer", "90kB"]]
    {
        let said = pair.refused(&[&["mark", "p0"], rule].concat(), 2);
        for part in ["p0", "`noqueue`", "nothing ever waits", "--rate", "tc qdisc replace dev p0 root"] {
            assert!(said.contains(part), "{rule:?}: no {part:?} in {said}");
        }
    }
    // A port that was never up has no queue to look at.
    pair.ip("link add q0 type veth peer name q1");
    let said = pair.refused(&["mark", "q0", "--threshold", "30kB"], 2);
    assert!(said.contains("q0 is down") && said.contains("ip link set q0 up"), "{said}");
    // A virtual queue is a number, and counts what passes.
    assert_eq!(pair.json(&["mark", "p0", "--threshold", "30kB", "--phantom", "0.9"]).0, 0);
    assert!(pair.refused(&["mark", "p0", "--threshold", "30kB"], 2).contains("`noqueue`"), "as it was");
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);

    // The queue that the message names: it marks.
    pair.tc("qdisc replace dev p0 root tbf rate 100mbit burst 32kb limit 150kb");
    assert_eq!(pair.json(&["mark", "p0", "--threshold", "30kB"]).0, 0);
    pair.iperf("-t 2");
    let (_, stats) = pair.json(&["mark", "p0", "--stats"]);
    assert!(stats["classes"][0]["marked"].as_u64().unwrap() > 2, "{stats}");
    // Taken away while the port is served: nothing waits and nothing is marked, but all passes; and that is said.
    pair.tc("qdisc del dev p0 root");
    assert!(pair.iperf("-t 1") > 1e6);
    let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
    assert!(code == 1 && stats["differences"][0].as_str().unwrap().contains("`noqueue`"), "{code} {stats}");
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_names_settings_fixed_while_a_port_is_served() {
    let pair = Pair::new();
    pair.tc("qdisc replace dev p0 root tbf rate 100mbit burst 32kb limit 150kb");
    assert_eq!(pair.json(&["mark", "p0", "--threshold", "30kB"]).0, 0);
    let said = pair.refused(&["mark", "p0", "--threshold", "200us", "--rate", "50mbit"], 2);
    assert!(said.contains("`vmcc unmark p0`, then mark it again") && !said.contains("--rate:"), "{said}");
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    assert_eq!(pair.json(&["mark", "p0", "--rate", "50mbit"]).0, 0);
    let said = pair.refused(&["mark", "p0", "--threshold", "30kB"], 2);
    assert!(said.contains("`vmcc unmark p0`, then mark it again") && !said.contains("--rate:"), "{said}");

    assert_eq!(pair.json(&["mark", "p0", "--rate", "50mbit", "--backend", "htb", "--classes", "a,b"]).0, 0);
    let htb = || pair.tc("class show dev p0") + &pair.queues();
    let before = htb();
    for (arguments, option) in [
        (&["--rate", "20mbit", "--classes", "a,b", "--buffer", "150kB"][..], "--buffer: the unit"),
        (&["--rate", "20mbit", "--classes", "a,b:buffer=150kB"], "--classes: the unit"),
    ] {
        let said = pair.refused(&[&["mark", "p0", "--backend", "htb"], arguments].concat(), 2);
        assert!(said.contains(option) && said.contains("while the port is served"), "{said}");
        assert!(said.contains("`vmcc unmark`") && said.contains("1000pkt now"), "{said}");
        assert_eq!(htb(), before, "classes before the one that is refused are as they were");
    }
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    pair.tc("qdisc del dev p0 root");
    pair.assert_nothing_left();
}

#[test]
fn root_mark_refuses_to_replace_a_queue_it_cannot_restore() {
    let pair = Pair::new();
    pair.tc("qdisc add dev p0 root handle 1: htb default 1");
    pair.tc("class add dev p0 parent 1: classid 1:1 htb rate 1gbit");
    let said = pair.refused(&["mark", "p0", "--rate", "10mbit"], 2);
    assert!(said.contains("htb") && said.contains("tc qdisc del dev p0 root"), "{said}");
    // Marking by the queue that is there needs no other.
    assert_eq!(pair.json(&["mark", "p0", "--threshold", "30kB"]).0, 0);
    assert!(pair.tc("class show dev p0").contains("htb 1:1"));
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    assert!(pair.tc("class show dev p0").contains("htb 1:1"));
    pair.tc("qdisc del dev p0 root");
    pair.assert_nothing_left();
}

#[test]
fn root_mark_killed_at_any_moment_is_whole_or_cleanable() {
    let pair = Pair::new();
    pair.tc("qdisc add dev p0 root handle 7: bfifo limit 77777");
    let before = pair.queues();
    let arguments = ["mark", "p0", "--rate", "20mbit", "--classes", "a:2:dscp=8,b:1"];
    let (mut whole, mut half) = (0, 0);
    let begin = Instant::now();
    assert_eq!(pair.json(&arguments).0, 0);
    let time = begin.elapsed();
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    for round in 0..40 {
        // From before it does anything until after it is done, however busy the machine is.
        pair.killed_after(&arguments, time * round / 25);
        let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
        whole += u32::from(code == 0);
        half += u32::from(code != 0 && pair.queues() != before);
        if code == 0 {
            assert_eq!(stats["classes"].as_array().map(Vec::len), Some(2), "{stats}");
            // Each class has one for its sparse flows.
            assert_eq!(pair.tc("qdisc show dev p0").matches("fifo").count(), 4);
        }
        match round % 3 {
            0 => assert_eq!(pair.json(&["clean"]).0, 0),
            1 => assert_eq!(pair.json(&["mark", "p0", "--rate", "30mbit"]).0, 0, "round {round}"),
            _ => assert_eq!(pair.json(&["unmark", "p0"]).0, 0),
        }
        if round % 3 == 1 {
            assert_eq!(pair.json(&["mark", "p0", "--stats"]).1["rate_bps"], 30_000_000);
        }
        assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
        assert_eq!(pair.queues(), before, "round {round}");
    }
    println!("{whole} were whole, {half} half");
    assert!(whole > 0 && whole < 40, "kills before and after: {whole}");
    pair.tc("qdisc del dev p0 root");
    pair.assert_nothing_left();
}

#[test]
fn root_mark_killed_while_it_changes_or_ends_is_cleaned() {
    let pair = Pair::new();
    let before = pair.queues();
    for round in 0..20 {
        assert_eq!(pair.json(&["mark", "p0", "--rate", "20mbit", "--classes", "a,b,c"]).0, 0);
        let change: &[&str] = if round % 2 == 0 {
            &["mark", "p0", "--rate", "40mbit", "--classes", "a:3,b,c,d,e"]
        } else {
            &["unmark", "p0"]
        };
        pair.killed_after(change, Duration::from_millis(8 * round));
        assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
        assert_eq!(pair.queues(), before, "round {round}");
    }
    pair.assert_nothing_left();
}

#[test]
fn root_mark_by_concurrent_processes_is_consistent() {
    let pair = Pair::new();
    let before = pair.queues();
    let rates = ["10mbit", "20mbit", "30mbit", "40mbit"];
    let codes: Vec<i32> = thread::scope(|scope| {
        let marking = rates.map(|rate| scope.spawn(|| pair.json(&["mark", "p0", "--rate", rate]).0));
        marking.map(|one| one.join().unwrap()).to_vec()
    });
    assert!(codes.contains(&0) && codes.iter().all(|code| [0, 2].contains(code)), "{codes:?}");
    let (code, stats) = pair.json(&["mark", "p0", "--stats"]);
    let rate = stats["rate_bps"].as_u64().unwrap() / 1_000_000;
    let class = pair.tc("class show dev p0 parent c0de:");
    assert!(code == 0 && class.contains(&format!("rate {rate}Mbit")), "{stats} {class}");
    pair.json(&["unmark", "p0"]);
    assert_eq!(pair.queues(), before);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_needs_root() {
    let pair = Pair::new();
    let done = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_vmcc")])
        .args(["mark", "lo", "--rate", "1mbit", "--json"])
        .output()
        .unwrap();
    let said: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((done.status.code(), &said["error"]["exit"]), (Some(3), &json!(3)), "{said}");
    assert!(said["error"]["help"].as_str().unwrap().contains("sudo"), "{said}");
    pair.assert_nothing_left();
}
