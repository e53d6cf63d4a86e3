use super::*;
use crate::observed::{
    Answers, Closed, Counters, End, Energy, Entry, Links, LinksSample, Moment, Off, Part, Path, Sample,
    Subflow,
};
use hdrhistogram::Histogram;
use std::sync::Arc;
use vmcc_network::{Framing, HostId, Lead, Topology, Unloaded};

fn secs(s: u64) -> Moment {
    Moment::from_us(s * 1_000_000)
}

fn entry(label: &str, competing: bool, start: u64, stop: u64) -> Entry {
    let (start, stop) = (secs(start), secs(stop));
    Entry { label: label.into(), competing, start, stop, ..Entry::default() }
}

fn connection(entry: usize, window_bytes: f64, counted: u64) -> Connection {
    let counters =
        Counters { retransmits: Some(counted), ce_marks: Some(10 * counted), ..Counters::default() };
    let sample =
        |at, acked| Sample { at: secs(at), srtt_8us: 8_000 + 8 * at as u32, acked, ..Sample::default() };
    let samples = vec![sample(1, 10), sample(5, 20), sample(6, 20), sample(7, 30)];
    let subflow = Subflow { path: Some(0), established: true, counters, samples, ..Subflow::default() };
    let stop = secs(10);
    Connection {
        entry,
        window_bytes,
        established: true,
        stop,
        subflows: vec![subflow],
        ..Connection::default()
    }
}

/// One measured connection; beside it competing traffic from 4 s to 9 s, all on one path.
fn run() -> Observed {
    let part = |from, to, ours, theirs| Part {
        from: secs(from),
        to: secs(to),
        paths: vec![ours],
        competing_paths: vec![theirs],
        entries: vec![ours, theirs],
    };
    Observed {
        window: (secs(2), secs(10)),
        interval_ps: 1_000_000_000_000,
        entries: vec![entry("ours", false, 0, 10), entry("theirs", true, 4, 9)],
        paths: vec![Path { name: "a".into(), marked_pkt: Some(200), ..Path::default() }],
        connections: vec![
            connection(0, 8e6, 3),
            Connection { start: secs(4), stop: secs(9), ..connection(1, 5e6, 7) },
        ],
        parts: vec![part(0, 2, 9e6, 0.0), part(2, 4, 2e6, 0.0), part(4, 9, 5e6, 15e6), part(9, 10, 1e6, 0.0)],
        dropped_pkt: Some(17),
        ..Observed::default()
    }
}

#[test]
fn competing_traffic_is_excluded_from_measured_figures() {
    let m = figures(&run()).metrics;
    assert_eq!((m.goodput_bps, m.competing_goodput_bps), (Some(8e6), Some(8e6)));
    assert_eq!((m.retransmits, m.ce_marks, m.timeouts), (Some(3), Some(30), None));
    assert_eq!((m.established, m.jain, m.drops), (Some(1), Some(1.0), Some(17)));
    assert_eq!((m.paths[0].ce_marks, m.paths[0].goodput_bps), (Some(30), Some(8e6)));
    assert_eq!(m.get("paths.a.marked_pkt"), Some(200.0), "of all traffic");
    assert_eq!(m.get("competing_share"), Some(0.75), "only while both were there");
    assert_eq!(m.get("traffic.theirs.retransmits"), Some(7.0));
    assert_eq!((m.completed, m.unfinished, m.fct_us), (None, None, None));
}

#[test]
fn subflow_without_progress_gives_no_rtt_samples() {
    let m = figures(&run()).metrics;
    // At 1 s it was warming up, at 6 s nothing had been acknowledged since 5 s.
    let rtt = m.rtt_us.unwrap();
    assert_eq!((rtt.samples, rtt.min, rtt.max), (Some(2), Some(1005.0), Some(1007.0)));
    assert_eq!(m.paths[0].rtt_us, m.rtt_us);
}

