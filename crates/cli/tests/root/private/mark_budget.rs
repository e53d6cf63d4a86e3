//! One budget for the ports of a VM, in fixed parts or shared, as an operator sets it, with real traffic.

use crate::wire::Pair;
use serde_json::json;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_testkit::control::tbf_share;

/// Rate of each port in the same seconds, in Mbit/s on the wire; `None` if a stream has ended before. Each port has streams all the
/// time, enough to keep its queue from running empty.
fn rates(pair: &Pair, ports: &[(&str, &str)]) -> Option<Vec<f64>> {
    let sent = || ports.iter().map(|(port, _)| sent_bytes(pair, port)).collect::<Vec<_>>();
    let servers: Vec<_> = ports.iter().zip(5310..).map(|(_, listens)| pair.server(listens)).collect();
    thread::scope(|scope| {
        let begin = sent();
        let client = |(_, host), listens| pair.client(&format!("-c {host} -p {listens} -P 4 -t 10"));
        let clients: Vec<_> = ports
            .iter()
            .zip(5310..)
            .map(|(&port, listens)| scope.spawn(move || client(port, listens)))
            .collect();
        let all_run = || !clients.iter().any(|client| client.is_finished());
        let each_sent = |bytes| sent().iter().zip(&begin).all(|((now, _), (begin, _))| now - begin >= bytes);
        // Slow start is over then.
        while all_run() && !each_sent(2_500_000) {
            thread::sleep(Duration::from_millis(50));
        }
        let before = sent();
        thread::sleep(Duration::from_secs(3));
        let after = sent();
        let measured = all_run();
        assert!(clients.into_iter().all(|client| client.join().unwrap() > 0.0));
        drop(servers);
        measured.then(|| after.iter().zip(before).map(|(after, before)| rate(before, *after)).collect())
    })
}

/// Judges the ports' rates beside a control.
fn judge_rates(pair: &Pair, ports: &[(&str, &str)], verdict: impl Fn(&[f64])) {
    let measure = || rates(pair, ports).unwrap_or_default();
    let verdict = |rates: &Vec<f64>| {
        println!("{rates:.1?} Mbit/s");
        assert_eq!(rates.len(), ports.len(), "a stream has ended before it was measured");
        verdict(rates);
    };
    vmcc_testkit::judge(measure, verdict, |_| tbf_share(100, Duration::ZERO, 4));
}

/// Bytes that a port has sent, and when. Read again if the read took a hundredth of the time that a rate is measured over.
fn sent_bytes(pair: &Pair, port: &str) -> (u64, Instant) {
    pair.a.within(|| {
        let ask = || {
            let asked = Instant::now();
            let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            let took = asked.elapsed();
            let counters =
                text.lines().find_map(|line| line.trim_start().strip_prefix(port)?.strip_prefix(':'));
            // After eight counters of what it has received.
            let sent = counters.and_then(|all| all.split_whitespace().nth(8)?.parse().ok());
            (took, (sent.unwrap_or_else(|| panic!("{text}")), asked + took / 2))
        };
        let quick = (0..50).map(|_| ask()).find(|(took, _)| *took < Duration::from_millis(30));
        quick.unwrap_or_else(ask).1
    })
}

/// In Mbit/s.
fn rate((before, from): (u64, Instant), (after, to): (u64, Instant)) -> f64 {
    (after - before) as f64 * 8e-6 / (to - from).as_secs_f64()
}

const P0: (&str, &str) = ("p0", "10.79.0.2");
const P1: (&str, &str) = ("p1", "10.80.0.2");

fn two_ports() -> Pair {
    let pair = Pair::new();
    pair.join("p1", 80);
    pair
}

/// True if the device of a budget exists.
fn has_bucket(pair: &Pair) -> bool {
    pair.ip("-o link show").contains("vmccb")
}

