//! Paths that share a bottleneck are found, and twins are left alone.

use vmcc_metrics::observed::Connection;
use vmcc_scenario::{Document, Overrides};
use vmcc_sim::{Options, observe_case};

/// One VM whose two vNICs are mapped to the NICs that are named: two of equal rate and delay, or one.
const TWINS: &str = r#"
title = "Twins"
duration = "8s"
warmup = "4s"
runs = 1
[host]
cc = "vmcc"
[topology]
kind = "virtual-host"
vms = 1
nics = 2
vnics = 2
vm_rate = "1gbit"
path_rate = "100mbit"
path_delay = "250us"
path_buffer = "1000pkt"
path_marking = { rule = "threshold", at = "30kB" }
buffer = "1000pkt"
[[traffic]]
kind = "bulk"
from = "vm0"
to = "client"
"#;

fn flows(nics: &str, connections: u32, seed: u64, more: &[&str]) -> Vec<Connection> {
    let mut set = vec![format!("nic_of_vnic={nics}"), format!("connections={connections}")];
    set.extend(more.iter().map(|s| (*s).to_owned()));
    run(TWINS, set, seed)
}

fn run(scenario: &str, set: Vec<String>, seed: u64) -> Vec<Connection> {
    let plan = Document::parse("twins", scenario)
        .and_then(|d| d.plan(&Overrides { set, ..Overrides::default() }))
        .unwrap_or_else(|e| panic!("{e}"));
    let seen = observe_case(&plan.cases[0], seed, &Options { threads: 1, ..Options::default() });
    seen.unwrap_or_else(|e| panic!("{e}")).connections
}

fn closed(flow: &Connection) -> usize {
    flow.subflows.iter().filter(|subflow| subflow.closed_at.is_some()).count()
}

fn mbit(flows: &[Connection]) -> f64 {
    flows.iter().map(|flow| flow.delivered_bytes as f64 * 8.0 / 8e6).sum()
}

/// Two NICs of 100 Mbit/s carry 190 of payload, whatever they have in common but a queue.
#[test]
fn twins_keep_both_paths() {
    for connections in [1, 2, 5, 10] {
        for seed in 1..4 {
            let flows = flows("[0, 1]", connections, seed, &[]);
            println!("{connections} connections: {:.1} Mbit/s", mbit(&flows));
            let all: Vec<usize> = flows.iter().map(closed).collect();
            assert!(all.iter().all(|closed| *closed == 0), "{connections} connections, seed {seed}: {all:?}");
            assert!(mbit(&flows) > 187.0, "{connections} connections, seed {seed}: {:.1}", mbit(&flows));
        }
    }
}

#[test]
fn one_of_two_paths_through_one_nic_is_closed() {
    for connections in [1, 2, 5, 10] {
        let flows = flows("[0, 0]", connections, 1, &[]);
        let all: Vec<usize> = flows.iter().map(closed).collect();
        let when = flows.iter().flat_map(|f| &f.subflows).filter_map(|s| s.closed_at);
        let when: Vec<u64> = when.map(|at| at.us() / 1000).collect();
        println!("{connections} connections: closed after {when:?} ms, {:.1} Mbit/s", mbit(&flows));
        assert!(all.iter().all(|closed| *closed <= 1), "{connections} connections: {all:?}");
        // Of ten, twenty subflows are at their floor and every packet is marked: some are found, later.
        let least = if connections < 10 { connections as usize } else { 1 };
        assert!(all.iter().sum::<usize>() >= least, "{connections} connections: {all:?}");
        assert!(mbit(&flows) > 93.5, "{connections} connections: {:.1}", mbit(&flows));
    }
}

const POOL: &str = "host.pool_routes=true";

/// Alone, some of ten find out within the same time.
#[test]
fn ten_pooled_connections_through_one_nic_keep_one_path_each() {
    for seed in 1..4 {
        let all: Vec<usize> = flows("[0, 0]", 10, seed, &[POOL]).iter().map(closed).collect();
        assert!(all.iter().all(|closed| *closed == 1), "seed {seed}: {all:?}");
    }
}

#[test]
fn pooled_connections_through_two_nics_keep_both_paths() {
    for connections in [3, 10, 30] {
        for seed in 1..4 {
            let flows = flows("[0, 1]", connections, seed, &[POOL]);
            let all: Vec<usize> = flows.iter().map(closed).collect();
            assert!(all.iter().all(|closed| *closed == 0), "{connections} connections, seed {seed}: {all:?}");
            assert!(mbit(&flows) > 187.0, "{connections} connections, seed {seed}: {:.1}", mbit(&flows));
        }
    }
}

/// Paths that each connection closes, and bytes that it delivers.
fn outcome(connections: u32, more: &[&str]) -> Vec<(usize, u64)> {
    let flows = flows("[0, 0]", connections, 1, more);
    flows.iter().map(|flow| (closed(flow), flow.delivered_bytes)).collect()
}

#[test]
fn pool_of_one_or_two_connections_changes_nothing() {
    for connections in [1, 2] {
        assert_eq!(outcome(connections, &[]), outcome(connections, &[POOL]), "{connections} connections");
    }
}

