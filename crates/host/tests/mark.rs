//! Marking on a port of a test network. Needs root: without it these tests fail, they do not skip.

mod common;

use common::{Net, Over, Shape, alone, run, transfer, within};
use std::time::{Duration, Instant};
use vmcc_cc::{Algorithm, Params};
use vmcc_host::Loaded;
use vmcc_host::diag::Diag;
use vmcc_host::mark::{MarkCounters, MarkError, Marker, Threshold, marked_ports, unmark};

const SHAPE: Shape = Shape { rate_mbit: 100, buffer_kb: 300 };

fn dctcp() -> Loaded {
    let algorithm = Algorithm::by_name("dctcp").unwrap();
    Loaded::load(algorithm, &Params::defaults(algorithm)).unwrap_or_else(|e| panic!("{e}"))
}

fn mark(net: &Net, threshold: Threshold) -> Marker {
    Marker::attach_in(&Net::file(&net.client), "p0", threshold).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a transfer for a second; what the marker counted.
fn load_for_a_second(net: &Net, marker: &Marker, port: u16) -> MarkCounters {
    let until = Instant::now() + Duration::from_secs(1);
    transfer(net, Over::Tcp, port, |_| Instant::now() >= until);
    marker.counters().unwrap()
}

#[test]
fn root_ecn_traffic_is_marked_and_its_queue_stays_short() {
    let _alone = alone();
    let loaded = dctcp();
    let net = Net::new(1, Some(SHAPE));
    net.select(loaded.kernel_name());
    let marker = mark(&net, Threshold::Bytes(9_000));
    let counted = load_for_a_second(&net, &marker, 5101);
    println!("{counted:?}");
    assert!(counted.marked > 10 && counted.not_ect < 10, "{counted:?}");
    assert!(counted.max_backlog_bytes < 150_000, "{counted:?}");
    assert!(counted.bytes > 1_000_000, "{counted:?}");
}

#[test]
fn root_traffic_without_ecn_is_counted_not_marked() {
    let _alone = alone();
    let net = Net::new(1, Some(SHAPE));
    net.select("reno");
    let marker = mark(&net, Threshold::Time { delay_ns: 2_400_000, rate_bps: 100_000_000 });
    let counted = load_for_a_second(&net, &marker, 5102);
    assert_eq!(counted.marked, 0, "{counted:?}");
    assert!(counted.not_ect > 50 && counted.max_backlog_bytes > 40_000, "{counted:?}");
}

#[test]
fn root_marking_starts_changes_and_stops_while_traffic_runs() {
    let _alone = alone();
    let loaded = dctcp();
    let net = Net::new(1, Some(SHAPE));
    net.select(loaded.kernel_name());
    let started = Instant::now();
    let mut marker = None;
    let mut counts = Vec::new();
    transfer(&net, Over::Tcp, 5103, |_| {
        let ms = started.elapsed().as_millis();
        match (counts.len(), ms) {
            (0, 500..) => {
                marker = Some(mark(&net, Threshold::Bytes(1 << 30)));
                counts.push(0);
            }
            (1, 1000..) => {
                let marker = marker.as_ref().unwrap();
                counts.push(marker.counters().unwrap().marked);
                marker.set_threshold(Threshold::Bytes(9_000)).unwrap();
            }
            (2, 1500..) => counts.push(marker.take().unwrap().detach().unwrap().marked),
            _ => {}
        }
        ms >= 2000
    });
    assert_eq!(counts.len(), 3);
    assert_eq!(counts[1], 0, "nothing reaches a threshold of 1 GB");
    assert!(counts[2] > 5, "{counts:?}");
    within(&net.client, || assert_eq!(marked_ports().unwrap(), Vec::<String>::new()));
}

#[test]
fn root_backlogs_of_tbf_and_bfifo_count_too() {
    let _alone = alone();
    let loaded = dctcp();
    for (port, queue) in [
        (5104, "tbf rate 100mbit burst 16k limit 300k"),
        (5105, "handle 1: tbf rate 100mbit burst 16k limit 300k"),
    ] {
        let net = Net::new(1, None);
        net.select(loaded.kernel_name());
        run(&format!("ip -n {} link set p0 gso_max_segs 1", net.client));
        run(&format!("tc -n {} qdisc add dev p0 root {queue}", net.client));
        if queue.starts_with("handle") {
            run(&format!("tc -n {} qdisc add dev p0 parent 1: bfifo limit 300k", net.client));
        }
        let marker = mark(&net, Threshold::Bytes(9_000));
        let counted = load_for_a_second(&net, &marker, port);
        assert!(counted.marked > 10, "{queue}: {counted:?}");
    }
}

#[test]
fn root_a_port_is_marked_once_and_leftovers_are_removed() {
    let _alone = alone();
    let net = Net::new(1, None);
    let marker = mark(&net, Threshold::Bytes(1));
    let again = Marker::attach_in(&Net::file(&net.client), "p0", Threshold::Bytes(1));
    assert!(matches!(again, Err(MarkError::AlreadyMarked { .. })));
    marker.keep();
    within(&net.client, || {
        assert_eq!(marked_ports().unwrap(), ["p0"]);
        assert!(unmark("p0").unwrap());
        assert!(!unmark("p0").unwrap());
        assert_eq!(marked_ports().unwrap(), Vec::<String>::new());
        assert!(matches!(unmark("p9"), Err(MarkError::NoSuchPort { .. })));
    });
}

#[test]
fn root_a_marked_port_may_disappear() {
    let _alone = alone();
    let net = Net::new(1, None);
    let marker = mark(&net, Threshold::Bytes(1));
    run(&format!("ip -n {} link del p0", net.client));
    marker.detach().unwrap();
}

#[test]
fn root_the_receiver_echoes_every_mark() {
    let _alone = alone();
    let loaded = dctcp();
    let net = Net::new(1, Some(SHAPE));
    net.select(loaded.kernel_name());
    // A low threshold: many marks, in runs and alone.
    let marker = mark(&net, Threshold::Bytes(6_000));
    let until = Instant::now() + Duration::from_secs(3);
    let (mut echoed, mut again) = (0, 0);
    transfer(&net, Over::Tcp, 5106, |_| {
        if Instant::now() < until {
            return false;
        }
        let ours = || {
            let all = Diag::open().unwrap().subflows().unwrap();
            all.into_iter().find(|s| s.remote.port() == 5106).unwrap()
        };
        // Let everything that is written arrive, and its acknowledgments come back.
        while ours().not_sent_bytes > 0 || ours().in_flight_pkt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let end = ours();
        echoed = end.delivered_ce_pkt;
        again = end.bytes_sent.saturating_sub(end.bytes_acked).div_ceil(u64::from(end.mss_bytes));
        true
    });
    let marked = marker.counters().unwrap().marked;
    println!("marked {marked}, echoed {echoed}, sent again {again}");
    assert!(marked > 100, "{marked}");
    // A packet that a busy machine drops behind the marker is marked twice and delivered once.
    let unexplained = marked.abs_diff(u64::from(echoed)).saturating_sub(again);
    assert!(unexplained <= 5 + marked / 200, "marked {marked}, echoed {echoed}, sent again {again}");
}
