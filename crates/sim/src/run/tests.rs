use vmcc_scenario::model::Protocol;
use vmcc_scenario::{Document, Overrides, Scenario};

use crate::build::Fabric;
use crate::rng::Streams;
use crate::traffic::{Planned, plan_flows};

const TEXT: &str = "
title = 't'
duration = '2s'
[topology]
kind = 'fat-tree'
k = 4
rate = '1gbit'
delay = '1us'
[[traffic]]
name = 'one'
kind = 'poisson'
sizes = 'web-search'
load = 0.2
pairing = 'random'
[[traffic]]
name = 'two'
kind = 'bulk'
pairing = 'permutation'
connections = 2
";

fn scenario(text: &str) -> Scenario {
    let plan = Document::parse("t", text).and_then(|d| d.plan(&Overrides::default())).unwrap();
    plan.cases[0].scenario.clone()
}

/// The connections of one entry, without the entry's place among the others.
fn planned(text: &str, label: &str) -> Vec<Planned> {
    let scenario = scenario(text);
    let fabric = Fabric::build(&scenario).unwrap();
    let flows = plan_flows(&scenario, &fabric, &Streams::new(7), &[Protocol::Mptcp]).unwrap();
    let prefix = format!("traffic/{label}/");
    flows.into_iter().filter(|f| f.stream.starts_with(&prefix)).map(|f| Planned { traffic: 0, ..f }).collect()
}

#[test]
fn added_entry_keeps_the_draws_of_others() {
    let more = TEXT.replacen("[[traffic]]", "[[traffic]]\nname = 'new'\nkind = 'bulk'\n[[traffic]]", 1);
    for label in ["one", "two"] {
        assert!(!planned(TEXT, label).is_empty());
        assert_eq!(planned(TEXT, label), planned(&more, label));
    }
}

#[test]
fn added_connection_keeps_the_draws_of_others() {
    let more = TEXT.replace("connections = 2", "connections = 3");
    let (few, many) = (planned(TEXT, "two"), planned(&more, "two"));
    assert_eq!((few.len(), many.len()), (32, 48));
    assert!(few.iter().all(|flow| many.contains(flow)));
}

#[test]
fn permutation_is_a_bijection_without_fixed_points() {
    let flows = planned(TEXT, "two");
    let receivers: std::collections::BTreeSet<usize> = flows.iter().map(|f| f.to).collect();
    assert_eq!(receivers.len(), 16);
    assert!(flows.iter().chain(&planned(TEXT, "one")).all(|f| f.from != f.to));
}

/// Draws named after a position in the file would change with every entry inserted before it.
#[test]
fn unnamed_entry_in_front_keeps_the_draws_of_others() {
    let text = TEXT.replace("name = 'one'\n", "").replace("name = 'two'\n", "");
    let front = "[[traffic]]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n[[traffic]]";
    let more = text.replacen("[[traffic]]", front, 1);
    for label in ["poisson(pairing Random)", "bulk(pairing Permutation)"] {
        assert!(!planned(&text, label).is_empty(), "{label}");
        assert_eq!(planned(&text, label), planned(&more, label));
    }
}

#[test]
fn entry_limit_is_shared_by_senders_in_time_order() {
    let all = planned(TEXT, "one");
    let limit = all.len() / 3;
    let text = TEXT.replace("load = 0.2", &format!("load = 0.2\nlimit = {limit}"));
    let some = planned(&text, "one");
    assert_eq!(some.len(), limit);
    let mut starts: Vec<_> = all.iter().map(|flow| flow.start).collect();
    starts.sort_unstable();
    let expected: Vec<&Planned> = all.iter().filter(|flow| flow.start < starts[limit]).collect();
    assert_eq!(some.iter().collect::<Vec<_>>(), expected);
    assert!(some.iter().map(|flow| flow.from).collect::<std::collections::BTreeSet<_>>().len() > 8);
}

#[test]
fn connections_start_well_before_their_stop() {
    let text = "
title = 't'
duration = '3s'
topology = { kind = 'parallel-paths', paths = 1, rate = '10mbit', delay = '500ms' }
[[traffic]]
name = 'two'
kind = 'bulk'
connections = 100
start = '1s'
stop = '1.5s'
";
    let at = |ms| crate::time::Time::ZERO + crate::time::Span::from_ms(ms);
    let flows = planned(text, "two");
    assert!(flows.iter().all(|flow| (at(1000)..at(1005)).contains(&flow.start)), "{flows:?}");
}