/// Other detectors keep other state.
#[test]
fn pool_changes_nothing_of_other_detectors() {
    for detector in ["counts", "events", "statistics"] {
        let setting = format!("params.vmcc.detector={detector}");
        assert_eq!(outcome(5, &[&setting]), outcome(5, &[&setting, POOL]), "{detector}");
    }
}

/// A verdict holds for the routes: a connection that begins after it has one path.
#[test]
fn connection_that_begins_after_the_verdict_opens_one_path() {
    let later =
        "[[traffic]]\nname = \"later\"\nkind = \"bulk\"\nfrom = \"vm0\"\nto = \"client\"\nstart = \"6s\"\n";
    for (nics, paths) in [("[0, 0]", 1), ("[0, 1]", 2)] {
        let set = [format!("nic_of_vnic={nics}"), "traffic.bulk.connections=4".into(), POOL.into()];
        let flows = run(&format!("{TWINS}name = \"bulk\"\n{later}"), set.to_vec(), 1);
        let last = flows.iter().max_by_key(|flow| flow.start).expect("five");
        let opened = last.subflows.iter().filter(|subflow| subflow.established).count();
        assert_eq!(opened, paths, "{nics}");
    }
}

/// The paper's test, which compares how many marks there were, is there still: it closes one of two twins.
#[test]
fn counts_of_marks_close_a_twin() {
    let set = ["params.vmcc.detector=counts", "params.vmcc.tests=repeated"];
    let flows = flows("[0, 1]", 2, 1, &set);
    assert_eq!(flows.iter().map(closed).collect::<Vec<_>>(), [1, 1]);
    let off = self::flows("[0, 0]", 1, 1, &["params.vmcc.trigger=0"]);
    assert_eq!(closed(&off[0]), 0, "a trigger of 0 turns detection off");
}

/// Without marks the windows of twins grow together, and what they lose they lose together.
#[test]
fn tail_drop_twins_stay_and_one_of_two_on_one_nic_is_closed() {
    let marking = "path_marking = { rule = \"threshold\", at = \"30kB\" }\n";
    let tail_drop =
        TWINS.replace(marking, "").replace("path_buffer = \"1000pkt\"", "path_buffer = \"60pkt\"");
    assert!(!tail_drop.contains("path_marking") && tail_drop.contains("60pkt"));
    for (nics, expected) in [("[0, 1]", 0), ("[0, 0]", 1)] {
        for (connections, seed) in [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (5, 1)] {
            let set = vec![format!("nic_of_vnic={nics}"), format!("connections={connections}")];
            let all: Vec<usize> = run(&tail_drop, set, seed).iter().map(closed).collect();
            let right = all.iter().all(|closed| *closed == expected);
            assert!(right, "{nics}, {connections} connections, seed {seed}: {all:?}");
        }
    }
}

/// The closed paths of each connection of a VM that recognizes sleep and is off now and then.
fn asleep(nics: &str, connections: u32, detector: &str, times: [&str; 2], seed: u64) -> Vec<usize> {
    let [on, off] = times;
    let event = format!(
        "[[event]]\nat = \"0s\"\nkind = \"deschedule\"\nhost = \"vm0\"\non = \"{on}\"\noff = \"{off}\"\n"
    );
    let scenario = format!("{TWINS}{event}").replace("\"vmcc\"", "\"vmcc_awake\"");
    let set = vec![
        format!("nic_of_vnic={nics}"),
        format!("connections={connections}"),
        format!("params.vmcc_awake.detector={detector}"),
    ];
    run(&scenario, set, seed).iter().map(closed).collect()
}

/// A sleep is on all paths at once, and no queue. What five connections do at once is not independent of each other: where
/// sleep is short and often, of 200 that were counted 11 took a twin for the same path.
#[test]
fn twins_of_an_awake_vm_keep_both_paths() {
    for times in [["30ms", "5ms"], ["30ms", "90ms"], ["120ms", "360ms"], ["3ms", "30ms"]] {
        for (detector, connections) in
            [("correlation", 1), ("correlation", 5), ("events", 1), ("statistics", 1)]
        {
            let all: Vec<_> =
                (1..5).flat_map(|seed| asleep("[0, 1]", connections, detector, times, seed)).collect();
            let most = if connections > 1 && times[1] == "5ms" { 3 } else { 0 };
            assert!(all.iter().sum::<usize>() <= most, "{detector}, {times:?}: {all:?}");
        }
    }
}

/// Between sleeps there are bins enough.
#[test]
fn one_of_two_paths_through_one_nic_of_an_awake_vm_is_closed() {
    for seed in 1..5 {
        assert_eq!(asleep("[0, 0]", 1, "correlation", ["120ms", "360ms"], seed), [1], "seed {seed}");
    }
}

