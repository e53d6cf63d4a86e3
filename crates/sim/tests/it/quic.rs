//! Multipath QUIC on simulated paths, beside TCP.

use crate::common::{get, plan, run, run_threads};
use vmcc_results::RunOutput;
use vmcc_sim::{Options, run_case};

const TWO_PATHS: &str = "
title = 't'
duration = '4s'
warmup = '1s'
[host]
protocol = 'quic'
cc = 'lia'
[topology]
kind = 'parallel-paths'
paths = [{ name = 'a' }, { name = 'b', rate = '10mbit' }]
rate = '20mbit'
delay = '10ms'
buffer = '50pkt'
";

fn with(more: &str) -> String {
    format!("{TWO_PATHS}{more}")
}

#[test]
fn stream_uses_both_paths() {
    let output = run(&with("[[traffic]]\nkind = 'bulk'\n"), &[]);
    // Of a packet of 1500 bytes headers, tag and frames take about 60; nothing else does.
    for (name, rate_bps) in
        [("goodput_bps", 30e6), ("paths.a.goodput_bps", 20e6), ("paths.b.goodput_bps", 10e6)]
    {
        assert!((0.94..0.965).contains(&(get(&output, name) / rate_bps)), "{name}: {}", get(&output, name));
    }
    assert!(get(&output, "rtt_us.min") >= 20_000.0);
    assert_eq!(get(&output, "subflows_opened"), 2.0);
    assert!(get(&output, "retransmits") <= get(&output, "drops"), "nothing is sent again in vain");
}

/// A path that takes everything and delivers nothing, from some moment on: as soon as the other answers and this one does not, what
/// it has is sent there. The queues are full then, 50 ms long.
#[test]
fn silent_path_does_not_stall_the_stream() {
    let text =
        with("[[traffic]]\nkind = 'bulk'\n[[event]]\nat = 'ATms'\nkind = 'link-down'\nlink = 'LINK'\n");
    for n in 0..8 {
        let at = (2_000 + n * 7_919 % 1_000).to_string();
        let output = run(&text.replace("AT", &at).replace("LINK", ["a", "b"][n % 2]), &[]);
        let stalled_us = get(&output, "stalled_us.max");
        assert!(stalled_us < 250e3, "{stalled_us} us from {at} ms on");
        let left_bps = [10e6, 20e6][n % 2];
        assert!(get(&output, "goodput_bps") > 0.9 * left_bps, "{}", get(&output, "goodput_bps"));
    }
}

#[test]
fn transfers_complete_with_their_times() {
    let text =
        with("[[traffic]]\nkind = 'sized'\nsize = '1MB'\nconnections = 3\n").replace("warmup = '1s'", "");
    let output = run(&text, &[]);
    assert_eq!((get(&output, "completed"), get(&output, "unfinished")), (3.0, 0.0));
    assert!(output.flows.iter().all(|flow| flow.delivered_bytes == 1_000_000));
    // All three at the rate of both paths, and a round trip for the handshake.
    assert!(get(&output, "fct_us.max") > (3e6 * 8.0 / 30e6 + 0.04) * 1e6, "{}", get(&output, "fct_us.max"));
}

#[test]
fn ecn_algorithms_get_marks_instead_of_losses() {
    let marking = "buffer = '50pkt'\nmarking = { rule = 'threshold', at = '10pkt' }\n";
    let text =
        |cc| with(&format!("[[traffic]]\nkind = 'bulk'\ncc = '{cc}'\n")).replace("buffer = '50pkt'", marking);
    let marked = run(&text("vmcc"), &[]);
    assert!(get(&marked, "ce_marks") > 100.0);
    assert_eq!((get(&marked, "drops"), get(&marked, "retransmits")), (0.0, 0.0));
    let lost = run(&text("lia"), &[]);
    assert_eq!(get(&lost, "ce_marks"), 0.0);
    assert!(get(&lost, "drops") > 0.0);
}

