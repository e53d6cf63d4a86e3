//! Events of subflows: backups, closing, opening again. Whatever happens, the application's bytes all arrive.

use crate::common::{near, plan, run, run_threads};
use vmcc_results::RunOutput;
use vmcc_sim::{Options, SimError, run_case};

const PATHS: &str = "title = 't'\nduration = '10s'\ninterval = '500ms'\n[host]\ncc = 'lia'\n\
                     [topology]\nkind = 'parallel-paths'\npaths = 2\nrate = '20mbit'\ndelay = '5ms'\nbuffer = '50pkt'\n\
                     [[traffic]]\nname = 'x'\nkind = 'bulk'\n";
const FULL: f64 = 20e6 * 1428.0 / 1500.0;

fn event(at: &str, kind: &str, which: &str) -> String {
    format!("[[event]]\nat = '{at}'\nkind = '{kind}'\n{which}\n")
}

/// Goodput of a path in the half second that ends at `at_ms`, in bit/s.
fn carried(output: &RunOutput, path: &str, at_ms: u64) -> f64 {
    let mut points = output.series.iter();
    let at = |t_us| t_us == at_ms * 1000;
    points.find(|p| p.entity == path && p.metric == "goodput_bps" && at(p.t_us)).map_or(0.0, |p| p.value)
}

#[test]
fn backup_carries_data_only_while_no_other_path_can() {
    let events = [
        event("2s", "set-backup", "path = 'b'"),
        event("4s", "link-down", "link = 'a'"),
        event("6s", "link-up", "link = 'a'"),
        event("12s", "clear-backup", "subflow = 1\ntraffic = 'x'"),
    ];
    let text = format!("{}{}", PATHS.replace("'10s'", "'16s'"), events.concat());
    let output = run(&text, &[]);
    let b = |at_ms| carried(&output, "b", at_ms);
    near("regular", b(2000), FULL, 0.2);
    assert_eq!(b(4000), 0.0, "a backup beside a path that works");
    near("the only one that works", b(6000), FULL, 0.15);
    // The other is tried after 2 s, and after 4 s.
    assert_eq!(b(12_000), 0.0, "the other is back");
    near("regular again", b(16_000), FULL, 0.2);
    near("meanwhile", carried(&output, "a", 4000), FULL, 0.05);
}

#[test]
fn initial_backup_stays_idle() {
    let text = format!("{PATHS}{}", event("0s", "set-backup", "path = 'a'"));
    for cc in ["lia", "reno"] {
        for scheduler in ["lowest-rtt", "round-robin", "redundant", "blest", "ecf"] {
            let output = run(&text, &[&format!("cc={cc}"), &format!("scheduler={scheduler}")]);
            assert!(
                carried(&output, "a", 5000) == 0.0 && carried(&output, "b", 5000) > 0.8 * FULL,
                "{scheduler}"
            );
        }
    }
}

#[test]
fn closed_subflow_carries_nothing_until_reopened() {
    for which in ["path = 'a'", "subflow = 0"] {
        let events = [event("2s", "close-subflow", which), event("5s", "open-subflow", which)];
        let output = run(&format!("{PATHS}{}", events.concat()), &[]);
        let a = |at_ms| carried(&output, "a", at_ms);
        near("open", a(2000), FULL, 0.2);
        assert_eq!([a(3000), a(5000)], [0.0; 2], "{which}: closed");
        near("open again", a(10_000), FULL, 0.2);
        near("the other meanwhile", carried(&output, "b", 5000), FULL, 0.05);
        assert_eq!(output.flows[0].subflows, 2);
    }
}

/// Both subflows are closed, and one comes back: what was on its way goes on there.
#[test]
fn connection_survives_a_time_without_subflows() {
    for scheduler in ["lowest-rtt", "redundant"] {
        let text = PATHS.replace("kind = 'bulk'", "kind = 'sized'\nsize = '10MB'");
        let events = [
            event("1s", "close-subflow", "path = 'b'"),
            event("1.5s", "close-subflow", "path = 'a'"),
            event("3s", "open-subflow", "path = 'a'"),
        ];
        let output = run(&format!("{text}{}", events.concat()), &[&format!("scheduler={scheduler}")]);
        assert_eq!(carried(&output, "a", 2500) + carried(&output, "b", 2500), 0.0);
        assert_eq!(
            (output.metrics.completed, output.flows[0].delivered_bytes),
            (Some(1), 10_000_000),
            "{scheduler}"
        );
    }
}

/// Any sequence of events, with losses and reordering: every byte arrives, on any number of threads the same way.
#[test]
fn all_bytes_arrive_despite_subflow_events() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let topology = "paths = 3\nloss = 0.002\njitter = '3ms'\nreorder = true";
    for round in 0..24 {
        let scheduler = ["lowest-rtt", "round-robin", "redundant", "blest", "ecf"][draw(5) as usize];
        let mut text = PATHS.replace("paths = 2", topology).replace("duration = '10s'", "duration = '40s'");
        text = text.replace("kind = 'bulk'", "kind = 'sized'\nsize = '3MB'\nconnections = 2");
        text.push_str("[[traffic]]\nname = 'y'\nkind = 'request-response'\nrequest = '20kB'\nresponse = '300kB'\nthink = '50ms'\n");
        for _ in 0..20 {
            let kind = ["close-subflow", "open-subflow", "set-backup", "clear-backup"][draw(4) as usize];
            let which = format!("subflow = {}", draw(3));
            text.push_str(&event(&format!("{}ms", 1 + draw(3000)), kind, &which));
        }
        for number in 0..3 {
            text.push_str(&event("4s", "open-subflow", &format!("subflow = {number}")));
        }
        let plan = plan(&text, &[&format!("scheduler={scheduler}")]);
        let output = run_threads(&plan, 0, round, 1);
        let sized: Vec<_> = output.flows.iter().filter(|flow| &*flow.traffic == "x").collect();
        assert!(
            sized.iter().all(|flow| flow.completed && flow.delivered_bytes == 3_000_000),
            "{text}\n{sized:?}"
        );
        let answers = output.flows.iter().filter(|flow| &*flow.traffic == "y" && flow.completed);
        let last_us = answers.filter_map(|flow| flow.end_us).max();
        assert!(last_us > Some(35_000_000), "{scheduler}: answers until {last_us:?}\n{text}");
        if round < 3 {
            let two = run_threads(&plan, 0, round, 2);
            assert!(serde_json::to_string(&output).unwrap() == serde_json::to_string(&two).unwrap());
        }
    }
}

