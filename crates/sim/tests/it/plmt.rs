//! Sessions over TCP carriers on simulated paths, beside TCP.

use crate::common::{get, near, plan, run, run_threads};
use vmcc_sim::{Options, run_case};

const TWO_PATHS: &str = "
title = 't'
duration = '8s'
warmup = '2s'
[host]
protocol = 'plmt'
cc = 'reno'
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

const BULK: &str = "[[traffic]]\nkind = 'bulk'\n";

#[test]
fn stream_takes_both_paths() {
    let output = run(&with(BULK), &[]);
    // Of a packet of 1500 bytes headers take 52; records take three bytes and those of their frames.
    for (name, rate_bps) in
        [("goodput_bps", 30e6), ("paths.a.goodput_bps", 20e6), ("paths.b.goodput_bps", 10e6)]
    {
        let share = get(&output, name) / rate_bps;
        assert!((0.93..0.966).contains(&share), "{name}: {share}");
    }
    assert!(get(&output, "rtt_us.min") >= 20_000.0);
    assert_eq!(get(&output, "subflows_opened"), 2.0);
}

#[test]
fn one_carrier_has_the_goodput_of_tcp() {
    let over = |protocol: &str| {
        let text = with(&format!("{BULK}protocol = '{protocol}'\npath = 'a'\n"));
        get(&run(&text, &[]), "goodput_bps")
    };
    near("goodput of one carrier and of TCP", over("plmt"), over("tcp"), 0.02);
}

#[test]
fn transfers_are_whole_and_timed() {
    let text =
        with("[[traffic]]\nkind = 'sized'\nsize = '1MB'\nconnections = 3\n").replace("warmup = '2s'", "");
    let output = run(&text, &[]);
    assert_eq!((get(&output, "completed"), get(&output, "unfinished")), (3.0, 0.0));
    assert!(output.flows.iter().all(|flow| flow.delivered_bytes == 1_000_000));
    assert!(get(&output, "fct_us.max") > (3e6 * 8.0 / 30e6 + 0.04) * 1e6, "{}", get(&output, "fct_us.max"));
}

/// A path that takes everything and delivers nothing, from some moment on. The session notices by its own acknowledgments or by TCP's
/// timeouts, and sends on the other path what was under way.
#[test]
fn silent_carrier_stalls_the_stream_below_one_second() {
    let text = with(&format!("{BULK}[[event]]\nat = 'ATms'\nkind = 'link-down'\nlink = 'LINK'\n"));
    let mut stalls_us: Vec<f64> = Vec::new();
    for n in 0..8 {
        let at = (4_000 + n * 7_919 % 1_000).to_string();
        let output = run(&text.replace("AT", &at).replace("LINK", ["a", "b"][n % 2]), &[]);
        stalls_us.push(get(&output, "stalled_us.max"));
        let left_bps = [10e6, 20e6][n % 2];
        assert!(get(&output, "goodput_bps") > 0.9 * left_bps, "{}", get(&output, "goodput_bps"));
    }
    assert!(stalls_us.iter().all(|&us| us < 1e6), "{stalls_us:?}");
    assert!(stalls_us.iter().any(|&us| us > 10_000.0), "something was under way: {stalls_us:?}");
}

/// A carrier that does not answer for ten seconds is closed, and its route is dialled again.
#[test]
fn route_is_redialled_after_its_carrier_is_closed() {
    let events = "[[event]]\nat = '4s'\nkind = 'link-down'\nlink = 'b'\n[[event]]\nat = '16s'\nkind = 'link-up'\nlink = 'b'\n";
    let text = with(&format!("{BULK}{events}")).replace("'8s'", "'40s'").replace("'2s'", "'30s'");
    let output = run(&text, &[]);
    assert_eq!(get(&output, "subflows_opened"), 3.0);
    assert!(get(&output, "paths.b.goodput_bps") > 0.9 * 10e6, "{}", get(&output, "paths.b.goodput_bps"));
}

#[test]
fn paced_writer_keeps_its_rate_over_every_transport() {
    for protocol in ["plmt", "quic", "mptcp"] {
        let text = with(&format!("{BULK}write_rate = '12mbit'\nprotocol = '{protocol}'\n"));
        near(protocol, get(&run(&text, &[]), "goodput_bps"), 12e6, 0.01);
    }
}

#[test]
fn session_stops_with_the_sent_bytes() {
    let text = with(&format!("{BULK}stop = '5s'\n"));
    let output = run(&text, &[]);
    let flow = &output.flows[0];
    near("bytes until the stop", flow.delivered_bytes as f64 * 8.0 / 5.0, 28.6e6, 0.05);
}

#[test]
fn figures_do_not_depend_on_threads() {
    let text = "
title = 't'
duration = '300ms'
warmup = '50ms'
[host]
protocol = 'plmt'
cc = 'reno'
subflows = 4
[topology]
kind = 'fat-tree'
k = 4
rate = '100mbit'
delay = '20us'
buffer = '50pkt'
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
    assert!(one.iter().any(|(name, value)| name == "goodput_bps" && *value > 5e8), "{one:?}");
    assert_eq!(figures(3), one);
}

#[test]
fn unmodelled_traffic_is_refused_with_a_remedy() {
    for (more, said) in [
        ("[[traffic]]\nkind = 'bulk'\nread_rate = '1mbit'\n", "`read_rate`"),
        ("[[traffic]]\nkind = 'request-response'\nrequest = '1kB'\nresponse = '9kB'\n", "ask for answers"),
    ] {
        let plan = plan(&with(more), &[]);
        let error = run_case(&plan.cases[0], 1, &Options { threads: 1, ..Options::default() }).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(said) && text.contains("protocol = \"mptcp\""), "{text}");
    }
}
