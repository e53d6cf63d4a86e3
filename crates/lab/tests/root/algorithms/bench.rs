//! Benchmarks and checks of the kernel programs, without a command line. Needs root.

use crate::common::alone;
use vmcc_cc::Algorithm;
use vmcc_lab::bench::{Checked, algorithms, check, port};

fn lia() -> Algorithm {
    Algorithm::by_name("lia").unwrap()
}

#[test]
fn root_bench_measures_an_algorithm_in_namespaces() {
    let _alone = alone();
    let mut said = Vec::new();
    let all = algorithms(vec![lia()], &mut |what| said.push(what.to_owned())).unwrap();
    let subflows: Vec<usize> = all[0].costs.iter().map(|cost| cost.subflows).collect();
    assert_eq!((all.len(), subflows.as_slice()), (1, &[1, 2, 8][..]));
    for cost in &all[0].costs {
        assert!(cost.acks > 10 && cost.ns_per_ack > 1.0 && cost.goodput_bps > 1e6, "{cost:?}");
    }
    assert_eq!(said.len(), 4, "{said:?}");
}

#[test]
fn root_bench_port_divides_by_weight_and_leaves_no_namespace() {
    let _alone = alone();
    let named = || std::fs::read_dir("/run/netns").map_or(0, Iterator::count);
    let before = named();
    let report = port::measure(&|case| case == "share", &mut |_| {}).unwrap();
    assert!(report.caps.is_empty() && report.cost.is_none() && report.many.is_none());
    let weights: Vec<&[u32]> = report.shares.iter().map(|share| share.weights.as_slice()).collect();
    assert_eq!(weights, [&[4, 2, 1][..], &[2, 1]]);
    for share in &report.shares {
        assert!(share.shares.windows(2).all(|pair| pair[0] > pair[1]), "{share:?}");
    }
    assert_eq!(named(), before, "its namespaces have no names");
}

#[test]
fn root_loaded_algorithm_completes_a_transfer() {
    let _alone = alone();
    match check(lia()) {
        Checked::Carried { bytes, seconds } => assert!(bytes > 1 << 20 && seconds > 0.5, "{bytes} {seconds}"),
        other => panic!("{other:?}"),
    }
}