#[test]
fn root_mark_two_ports_share_the_budget_of_their_vm() {
    let pair = two_ports();
    let before = pair.queues();
    // On a busy machine a queue of one packet, which such short RTTs call for, runs empty now and then.
    for port in ["p0", "p1"] {
        let (code, said) = pair.json(&["mark", port, "--vm", "db1=100mbit:shared", "--threshold", "100kB"]);
        assert_eq!((code, &said["stats"]["port"]), (0, &"db1".into()), "{said}");
    }
    // How exact a cap is `vmcc bench port` says; here half of the budget, or twice, would be wrong.
    judge_rates(&pair, &[P0, P1], |both| {
        assert!((90.0..=102.0).contains(&both.iter().sum::<f64>()), "{both:?}");
    });
    judge_rates(&pair, &[P0], |alone| {
        assert!((90.0..=102.0).contains(&alone[0]), "one takes what the other leaves: {alone:?}");
    });

    let (_, list) = pair.json(&["mark", "--list"]);
    assert_eq!(list["ports"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["ports"][0]["members"], json!(["p0", "p1"]), "{list}");
    assert!(pair.text(&["mark", "p1", "--stats"]).contains("VM db1 (p0, p1)"));

    let (code, said) = pair.json(&["mark", "p1", "--vm", "db1=50mbit:shared"]);
    assert_eq!((code, &said["changed"]), (0, &true.into()), "{said}");
    judge_rates(&pair, &[P0], |alone| {
        assert!((30.0..=51.0).contains(&alone[0]), "changed for all: {alone:?}");
    });
    let (_, stats) = pair.json(&["mark", "p0", "--stats"]);
    assert!(stats["rtt_samples"].as_u64().unwrap() > 100, "ACKs come in at the ports: {stats}");
    assert!(stats["classes"][0]["marked"].as_u64().unwrap() > 100, "{stats}");

    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    assert_eq!(pair.json(&["mark", "--list"]).1["ports"][0]["members"], json!(["p1"]));
    assert_eq!(pair.json(&["unmark", "p1"]).0, 0);
    assert!(!has_bucket(&pair));
    assert_eq!(pair.queues(), before);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_two_ports_split_the_budget() {
    let pair = two_ports();
    for port in ["p0", "p1"] {
        let (code, said) = pair.json(&["mark", port, "--vm", "db1=100mbit:1/2", "--threshold", "100kB"]);
        assert_eq!((code, &said["stats"]["rate_bps"]), (0, &50_000_000.into()), "{said}");
    }
    judge_rates(&pair, &[P0, P1], |both| {
        assert!((90.0..=102.0).contains(&both.iter().sum::<f64>()), "{both:?}");
    });
    judge_rates(&pair, &[P0], |alone| {
        assert!((45.0..=51.0).contains(&alone[0]), "what the other leaves is lost: {alone:?}");
    });
    pair.join("p2", 81);
    let said = pair.refused(&["mark", "p2", "--vm", "db1=100mbit:shared"], 2);
    assert!(said.contains("parts of its budget away, at p0, p1") && said.contains("`vmcc unmark`"), "{said}");
    assert!(!has_bucket(&pair));
    let said = pair.refused(&["mark", "p2", "--vm", "db1=100mbit:1/2"], 2);
    assert!(said.contains("p0, p1") && said.contains("more than its budget"), "{said}");
    assert_eq!(pair.json(&["mark", "p2", "--vm", "db2=100mbit:1/2"]).0, 0, "another VM");
    assert_eq!(pair.json(&["unmark", "--all"]).0, 0);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_shared_budget_refuses_excess_guarantees() {
    let pair = two_ports();
    assert_eq!(pair.json(&["mark", "p0", "--vm", "db1=100mbit:shared"]).0, 0);
    for (arguments, says) in [
        (&["mark", "p1", "--vm", "db1=90mbit:shared"][..], "other settings"),
        (&["mark", "p1", "--vm", "db1=100mbit:shared", "--rate", "10mbit"], "one rate"),
        (&["mark", "p1", "--vm", "db1=100mbit:some"], "WEIGHT/WEIGHTS"),
        (&["mark", "p1", "--vm", "db1=100mbit:0/2"], "weight zero"),
        (&["mark", "p1", "--vm", "db1=100mbit:3/2"], "3/2"),
        (&["mark", "p0", "--vm", "db2=100mbit:shared"], "VM `db1`"),
        (&["mark", "p0", "--rate", "10mbit"], "VM `db1`"),
    ] {
        let said = pair.refused(arguments, 2);
        assert!(said.contains(says) && said.contains("help: "), "{arguments:?}: {said}");
    }
    // A part instead of the whole: the only port is not counted against itself, and no device of ours is named.
    let said = pair.refused(&["mark", "p0", "--vm", "db1=100mbit:1/2"], 2);
    assert!(said.contains("port p0 shares") && said.contains("`vmcc unmark p0` first"), "{said}");
    let said = pair.refused(&["mark", "p1", "--vm", "db1=100mbit:1/2"], 2);
    assert!(said.contains("whole budget at p0: no part") && !said.contains("vmccb"), "{said}");
    assert_eq!(pair.json(&["mark", "p1", "--rate", "10mbit"]).0, 0);
    assert!(
        pair.refused(&["mark", "p1", "--vm", "db1=100mbit:shared"], 2).contains("`vmcc unmark p1` first")
    );
    assert_eq!(pair.json(&["unmark", "--all"]).0, 0);
    assert!(!has_bucket(&pair));
    pair.assert_nothing_left();
}

#[test]
fn root_mark_bucket_is_removed_with_its_last_port() {
    let pair = two_ports();
    let before = pair.queues();
    // The ports vanish, as when the VM ends.
    for port in ["p0", "p1"] {
        assert_eq!(pair.json(&["mark", port, "--vm", "db1=100mbit:shared"]).0, 0);
    }
    pair.ip("link del p0");
    assert_eq!(pair.json(&["mark", "--list"]).1["ports"][0]["members"], json!(["p1"]));
    pair.ip("link del p1");
    assert_eq!(pair.json(&["clean"]).0, 0);
    assert!(!has_bucket(&pair));
    pair.assert_nothing_left();

    // Held in the foreground, ended by a signal and by a kill.
    let pair = two_ports();
    let mut held = pair.foreground(&["--vm", "db1=100mbit:shared"]);
    held.signal("TERM");
    assert_eq!(held.end().0, Some(130));
    assert!(!has_bucket(&pair));
    let mut held = pair.foreground(&["--vm", "db1=100mbit:shared"]);
    assert!(pair.refused(&["unmark", "p0"], 2).contains("running vmcc"));
    held.signal("KILL");
    held.end();
    assert_eq!(pair.json(&["clean"]).1["ports"], json!(["p0"]));
    assert!(!has_bucket(&pair));
    assert_eq!(pair.queues(), before);

    // Somebody removes the device.
    assert_eq!(pair.json(&["mark", "p0", "--vm", "db1=100mbit:shared"]).0, 0);
    let links = pair.ip("-o link show");
    let device = links.split_whitespace().find(|word| word.starts_with("vmccb")).unwrap();
    pair.ip(&format!("link del {}", device.trim_end_matches(':')));
    assert_eq!(pair.json(&["mark", "p0", "--vm", "db1=100mbit:shared"]).0, 0, "made again");
    judge_rates(&pair, &[P0], |alone| assert!((60.0..=102.0).contains(&alone[0]), "{alone:?}"));
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    assert_eq!(pair.queues(), before);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_bucket_without_ports_is_reported_and_cleaned() {
    let pair = two_ports();
    let list = || {
        let listed = pair.output(&["mark", "--list"]);
        assert!(listed.status.success());
        String::from_utf8(listed.stderr).unwrap()
    };
    let doctor = || {
        let (_, said) = pair.json(&["doctor"]);
        let checks = said["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "budgets").unwrap()
    };
    for port in ["p0", "p1"] {
        assert_eq!(pair.json(&["mark", port, "--vm", "db1=100mbit:shared"]).0, 0);
        assert!(!list().contains("vmccb") && doctor()["ok"] == true, "it has a port");
    }
    for port in ["p0", "p1"] {
        pair.ip(&format!("link del {port}"));
    }
    assert!(list().contains("vmccb") && list().contains("`vmcc clean` removes it"), "{}", list());
    let check = doctor();
    assert!(check["ok"] == false && check["remedy"].as_str().unwrap().contains("`vmcc clean`"), "{check}");
    let said = pair.text(&["clean"]);
    assert!(said.contains("removed vmccb") && !said.contains("nothing was left behind"), "{said}");
    assert!(!has_bucket(&pair) && list().is_empty() && doctor()["ok"] == true);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_recreates_a_budget_without_ports() {
    let pair = Pair::new();
    pair.join("p1", 80);
    assert_eq!(pair.json(&["mark", "p1", "--vm", "vm=20mbit:shared"]).0, 0);
    pair.ip("link del p1");
    let (code, said) = pair.json(&["mark", "p0", "--vm", "vm=30mbit:shared"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(pair.json(&["mark", "p0", "--stats"]).1["rate_bps"], 30_000_000);
    assert_eq!(pair.json(&["unmark", "--all"]).0, 0);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_killed_while_it_joins_or_leaves_is_cleaned() {
    let pair = two_ports();
    let before = pair.queues();
    for round in 0..16 {
        assert_eq!(pair.json(&["mark", "p1", "--vm", "db1=100mbit:shared"]).0, 0);
        let join = ["mark", "p0", "--vm", "db1=100mbit:shared"];
        if round % 2 == 0 {
            assert_eq!(pair.json(&["unmark", "p1"]).0, 0);
            pair.killed_after(&join, Duration::from_millis(14 * round));
        } else {
            assert_eq!(pair.json(&join).0, 0);
            assert_eq!(pair.json(&["unmark", "p1"]).0, 0);
            pair.killed_after(&["unmark", "p0"], Duration::from_millis(14 * round));
        }
        match round % 3 {
            0 => assert_eq!(pair.json(&["clean"]).0, 0),
            1 => assert_eq!(pair.json(&join).0, 0, "round {round}"),
            _ => {}
        }
        assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
        assert!(!has_bucket(&pair), "round {round}");
        assert_eq!(pair.queues(), before, "round {round}");
    }
    pair.assert_nothing_left();
}
