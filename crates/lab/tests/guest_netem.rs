//! Delay and loss of a routed network, on a kernel that has netem: packets take the time and are lost as often as the scenario
//! says, by TCP's own figures, by netem's counters and by the simulator's.
#![cfg(feature = "root-tests")]

mod common;
#[path = "switch/guests.rs"]
mod guests;

use common::{namespaces_of, watched};
use std::process::Command;
use std::time::Duration;
use vmcc_lab::LabSpec;
use vmcc_metrics::Metrics;
use vmcc_results::RunOutput;
use vmcc_scenario::{Document, Overrides, ResolvedCase};

#[test]
fn guest_a_routed_network_delays_and_loses() {
    guests::run_inside("6.12", &["inside_"], Duration::from_secs(600));
}

const LOSS: f64 = 0.02;
const ONE_WAY_US: f64 = 15_000.0;

fn case(loss: f64) -> ResolvedCase {
    let text = format!(
        "title = 't'\nduration = '20s'\nwarmup = '2s'\n[host]\ncc = 'reno'\n\
         [topology]\nkind = 'graph'\nhosts = ['a', 'b']\nrouting = 'explicit'\n\
         links = [{{ from='a', to='s', rate='20mbit', delay='5ms' }},\
         {{ from='s', to='b', rate='10mbit', delay='10ms', buffer='30kB', loss={loss} }}]\n\
         routes = [{{ name='way', via=['a', 's', 'b'] }}]\n\
         [[traffic]]\nkind = 'bulk'\nprotocol = 'tcp'\nfrom = 'a'\nto = 'b'\n"
    );
    let plan = Document::parse("t", &text).and_then(|d| d.plan(&Overrides::default()));
    plan.unwrap().cases.remove(0)
}

/// Packets that netem passed on and dropped, on the leg that lost most: each has a delay of its own, one direction of one link
/// loses most.
fn netem(run_id: &str) -> (u64, u64) {
    let wires = namespaces_of(run_id).into_iter().find(|name| name.ends_with("-wires+")).unwrap();
    let output = Command::new("tc").args(["-n", &wires, "-s", "-j", "qdisc"]).output().unwrap();
    let queues: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let netem = queues.as_array().unwrap().iter().filter(|queue| queue["kind"] == "netem");
    let counted = netem.map(|queue| (queue["packets"].as_u64().unwrap(), queue["drops"].as_u64().unwrap()));
    counted.max_by_key(|(packets, drops)| (*drops, *packets)).unwrap()
}

fn on_both(loss: f64) -> (RunOutput, RunOutput, (u64, u64)) {
    let case = case(loss);
    let model = vmcc_sim::run_case(&case, 1, &vmcc_sim::Options::default()).unwrap();
    let (mut passed, run_id) = ((0, 0), format!("netem-{}", std::process::id()));
    let spec = LabSpec { run_id: Some(run_id.clone()), ..LabSpec::try_from(&case).unwrap() };
    let real = watched(&spec, &mut |at| {
        if at >= Duration::from_secs(19) {
            passed = netem(&run_id);
        }
    });
    (real, model, passed)
}

fn lost(output: &RunOutput) -> f64 {
    let sent = output.flows[0].delivered_bytes as f64 / 1448.0;
    output.metrics.retransmits.unwrap() as f64 / sent
}

#[test]
#[ignore = "runs in a guest"]
fn inside_a_link_takes_its_time() {
    let (real, model, (_, dropped)) = on_both(0.0);
    let least = |m: &Metrics| m.rtt_us.unwrap().min.unwrap();
    println!("least RTT {} us, the simulator's {}", least(&real.metrics), least(&model.metrics));
    for m in [&real.metrics, &model.metrics] {
        // The queue of 30 kB adds 24 ms when it is full, and a guest's own slowness to that.
        assert!((2.0 * ONE_WAY_US..6.0 * ONE_WAY_US).contains(&least(m)), "{:?}", m.rtt_us);
    }
    assert_eq!(dropped, 0, "none is lost where none shall be");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_a_link_loses_what_it_shall() {
    let (real, model, (packets, dropped)) = on_both(LOSS);
    let shares = [lost(&real), lost(&model), dropped as f64 / (packets + dropped) as f64];
    println!("{packets} packets, {dropped} dropped; sent again, the simulator's, netem's: {shares:?}");
    assert!(dropped > 30, "too few to tell: {dropped}");
    for share in shares {
        assert!((0.5 * LOSS..2.0 * LOSS).contains(&share), "{shares:?}");
    }
}
