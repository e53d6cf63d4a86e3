//! The marking scenarios on this machine's kernel: service queues, their thresholds, and a vNIC that moves.

use crate::common::{alone, control, judged, run};
use vmcc_lab::LabSpec;
use vmcc_results::{Metrics, RunOutput};
use vmcc_scenario::{Document, Overrides};
use vmcc_testkit::control::payload_bps;

/// The only case of a built-in scenario with `set`.
fn case(name: &str, set: &[&str]) -> LabSpec {
    let set = set.iter().map(|&text| text.to_owned()).collect();
    let plan = Document::open(name).unwrap().plan(&Overrides { set, ..Overrides::default() }).unwrap();
    let [case] = &plan.cases[..] else { panic!("{name}: {} cases", plan.cases.len()) };
    LabSpec::try_from(case).unwrap()
}

fn figure(metrics: &Metrics, name: &str) -> f64 {
    metrics.get(name).unwrap_or_else(|| panic!("{name} was not measured: {metrics:?}"))
}

fn near(value: f64, wanted: f64, tolerance: f64) -> bool {
    (value / wanted - 1.0).abs() <= tolerance
}

/// A path's goodput from one time to another, in seconds, by the time series.
fn carried(output: &RunOutput, path: &str, from: f64, to: f64) -> f64 {
    let inside = |t_us: u64| t_us as f64 > from * 1e6 && t_us as f64 <= to * 1e6;
    let of_path = output.series.iter().filter(|p| p.entity == path && p.metric == "goodput_bps");
    let rates: Vec<f64> = of_path.filter(|p| inside(p.t_us)).map(|p| p.value).collect();
    assert!(!rates.is_empty(), "no goodput of path {path} between {from} s and {to} s");
    rates.iter().sum::<f64>() / rates.len() as f64
}

#[test]
fn root_service_queues_share_by_weight_and_mark_at_their_own_thresholds() {
    let _alone = alone();
    let spec = case("marking/weights-421", &["variant=all backlogged", "duration=5s"]);
    let share =
        |m: &Metrics, name: &str| figure(m, &format!("traffic.{name}.goodput_bps")) / m.goodput_bps.unwrap();
    let wanted = [("four", 4.0 / 7.0), ("two", 2.0 / 7.0), ("one", 1.0 / 7.0)];
    let verdict = |output: &RunOutput| {
        let metrics = &output.metrics;
        for (name, ideal) in wanted {
            assert!(near(share(metrics, name), ideal, 0.05), "{name}: {}", share(metrics, name));
        }
        // 50 kB for the port, by weight while all have packets.
        for (class, bytes) in [(0, 28_571.0), (1, 14_285.0), (2, 7_143.0)] {
            let threshold = figure(metrics, &format!("paths.a.class.{class}.threshold_bytes.p50"));
            assert!(near(threshold, bytes, 0.05), "class {class}: {threshold} B");
            assert!(figure(metrics, &format!("paths.a.class.{class}.ce_marks")) > 50.0);
        }
        let queue = figure(metrics, "paths.a.class.0.queue_bytes.p50");
        assert!((0.4 * 28_571.0..1.5 * 28_571.0).contains(&queue), "{queue} B wait where 28,571 are wanted");
    };
    // Senders that wait for a processor leave their class empty, and its turn to the others.
    let in_use = |output: &RunOutput| output.metrics.goodput_bps.unwrap() / payload_bps(100);
    let backlogged = |output: &RunOutput| {
        println!("{:.3} of the port's rate were used", in_use(output));
        if in_use(output) > 0.98 { control() } else { 0.0 }
    };
    vmcc_testkit::judge(|| run(&spec).unwrap(), verdict, backlogged);
}

#[test]
fn root_capped_queue_leaves_the_rest_unused() {
    let _alone = alone();
    let set = ["variant=capped alone", "duration=4s"];
    let spec = case("marking/weights-21", &set);
    // A third of 100 Mbit/s in full frames.
    let cap = payload_bps(100) / 3.0;
    judged(&spec, |output| {
        let alone = figure(&output.metrics, "traffic.one.goodput_bps");
        assert!((0.9 * cap..1.03 * cap).contains(&alone), "{alone}");
    });
}

#[test]
fn root_vnic_moves_while_it_sends() {
    let _alone = alone();
    let set = ["variant=moving", "vm_rate=20mbit", "duration=5s", "warmup=1s", "event.0.at=2s"];
    let spec = case("marking/virtual-host", &set);
    judged(&spec, |output| {
        // Each vNIC has 10 Mbit/s: two on each NIC before, three and one after.
        let share = |from, to| {
            let [a, b] = ["a", "b"].map(|path| carried(output, path, from, to));
            println!("NIC a {a:.0} bit/s, NIC b {b:.0} bit/s between {from} s and {to} s");
            b / (a + b)
        };
        let (before, after) = (share(1.0, 2.0), share(2.5, 5.0));
        assert!(
            (0.4..0.6).contains(&before) && (0.2..0.3).contains(&after),
            "NIC b has {before}, then {after}"
        );
        let vm = figure(&output.metrics, "traffic.first.goodput_bps");
        assert!(vm <= 1.03 * 20e6, "the cap moves along: {vm}");
        assert!(output.metrics.goodput_bps.unwrap() > 0.8 * 40e6, "{:?}", output.metrics);
    });
}
