//! Topologies, queues, traffic and events do what the language says, to stated tolerances.

use crate::common::{figures, near, plan, run, run_threads, two_paths};

/// Payload in a full packet of a multipath connection, and of a plain one.
const PAYLOAD: f64 = 1428.0 / 1500.0;
const PLAIN_PAYLOAD: f64 = 1448.0 / 1500.0;

/// Two hosts, two paths of 20 Mbit/s, 5 ms each way.
fn with(text: &str) -> String {
    two_paths("10s", "20mbit", "5ms") + "[[traffic]]\nkind = 'bulk'\n" + text
}

#[test]
fn two_paths_carry_twice_as_much_as_one() {
    let both = run(&with(""), &[]).metrics.goodput_bps.unwrap();
    let one = run(&with(""), &["path=a"]).metrics.goodput_bps.unwrap();
    near("both", both, 40e6 * PAYLOAD, 0.03);
    near("one", one, 20e6 * PAYLOAD, 0.02);
    let tcp = run(&with(""), &["protocol=tcp", "cc=reno"]).metrics.goodput_bps.unwrap();
    near("plain", tcp, 20e6 * PLAIN_PAYLOAD, 0.02);
}

/// The second vNIC moves to the first path at 5 s: what it did before stays with the path that it left, and the figures
/// of the paths add up to those of the run.
#[test]
fn moved_subflow_is_counted_on_each_of_its_paths() {
    let text = "title='t'\nduration='10s'\n\
        [topology]\nkind='virtual-host'\nvms=1\nnics=2\nvm_rate='20mbit'\npath_rate='100mbit'\npath_delay='5ms'\n\
        buffer='20pkt'\n[[traffic]]\nkind='bulk'\n[[event]]\nat='5s'\nkind='remap'\nvm='vm0'\nvnic=1\nnic=0\n";
    let moved = run(text, &[]);
    let figures = figures(&moved);
    let of = |path: &str| figures[&format!("paths.{path}.retransmits")];
    assert!(of("b") > 0.0, "it lost packets before it moved");
    assert_eq!(of("a") + of("b"), moved.metrics.retransmits.unwrap() as f64);
    assert!(moved.metrics.retransmits.unwrap() > 0 && moved.flows[0].subflows == 2, "{:?}", moved.flows);
    let samples = |path: &str| figures[&format!("paths.{path}.rtt_us.samples")];
    near("a has both subflows half of the time", samples("a"), 3.0 * samples("b"), 0.1);
}

#[test]
fn connection_survives_its_first_path() {
    let text = with(
        "[[event]]\nat='4s'\nkind='link-down'\nlink='a'\n[[event]]\nat='7s'\nkind='link-up'\nlink='a'\n",
    );
    let output = run(&text, &["interval=500ms"]);
    let rate = |path: &str, at: u64| {
        let mut points = output.series.iter();
        points.find(|p| p.entity == path && p.metric == "goodput_bps" && p.t_us == at).map(|p| p.value)
    };
    assert_eq!(rate("a", 6_000_000), Some(0.0), "a dead path carries nothing");
    near("the other path", rate("b", 6_000_000).unwrap(), 20e6 * PAYLOAD, 0.1);
    near("the first path, back", rate("a", 10_000_000).unwrap(), 20e6 * PAYLOAD, 0.15);
    let tcp = run(&text, &["protocol=tcp", "cc=reno"]);
    assert!(tcp.metrics.timeouts.unwrap() >= 1, "plain TCP must run into its timer");
}

#[test]
fn delay_and_rate_change_at_their_events() {
    let text = with(
        "[[event]]\nat='5s'\nkind='set-delay'\nlink='a'\ndelay='50ms'\n[[event]]\nat='5s'\nkind='set-rate'\nlink='b'\nrate='5mbit'\n",
    );
    let output = run(&text, &["interval=1s", "buffer=20pkt"]);
    let at = |path: &str, metric: &str, t: u64| {
        output
            .series
            .iter()
            .find(|p| p.entity == path && p.metric == metric && p.t_us == t)
            .map(|p| p.value)
            .unwrap()
    };
    assert!(at("a", "srtt_us", 4_000_000) < 30_000.0);
    assert!(at("a", "srtt_us", 9_000_000) > 100_000.0);
    near("slower path", at("b", "goodput_bps", 9_000_000), 5e6 * PAYLOAD, 0.1);
}

#[test]
fn losses_have_their_rate_and_burst_length() {
    for (loss, burst) in [("0.02", 1.0), ("{ probability = 0.02, burst = \"5pkt\" }", 5.0)] {
        let text = format!(
            "title='t'\nduration='50s'\n[topology]\nkind='parallel-paths'\npaths=1\nrate='20mbit'\ndelay='1ms'\n\
             loss={loss}\n[[traffic]]\nkind='on-off-udp'\nrate='10mbit'\ncompeting=false\n"
        );
        let output = run(&text, &["interval=1s"]);
        let sent = 10e6 * 50.0 / 12_000.0;
        let lost = output.metrics.drops.unwrap() as f64;
        // 833 losses or 167 bursts expected: three standard deviations.
        near("losses", lost, 0.02 * sent, 3.0 * (2.0 * burst / (0.02 * sent)).sqrt());
    }
}