/// Two paths through one bottleneck take no more than TCP there, if they are coupled (RFC 6356's second goal).
#[test]
fn coupled_quic_paths_leave_tcp_its_share() {
    let text = "
title = 't'
duration = '40s'
warmup = '5s'
[topology]
kind = 'virtual-host'
vms = 1
nics = 1
vnics = 2
vm_rate = '100mbit'
path_rate = '20mbit'
path_delay = '5ms'
path_buffer = '50pkt'
[[traffic]]
name = 'quic'
kind = 'bulk'
protocol = 'quic'
cc = 'CC'
ack_path = 'WAY'
[[traffic]]
name = 'tcp'
kind = 'bulk'
protocol = 'tcp'
";
    let share = |cc, way| {
        let output = run(&text.replace("CC", cc).replace("WAY", way), &[]);
        assert_eq!(get(&output, "traffic.quic.subflows_opened"), 2.0);
        get(&output, "traffic.tcp.goodput_bps") / get(&output, "goodput_bps")
    };
    for way in ["own", "best"] {
        let (coupled, uncoupled) = (share("lia", way), share("reno", way));
        assert!((0.42..0.58).contains(&coupled), "{way}: {coupled}");
        assert!(uncoupled < 0.4, "{way}: {uncoupled}");
    }
}

/// Datagrams cross shards, whatever their number.
#[test]
fn quic_results_do_not_depend_on_threads() {
    let text = "
title = 't'
duration = '50ms'
[host]
protocol = 'quic'
cc = 'olia'
subflows = 4
[topology]
kind = 'fat-tree'
k = 4
rate = '1gbit'
delay = '1us'
buffer = '20pkt'
[[traffic]]
kind = 'bulk'
pairing = 'permutation'
[[traffic]]
kind = 'bulk'
protocol = 'mptcp'
pairing = 'permutation'
";
    let plan = plan(text, &[]);
    let figures = |threads| run_threads(&plan, 0, 1, threads).metrics.figures();
    let one = figures(1);
    assert!(one.iter().any(|(name, value)| name == "traffic.bulk.goodput_bps" && *value > 1e9), "{one:?}");
    assert_eq!(figures(3), one);
}

#[test]
fn unsupported_quic_settings_are_refused_with_a_remedy() {
    for (more, said) in [
        ("[[traffic]]\nkind = 'bulk'\nread_rate = '1mbit'\n", "`read_rate`"),
        ("[[traffic]]\nkind = 'request-response'\nrequest = '1kB'\nresponse = '9kB'\n", "`request-response`"),
    ] {
        let plan = plan(&with(more), &[]);
        let error = run_case(&plan.cases[0], 1, &Options { threads: 1, ..Options::default() }).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(said) && text.contains("protocol = \"mptcp\""), "{text}");
    }
}

/// As over TCP and MPTCP: an application that stops writes no more, and what it has written is sent.
#[test]
fn transfers_in_progress_finish_after_the_stop() {
    let text = "
title = 't'
duration = '8s'
[host]
cc = 'lia'
protocol = 'PROTO'
[topology]
kind = 'parallel-paths'
paths = 2
rate = '10mbit'
delay = '5ms'
[[traffic]]
TRAFFIC
stop = '1s'
";
    let of = |protocol: &str, traffic: &str| {
        run(&text.replace("PROTO", protocol).replace("TRAFFIC", traffic), &[])
    };
    let arrivals = "kind = 'poisson'\nper_second = 8\nsizes = '600kB'";
    let counts = |output: &RunOutput| (get(output, "completed"), get(output, "unfinished"));
    assert_eq!(counts(&of("quic", arrivals)), counts(&of("mptcp", arrivals)));
    let sized = of("quic", "kind = 'sized'\nsize = '12MB'");
    assert_eq!(counts(&sized), (1.0, 0.0));
    let [quic, mptcp] = ["quic", "mptcp"].map(|protocol| {
        let output = of(protocol, "kind = 'bulk'");
        output.flows.iter().map(|flow| flow.delivered_bytes).sum::<u64>() as f64
    });
    assert!((0.93..1.07).contains(&(quic / mptcp)), "{quic} against {mptcp} bytes");
}

#[test]
fn warmup_rtt_samples_are_excluded() {
    let event =
        |link| format!("[[event]]\nat = '1800ms'\nkind = 'set-delay'\nlink = '{link}'\ndelay = '1ms'\n");
    let text =
        with("[[traffic]]\nkind = 'poisson'\nper_second = 10\nsizes = '20kB'\n") + &event("a") + &event("b");
    let text = text.replace("warmup = '1s'", "warmup = '2s'").replace("delay = '10ms'", "delay = '100ms'");
    let output = run(&text, &[]);
    assert!(get(&output, "rtt_us.samples") > 100.0);
    assert!(get(&output, "rtt_us.max") < 200e3, "{}", get(&output, "rtt_us.max"));
}