#[test]
fn subflow_never_established_is_not_counted_as_closed() {
    let mut seen = run();
    let subflow = |established, end| Subflow { path: Some(0), established, end, ..Subflow::default() };
    seen.connections[0].subflows = vec![
        subflow(true, End::WithConnection),
        subflow(true, End::Closed(Closed::Guard)),
        subflow(true, End::Closed(Closed::Timeout)),
        subflow(false, End::Closed(Closed::Timeout)),
        // One that moves; one that was closed, and whose second SYN nobody answered.
        subflow(true, End::Moved),
        Subflow { continues: true, ..subflow(true, End::WithConnection) },
        Subflow { earlier: vec![Closed::PathManager], ..subflow(false, End::Closed(Closed::Timeout)) },
    ];
    let m = figures(&seen).metrics;
    let counted = ["opened", "closed", "closed_guard", "closed_timeout", "closed_path_manager", "closed_end"]
        .map(|of| m.get(&format!("subflows_{of}")));
    assert_eq!(counted, [5.0, 3.0, 1.0, 1.0, 1.0, 2.0].map(Some));
    assert_eq!(
        (m.get("traffic.theirs.subflows_opened"), m.get("traffic.theirs.subflows_closed")),
        (Some(1.0), None)
    );
}

#[test]
fn application_pauses_are_no_stall() {
    let mut seen = run();
    assert_eq!(figures(&seen).metrics.get("stalled_us"), None);
    seen.connections[0].stalled_us = Some(2e6);
    seen.connections[1].stalled_us = Some(9e6);
    seen.connections.push(Connection {
        held_bytes: Some(7),
        reinjected_bytes: Some(5),
        ..connection(0, 0.0, 0)
    });
    assert_eq!(figures(&seen).metrics.get("reinjected_bytes"), None, "of one nobody knows");
    seen.connections[0].reinjected_bytes = Some(2);
    assert_eq!(figures(&seen).metrics.get("reinjected_bytes"), Some(7.0));
    let m = figures(&seen).metrics;
    assert_eq!(
        (m.get("stalled_us.max"), m.get("stalled_us.samples")),
        (Some(2e6), Some(1.0)),
        "others' is not ours"
    );
    assert_eq!(m.get("held_bytes"), Some(7.0));
}

#[test]
fn descheduled_times_are_summed_over_hosts() {
    let mut seen = run();
    assert_eq!(figures(&seen).metrics.get("vm_off_total_us"), None, "none is ever off");
    let off = |us: &[u64]| {
        let mut lengths_ns = Histogram::new(2).unwrap();
        us.iter().for_each(|us| lengths_ns.record(us * 1_000).unwrap());
        Off {
            host: format!("vm{}", us.len()),
            total_us: us.iter().sum::<u64>() as f64,
            stopped_ns: us.get(1).map(|_| lengths_ns.clone()),
            lengths_ns,
            times: us.iter().map(|us| (Moment::from_us(2 * us), *us as f64)).collect(),
            lost_pkt: Some(us.len() as u64),
        }
    };
    seen.off = vec![off(&[100, 300]), off(&[]), off(&[500])];
    let made = figures(&seen);
    let times = made.series.iter().filter(|point| point.metric == "vm_off_us");
    let times: Vec<_> = times.map(|point| (point.t_us, point.entity, point.value)).collect();
    assert_eq!(times, [(200, "vm2", 100.0), (600, "vm2", 300.0), (1000, "vm1", 500.0)]);
    let m = made.metrics;
    assert_eq!(m.get("vm_stopped_us.samples"), Some(2.0), "nothing stopped the others");
    assert_eq!(
        (m.get("vm_off_total_us"), m.get("vm_off_us.samples"), m.get("vm_off_lost")),
        (Some(900.0), Some(3.0), Some(3.0))
    );
    let near = |statistic: &str, us: f64| {
        (m.get(&format!("vm_off_us.{statistic}")).unwrap() / us - 1.0).abs() < 0.01
    };
    assert!(near("max", 500.0) && near("p50", 300.0) && near("min", 100.0), "{m:?}");
}

#[test]
fn one_missing_count_makes_the_sum_unknown() {
    let mut seen = run();
    seen.connections[0].subflows.push(Subflow { path: Some(0), ..Subflow::default() });
    let m = figures(&seen).metrics;
    assert_eq!((m.retransmits, m.paths[0].ce_marks), (None, None));
    seen.connections.clear();
    let m = figures(&seen).metrics;
    assert_eq!((m.retransmits, m.paths[0].retransmits), (None, Some(0)));
}

