//! Completion times beside those on the empty network.

use crate::common::run;
use vmcc_results::{FlowRecord, RunOutput};

fn slowdowns(output: &RunOutput) -> Vec<f64> {
    output.flows.iter().filter_map(|flow: &FlowRecord| flow.slowdown).collect()
}

/// Slowdown of one transfer on a network that carries nothing else.
fn alone(topology: &str, protocol: &str, size: &str) -> f64 {
    let ends = if topology == TREE { "from = \"h0\"\nto = \"h15\"\n" } else { "" };
    let text = format!(
        "title = \"t\"\nduration = \"20s\"\nwarmup = \"0s\"\n[topology]\n{topology}\n[host]\nprotocol = \"{protocol}\"\ncc = \"reno\"\n\
         [[traffic]]\nkind = \"sized\"\nsize = \"{size}\"\n{ends}"
    );
    let all = slowdowns(&run(&text, &[]));
    assert_eq!(all.len(), 1, "{text}");
    all[0]
}

const DUMBBELL: &str =
    "kind = \"dumbbell\"\npairs = 1\nrate = \"100mbit\"\ndelay = \"2ms\"\naccess_rate = \"1gbit\"";
const TREE: &str = "kind = \"fat-tree\"\nk = 4\nrate = \"1gbit\"\ndelay = \"5us\"";
const PATHS: &str = "kind = \"parallel-paths\"\npaths = 2\nrate = \"50mbit\"\ndelay = \"2ms\"";

#[test]
fn short_single_transfers_take_the_ideal_time() {
    // Packets of the handshake carry more options.
    for topology in [DUMBBELL, TREE] {
        for (size, most) in [("1B", 1.05), ("1448B", 1.05), ("10kB", 1.05)] {
            let found = alone(topology, "tcp", size);
            assert!((1.0..most).contains(&found), "{topology}, {size}: {found}");
        }
    }
}

#[test]
fn long_single_transfers_take_little_more_than_the_ideal_time() {
    for (topology, protocol) in [(DUMBBELL, "tcp"), (PATHS, "mptcp"), (DUMBBELL, "quic")] {
        let found = alone(topology, protocol, "50MB");
        assert!((1.0..1.08).contains(&found), "{topology}, {protocol}: {found}");
    }
}

#[test]
fn requests_take_the_time_of_request_and_response() {
    let text = format!(
        "title = \"t\"\nduration = \"1s\"\nwarmup = \"100ms\"\n[topology]\n{DUMBBELL}\n[host]\nprotocol = \"tcp\"\ncc = \"reno\"\n\
         [[traffic]]\nkind = \"request-response\"\nrequest = \"100B\"\nresponse = \"10kB\"\nthink = \"10ms\"\n"
    );
    let all = slowdowns(&run(&text, &[]));
    // The first one waits for the handshake, too.
    assert!(all.len() > 20 && all[1..].iter().all(|one| (1.0..1.002).contains(one)), "{all:?}");
    assert!((1.5..2.0).contains(&all[0]), "{}", all[0]);
}

#[test]
fn transfers_that_share_a_bottleneck_are_slower() {
    let text = format!(
        "title = \"t\"\nduration = \"20s\"\nwarmup = \"0s\"\n[topology]\n{DUMBBELL}\n[host]\nprotocol = \"tcp\"\ncc = \"reno\"\n\
         [[traffic]]\nkind = \"sized\"\nsize = \"5MB\"\nconnections = 4\n"
    );
    let all = slowdowns(&run(&text, &[]));
    assert!(all.len() == 4 && all.iter().all(|one| *one > 2.0), "{all:?}");
}
