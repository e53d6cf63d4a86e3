//! Reviewed output: the schema, and counters as Prometheus and JSON.

use vmcc_port::{Backend, ClassStats, ConfigFile, PortStats, prometheus, schema};

fn ports() -> Vec<PortStats> {
    let gold = ClassStats {
        name: "gold".into(),
        packets: 1200,
        bytes: 1_816_800,
        sparse: 24,
        marked: 31,
        not_ect: 2,
        drops_full: 3,
        drops_other: 1,
        backlog_bytes: 4542,
        backlog_packets: 3,
        max_backlog_bytes: 30_280,
        threshold_bytes: Some(17_857),
        rtt_ns: Some(312_499),
        drops_not_ect: 7,
        drops_overload: 6,
    };
    let rest = ClassStats { name: "rest".into(), packets: 1, bytes: 60, ..ClassStats::default() };
    let uplink = PortStats {
        port: "vnet0".into(),
        backend: Backend::Htb,
        rate_bps: Some(600_000_001),
        rtt_ns: Some(312_500),
        rtt_samples: 77,
        unclassified: 5,
        classes: vec![gold, rest],
        ..PortStats::default()
    };
    // Linux forbids only `/`, `:` and blanks in the name of an interface.
    let odd = PortStats {
        port: "a\"b\\c".into(),
        backend: Backend::Bpf,
        rate_bps: None,
        rtt_ns: None,
        rtt_samples: 0,
        unclassified: 0,
        classes: vec![ClassStats { name: "all".into(), ..ClassStats::default() }],
        ..PortStats::default()
    };
    vec![uplink, odd]
}

#[test]
fn prometheus_text_is_stable() {
    insta::assert_snapshot!(prometheus(&ports()).unwrap());
}

#[test]
fn no_ports_render_as_empty_text() {
    assert_eq!(prometheus(&[]).unwrap(), "");
}

#[test]
fn every_family_has_help_and_counters_end_in_total() {
    let text = prometheus(&ports()).unwrap();
    for line in text.lines().filter_map(|l| l.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
}

#[test]
fn json_is_stable() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&ports()).unwrap());
}

#[test]
fn schema_matches_its_snapshot() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&schema()).unwrap());
}

#[test]
fn schema_and_parser_agree() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let texts = [
        ("rate = '1mbit'", true),
        ("rate = '1mbit'\nqueue = 'drr'\n[[class]]\nname = 'a'\nweight = 2\ndscp = [46]", true),
        ("marking = { rule = 'tcn', lambda = 0.5 }", true),
        ("rat = '1mbit'", false),
        ("queue = 'wfq'", false),
        ("[[class]]\nweight = 2", false),
    ];
    for (text, good) in texts {
        let value: serde_json::Value = toml::from_str(text).unwrap();
        assert_eq!(validator.is_valid(&value), good, "{text}");
        assert_eq!(ConfigFile::parse("x", text).is_ok(), good, "{text}");
    }
}
