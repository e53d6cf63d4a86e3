//! The demo on this machine's kernel and on the simulator: the same algorithms, nearly the same figures.
//!
//! Tolerances: goodput 10 %, median RTT 20 %. The simulator counts IP packets on the wire where the kernel's
//! shaper counts Ethernet frames (1 % of goodput), and knows neither CPU time nor the scheduling of a busy host:
//! the test refuses to judge where the kernel cannot fill a single path.

mod common;

use common::{alone, run};
use vmcc_lab::LabSpec;
use vmcc_results::Metrics;
use vmcc_scenario::{Document, Overrides, Plan};

const SEEDS: u64 = 5;

fn simulated(plan: &Plan, case: usize, figure: fn(&Metrics) -> f64) -> f64 {
    let one = |seed| {
        let output = vmcc_sim::run_case(&plan.cases[case], seed, &vmcc_sim::Options::default()).unwrap();
        figure(&output.metrics)
    };
    (1..=SEEDS).map(one).sum::<f64>() / SEEDS as f64
}

#[test]
#[ignore = "needs this machine for itself: cargo test -p vmcc-lab --test root_against_sim -- --ignored --nocapture"]
fn root_kernel_and_simulator_agree_on_the_demo() {
    let _alone = alone();
    let set = ["duration=9s", "traffic.competitor.start=3s", "traffic.competitor.stop=7s"];
    let overrides = Overrides { set: set.map(str::to_owned).to_vec(), ..Overrides::default() };
    let plan = Document::open("demo").unwrap().plan(&overrides).unwrap();
    let goodput = |m: &Metrics| m.goodput_bps.unwrap() / 1e6;
    let median = |m: &Metrics| m.rtt_us.unwrap().p50 / 1e3;
    let mut off = Vec::new();
    for (index, case) in plan.cases.iter().enumerate() {
        let kernel = run(&LabSpec::try_from(case).unwrap()).unwrap().metrics;
        let name = case.set["variant"].as_str().unwrap();
        for (what, figure, tolerance) in
            [("goodput [Mbit/s]", goodput as fn(&Metrics) -> f64, 0.10), ("median RTT [ms]", median, 0.20)]
        {
            let (real, model) = (figure(&kernel), simulated(&plan, index, figure));
            println!(
                "{name}: {what}: kernel {real:.2}, simulator {model:.2}, {:+.1} %",
                (model / real - 1.0) * 100.0
            );
            if (model / real - 1.0).abs() > tolerance {
                off.push(format!("{name}: {what}: kernel {real:.2}, simulator {model:.2}"));
            }
        }
        assert!(
            index > 0 || goodput(&kernel) > 90.0,
            "this machine is too busy to compare: the kernel fills {:.1} of 100 Mbit/s on one path",
            goodput(&kernel)
        );
    }
    assert!(off.is_empty(), "{off:#?}");
}
