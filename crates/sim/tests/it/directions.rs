//! Links whose two directions differ, jitter that reorders, and acknowledgments on other ways than their data's.

use crate::common::{figures, near, run};

const HEAD: &str = "title = 't'\nduration = '10s'\nwarmup = '2s'\n[host]\ncc = 'reno'\nprotocol = 'tcp'\n";

fn goodput(text: &str, set: &[&str]) -> f64 {
    run(&format!("{HEAD}{text}"), set).metrics.goodput_bps.unwrap()
}

/// An acknowledgment of 64 bytes per two segments of 1448: where nothing else limits, the way back does. Its queue must
/// lose none of them, or fewer would acknowledge as much.
#[test]
fn slow_reverse_path_limits_goodput_to_two_segments_per_ack() {
    let text = "[topology]\nkind = 'parallel-paths'\npaths = 1\nrate = '100mbit'\ndelay = '5ms'\nbuffer = '1MB'\n\
                reverse = { rate = '200kbit' }\n[[traffic]]\nkind = 'bulk'\n";
    let per_ack = 2.0 * 1448.0 * 8.0;
    for kbit in [100.0, 200.0, 400.0] {
        let set = ["receive_buffer=200kB", &format!("topology.reverse.rate={kbit}kbit")];
        near(set[1], goodput(text, &set), kbit * 1e3 / (64.0 * 8.0) * per_ack, 0.02);
    }
}

const DUMBBELL: &str = "[topology]\nkind = 'dumbbell'\npairs = 1\nrate = '40mbit'\ndelay = '5ms'\naccess_rate = '1gbit'\n\
                        reverse = { rate = '8mbit', delay = '20ms', buffer = '300kB' }\n";
const GRAPH: &str = "[topology]\nkind = 'graph'\nhosts = ['left0', 'right0']\nlinks = [\
                     { from = 'left0', to = 's', rate = '1gbit', delay = '0s' },\
                     { from = 's', to = 'right0', rate = '40mbit', delay = '5ms', \
                     reverse = { rate = '8mbit', delay = '20ms', buffer = '300kB' } }]\n";
const PATHS: &str = "[topology]\nkind = 'parallel-paths'\npaths = [{ name = 'a', reverse = { delay = '20ms' } }]\n\
                     rate = '40mbit'\ndelay = '5ms'\nreverse = { rate = '8mbit', delay = '1ms', buffer = '300kB' }\n";

#[test]
fn each_direction_has_its_own_rate_and_rtt_sums_both_delays() {
    let payload = 1448.0 / 1500.0;
    for (topology, left, right) in
        [(DUMBBELL, "left0", "right0"), (GRAPH, "left0", "right0"), (PATHS, "client", "server")]
    {
        let one = |from, to| {
            let text = format!("{HEAD}{topology}[[traffic]]\nkind = 'bulk'\nfrom = '{from}'\nto = '{to}'\n");
            run(&text, &[]).metrics
        };
        let (there, back) = (one(left, right), one(right, left));
        near(topology, there.goodput_bps.unwrap(), 40e6 * payload, 0.03);
        near(topology, back.goodput_bps.unwrap(), 8e6 * payload, 0.03);
        let least = there.rtt_us.unwrap().p50.min(back.rtt_us.unwrap().p50);
        assert!((25_000.0..60_000.0).contains(&least), "{topology}: {least}");
    }
}

#[test]
fn marking_rule_applies_to_its_direction_only() {
    let text = "[topology]\nkind = 'dumbbell'\npairs = 1\nrate = '40mbit'\ndelay = '2ms'\naccess_rate = '1gbit'\n\
                buffer = '300kB'\nreverse = { marking = { rule = 'threshold', at = '30kB' } }\n";
    let marks = |from: &str, to: &str| {
        let traffic = format!("[[traffic]]\nkind = 'bulk'\nfrom = '{from}'\nto = '{to}'\necn = true\n");
        run(&format!("{HEAD}{text}{traffic}"), &[]).metrics.ce_marks.unwrap()
    };
    assert_eq!(marks("left0", "right0"), 0);
    assert!(marks("right0", "left0") > 10);
}

/// Time order (RACK) takes what is overtaken by more than a quarter of a round trip for lost, until it has learned better.
#[test]
fn jitter_reorders_only_if_enabled() {
    let text = "[topology]\nkind = 'parallel-paths'\npaths = 1\nrate = '50mbit'\ndelay = '10ms'\njitter = '20ms'\n\
                buffer = '1MB'\n[[traffic]]\nkind = 'bulk'\nconnections = 4\n";
    let resent = |set: &[&str]| run(&format!("{HEAD}{text}"), set).metrics.retransmits.unwrap();
    let (kept, free) = (resent(&["receive_buffer=64KiB"]), resent(&["receive_buffer=64KiB", "reorder=true"]));
    assert_eq!(kept, 0, "the window fits the buffer, and nothing is overtaken");
    assert!(free > 0, "{free}");
}

const TWO_WAYS: &str = "title = 't'\nduration = '10s'\nwarmup = '2s'\n[host]\ncc = 'reno'\nreceive_buffer = '1MiB'\n\
                        [topology]\nkind = 'parallel-paths'\nrate = '10mbit'\ndelay = '5ms'\n\
                        paths = [{ name = 'a', reverse = { delay = '300ms' } }, { name = 'b' }]\n\
                        [[traffic]]\nname = 'x'\nkind = 'bulk'\n";

#[test]
fn ack_path_is_set_per_entry_or_host() {
    let rtt_ms = |set: &[&str]| figures(&run(TWO_WAYS, set))["paths.a.rtt_us.p50"] / 1e3;
    // 10 ms there and back over the second path, 305 ms over the first; a queue adds 120 ms at most.
    assert!(rtt_ms(&[]) > 305.0);
    for set in ["host.ack_path=best", "traffic.x.ack_path=best"] {
        assert!(rtt_ms(&[set]) < 130.0, "{set}: {}", rtt_ms(&[set]));
    }
    assert!(rtt_ms(&["host.ack_path=best", "traffic.x.ack_path=fixed"]) > 305.0, "the entry's counts");
}

/// All acknowledgments go over the second path, until it dies with them.
#[test]
fn dead_ack_path_is_left() {
    let event = "[[event]]\nat = '4s'\nkind = 'link-down'\nlink = 'b'\n";
    for policy in ["best", "fixed"] {
        let output = run(&format!("{TWO_WAYS}{event}"), &[&format!("ack_path={policy}"), "interval=500ms"]);
        let points = output.series.iter().filter(|p| p.entity == "a" && p.metric == "goodput_bps");
        let last = points.last().unwrap().value;
        // After a timeout one packet more per round trip of 305 ms.
        assert!(last > 0.5e6, "{policy}: {last}");
    }
}

#[test]
fn entry_has_its_own_scheduler() {
    let duplicates = |set: &[&str]| {
        let output = run(&TWO_WAYS.replace("reverse = { delay = '300ms' }", ""), set);
        output.metrics.goodput_bps.unwrap()
    };
    let twice = duplicates(&[]);
    let redundant = duplicates(&["traffic.x.scheduler=redundant"]);
    near("both paths carry the same", redundant, twice / 2.0, 0.1);
    near("the hosts' counts elsewhere", duplicates(&["host.scheduler=redundant"]), redundant, 1e-9);
    near(
        "not here",
        duplicates(&["host.scheduler=redundant", "traffic.x.scheduler=lowest-rtt"]),
        twice,
        1e-9,
    );
}
