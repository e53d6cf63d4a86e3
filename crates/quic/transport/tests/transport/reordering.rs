//! Reordering: packets that arrive late are not lost, and cost no rate.

use crate::multipath::{connected, shaped};
use crate::net::{Link, Transfer};
use vmcc_transport::Config;
use vmcc_units::time::Span;

const BYTES: u64 = 40_000_000;

/// Rate of a download over such a path, in bits per second.
fn rate(link: Link) -> f64 {
    let (mut net, client, server) = connected(&[link], &Config::default());
    let took = Transfer::down(&mut net, client, server, BYTES).run(&mut net, Span::from_secs(300));
    BYTES as f64 * 8.0 / took.secs_f64()
}

#[test]
fn late_packets_cost_little_rate() {
    for (mbps, delay_ms, late, late_ms, least) in [
        (40, 10, 1, 2, 0.95),
        (40, 10, 1, 15, 0.95),
        (15, 12, 10, 10, 0.85),
        (15, 12, 50, 10, 0.85),
        (15, 12, 200, 20, 0.8),
    ] {
        let ordered = shaped(mbps * 1_000_000, delay_ms);
        let reordered = Link { late, late_by: Span::from_ms(late_ms), ..ordered };
        let share = rate(reordered) / rate(ordered);
        assert!(share >= least, "{late} of a thousand late by {late_ms} ms: {share:.3} of the rate in order");
    }
}

/// Losses beside reordering still reduce the rate as they do alone.
#[test]
fn losses_count_beside_late_packets() {
    let lossy = Link { loss: 5, ..shaped(40_000_000, 20) };
    let both = Link { late: 10, late_by: Span::from_ms(10), ..lossy };
    let (alone, both, clean) = (rate(lossy), rate(both), rate(Link { loss: 0, ..lossy }));
    assert!(alone < 0.6 * clean, "{alone} {clean}");
    assert!((0.7..1.3).contains(&(both / alone)), "{both} {alone}");
}
