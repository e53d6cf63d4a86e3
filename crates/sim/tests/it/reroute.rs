//! Links that fail and come back in networks that spread flows by hash.

use crate::common::{plan, run, run_threads};
use vmcc_results::RunOutput;

const HEAD: &str = "title='t'\nduration='400ms'\nwarmup='100ms'\ninterval='10ms'\n[host]\nprotocol='tcp'\ncc='reno'\nmin_rto='10ms'\n";

const TREE: &str = "[topology]\nkind='fat-tree'\nk=4\nrate='100mbit'\ndelay='5us'\n";

const LEAVES: &str =
    "[topology]\nkind='leaf-spine'\nleaves=2\nspines=2\nhosts_per_leaf=4\nrate='100mbit'\ndelay='5us'\n";

/// A square of switches: equal ways left and right, and none that is short without one of them.
const SQUARE: &str = "[topology]\nkind='graph'\nhosts=['h0','h1','h2','h3']\nlinks=[\
    {from='h0',to='a',rate='100mbit',delay='5us'},{from='h1',to='a',rate='100mbit',delay='5us'},\
    {from='h2',to='d',rate='100mbit',delay='5us'},{from='h3',to='d',rate='100mbit',delay='5us'},\
    {from='a',to='b',rate='100mbit',delay='5us'},{from='b',to='d',rate='100mbit',delay='5us'},\
    {from='a',to='c',rate='100mbit',delay='5us'},{from='c',to='e',rate='100mbit',delay='5us'},\
    {from='e',to='d',rate='100mbit',delay='5us'}]\n";

const BULK: &str = "[[traffic]]\nname='all'\nkind='bulk'\npairing='permutation'\nfrom='h*'\nto='h*'\n";

fn event(kind: &str, link: &str, at: &str) -> String {
    format!("[[event]]\nkind='{kind}'\nlink='{link}'\nat='{at}'\n")
}

/// Flows that delivered nothing within the window.
fn stalled(output: &RunOutput) -> usize {
    output.flows.iter().filter(|flow| flow.goodput_bps == Some(0.0)).count()
}

#[test]
fn ecmp_hashes_around_a_dead_link() {
    for (topology, link) in [(TREE, "p0a0-c0"), (LEAVES, "leaf0-spine0"), (SQUARE, "b-d")] {
        let text = format!("{HEAD}{topology}{BULK}{}", event("link-down", link, "50ms"));
        assert_eq!(stalled(&run(&text, &[])), 0, "{link}");
        assert!(
            stalled(&run(&text, &["topology.reroute=never"])) > 0,
            "{link}: some flows were hashed onto it"
        );
        // Detected behind the end of the run.
        assert!(stalled(&run(&text, &["topology.reroute=360ms"])) > 0, "{link}");
    }
}

/// Probes over a square whose shorter way fails: lost until that is detected, then over the longer way until the repair is.
#[test]
fn routes_return_after_the_repair_is_detected() {
    let (plain, slow) =
        ("from='c',to='e',rate='100mbit',delay='5us'", "from='c',to='e',rate='100mbit',delay='1ms'");
    let probes =
        "[[traffic]]\nname='asks'\nkind='probe'\nfrom='h0'\nto='h2'\ninterval='5ms'\ntimeout='20ms'\n";
    let events = [event("link-down", "b-d", "100ms"), event("link-up", "b-d", "250ms")].concat();
    let text = format!("{HEAD}{}{probes}{events}", SQUARE.replace(plain, slow));
    let output = run(&text, &["topology.reroute=50ms"]);
    let answered = output.series.iter().filter(|p| p.metric == "probe_rtt_us");
    let rtts: Vec<(u64, f64)> = answered.map(|p| (p.t_us / 1_000, p.value)).collect();
    let within =
        |from: u64, to: u64| rtts.iter().filter(move |(at, _)| (from..to).contains(at)).map(|(_, rtt)| *rtt);
    assert!(within(0, 100).all(|rtt| rtt < 200.0) && within(310, 401).all(|rtt| rtt < 200.0), "{rtts:?}");
    assert_eq!(within(111, 150).count(), 0, "down, and not detected: {rtts:?}");
    assert!(within(161, 300).all(|rtt| rtt > 2_000.0) && within(161, 300).count() > 10, "{rtts:?}");
    assert!(within(310, 401).count() > 5);
}

/// Shorter than the detection delay.
#[test]
fn short_flaps_are_not_detected() {
    let events = [event("link-down", "p0a0-c0", "50ms"), event("link-up", "p0a0-c0", "90ms")].concat();
    let text = format!("{HEAD}{TREE}{BULK}{events}");
    let of = |reroute: &str| run(&text, &[&format!("topology.reroute={reroute}")]).flows;
    assert_eq!(of("100ms"), of("never"));
    assert_ne!(of("10ms"), of("never"));
}

#[test]
fn rerouting_does_not_depend_on_threads() {
    let udp = "[[traffic]]\nname='udp'\nkind='on-off-udp'\nrate='5mbit'\npairing='permutation'\nfrom='h*'\nto='h*'\n\
               [[traffic]]\nname='probes'\nkind='probe'\ninterval='10ms'\ntimeout='20ms'\npairing='permutation'\nfrom='h*'\nto='h*'\n\
               [[traffic]]\nname='quic'\nkind='bulk'\nprotocol='quic'\nfrom='h0'\nto='h9'\n";
    let events = [event("link-down", "p0a0-c0", "50ms"), event("link-up", "p0a0-c0", "300ms")].concat();
    let plan = plan(
        &format!("{HEAD}{TREE}{BULK}{udp}{events}"),
        &["topology.delay=100us", "topology.reroute=100ms"],
    );
    let of = |threads| run_threads(&plan, 0, 1, threads);
    let (one, four) = (of(1), of(4));
    assert_eq!((&one.metrics, &one.flows), (&four.metrics, &four.flows));
    assert!(one.metrics.get("probe_loss").unwrap() < 0.2, "{:?}", one.metrics.get("probe_loss"));
}
