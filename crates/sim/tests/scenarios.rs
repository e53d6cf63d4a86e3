//! Every built-in scenario on the simulator: it runs, its claims hold, and what it reports may be claimed.
#![allow(missing_docs, unreachable_pub, dead_code)]

mod common;

use common::{case_figures, figures, plan, plan_at, run, run_threads};
use vmcc_scenario::{Document, Scale};
use vmcc_sim::{Options, SimError, run_case};

#[test]
fn every_built_in_scenario_runs_and_its_claims_hold() {
    for builtin in vmcc_scenario::builtin::all() {
        let plan = plan_at(Scale::Small, builtin.name, &[]);
        // Other suites of scenarios reproduce papers; here are those that show the language and the marking ports.
        let own = ["demo", "examples/", "marking/"];
        if !own.iter().any(|prefix| builtin.name.starts_with(prefix)) {
            continue;
        }
        let cases = case_figures(&plan);
        for case in &cases {
            assert!(
                case.runs[0].get("goodput_bps").is_some_and(|g| *g > 0.0),
                "{}: {:?}",
                builtin.name,
                case.set
            );
        }
        for claim in &plan.claims {
            let verdict =
                claim.evaluate(&cases).unwrap_or_else(|e| panic!("{}/{}: {e}", builtin.name, claim.spec.id));
            assert!(verdict.pass, "{}/{}: {verdict:?}", builtin.name, claim.spec.id);
        }
    }
}

#[test]
fn whatever_a_run_reports_may_be_claimed() {
    for name in [
        "demo",
        "examples/request-response",
        "examples/two-pod",
        "examples/poisson",
        "marking/weights-21",
        "marking/tenants",
    ] {
        let text = vmcc_scenario::builtin::find(name).unwrap().text;
        for metric in figures(&run(name, &[])).into_keys() {
            let text = format!("{text}\n[[claim]]\nid = \"x\"\ncheck = \"mean({metric}) >= 0\"\n");
            Document::parse(name, &text).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

#[test]
fn what_was_not_measured_is_absent() {
    let udp = run("examples/on-off-udp", &["traffic.0.competing=true"]);
    assert_eq!(udp.metrics.goodput_bps, None);
    assert_eq!((udp.metrics.retransmits, udp.metrics.rtt_us, udp.metrics.jain), (None, None, None));
    assert!(udp.metrics.competing_goodput_bps.is_some());
    let bulk = run("examples/dumbbell", &["duration=100ms", "warmup=0s"]);
    assert_eq!((bulk.metrics.completed, bulk.metrics.fct_us, bulk.metrics.cpu_s_per_gb), (None, None, None));
}

#[test]
fn the_same_seed_gives_the_same_bytes_with_any_number_of_threads() {
    let tree = plan("examples/fat-tree", &["k=4", "duration=20ms", "warmup=5ms", "transport=mptcp x 8"]);
    let bytes = |seed, threads| serde_json::to_string(&run_threads(&tree, 0, seed, threads)).unwrap();
    let first = bytes(1, 1);
    assert_eq!(first, bytes(1, 1));
    assert_eq!(first, bytes(1, 2));
    assert_eq!(first, bytes(1, 4));
    assert_ne!(first, bytes(2, 1));
}

#[test]
fn a_run_can_be_interrupted_and_tells_how_far_it_is() {
    let plan = plan("demo", &["variant=lia"]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let seen = std::sync::Mutex::new(Vec::new());
    let progress = |done: f64| {
        seen.lock().unwrap().push(done);
        stop.store(done >= 0.5, std::sync::atomic::Ordering::Relaxed);
    };
    let options = Options { threads: 1, cancel: Some(&stop), progress: Some(&progress) };
    assert!(matches!(run_case(&plan.cases[0], 1, &options), Err(SimError::Canceled)));
    let seen = seen.into_inner().unwrap();
    assert!(
        seen.len() >= 40 && seen.windows(2).all(|w| w[0] < w[1]) && *seen.last().unwrap() < 0.52,
        "{seen:?}"
    );
}

#[test]
fn what_the_simulator_has_no_model_of_is_refused() {
    let refused = |set: &[&str]| {
        let plan = plan("demo", set);
        run_case(&plan.cases[0], 1, &Options::default()).unwrap_err().to_string()
    };
    assert!(refused(&["host.hystart=true"]).contains("HyStart"));
    let text = "title='t'\nduration='1s'\n[topology]\nkind='parallel-paths'\npaths=1\nrate='1mbit'\ndelay='1ms'\n\
                [[traffic]]\nkind='app'\ncommand=['true']\n";
    let error = run_case(&plan(text, &[]).cases[0], 1, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("--engine kernel"), "{error}");
}
