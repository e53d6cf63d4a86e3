//! Whole searches.

use std::sync::atomic::{AtomicBool, Ordering};
use vmcc_engine::Engine;
use vmcc_scenario::{CaseFigures, Document, Overrides, Plan};
use vmcc_search::{Execution, Outcome, Property, Settings, Strategy, Subject, search};
use vmcc_sim::Simulator;

/// Eight uncoupled subflows in one queue: beside a TCP connection they are eight of its kind.
const GREEDY: &str = r#"
title = "Eight subflows in one queue"
duration = "5s"
warmup = "1s"
[host]
cc = "reno"
subflows = 8
[topology]
kind = "dumbbell"
pairs = 1
rate = "8mbit"
delay = "10ms"
buffer = "100pkt"
access_rate = "100mbit"
[[traffic]]
kind = "bulk"
"#;

/// A TCP connection that is compared with itself.
const SOUND: &str = r#"
title = "One TCP connection"
duration = "3s"
warmup = "1s"
[host]
cc = "reno"
protocol = "tcp"
[topology]
kind = "parallel-paths"
paths = 1
rate = "4mbit"
delay = "5ms"
[[traffic]]
kind = "bulk"
"#;

pub(crate) fn plan(text: &str) -> Plan {
    Document::parse("test", text).unwrap().plan(&Overrides::default()).unwrap()
}

fn settings(properties: &[Property], budget: u32) -> Settings {
    Settings { properties: properties.to_vec(), budget, seed: 1, strategy: Strategy::Evolve }
}

fn searched(text: &str, settings: &Settings, jobs: usize) -> Outcome {
    let subject = Subject::new(&plan(text), None).unwrap();
    let stop = AtomicBool::new(false);
    let how = Execution { jobs, stop: &stop, progress: &|_| {} };
    search(&subject, &Simulator::default(), settings, &how).unwrap()
}

/// Outcome of each claim of a scenario file, as `vmcc run` has it.
pub(crate) fn verdicts(scenario: &str) -> Vec<bool> {
    let plan = plan(scenario);
    let (stop, engine) = (AtomicBool::new(false), Simulator::default());
    let run = |case: &_, run: u32| {
        let output = engine.run(case, plan.seed + u64::from(run), &stop, &|_| {}).unwrap();
        output.metrics.figures().into_iter().collect()
    };
    let figures = |case: &vmcc_scenario::ResolvedCase| CaseFigures {
        set: case.set.clone(),
        runs: (0..plan.runs).map(|seed| run(case, seed)).collect(),
    };
    let figures: Vec<CaseFigures> = plan.cases.iter().map(figures).collect();
    plan.claims.iter().map(|claim| claim.evaluate(&figures).unwrap().pass).collect()
}

#[test]
fn planted_unfairness_becomes_a_small_scenario_that_fails_its_claim() {
    let outcome = searched(GREEDY, &settings(&[Property::FairShare], 400), 2);
    assert!(outcome.runs <= 400 && !outcome.interrupted, "{outcome:?}");
    let finding = outcome.properties[0].finding.as_ref().expect("a finding");
    assert!(finding.score > 1.2, "{finding:?}");
    assert!(finding.changes <= 2, "one competing connection is enough: {}", finding.scenario);
    let held_out = finding.held_out.unwrap();
    assert!(2 * held_out.failed > held_out.seeds, "{held_out:?}");
    assert_eq!(verdicts(&finding.scenario), [false], "{}", finding.scenario);
    // What says the default is left out, what does not stays.
    assert!(!finding.scenario.contains("initial_window"), "{}", finding.scenario);
    assert!(finding.scenario.contains("subflows = 8") && finding.scenario.contains("[[claim]]"));
}

#[test]
fn connection_compared_with_itself_breaks_nothing() {
    let outcome = searched(SOUND, &settings(&Property::ALL, 300), 2);
    for property in &outcome.properties {
        assert!(property.finding.is_none(), "{property:?}");
        // Each property was judged, so it could have been broken.
        assert!(property.worst_score.is_some_and(|score| score < 1.0), "{property:?}");
    }
}

#[test]
fn outcome_does_not_depend_on_the_number_of_jobs() {
    let settings = settings(&[Property::FairShare, Property::Queue], 160);
    let bytes = |jobs| format!("{:?}", searched(GREEDY, &settings, jobs));
    let one = bytes(1);
    assert_eq!(one, bytes(4));
    // Another seed finds something else: the comparison can fail.
    let other = Settings { seed: 2, ..settings.clone() };
    assert_ne!(one, format!("{:?}", searched(GREEDY, &other, 4)));
}

#[test]
fn interrupted_search_returns_valid_unshrunk_scenarios() {
    let subject = Subject::new(&plan(GREEDY), None).unwrap();
    let stop = AtomicBool::new(false);
    let progress = |run: usize| {
        if run >= 100 {
            stop.store(true, Ordering::SeqCst);
        }
    };
    let how = Execution { jobs: 1, stop: &stop, progress: &progress };
    let settings = settings(&[Property::FairShare, Property::Queue], 3_000);
    let outcome = search(&subject, &Simulator::default(), &settings, &how).unwrap();
    assert!(outcome.interrupted);
    assert_eq!(outcome.properties.len(), 2, "every property has its line");
    let finding = outcome.properties[0].finding.as_ref().expect("a finding");
    assert!(finding.held_out.is_none() && finding.scenario.contains("was interrupted"));
    assert_eq!(verdicts(&finding.scenario), [false], "{}", finding.scenario);
}