/// The figures of a lossy run with jitter and random datagrams, without those of paths.
fn lossy(paths: &str) -> Vec<(String, f64)> {
    let text = format!(
        "
title = 't'
duration = '2s'
topology = {{ kind = 'parallel-paths', paths = {paths}, rate = '50mbit', delay = '10ms', jitter = '1ms', loss = 0.001 }}
[[traffic]]
kind = 'bulk'
path = 'a'
[[traffic]]
kind = 'on-off-udp'
rate = '20mbit'
on = '300ms'
off = '200ms'
random = true
path = 'b'
"
    );
    let plan = Document::parse("t", &text).and_then(|d| d.plan(&Overrides::default())).unwrap();
    let output = super::run_case(&plan.cases[0], 1, &super::Options::default()).unwrap();
    output.metrics.figures().into_iter().filter(|(name, _)| !name.starts_with("paths.")).collect()
}

#[test]
fn unused_path_keeps_the_draws_of_others() {
    let front = "[{ name = 'q' }, { name = 'a' }, { name = 'b' }]";
    assert_eq!(lossy("[{ name = 'a' }, { name = 'b' }]"), lossy(front));
}

/// Every valid scenario can be run: the extremes of every quantity that the checks allow.
#[test]
fn valid_scenarios_can_be_built() {
    let text = |mtu: &str, rate: &str, buffer: &str, size: &str| {
        format!(
            "
title = 't'
duration = '1s'
host = {{ mtu = '{mtu}', receive_buffer = '16GiB', send_buffer = '16GiB' }}
topology = {{ kind = 'parallel-paths', paths = 2, rate = '{rate}', delay = '0s', buffer = '{buffer}' }}
[[traffic]]
kind = 'sized'
size = '{size}'
[[traffic]]
kind = 'on-off-udp'
rate = '{rate}'
packet = '256B'
"
        )
    };
    let extremes = [
        ("1500B", "2kbit", "1 TiB", "2TB"),
        ("65535B", "2kbit", "65535B", "2TB"),
        ("256B", "100tbit", "256B", "790273981696B"),
        ("32768B", "100tbit", "1TiB", "1B"),
    ];
    for (mtu, rate, buffer, size) in extremes {
        let plan =
            Document::parse("t", &text(mtu, rate, buffer, size)).and_then(|d| d.plan(&Overrides::default()));
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        super::setup::Setup::build(&plan.cases[0], 1, 1)
            .map(drop)
            .unwrap_or_else(|e| panic!("{mtu} {rate}: {e}"));
    }
    let refused = [
        ("1500B", "1kbit", "1MB", "1MB"),
        ("1500B", "1mbit", "1MB", "1PB"),
        ("256B", "1mbit", "1MB", "1TB"),
        ("65536B", "1mbit", "1MB", "1MB"),
    ];
    for (mtu, rate, buffer, size) in refused {
        assert!(
            Document::parse("t", &text(mtu, rate, buffer, size)).is_err(),
            "{mtu} {rate} {buffer} {size}"
        );
    }
}

#[test]
fn valid_shares_can_be_built() {
    let plan = |weights: &str| {
        let text = format!(
            "
title = 't'
duration = '1s'
[topology]
kind = 'parallel-paths'
paths = 1
rate = '20kbit'
delay = '1ms'
queue = {{ kind = 'drr', weights = {weights}, lending = false }}
[[traffic]]
kind = 'bulk'
"
        );
        Document::parse("t", &text).and_then(|d| d.plan(&Overrides::default()))
    };
    let plan_of_ten = plan("[1, 9]").unwrap_or_else(|e| panic!("{e}"));
    super::setup::Setup::build(&plan_of_ten.cases[0], 1, 1).map(drop).unwrap_or_else(|e| panic!("{e}"));
    assert!(plan("[1, 10]").is_err());
}

#[test]
fn cyclic_rounds_are_refused() {
    let text = |rounds: u32| {
        TEXT.replace("kind = 'bulk'", &format!("kind = 'sized'\nsize = '10kB'\nrounds = {rounds}"))
    };
    let plan = |rounds| {
        let scenario = scenario(&text(rounds));
        let fabric = Fabric::build(&scenario).unwrap();
        plan_flows(&scenario, &fabric, &Streams::new(7), &[Protocol::Mptcp])
    };
    assert!(plan(1).is_ok());
    let error = plan(2).unwrap_err().to_string();
    assert!(error.contains("`two` in rounds") && error.contains("--engine kernel"), "{error}");
}
