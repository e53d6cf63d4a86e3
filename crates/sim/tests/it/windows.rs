//! One window for all paths of a QUIC connection, and the number of subflows that stay open behind a shared bottleneck.

use crate::common::{get, plan, run, run_threads};

/// Paths that share nothing, each with three TCP connections.
const BUSY: &str = "
title = 't'
duration = '40s'
warmup = '5s'
[host]
protocol = 'quic'
cc = 'reno'
scheduler = 'pipe-cwnd'
[topology]
kind = 'parallel-paths'
paths = [{ name = 'a' }, { name = 'b', delay = '30ms' }, { name = 'c', delay = '40ms' }]
rate = '10mbit'
delay = '20ms'
buffer = '50pkt'
[[traffic]]
name = 'striped'
kind = 'bulk'
";

fn busy() -> String {
    let others = ["a", "b", "c"].map(|path| {
        format!(
            "[[traffic]]\nname = 'tcp-{path}'\nkind = 'bulk'\nconnections = 3\nprotocol = 'tcp'\npath = '{path}'\ncompeting = true\n"
        )
    });
    BUSY.to_owned() + &others.concat()
}

fn goodput_bps(set: &[&str]) -> f64 {
    get(&run(&busy(), set), "traffic.striped.goodput_bps")
}

/// mTCP, section 5.2: beside others on each path only windows of their own take what each path gives.
#[test]
fn combined_window_takes_less_of_busy_paths_than_separate_ones() {
    let one = goodput_bps(&["host.subflows=1"]);
    let (separate, combined) = (goodput_bps(&[]), goodput_bps(&["host.coupling=combined"]));
    assert!(separate > 2.2 * one, "{separate} of {one}");
    assert!(combined < 0.8 * separate, "{combined} of {separate}");
    assert_eq!(goodput_bps(&["host.coupling=separate"]), separate, "that is the default");
    let own = goodput_bps(&["host.coupling=combined", "traffic.striped.coupling=separate"]);
    assert_eq!(own, separate, "the entry's counts");
}

/// Of one path a window of all is its own.
#[test]
fn combined_and_separate_windows_agree_on_one_path() {
    let one = |coupling: &str| {
        run(&busy(), &["host.subflows=1", &format!("host.coupling={coupling}")]).metrics.figures()
    };
    assert_eq!(one("separate"), one("combined"));
}

#[test]
fn combined_window_fills_idle_paths() {
    let text = "
title = 't'
duration = '10s'
warmup = '2s'
[host]
protocol = 'quic'
coupling = 'combined'
scheduler = 'pipe-cwnd'
[topology]
kind = 'parallel-paths'
paths = 2
rate = '20mbit'
delay = '10ms'
buffer = '100pkt'
[[traffic]]
kind = 'bulk'
";
    let output = run(text, &[]);
    for name in ["paths.a.goodput_bps", "paths.b.goodput_bps"] {
        assert!(get(&output, name) > 0.9 * 20e6, "{name}: {}", get(&output, name));
    }
}

/// A path that takes everything and delivers nothing does not keep the window from the other.
#[test]
fn silent_path_does_not_stall_a_combined_window() {
    for (link, left_bps) in [("a", 10e6), ("b", 20e6)] {
        let text = format!(
            "title = 't'\nduration = '8s'\nwarmup = '3s'\n[host]\nprotocol = 'quic'\ncoupling = 'combined'\n\
             [topology]\nkind = 'parallel-paths'\npaths = [{{ name = 'a', rate = '20mbit' }}, {{ name = 'b' }}]\n\
             rate = '10mbit'\ndelay = '10ms'\nbuffer = '50pkt'\n[[traffic]]\nkind = 'bulk'\n\
             [[event]]\nat = '2s'\nkind = 'link-down'\nlink = '{link}'\n"
        );
        let output = run(&text, &[]);
        assert!(get(&output, "stalled_us.max") < 300e3, "{link}: {}", get(&output, "stalled_us.max"));
        assert!(get(&output, "goodput_bps") > 0.85 * left_bps, "{link}: {}", get(&output, "goodput_bps"));
    }
}

#[test]
fn combined_window_results_do_not_depend_on_threads() {
    let text = "
title = 't'
duration = '50ms'
[host]
protocol = 'quic'
coupling = 'combined'
cc = 'cubic'
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
";
    let plan = plan(text, &[]);
    let figures = |threads| run_threads(&plan, 0, 1, threads).metrics.figures();
    let one = figures(1);
    assert!(one.iter().any(|(name, value)| name == "goodput_bps" && *value > 1e9), "{one:?}");
    assert_eq!(figures(2), one);
    assert_eq!(figures(3), one);
}

/// Four paths through one bottleneck that marks; the test of counts takes everything there for alike.
fn closed(set: &[&str]) -> f64 {
    let text = "
title = 't'
duration = '10s'
[host]
cc = 'vmcc'
[host.params.vmcc]
detector = 'counts'
theta = 1000
phi = 1
early = 60000
[topology]
kind = 'virtual-host'
vms = 1
nics = 1
vnics = 4
vm_rate = '100mbit'
path_rate = '20mbit'
path_delay = '5ms'
path_buffer = '100pkt'
path_marking = { rule = 'threshold', at = '20pkt' }
[[traffic]]
kind = 'bulk'
";
    let output = run(text, set);
    assert_eq!(get(&output, "subflows_opened"), 4.0);
    get(&output, "subflows_closed_guard")
}

#[test]
fn min_paths_of_the_host_retains_subflows() {
    for protocol in ["quic", "mptcp"] {
        let protocol = format!("host.protocol={protocol}");
        assert_eq!(closed(&[&protocol]), 3.0, "{protocol}: one is left");
        for (min_paths, expected) in [(1, 3.0), (2, 2.0), (3, 1.0), (4, 0.0), (8, 0.0)] {
            let min_paths = format!("host.min_paths={min_paths}");
            assert_eq!(closed(&[&protocol, &min_paths]), expected, "{protocol} {min_paths}");
        }
    }
    let combined = closed(&["host.protocol=quic", "host.coupling=combined"]);
    assert_eq!(combined, 0.0, "with one window there is nothing to compare");
}