/// A VM that does not run for some milliseconds sends nothing on any path, and then on all at once.
#[test]
fn twins_of_a_descheduled_vm_keep_both_paths() {
    for off in ["2ms", "5ms"] {
        let event = format!(
            "[[event]]\nat = \"0s\"\nkind = \"deschedule\"\nhost = \"vm0\"\non = \"30ms\"\noff = \"{off}\"\n"
        );
        let scenario = format!("{TWINS}{event}");
        for (nics, expected) in [("[0, 1]", 0), ("[0, 0]", 1)] {
            for seed in 1..6 {
                let flows = run(&scenario, vec![format!("nic_of_vnic={nics}")], seed);
                assert_eq!(closed(&flows[0]), expected, "{nics}, off for {off}, seed {seed}");
            }
        }
    }
}

const MARKED: &str = "buffer = \"1000pkt\", marking = { rule = \"threshold\", at = \"30kB\" }";
const TAIL_DROP: &str = "buffer = \"60pkt\"";

/// Two disjoint links, and datagrams that come and go on both at the same moments.
fn bursts(links: [&str; 2], rate: &str, on: &str, off: &str) -> String {
    let mut text = String::from(
        "title = \"Bursts in step\"\nduration = \"8s\"\nwarmup = \"4s\"\nruns = 1\n[host]\ncc = \"vmcc\"\n",
    );
    text += "[topology]\nkind = \"graph\"\nrouting = \"explicit\"\nhosts = [\"a\", \"z\", \"x\", \"y\"]\nroutes = [\n";
    for i in 0..2 {
        text += &format!("{{ name = \"r{i}\", via = [\"a\", \"n{i}\", \"m{i}\", \"z\"] }},\n");
        text += &format!("{{ name = \"x{i}\", via = [\"x\", \"n{i}\", \"m{i}\", \"y\"] }},\n");
    }
    text += "]\nlinks = [\n";
    for (i, queue) in links.into_iter().enumerate() {
        text += &format!(
            "{{ from = \"n{i}\", to = \"m{i}\", rate = \"100mbit\", delay = \"150us\", {queue} }},\n"
        );
        for (from, to, delay) in [("a", "n", 150), ("x", "n", 1)] {
            text += &format!(
                "{{ from = \"{from}\", to = \"{to}{i}\", rate = \"1gbit\", delay = \"{delay}us\" }},\n"
            );
        }
        for to in ["y", "z"] {
            text += &format!("{{ from = \"m{i}\", to = \"{to}\", rate = \"1gbit\", delay = \"1us\" }},\n");
        }
    }
    text += "]\n[[traffic]]\nname = \"own\"\nkind = \"bulk\"\nfrom = \"a\"\nto = \"z\"\nsubflows = 2\n";
    for i in 0..2 {
        text += &format!(
            "[[traffic]]\nname = \"burst{i}\"\nkind = \"on-off-udp\"\nfrom = \"x\"\nto = \"y\"\ncompeting = true\n\
             path = \"x{i}\"\nrate = \"{rate}\"\non = \"{on}\"\noff = \"{off}\"\n"
        );
    }
    text
}

/// Bursts in step on both links move both queues as one queue would move, but answer no probe.
#[test]
fn twins_keep_both_paths_under_synchronous_bursts() {
    for links in [[MARKED; 2], [TAIL_DROP; 2], [MARKED, TAIL_DROP]] {
        for (rate, on, off) in
            [("50mbit", "20ms", "50ms"), ("20mbit", "20ms", "50ms"), ("30mbit", "10ms", "20ms")]
        {
            for seed in 1..4 {
                let flows = run(&bursts(links, rate, on, off), Vec::new(), seed);
                let own = flows.iter().find(|flow| flow.subflows.len() == 2).expect("the connection");
                assert_eq!(closed(own), 0, "{links:?}, {rate} for {on} of {off}, seed {seed}");
            }
        }
    }
}

/// Mbit/s of the competing connections, twice as many as `others`.
fn beside(own: u32, others: u32, more: &[&str]) -> f64 {
    let mut scenario = bursts([MARKED; 2], "10kbit", "1ms", "1s");
    for i in 0..2 {
        scenario += &format!(
            "[[traffic]]\nname = \"other{i}\"\nkind = \"bulk\"\nfrom = \"x\"\nto = \"y\"\ncompeting = true\npath = \"x{i}\"\n\
             cc = \"dctcp\"\nconnections = {others}\n"
        );
    }
    let mut set = vec![format!("traffic.own.connections={own}")];
    set.extend(more.iter().map(|s| (*s).to_owned()));
    let flows = run(&scenario, set, 1);
    let all: Vec<usize> = flows.iter().map(closed).collect();
    assert!(all.iter().all(|closed| *closed == 0), "{all:?}");
    mbit(&flows.into_iter().filter(|flow| flow.subflows.len() == 1).collect::<Vec<_>>())
}

/// Probes of windows at the floor are wider windows: other people's share of the queue stays theirs.
#[test]
fn probes_leave_others_their_share() {
    let (off, on) = (beside(8, 8, &["params.vmcc.trigger=0"]), beside(8, 8, &[]));
    println!("the others have {on:.1} of {off:.1} Mbit/s");
    assert!(on > 0.95 * off, "{on:.1} of {off:.1} Mbit/s");
}
