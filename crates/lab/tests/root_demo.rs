//! The demo's promises, on this machine's kernel.

mod common;

use common::{alone, run_until};
use vmcc_lab::{LabSpec, Transport};
use vmcc_results::Metrics;
use vmcc_scenario::{Document, Overrides};

fn share(metrics: &Metrics) -> f64 {
    metrics.get("competing_share").unwrap()
}

#[test]
fn root_the_demo_holds_its_promises() {
    let _alone = alone();
    let set = ["duration=7s", "traffic.competitor.start=3s", "traffic.competitor.stop=6s"];
    let overrides = Overrides { set: set.map(str::to_owned).to_vec(), ..Overrides::default() };
    let plan = Document::open("demo").unwrap().plan(&overrides).unwrap();
    let names: Vec<String> =
        plan.cases.iter().map(|case| case.set["variant"].as_str().unwrap().to_owned()).collect();
    let specs: Vec<LabSpec> = plan.cases.iter().map(|case| LabSpec::try_from(case).unwrap()).collect();
    // What two idle paths and one shared path leave to a connection; one path alone has 95 at most.
    let fills = |spec: &LabSpec, m: &Metrics| {
        let wanted = if matches!(spec.flows[0].transport, Transport::Tcp { .. }) { 60e6 } else { 125e6 };
        m.goodput_bps.unwrap() > wanted
    };
    let metrics: Vec<Metrics> =
        specs.iter().map(|spec| run_until(spec, |m| fills(spec, m)).metrics).collect();

    for (name, metrics) in names.iter().zip(&metrics) {
        let rtt = metrics.rtt_us.unwrap();
        println!(
            "{name}: {:.1} Mbit/s, competitor {:.2}, RTT {:.1} / {:.1} ms, {} retransmits, {:?} marks",
            metrics.goodput_bps.unwrap() / 1e6,
            share(metrics),
            rtt.p50 / 1e3,
            rtt.p99 / 1e3,
            metrics.retransmits.unwrap(),
            metrics.ce_marks
        );
    }

    let [single, reno, lia, vmcc] = &metrics[..] else { panic!("four variants: {names:?}") };
    let goodput = |m: &Metrics| m.goodput_bps.unwrap();
    let p50 = |m: &Metrics| m.rtt_us.unwrap().p50;
    for multipath in [reno, lia, vmcc] {
        assert!(multipath.paths.iter().all(|path| path.goodput_bps.unwrap() > 20e6), "{:?}", multipath.paths);
    }
    assert!(goodput(vmcc) > 1.2 * goodput(single), "two paths carry more than one");
    assert!(p50(vmcc) < 0.6 * p50(lia), "marking keeps queues short: {} against {}", p50(vmcc), p50(lia));
    assert!(vmcc.ce_marks.unwrap() > 0);
    for coupled in [lia, vmcc] {
        assert!(share(coupled) > 0.4, "the competing flow gets a fair share: {}", share(coupled));
    }
}