fn lives(output: &RunOutput) -> [Option<f64>; 4] {
    ["opened", "closed", "closed_path_manager", "closed_end"]
        .map(|what| output.metrics.get(&format!("subflows_{what}")))
}

#[test]
fn reopened_subflow_is_counted_each_time() {
    let twice = [("1s", "close"), ("1.001s", "open"), ("2s", "close"), ("2.5s", "open")];
    let events = |all: &[(&str, &str)]| {
        all.iter().map(|(at, what)| event(at, &format!("{what}-subflow"), "path = 'a'")).collect::<String>()
    };
    let output = run(&format!("{PATHS}{}", events(&twice)), &[]);
    assert_eq!(lives(&output), [4.0, 2.0, 2.0, 2.0].map(Some));
    assert_eq!(output.metrics.get("paths.a.subflows_opened"), Some(3.0));
    let closed = run(&format!("{PATHS}{}", events(&twice[..3])), &[]);
    assert_eq!(lives(&closed), [3.0, 2.0, 2.0, 1.0].map(Some));
    // Nobody answers the second time.
    let down = event("1.5s", "link-down", "link = 'a'");
    let text = format!("{PATHS}{}{down}{}", events(&[("1s", "close")]), events(&[("2s", "open")]));
    let silent = run(&text, &["duration=4s"]);
    assert_eq!(lives(&silent), [2.0, 1.0, 1.0, 1.0].map(Some));
    assert_eq!(silent.flows[0].subflows, 2);
}

const NICS: &str = "title = 't'\nduration = '4s'\n[host]\ncc = 'lia'\n\
                    [topology]\nkind = 'virtual-host'\nvms = 1\nnics = 2\nvm_rate = '20mbit'\npath_rate = '100mbit'\n\
                    path_delay = '1ms'\n[[traffic]]\nkind = 'bulk'\n";

#[test]
fn moved_subflow_ends_once() {
    let moves = |at| event(at, "remap", "vm = 'vm0'\nvnic = 1\nnic = 0");
    let of_b = |output: &RunOutput| {
        ["opened", "closed", "closed_end"].map(|what| output.metrics.get(&format!("paths.b.subflows_{what}")))
    };
    let moved = run(&format!("{NICS}{}", moves("500ms")), &[]);
    assert_eq!(lives(&moved), [2.0, 0.0, 0.0, 2.0].map(Some));
    assert_eq!(of_b(&moved), [1.0, 0.0, 0.0].map(Some), "it went on elsewhere");
    let then = |events: &[String]| run(&format!("{NICS}{}", events.concat()), &[]);
    let (close, open) =
        (|at| event(at, "close-subflow", "subflow = 1"), |at| event(at, "open-subflow", "subflow = 1"));
    // Closed where it moved to; closed and opened before it moves; opened again where it moved while it was closed.
    let after = then(&[moves("500ms"), close("1s")]);
    assert_eq!(lives(&after), [2.0, 1.0, 1.0, 1.0].map(Some));
    assert_eq!(of_b(&after), [1.0, 0.0, 0.0].map(Some));
    let before = then(&[close("500ms"), open("1s"), moves("2s")]);
    assert_eq!(lives(&before), [3.0, 1.0, 1.0, 2.0].map(Some));
    assert_eq!(of_b(&before), [2.0, 1.0, 0.0].map(Some));
    let meanwhile = then(&[close("500ms"), moves("1s"), open("2s")]);
    assert_eq!(lives(&meanwhile), [3.0, 1.0, 1.0, 2.0].map(Some));
    assert_eq!(of_b(&meanwhile), [1.0, 1.0, 0.0].map(Some));
    let never = then(&[close("500ms"), moves("1s")]);
    assert_eq!((lives(&never), of_b(&never)), ([2.0, 1.0, 1.0, 1.0].map(Some), [1.0, 1.0, 0.0].map(Some)));
}

/// Error that is only visible with the network: two subflows on three paths leave one path without any.
#[test]
fn event_without_matching_subflows_is_refused() {
    let text = PATHS.replace("paths = 2", "paths = 3").replace("'bulk'", "'bulk'\nsubflows = 2");
    let text = format!("{text}{}", event("2s", "close-subflow", "path = 'c'"));
    let error = run_case(&plan(&text, &[]).cases[0], 1, &Options::default()).unwrap_err();
    assert!(matches!(error, SimError::NoSubflow { at_s: 2.0 }), "{error}");
    assert!(error.to_string().contains("at 2 s: no connection with several subflows"), "{error}");
}
