//! Tables 3 and 4 of the vMCC paper: the figures that their claims are made of, against a count of connections one by one.

use crate::common::{figures, near, plan, run_threads};
use std::collections::BTreeMap;
use vmcc_metrics::observed::{Closed, Connection, End};
use vmcc_scenario::CaseFigures;
use vmcc_sim::{Options, observe_case};

/// Pairs of paths: number of pairs, and number of those of which the detector closed a subflow.
#[derive(Default)]
struct Pairs {
    all: f64,
    closed: f64,
}

/// A pair for each connection that has two subflows; `shares`: whether both take one NIC.
fn count(connections: &[Connection], shares: bool) -> Pairs {
    let mut pairs = Pairs::default();
    for connection in connections.iter().filter(|connection| &*connection.cc == "vmcc") {
        let [one, other] = &connection.subflows[..] else { panic!("{connection:?}") };
        assert_eq!(one.path == other.path, shares, "the topology says which pairs share");
        let shared = [one, other].map(|subflow| {
            subflow.earlier.contains(&Closed::Guard) || subflow.end == End::Closed(Closed::Guard)
        });
        assert!(shared != [true, true], "one is left: {connection:?}");
        pairs.all += 1.0;
        pairs.closed += f64::from(u8::from(shared.contains(&true)));
    }
    pairs
}

/// Of the pairs that share and as many disjoint ones, half of them twins.
fn f_score(of: &BTreeMap<String, Pairs>, connections: &str) -> f64 {
    let pairs = |kind: &str| &of[&format!("{kind} {connections}")];
    let (shared, twins, unlike) = (pairs("shared"), pairs("twins"), pairs("unlike"));
    assert!(shared.all == twins.all && shared.all == unlike.all, "as many of each");
    let false_positives = (twins.closed + unlike.closed) / 2.0;
    let precision = shared.closed / (shared.closed + false_positives);
    let recall = shared.closed / shared.all;
    2.0 * precision * recall / (precision + recall)
}

#[test]
fn kendall_claims_match_a_count_of_pairs() {
    for (name, connections) in [("vmcc/tab3", "1"), ("vmcc/tab4", "2")] {
        let kinds = ["shared", "twins", "unlike"].map(|kind| format!("{kind} {connections}"));
        let plan = plan(name, &["test=repeated", "duration=10s", &format!("pair={}", kinds.join(","))]);
        let (mut cases, mut of) = (Vec::new(), BTreeMap::new());
        for (index, case) in plan.cases.iter().enumerate() {
            let pair = case.set["pair"].as_str().unwrap().to_owned();
            let runs = vec![figures(&run_threads(&plan, index, 1, 1))];
            let seen = observe_case(case, 1, &Options::default()).unwrap();
            let shares = pair.starts_with("shared");
            of.insert(pair, count(&seen.connections, shares));
            cases.push(CaseFigures { set: case.set.clone(), runs });
        }
        let id = format!("f-of-{connections}");
        let claim = plan.claims.iter().find(|claim| claim.spec.id == id).unwrap();
        let verdict = claim.evaluate(&cases).unwrap();
        near(&id, verdict.value.unwrap_or(f64::NAN), f_score(&of, connections), 1e-9);
    }
}