const VMS: &str = "
title = 't'
duration = '3s'
warmup = '1s'
[host]
cc = 'lia'
[topology]
kind = 'virtual-host'
vms = 2
nics = 2
vm_rate = '40mbit'
path_rate = '100mbit'
path_delay = '500us'
buffer = '50pkt'
[[traffic]]
name = 'first'
kind = 'bulk'
from = 'vm0'
[[traffic]]
name = 'second'
kind = 'bulk'
from = 'vm1'
start = '2s'
";

#[test]
fn hard_cap_leaves_idle_bandwidth_unused_and_borrowing_uses_it() {
    let alone = ["traffic.second.start=2999ms"];
    let hard = figures(&run(VMS, &alone));
    assert!(hard["traffic.first.goodput_bps"] <= 40e6, "{hard:?}");
    near("capped", hard["traffic.first.goodput_bps"], 40e6 * PAYLOAD, 0.03);
    let lent = figures(&run(VMS, &[alone[0], "share=htb"]));
    near("borrowed", lent["traffic.first.goodput_bps"], 200e6 * PAYLOAD, 0.05);
    // With both at work and little to lend, each gets its guarantee and half of the rest.
    let both = figures(&run(VMS, &["share=htb", "traffic.second.start=0s"]));
    near("shared", both["traffic.first.goodput_bps"], 100e6 * PAYLOAD, 0.15);
    near(
        "weighted",
        {
            let f = figures(&run(
                VMS,
                &["share=htb", "traffic.second.start=0s", "weights=[3,1]", "vm_rate=100mbit"],
            ));
            f["traffic.first.goodput_bps"] / f["traffic.second.goodput_bps"]
        },
        3.0,
        0.15,
    );
}

#[test]
fn remapped_vnic_uses_the_other_nic() {
    let text = format!("{VMS}[[event]]\nat='2s'\nkind='remap'\nvm='vm0'\nvnic=1\nnic=0\n");
    let output = run(&text, &["traffic.second.start=2999ms", "interval=500ms"]);
    let rate = |path: &str, t: u64| {
        output
            .series
            .iter()
            .find(|p| p.entity == path && p.metric == "goodput_bps" && p.t_us == t)
            .unwrap()
            .value
    };
    near("before, a", rate("a", 2_000_000), 20e6 * PAYLOAD, 0.1);
    near("before, b", rate("b", 2_000_000), 20e6 * PAYLOAD, 0.1);
    near("after, a", rate("a", 3_000_000), 40e6 * PAYLOAD, 0.1);
    assert!(rate("b", 3_000_000) < 0.05 * rate("a", 3_000_000));
}

#[test]
fn descheduled_vm_sends_while_it_runs_only() {
    let text = format!("{VMS}[[event]]\nat='0s'\nkind='deschedule'\nhost='vm0'\non='30ms'\noff='30ms'\n");
    // A longer port queue would carry the VM over its pauses: 30 ms are 50 packets here.
    let set = ["traffic.second.start=2999ms", "buffer=10pkt"];
    let (free, output) = (figures(&run(VMS, &set)), figures(&run(&text, &set)));
    let share = output["traffic.first.goodput_bps"] / free["traffic.first.goodput_bps"];
    assert!((0.3..0.85).contains(&share), "half of the time gives {share} of the goodput");
    let (with, without) = (output["rtt_us.p99"], free["rtt_us.p99"]);
    assert!(with > 2.0 * without, "the pauses show in the RTT: {with} us, {without} us without");
}

#[test]
fn server_limit_caps_the_sum_of_its_nics() {
    let limit = |set: &str| run("examples/two-pod", &["transport=mptcp", "traffic.congestion.stop=1ms", set]);
    let fct = |set: &str| limit(set).metrics.fct_us.unwrap().mean;
    let whole = 20e6 * 8.0 / PAYLOAD;
    near("both NICs", fct("nic_limit=200mbit") / 1e6, whole / 400e6, 0.1);
    near("limited together", fct("server_limit=100mbit") / 1e6, whole / 100e6, 0.05);
    near("limited each", fct("nic_limit=50mbit") / 1e6, whole / 100e6, 0.1);
}

const QUEUES: &str = "
title = 't'
duration = '3s'
warmup = '1s'
[host]
protocol = 'tcp'
cc = 'reno'
[topology]
kind = 'dumbbell'
pairs = 2
rate = '50mbit'
delay = '2ms'
access_rate = '1gbit'
buffer = '60pkt'
queue = { kind = 'drr', weights = [2, 1] }
[[traffic]]
name = 'heavy'
kind = 'bulk'
from = 'left0'
to = 'right0'
connections = 3
[[traffic]]
name = 'light'
kind = 'bulk'
from = 'left1'
to = 'right1'
class = 1
connections = 3
";