#[test]
fn transfers_are_counted_by_start_time() {
    let mut seen = run();
    let transfer = |start, received: Option<u64>| Connection {
        job: Job::Transfer(1_000_000),
        start: secs(start),
        received: received.map(secs),
        ..connection(0, 1e6, 0)
    };
    seen.connections = vec![transfer(1, Some(3)), transfer(4, Some(6)), transfer(8, None)];
    let Figures { metrics: m, flows, .. } = figures(&seen);
    assert_eq!((m.completed, m.unfinished), (Some(2), Some(1)));
    assert_eq!(m.fct_us.map(|fct| (fct.mean, fct.samples)), Some((2e6, Some(1))));
    assert_eq!(m.flow_goodput_bps.map(|rate| (rate.mean, rate.samples)), Some((4e6, Some(1))));
    assert_eq!(flows.iter().map(|flow| flow.measured).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn time_series_values_are_stamped_at_the_interval_end() {
    let mut seen = run();
    seen.parts_per_interval = true;
    let series = figures(&seen).series;
    let of = |entity: &str, metric: &str| {
        let points = series.iter().filter(|point| point.entity == entity && point.metric == metric);
        points.map(|point| (point.t_us / 1_000_000, point.value)).collect::<Vec<_>>()
    };
    assert_eq!(of("a", "srtt_us"), [(1, 1001.0), (5, 1005.0), (6, 1006.0), (7, 1007.0)]);
    assert_eq!(of("flow1.a", "srtt_us"), of("a", "srtt_us"), "as long as it sends");
    assert_eq!(of("theirs", "goodput_bps")[2], (9, 24e6));
}

#[test]
fn probes_are_counted_by_path_and_send_time() {
    let probe = |entry, path, sent: u64, rtt: Option<u64>, due| Probe {
        entry,
        path,
        sent: secs(sent),
        answered: rtt.map(|us| Moment::from_us(sent * 1_000_000 + us)),
        marked: Some(rtt == Some(300)),
        due,
    };
    let probes = vec![
        probe(0, Some(0), 1, Some(9_000), true), // within the warm-up
        probe(0, Some(0), 3, Some(100), true),
        probe(0, Some(0), 4, Some(300), true),
        probe(0, Some(0), 5, None, true),
        probe(0, Some(0), 9, Some(200), false), // it was answered before its time had passed
        probe(0, Some(0), 10, None, false),
        probe(0, None, 6, Some(200), true),
        probe(1, Some(0), 6, Some(7_000), true), // competing
    ];
    let m = figures(&Observed { probes, ..run() }).metrics;
    let get = |name: &str| m.get(name);
    assert_eq!((get("probe_rtt_us.p50"), get("probe_rtt_us.max")), (Some(200.0), Some(300.0)));
    assert_eq!((get("probe_loss"), get("paths.a.probe_loss")), (Some(0.25), Some(1.0 / 3.0)));
    assert_eq!((get("probe_marked"), get("paths.a.probe_marked")), (Some(0.25), Some(1.0 / 3.0)));
    assert_eq!(get("traffic.theirs.probe_rtt_us"), Some(7_000.0));
    assert_eq!(
        (m.goodput_bps, m.completed),
        (Some(8e6), None),
        "probes have no goodput and complete nothing"
    );
    assert_eq!(figures(&run()).metrics.get("probe_loss"), None);
}

#[test]
fn reduction_gap_is_the_nearest_from_the_path_with_more_reductions() {
    let mut seen = run();
    seen.connections[0].subflows[0].reductions = vec![secs(1), secs(3), secs(9)];
    assert_eq!(figures(&seen).metrics.get("reduction_gap_us.samples"), None);
    let other = Subflow { reductions: vec![secs(4), secs(5), secs(8)], ..Subflow::default() };
    seen.connections[0].subflows.push(other);
    let m = figures(&seen).metrics;
    // At 1 s the window had not begun.
    let gaps = ["samples", "min", "max"].map(|statistic| m.get(&format!("reduction_gap_us.{statistic}")));
    assert_eq!(gaps, [Some(2.0), Some(1e6), Some(1e6)]);
}

#[test]
fn window_figures_use_samples_of_the_measured_window() {
    let sample = |at, cwnd_pkt, srtt_us: u32| Sample {
        at: secs(at),
        cwnd_pkt,
        srtt_8us: srtt_us * 8,
        ..Sample::default()
    };
    let mut seen = run();
    let mut other = seen.connections[0].subflows[0].clone();
    seen.connections[0].subflows[0].samples =
        vec![sample(1, 90, 500), sample(6, 10, 500), sample(7, 10, 500)];
    // At 6 s both are alike; at 7 s (10/0.5^2) * 20 / (10/0.5 + 10/2)^2.
    other.samples = vec![sample(6, 10, 500), sample(7, 10, 2_000), sample(8, 40, 0)];
    seen.connections[0].subflows.push(other);
    let m = figures(&seen).metrics;
    assert_eq!((m.get("window_pkt.samples"), m.get("window_pkt.max")), (Some(4.0), Some(10.0)));
    let alphas = ["samples", "min", "max"].map(|statistic| m.get(&format!("lia_alpha.{statistic}")).unwrap());
    assert_eq!(alphas[0], 2.0);
    assert!((alphas[1] - 0.5).abs() < 1e-9 && (alphas[2] - 1.28).abs() < 1e-9, "{alphas:?}");
}

#[test]
fn counted_joules_cover_the_window_and_modelled_ones_all_transfers() {
    let mut seen = run();
    let number = |seen: &Observed, name| figures(seen).metrics.get(name);
    assert_eq!((number(&seen, "package_j_per_gb"), number(&seen, "modelled_j_per_gb")), (None, None));
    seen.energy = Some(Energy { package_j: 26.0, dram_j: None });
    assert_eq!(number(&seen, "package_j_per_gb"), Some(26.0 / 0.013));
    assert_eq!(number(&seen, "dram_j_per_gb"), None);

    assert_eq!(number(&seen, "instructions_per_byte"), None, "where nobody counted there is no zero");
    seen.instructions = Some(26e6);
    assert_eq!(number(&seen, "instructions_per_byte"), Some(2.0));

    // 1,000 and 1,000 segments, and ten that were sent again.
    seen.connections.iter_mut().for_each(|connection| connection.delivered_bytes = 1_448_000);
    let of = |seconds: f64| (50.0 * seconds + 40e-6 * 2_010.0) / 2.896e-3;
    let close = |found: Option<f64>, wanted: f64| (found.unwrap() / wanted - 1.0).abs() < 1e-9;
    assert!(close(number(&seen, "modelled_j_per_gb"), of(10.0)), "they go on to the end");
    for (connection, done) in seen.connections.iter_mut().zip([6, 4]) {
        (connection.job, connection.received) = (Job::Transfer(1_448_000), Some(secs(done)));
    }
    assert!(close(number(&seen, "modelled_j_per_gb"), of(6.0)), "the last is done");
}

#[test]
fn objects_are_counted_by_request_time() {
    let mut seen = run();
    seen.connections[0].job = Job::Requests;
    let response = |asked, answered: Option<u64>| Response {
        connection: 0,
        asked: secs(asked),
        answered: answered.map(secs),
        bytes: 1_000 * asked,
    };
    seen.responses = vec![response(1, Some(3)), response(4, Some(6)), response(1, None), response(8, None)];
    let Figures { metrics: m, flows, .. } = figures(&seen);
    assert_eq!((m.completed, m.unfinished), (Some(2), Some(1)), "what waited before the window is not of it");
    assert_eq!(m.fct_us.map(|fct| (fct.mean, fct.samples)), Some((2e6, Some(1))));
    let objects = flows.iter().filter(|flow| flow.size_bytes.is_some());
    let said: Vec<_> = objects.map(|o| (o.size_bytes, o.delivered_bytes, o.completed, o.measured)).collect();
    let said_of = |bytes, delivered, completed, measured| (Some(bytes), delivered, completed, measured);
    assert_eq!(
        said,
        [
            said_of(1_000, 1_000, true, false),
            said_of(4_000, 4_000, true, true),
            said_of(1_000, 0, false, false),
            said_of(8_000, 0, false, true),
        ]
    );
}

#[test]
fn program_counted_requests_give_rate_and_percentiles() {
    let mut seen = run();
    let mut latencies_ns = Histogram::new(3).unwrap();
    latencies_ns.record_n(2_000_000, 99).unwrap();
    latencies_ns.record_n(8_000_000, 1).unwrap();
    for connection in &mut seen.connections {
        connection.job = Job::Requests;
    }
    let entry = seen.connections[0].entry;
    let answers = |entry| Answers {
        entry,
        answered: 100,
        secs: 0.5,
        latencies_ns: latencies_ns.clone(),
        unfinished: 3,
    };
    seen.answers = vec![answers(entry)];
    let Figures { metrics: m, .. } = figures(&seen);
    assert_eq!((m.completed, m.unfinished), (Some(100), Some(3)));
    let rate = m.get("requests_per_s").unwrap();
    assert!((rate - 200.0).abs() < 1e-9, "{rate}");
    let fct = m.fct_us.unwrap();
    assert!(
        (fct.p50 / 2_000.0 - 1.0).abs() < 0.01 && (fct.max.unwrap() / 8_000.0 - 1.0).abs() < 0.01,
        "{fct:?}"
    );
    assert_eq!(fct.samples, Some(100));
    // Two programs beside each other: rates add up.
    seen.answers = vec![answers(entry), answers(entry)];
    assert_eq!(figures(&seen).metrics.get("requests_per_s"), Some(400.0));
}

/// Two paths of 8 Mbit/s and 1 ms.
fn unloaded() -> Option<Arc<Unloaded>> {
    let text = r#"{ "kind": "parallel-paths", "paths": 2, "rate": "8mbit", "delay": "1ms" }"#;
    let network = serde_json::from_str::<Topology>(text).expect("a topology").network();
    let routes = network.routes.between(HostId(0), HostId(1), 2, &mut || 0);
    network
        .unloaded(&routes, Framing { payload_bytes: 1_000, header_bytes: 0 }, Lead::Handshake)
        .map(Arc::new)
}

#[test]
fn slowdown_is_completion_time_over_time_on_the_empty_network() {
    let mut seen = run();
    let on = |path| Subflow { number: path, path: Some(path), established: true, ..Subflow::default() };
    seen.paths.push(Path { name: "b".into(), ..Path::default() });
    seen.parts.clear();
    seen.connections = vec![
        Connection {
            job: Job::Transfer(2_000_000),
            start: secs(3),
            received: Some(secs(7)),
            unloaded: unloaded(),
            subflows: vec![
                on(1),
                on(0),
                on(0),
                Subflow { path: None, established: true, ..Subflow::default() },
            ],
            ..connection(0, 1e6, 0)
        },
        Connection { job: Job::Requests, unloaded: unloaded(), ..connection(0, 1e6, 0) },
        Connection { job: Job::Transfer(1), start: secs(9), unloaded: unloaded(), ..connection(0, 0.0, 0) },
    ];
    let (asked, answered) = (secs(4), Some(secs(5)));
    seen.responses = vec![Response { connection: 1, asked, answered, bytes: 1_000 }];
    let Figures { metrics, flows, .. } = figures(&seen);
    let kinds: Vec<_> = flows.iter().map(|flow| (flow.kind.name(), flow.slowdown.is_some())).collect();
    assert_eq!(kinds, [("transfer", true), ("connection", false), ("transfer", false), ("request", true)]);
    assert_eq!(flows[0].paths.as_deref(), Some("a,b"));
    // 2 MB over 16 Mbit/s, and what links and handshake add.
    let ideal = flows[0].ideal_us.unwrap();
    assert!((1e6..1.01e6).contains(&ideal), "{ideal}");
    assert_eq!(flows[0].slowdown, Some(4e6 / ideal));
    assert_eq!(flows[2].ideal_us.map(|us| us > 3_000.0), Some(true), "known of an unfinished transfer too");
    let Some(Extra::Dist(slowdown)) = metrics.extra.get("slowdown") else { panic!("{metrics:?}") };
    assert_eq!((slowdown.samples, slowdown.min), (Some(2), flows[0].slowdown));
}

#[test]
fn completion_times_by_size_include_the_unfinished_share() {
    let mut seen = run();
    let transfer = |bytes, received: Option<u64>| Connection {
        job: Job::Transfer(bytes),
        start: secs(4),
        received: received.map(secs),
        ..connection(0, 1e6, 0)
    };
    let small = [transfer(10_000, Some(5)), transfer(1, Some(7)), transfer(2, None)];
    let requests = Connection { job: Job::Requests, ..connection(0, 1e6, 0) };
    let theirs = Connection { entry: 1, ..transfer(5, Some(6)) };
    seen.connections = small.into_iter().chain([transfer(10_001, None), requests, theirs]).collect();
    let response = |answered: Option<u64>| Response {
        connection: 4,
        asked: secs(3),
        answered: answered.map(secs),
        bytes: 20_000_000,
    };
    seen.responses = vec![response(Some(9)), response(None)];
    let m = figures(&seen).metrics;
    let of = |range: &str, name: &str| m.get(&format!("size.{range}.{name}"));
    assert_eq!((of("up_to_10kB", "fct_us.mean"), of("up_to_10kB", "fct_us.samples")), (Some(2e6), Some(2.0)));
    assert_eq!(of("up_to_10kB", "unfinished_share"), Some(1.0 / 3.0));
    assert_eq!((of("up_to_100kB", "fct_us"), of("up_to_100kB", "unfinished_share")), (None, Some(1.0)));
    assert_eq!(
        (of("up_to_1MB", "fct_us"), of("up_to_1MB", "unfinished_share")),
        (None, None),
        "no such size"
    );
    assert_eq!(
        (of("above_10MB", "fct_us.p999"), of("above_10MB", "unfinished_share")),
        (Some(6e6), Some(0.5))
    );
    assert_eq!((m.unfinished, m.get("unfinished_share")), (Some(3), Some(0.5)));
    assert_eq!(m.get("traffic.theirs.unfinished_share"), Some(0.0));
}

#[test]
fn tiers_have_queues_utilization_drops_and_imbalance() {
    let sample = |from: u64, sent_bytes, sent_range_bytes| LinksSample {
        from: secs(from),
        to: secs(from + 1),
        queue_bytes: 3_000,
        max_queue_bytes: 2_000,
        sent_bytes,
        sent_range_bytes,
        dropped_pkt: 2,
        marked_pkt: 5,
    };
    let tier = Links {
        name: "tier.up".into(),
        tier: Some("up".into()),
        count: 3,
        rate_bps: Some(24e6),
        // The first one is before the window, the last one without traffic.
        samples: vec![
            sample(1, 9_000_000, (0, 9)),
            sample(2, 1_500_000, (0, 1_000_000)),
            sample(3, 0, (0, 0)),
        ],
    };
    let alone = Links { name: "link.x".into(), tier: None, count: 1, ..tier.clone() };
    let mut seen = run();
    seen.links = vec![tier, alone];
    let Figures { metrics: m, series, .. } = figures(&seen);
    let of = |name: &str| m.get(&format!("tier.up.{name}"));
    assert_eq!((of("utilization"), of("drops"), of("marked_pkt")), (Some(0.25), Some(6.0), Some(15.0)));
    assert_eq!((of("queue_bytes.mean"), of("max_queue_bytes.p99")), (Some(1_000.0), Some(2_000.0)));
    assert_eq!((of("imbalance.mean"), of("imbalance.samples")), (Some(2.0), Some(1.0)));
    let over_time = |entity: &str, metric: &str| -> Vec<(u64, f64)> {
        let points = series.iter().filter(|point| point.entity == entity && point.metric == metric);
        points.map(|point| (point.t_us / 1_000_000, point.value)).collect()
    };
    assert_eq!(over_time("tier.up", "utilization"), [(2, 3.0), (3, 0.5), (4, 0.0)]);
    assert_eq!(over_time("tier.up", "imbalance"), [(2, 9.0 / 3_000_000.0), (3, 2.0)]);
    assert_eq!(over_time("link.x", "drops"), [(2, 2.0), (3, 2.0), (4, 2.0)]);
    assert_eq!(over_time("link.x", "queue_bytes").len(), 3);
    assert!(over_time("link.x", "imbalance").is_empty() && m.get("link.x.drops").is_none());
}
