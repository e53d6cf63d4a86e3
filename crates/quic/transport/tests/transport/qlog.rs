//! A connection's log agrees with its events.

use crate::net::{Link, Net, Transfer};
use std::sync::{Arc, Mutex};
use vmcc_transport::qlog::{Sink, Sinks};
use vmcc_transport::{Config, ConnectionId, Retry};
use vmcc_units::time::{Span, Time};

/// Records of one connection, in memory; those with these numbers are refused.
#[derive(Clone, Debug, Default)]
struct Kept {
    records: Arc<Mutex<Vec<String>>>,
    refused: Arc<Mutex<std::ops::Range<usize>>>,
    seen: Arc<Mutex<usize>>,
}

impl Sinks for Kept {
    fn open(&self, _: &ConnectionId, client: bool) -> Option<Box<dyn Sink>> {
        client.then(|| Box::new(self.clone()) as _)
    }

    fn wall_clock(&self) -> String {
        "2026-01-01T00:00:00.000Z".to_owned()
    }
}

impl Sink for Kept {
    fn record(&mut self, text: &str) -> bool {
        let mut seen = self.seen.lock().unwrap();
        *seen += 1;
        let taken = !self.refused.lock().unwrap().contains(&*seen);
        if taken {
            self.records.lock().unwrap().push(text.to_owned());
        }
        taken
    }
}

impl Kept {
    /// Records of an event with all of these words.
    fn count(&self, name: &str, words: &[&str]) -> usize {
        let name = format!("\"name\":\"{name}\"");
        let records = self.records.lock().unwrap();
        records
            .iter()
            .filter(|record| record.contains(&name) && words.iter().all(|word| record.contains(word)))
            .count()
    }
}

#[test]
fn qlog_reports_losses_marks_and_paths() {
    let links = [
        Link { loss: 20, rate: 10_000_000, queue: 60_000, ..Link::default() },
        Link { mark_above: 20_000, rate: 10_000_000, queue: 60_000, ..Link::default() },
        Link { cut: (Time::ZERO + Span::from_ms(1600), Time::NEVER), rate: 10_000_000, ..Link::default() },
    ];
    let kept = Kept::default();
    let mut net = Net::new(&links, Config::default(), Retry::Above(usize::MAX));
    let client = net.connect(Config { qlog: Some(Arc::new(kept.clone())), ..Config::default() });
    let server = net.handshake(client);
    for i in 1..3 {
        net.open_path(client, i);
    }
    Transfer::up(&mut net, client, server, 4_000_000).run(&mut net, Span::from_secs(60));
    let paths: Vec<_> = net.connection(0, client).paths().collect();
    for path in &paths {
        let id = format!("\"path_id\":{},", path.id);
        let (all, probes) = (
            kept.count("quic:packet_lost", &[&id]),
            kept.count("quic:packet_lost", &[&id, "is_mtu_probe_packet"]),
        );
        assert_eq!((all - probes) as u64, path.lost_packets, "{path:?}");
        let window = format!("\"congestion_window\":{}", u64::from(path.cwnd_pkt) * u64::from(path.mtu));
        assert!(kept.count("quic:recovery_metrics_updated", &[&id, &window]) > 0, "{path:?}");
        let from = format!("\"ip_v4\":\"{}\"", path.route.local.ip());
        assert_eq!(kept.count("quic:tuple_assigned", &[&id, &from]), 1);
    }
    assert!(paths[0].lost_packets > 5 && paths[2].failed, "{paths:?}");
    let recovery =
        |trigger: &str| kept.count("quic:congestion_state_updated", &["\"new\":\"recovery\"", trigger]);
    assert!(recovery("\"trigger\":\"loss\"") > 0 && recovery("\"trigger\":\"ecn\"") > 0);
    assert_eq!(kept.count("loglevel:info", &["\"path_id\":2,", "is silent"]), 1);
    assert_eq!(kept.count("quic:connection_state_updated", &["handshake_complete"]), 1);

    let now = net.now;
    net.connection(0, client).abandon_path(now, 2).unwrap();
    assert_eq!(kept.count("quic:tuple_assigned", &["\"path_id\":2,", "{\"tuple_id\":\"2\"}"]), 1);
    net.connection(0, client).close(now, 7, b"that \"is\" all");
    let said = ["\"initiator\":\"local\"", "\"error_code\":7", r#""reason":"that \"is\" all""#];
    assert_eq!(kept.count("quic:connection_closed", &said), 1);
}

#[test]
fn qlog_counts_dropped_records() {
    let kept = Kept { refused: Arc::new(Mutex::new(20..51)), ..Kept::default() };
    let mut net = Net::new(&[Link::default()], Config::default(), Retry::Above(usize::MAX));
    let client = net.connect(Config { qlog: Some(Arc::new(kept.clone())), ..Config::default() });
    let server = net.handshake(client);
    Transfer::up(&mut net, client, server, 200_000).run(&mut net, Span::from_secs(10));
    // Of the 31, every second one was the attempt to say so.
    assert_eq!(kept.count("loglevel:warning", &["16 events are missing here"]), 1);
    assert_eq!(kept.count("loglevel:warning", &[]), 1);
    let (seen, records) = (*kept.seen.lock().unwrap(), kept.records.lock().unwrap().len());
    assert_eq!(seen - records, 31);
}
