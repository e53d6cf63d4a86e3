use super::*;
use std::collections::BTreeSet;

#[test]
fn metric_names_are_unique_per_place() {
    let mut seen = BTreeSet::new();
    for metric in all() {
        assert!(!metric.places.is_empty(), "{}", metric.name);
        for place in metric.places {
            assert!(seen.insert((*place, metric.name)), "{} of {}", metric.name, place.pattern());
        }
    }
}

#[test]
fn metric_name_determines_its_unit() {
    for metric in all() {
        let first = named(metric.name).unwrap();
        assert_eq!((metric.unit, metric.title), (first.unit, first.title), "{}", metric.name);
        match Unit::of_name(metric.name) {
            Some(unit) => assert_eq!(metric.unit, unit, "{}", metric.name),
            None => assert!(matches!(metric.unit, Unit::Count | Unit::Ratio), "{}", metric.name),
        }
    }
}

#[test]
fn every_entry_has_title_and_meaning() {
    for metric in all() {
        assert!(metric.meaning.len() > 20 && !metric.meaning.ends_with('.'), "{}", metric.name);
        assert!(!metric.meaning.contains('|') && !metric.title.is_empty(), "{}: no table cell", metric.name);
        for (statistic, _) in metric.shown {
            let known = STATISTICS.contains(statistic) && metric.kind == Kind::Distribution;
            assert!(statistic.is_empty() || known, "{}: {statistic}", metric.name);
        }
    }
}

#[test]
fn dotted_names_resolve_to_their_metric() {
    for (dotted, base) in [
        ("goodput_bps", "goodput_bps"),
        ("rtt_us.p99", "rtt_us"),
        ("paths.a.rtt_us.p99", "rtt_us"),
        ("paths.a.class.0.queue_bytes.samples", "queue_bytes"),
        ("mean", "mean"),
    ] {
        assert_eq!(base_name(dotted), base);
    }
}

/// Fields of results accept a value of their metric's kind.
#[test]
fn every_kind_matches_its_field() {
    for (place, mut object) in
        [(Place::Run, serde_json::json!({})), (Place::Path, serde_json::json!({ "path": "a" }))]
    {
        for metric in of(place) {
            object[metric.name] = match metric.kind {
                Kind::Count => 7.into(),
                Kind::Number => 0.5.into(),
                Kind::Distribution => serde_json::json!({ "mean": 1.0, "p50": 1.0, "p99": 1.0 }),
            };
        }
        let text = object.to_string();
        let read = match place {
            Place::Run => serde_json::from_value::<crate::Metrics>(object).map(drop),
            _ => serde_json::from_value::<crate::PathMetrics>(object).map(drop),
        };
        assert!(read.is_ok(), "{read:?}: {text}");
    }
}

#[test]
fn display_unit_follows_name_and_magnitude() {
    assert_eq!(scale_of("goodput_bps", 93e6).unit, "Mbit/s");
    assert_eq!(scale_of("paths.a.goodput_bps", 2.4e9).unit, "Gbit/s");
    assert_eq!(scale_of("rtt_us.p99", 1500.0).unit, "ms");
    assert_eq!(scale_of("rtt_us", 150.0).unit, "µs");
    assert_eq!(scale_of("rtt_us", 0.0).unit, "µs");
    assert_eq!(scale_of("queue_bytes.mean", 1500.0).unit, "kB");
    assert_eq!(scale_of("nobody_lists_this_bytes", 1500.0).unit, "kB");
    assert_eq!(scale_of("jain", 0.9).unit, "");
    assert_eq!(scale_of("retransmits", 1e7), Scale { divisor: 1.0, unit: "" });
}
