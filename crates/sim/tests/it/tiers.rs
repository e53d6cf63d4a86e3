//! Links of multi-stage networks, by tier and one by one.

use std::collections::BTreeSet;

use crate::common::{get, near, plan, run, run_threads};
use vmcc_results::RunOutput;

/// Two leaves with two hosts each, two spines; `h0` sends to `h2`, which is at the other leaf.
fn leaf_spine(traffic: &str) -> String {
    format!(
        "title = 't'\nduration = '400ms'\nwarmup = '100ms'\ninterval = '10ms'\n[host]\nprotocol = 'tcp'\ncc = 'reno'\n\
         [topology]\nkind = 'leaf-spine'\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\nrate = '100mbit'\ndelay = '10us'\n\
         buffer = '100pkt'\n{traffic}"
    )
}

fn entities(output: &RunOutput) -> BTreeSet<String> {
    output.series.iter().map(|point| point.entity.to_owned()).collect()
}

/// Values over time of one entity.
fn values(output: &RunOutput, entity: &str, metric: &str) -> Vec<f64> {
    let points = output.series.iter().filter(|point| point.entity == entity && point.metric == metric);
    points.map(|point| point.value).collect()
}

#[test]
fn one_flow_uses_one_of_four_uplinks() {
    let output = run(&leaf_spine("[[traffic]]\nkind = 'bulk'\nfrom = 'h0'\nto = 'h2'\n"), &[]);
    // Its data, and the acknowledgments of the other end.
    near("hosts to leaves", get(&output, "tier.host-leaf.utilization"), 0.255, 0.01);
    near("leaves to spines", get(&output, "tier.leaf-spine.utilization"), 0.255, 0.01);
    // Data on one link of four, acknowledgments on one of the others.
    near("imbalance", get(&output, "tier.leaf-spine.imbalance.mean"), 4.0, 0.15);
    let busy = values(&output, "link.h0-leaf0", "utilization");
    assert_eq!(busy.len(), 40);
    near("its own link", busy[20..].iter().sum::<f64>() / 20.0, 1.0, 0.01);
    assert!(values(&output, "link.h1-leaf0", "utilization").iter().all(|share| *share == 0.0));
    assert!(values(&output, "link.h0-leaf0", "imbalance").is_empty(), "a link alone has none");
}

#[test]
fn drops_and_queues_occur_where_flows_meet() {
    let traffic = "[[traffic]]\nkind = 'bulk'\nfrom = ['h0', 'h1', 'h3']\nto = 'h2'\n";
    let output = run(&leaf_spine(traffic), &[]);
    let tiers = ["host-leaf", "leaf-spine", "spine-leaf", "leaf-host"];
    let drops: f64 = tiers.iter().map(|tier| get(&output, &format!("tier.{tier}.drops"))).sum();
    assert_eq!(drops, get(&output, "drops"));
    assert!(get(&output, "tier.leaf-host.drops") > 0.0);
    let (longest, mean) = (
        get(&output, "tier.leaf-host.max_queue_bytes.mean"),
        get(&output, "tier.leaf-host.queue_bytes.mean"),
    );
    assert!(longest > 30_000.0 && longest <= 150_000.0, "{longest}");
    near("one of four ports", mean, longest / 4.0, 0.05);
    let over_time: f64 = values(&output, "tier.leaf-host", "drops").iter().sum();
    assert_eq!(over_time, get(&output, "tier.leaf-host.drops"));
}

#[test]
fn large_trees_report_tiers_alone() {
    let set = ["k=8", "duration=10ms", "warmup=2ms", "interval=1ms"];
    let output = run_threads(&plan("examples/fat-tree", &set), 0, 1, 2);
    let names = entities(&output);
    assert!(!names.iter().any(|name| name.starts_with("link.")), "{names:?}");
    for tier in ["host-edge", "edge-agg", "agg-core", "core-agg", "agg-edge", "edge-host"] {
        assert!(names.contains(&format!("tier.{tier}")), "{names:?}");
        assert!((0.0..=1.0).contains(&get(&output, &format!("tier.{tier}.utilization"))));
    }
    assert!(get(&output, "tier.agg-core.imbalance.p50") > 0.0);
}

#[test]
fn networks_without_tiers_report_none() {
    let output = run("examples/dumbbell", &["duration=100ms", "warmup=0s"]);
    assert!(!output.metrics.figures().iter().any(|(name, _)| name.starts_with("tier.")));
    assert!(!entities(&output).iter().any(|name| name.starts_with("link.") || name.starts_with("tier.")));
}
