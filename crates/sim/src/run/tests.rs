use vmcc_scenario::{Document, Overrides, Scenario};

use crate::rng::Streams;
use crate::topo::Fabric;
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
    let flows = plan_flows(&scenario, &fabric, &Streams::new(7)).unwrap();
    let prefix = format!("traffic/{label}/");
    flows.into_iter().filter(|f| f.stream.starts_with(&prefix)).map(|f| Planned { traffic: 0, ..f }).collect()
}

#[test]
fn an_entry_more_changes_no_other_entrys_draws() {
    let more = TEXT.replacen("[[traffic]]", "[[traffic]]\nname = 'new'\nkind = 'bulk'\n[[traffic]]", 1);
    for label in ["one", "two"] {
        assert!(!planned(TEXT, label).is_empty());
        assert_eq!(planned(TEXT, label), planned(&more, label));
    }
}

#[test]
fn a_connection_more_changes_no_other_connections_draws() {
    let more = TEXT.replace("connections = 2", "connections = 3");
    let (few, many) = (planned(TEXT, "two"), planned(&more, "two"));
    assert_eq!((few.len(), many.len()), (32, 48));
    assert!(few.iter().all(|flow| many.contains(flow)));
}

#[test]
fn nobody_sends_to_itself_and_a_permutation_is_one() {
    let flows = planned(TEXT, "two");
    let receivers: std::collections::BTreeSet<usize> = flows.iter().map(|f| f.to).collect();
    assert_eq!(receivers.len(), 16);
    assert!(flows.iter().chain(&planned(TEXT, "one")).all(|f| f.from != f.to));
}