#[test]
fn weights_and_priorities_divide_a_port() {
    let f = figures(&run(QUEUES, &[]));
    near("2:1", f["traffic.heavy.goodput_bps"] / f["traffic.light.goodput_bps"], 2.0, 0.05);
    for rule in ["{ rule = \"mq-ecn\", rtt = \"4ms\" }", "{ rule = \"tcn\", rtt = \"4ms\" }"] {
        let f = figures(&run(QUEUES, &[&format!("marking={rule}"), "cc=dctcp"]));
        near(rule, f["traffic.heavy.goodput_bps"] / f["traffic.light.goodput_bps"], 2.0, 0.05);
        assert!(f["ce_marks"] > 0.0 && f["rtt_us.p50"] < 14_000.0, "{rule}: {f:?}");
    }
    let f = figures(&run(QUEUES, &["queue={ kind = \"priority\", weights = [1, 1] }"]));
    assert!(
        f["traffic.heavy.goodput_bps"] > 0.93 * 50e6 && f["traffic.light.goodput_bps"] < 0.03 * 50e6,
        "{f:?}"
    );
}

#[test]
fn thresholds_in_bytes_and_in_time_and_red_keep_queues_short() {
    let base = ["queue={ kind = \"fifo\" }", "traffic.light.class=0", "cc=dctcp"];
    let median = |rule: &str| {
        let marking = format!("marking={rule}");
        let output = run(QUEUES, &[base[0], base[1], base[2], &marking]);
        output.metrics.paths[0].queue_bytes.unwrap().p50
    };
    let bytes = median("{ rule = \"threshold\", at = \"30kB\" }");
    let time = median("{ rule = \"threshold\", at = \"4.8ms\" }");
    near("the same threshold in bytes and in time", time, bytes, 0.1);
    assert!((15e3..40e3).contains(&bytes), "{bytes}");
    assert!(median("{ rule = \"none\" }") > 50e3);
    assert!(median("{ rule = \"red\", min = \"10pkt\", max = \"30pkt\" }") < 50e3);
}

#[test]
fn poisson_traffic_offers_the_configured_load() {
    let set = ["sizes=100kB", "load=0.15", "duration=20s", "interval=1s", "cc=reno"];
    let output = run("examples/poisson", &set);
    // Four senders of 1 Gbit/s: 600 Mbit/s in 15,000 transfers, so 1 % is one standard deviation.
    near("load", output.metrics.goodput_bps.unwrap(), 4.0 * 0.15e9, 0.04);
    let gaps: Vec<f64> = output
        .flows
        .windows(2)
        .filter(|w| w[0].src == w[1].src)
        .map(|w| (w[1].start_us - w[0].start_us) as f64)
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    near("exponential gaps: deviation equals mean", var.sqrt(), mean, 0.1);
}

#[test]
fn congestion_generator_leaves_both_one_or_no_interface_idle() {
    let set = [
        "transport=tcp",
        "duration=60s",
        "traffic.transfer.start=59s",
        "interval=100ms",
        "traffic.congestion.competing=false",
    ];
    let output = run("examples/two-pod", &set);
    let goodput = output.metrics.extra["traffic.congestion.goodput_bps"];
    let vmcc_results::Extra::Number(goodput) = goodput else { panic!("one figure") };
    // Two interfaces, busy half of the time, at 75 Mbit/s of packets on average; goodput is without their headers. 400 periods of
    // random length and rate have a standard deviation of 7 %.
    near("mean rate", goodput, 2.0 * 0.5 * 75e6 * 1472.0 / 1500.0, 0.15);
    let other = run_threads(&plan("examples/two-pod", &set), 0, 2, 1);
    assert_ne!(
        output.metrics.extra["traffic.congestion.goodput_bps"],
        other.metrics.extra["traffic.congestion.goodput_bps"]
    );
}

#[test]
fn incast_starts_every_sender_at_the_same_instant_in_every_round() {
    let output = run("examples/incast", &["cc=dctcp"]);
    let mut rounds = std::collections::BTreeMap::<u64, usize>::new();
    output.flows.iter().for_each(|flow| *rounds.entry(flow.start_us).or_default() += 1);
    assert_eq!(rounds.len(), 20);
    assert!(rounds.iter().all(|(start, count)| start % 50_000 == 0 && *count == 16), "{rounds:?}");
    assert_eq!(output.metrics.completed, Some(320));
}

/// Raiciu et al. (SIGCOMM 2011, figure 1 and section 4): a permutation over one ECMP path per host reaches about
/// half of a fat tree's capacity, over eight paths about nine tenths. Here with k = 8, so with a tolerance.
#[test]
fn eight_subflows_fill_a_fat_tree_and_one_path_fills_half() {
    let plan = plan("examples/fat-tree", &["k=8", "duration=80ms", "warmup=40ms", "interval=10ms"]);
    let mean = |case: usize| run_threads(&plan, case, 1, 1).metrics.flow_goodput_bps.unwrap().mean / 1e9;
    let (one, eight) = (mean(0) / PLAIN_PAYLOAD, mean(1) / PAYLOAD);
    assert!((0.43..0.58).contains(&one), "ECMP TCP reaches {one} of the line rate");
    assert!((0.80..0.97).contains(&eight), "eight subflows reach {eight} of the line rate");
}
