use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::json;

use super::{BadClaim, Bound, CaseFigures, Claim, ClaimError, Verdict};
use crate::model::ClaimSpec;

fn claim(check: &str) -> Result<Claim, BadClaim> {
    Claim::parse(ClaimSpec {
        id: "c".into(),
        paper: None,
        check: check.into(),
        note: None,
        analysis: None,
        kernel_analysis: None,
    })
}

fn case(n: u64, goodput: &[f64]) -> CaseFigures {
    let run = |g: &f64| BTreeMap::from([("goodput_bps".to_owned(), *g), ("rtt_us.mean".to_owned(), 2.0 * g)]);
    CaseFigures { set: IndexMap::from([("n".to_owned(), json!(n))]), runs: goodput.iter().map(run).collect() }
}

fn decide(check: &str) -> Result<Verdict, ClaimError> {
    claim(check).unwrap().evaluate(&[case(1, &[1.0, 3.0]), case(2, &[5.0]), case(4, &[4.0])])
}

fn value(expression: &str) -> f64 {
    decide(&format!("{expression} == 0")).unwrap().value.unwrap()
}

fn bound(relation: &str, value: f64) -> Option<Bound> {
    Some(Bound { relation: relation.into(), value })
}

#[test]
fn one_comparison_has_a_bound_and_the_unit_of_its_metric() {
    let verdict = decide("mean(goodput_bps, n=2) >= 0.5 * mean(goodput_bps, n=4)").unwrap();
    assert_eq!((verdict.value, verdict.bound), (Some(5.0), bound(">=", 2.0)));
    for several in ["mean(goodput_bps) > 1 && mean(goodput_bps) < 9", "(mean(goodput_bps) > 1) == true"] {
        assert_eq!(decide(several).unwrap().bound, None, "{several}");
    }
    assert_eq!(claim(" p99(goodput_bps, n=1) > 1").unwrap().left_metric(), Some("goodput_bps"));
    for pure in ["2 * mean(goodput_bps) > 1", "jain(goodput_bps) > 0", "1 < mean(goodput_bps)"] {
        assert_eq!(claim(pure).unwrap().left_metric(), None, "{pure}");
    }
}

#[test]
fn functions_reduce_the_selected_runs() {
    assert_eq!(value("mean(goodput_bps)"), 3.25);
    assert_eq!(value("mean(goodput_bps, n=1)"), 2.0);
    assert_eq!(value("median(goodput_bps)"), 3.5);
    assert_eq!(value("min(goodput_bps)"), 1.0);
    assert_eq!(value("max(goodput_bps, n=1)"), 3.0);
    assert_eq!(value("sum(goodput_bps)"), 13.0);
    assert_eq!(value("count(goodput_bps)"), 4.0);
    assert_eq!(value("stddev(goodput_bps, n=1)"), 2.0_f64.sqrt());
    assert_eq!(value("p50(goodput_bps)"), 3.5);
    assert_eq!(value("mean(rtt_us)"), 6.5);
    assert_eq!(value("jain(goodput_bps, n=2)"), 1.0);
    assert!((value("spearman(goodput_bps, n)") - 0.5).abs() < 1e-12);
}

#[test]
fn arithmetic_matches_real_numbers() {
    assert_eq!(value("1 / 2 * mean(goodput_bps, n=2)"), 2.5);
    assert_eq!(value("min(mean(goodput_bps, n=1), 1.5)"), 1.5);
    assert_eq!(value("math::abs(mean(goodput_bps, n=1) - 3) + 1e3"), 1001.0);
    assert!(decide("mean(goodput_bps, n=1) < 3 && mean(goodput_bps, n=2) > 4").unwrap().pass);
    assert!(decide("!(mean(goodput_bps, n=1) > 3) || false").unwrap().pass);
    assert_eq!(
        decide("(mean(goodput_bps, n=1) + 1) >= 2 * mean(goodput_bps, n=4)").unwrap().value,
        Some(3.0)
    );
}

#[test]
fn unmeasured_values_make_claims_undecided() {
    assert!(matches!(decide("mean(jain) > 0"), Err(ClaimError::Missing { missing: 4, runs: 4, .. })));
    assert!(matches!(decide("mean(goodput_bps, n=9) > 0"), Err(ClaimError::NoCase { .. })));
    assert!(matches!(decide("stddev(goodput_bps, n=2) > 0"), Err(ClaimError::Undefined { .. })));
    assert!(matches!(decide("spearman(goodput_bps, n, n=1) > 0"), Err(ClaimError::Undefined { .. })));
    assert_eq!(
        decide("count(jain) == 0"),
        Ok(Verdict { pass: true, value: Some(0.0), bound: bound("==", 0.0) })
    );
}

#[test]
fn equal_values_share_ranks() {
    let cases: Vec<CaseFigures> =
        [(1, 5.0), (2, 5.0), (3, 1.0)].iter().map(|(n, g)| case(*n, &[*g])).collect();
    let verdict = claim("spearman(goodput_bps, n) < 0").unwrap().evaluate(&cases).unwrap();
    assert!((verdict.value.unwrap() + 0.75_f64.sqrt()).abs() < 1e-12);
}

#[test]
fn faults_name_their_position() {
    let at = |check: &str| claim(check).unwrap_err().offset;
    assert_eq!(at("1 < maen(x)"), 4);
    assert_eq!(at("mean(x) > 'a'"), 10);
    assert_eq!(at("mean(x, a=) > 1"), 10);
    assert_eq!(at("mean(x)) > 1"), 7);
    assert!(claim(&format!("mean(x) > {}1{}", "(".repeat(100), ")".repeat(100))).is_err());
    assert!(claim(&"1+".repeat(3000)).is_err());
}
