//! A path that becomes slow and lossy does not hold back a good one: the claims of `docs/evidence/slow-path.toml`.

use crate::common::{case_figures, plan};
use vmcc_scenario::CaseFigures;

#[test]
fn own_transports_have_the_goodput_of_tcp_on_the_best_path() {
    let plan = plan(include_str!("../../../../docs/evidence/slow-path.toml"), &["runs=1"]);
    let cases = case_figures(&plan);
    for claim in &plan.claims {
        let verdict = claim.evaluate(&cases).unwrap_or_else(|e| panic!("{}: {e}", claim.spec.id));
        assert!(verdict.pass, "{}: {verdict:?}", claim.spec.id);
    }
    // Of the cases of our own transports: nothing stalls for longer than the queue of the slow path, and little is sent twice.
    let own = |case: &&CaseFigures| {
        ["quic", "carriers"].iter().any(|own| case.set["transport"].as_str() == Some(own))
    };
    for case in cases.iter().filter(own) {
        let figure = |name: &str| case.runs[0].get(name).copied().unwrap_or(f64::NAN);
        assert!(figure("stalled_us.max") < 1e6, "{:?}: {}", case.set, figure("stalled_us.max"));
        assert!(figure("reinjected_bytes") < 600e3, "{:?}: {}", case.set, figure("reinjected_bytes"));
    }
}
