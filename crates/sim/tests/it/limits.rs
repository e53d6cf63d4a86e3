//! Limits of connections: one scenario for each, with one path and with two.

use crate::common::{get, run};
use vmcc_results::RunOutput;

const LIMITS: [&str; 4] = ["cwnd_limited", "rwnd_limited", "sndbuf_limited", "app_limited"];

fn scenario(traffic: &str) -> String {
    format!(
        "title='t'\nduration='5s'\n[host]\ncc='lia'\n[topology]\nkind='parallel-paths'\npaths=2\nrate='50mbit'\ndelay='10ms'\n\
         buffer='60kB'\n[[traffic]]\nname='it'\nkind='bulk'\n{traffic}"
    )
}

/// Shares of all limits, which add up.
fn shares(output: &RunOutput) -> [f64; 4] {
    let shares = LIMITS.map(|limit| get(output, limit));
    let sum: f64 = shares.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "{shares:?} add up to {sum}");
    assert_eq!(shares, LIMITS.map(|limit| get(output, &format!("traffic.it.{limit}"))), "the only entry");
    shares
}

/// Asserts that a setting makes a limit dominate, over TCP and over MPTCP.
fn dominates(which: usize, set: &[&str], traffic: &str) {
    for protocol in ["tcp", "mptcp"] {
        let protocol = format!("protocol={protocol}");
        let output = run(&scenario(traffic), &[set, &[&protocol]].concat());
        let shares = shares(&output);
        assert!(shares[which] > 0.9, "{protocol} {set:?}: {} of {shares:?}", LIMITS[which]);
    }
}

#[test]
fn congestion_window_limits_bulk_transfers() {
    dominates(0, &[], "");
    dominates(0, &["topology.loss=0.01"], "");
}

#[test]
fn receive_window_limits_behind_a_small_buffer_or_a_slow_reader() {
    dominates(1, &["host.receive_buffer=64kB"], "");
    dominates(1, &["host.receive_buffer=64kB"], "read_rate='1mbit'\n");
}

#[test]
fn send_buffer_limits_where_it_holds_less_than_the_path() {
    dominates(2, &["host.send_buffer=32kB"], "");
    dominates(2, &["host.send_buffer=3kB"], "");
}

/// With data always in flight, and seldom.
#[test]
fn application_limits_below_the_path_rate() {
    for rate in ["20mbit", "100kbit"] {
        dominates(3, &[], &format!("write_rate='{rate}'\n"));
    }
}

#[test]
fn time_after_the_last_ack_is_not_counted() {
    let text = scenario("").replace("kind='bulk'", "kind='sized'\nsize='1MB'\nprotocol='tcp'\n");
    let output = run(&text, &[]);
    let shares = shares(&output);
    // Its last window in flight is all that it has.
    assert!(shares[0] > 0.7 && shares[3] < 0.3, "{shares:?}");
}

/// Clients that think are limited by their application; transfers over QUIC say nothing.
#[test]
fn requests_are_application_limited_and_quic_reports_none() {
    let asks = "request='1kB'\nresponse='10kB'\nthink='100ms'\nprotocol='tcp'\n";
    let output = run(&scenario(asks).replace("kind='bulk'", "kind='request-response'"), &[]);
    assert!(shares(&output)[3] > 0.9, "{:?}", shares(&output));
    let quic = run(&scenario("protocol='quic'\n"), &[]);
    assert_eq!(LIMITS.map(|limit| quic.metrics.get(limit)), [None; 4]);
}

/// At saturation, requests that are read or written are limited by the window of what is large, whatever the other direction does.
#[test]
fn requests_are_limited_in_the_direction_of_their_payload() {
    for sizes in ["request='1kB'\nresponse='1MB'\n", "request='1MB'\nresponse='1kB'\n"] {
        let text =
            scenario(&format!("{sizes}connections=4\n")).replace("kind='bulk'", "kind='request-response'");
        for protocol in ["tcp", "mptcp"] {
            let shares = shares(&run(&text, &[&format!("protocol={protocol}")]));
            assert!(shares[0] > 0.7 && shares[3] < 0.25, "{protocol} {sizes:?}: {shares:?}");
        }
    }
}

/// The default send buffer of 4 MiB at 10 Gbit/s and a round trip of 20 ms carries 1.7 Gbit/s.
#[test]
fn default_send_buffer_limits_long_fat_paths() {
    let text = scenario("protocol='tcp'\n").replace("duration='5s'", "duration='1s'");
    let set = ["topology.rate=10gbit", "topology.buffer=30MB", "host.receive_buffer=64MiB"];
    let output = run(&text, &set);
    assert!(get(&output, "goodput_bps") < 2e9, "{:?}", output.metrics);
    assert!(shares(&output)[2] > 0.6, "{:?}", shares(&output));
}
