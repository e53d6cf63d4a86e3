//! No text makes the reader panic; what plans is consistent; what is written reads back.

use proptest::option::weighted;
use proptest::prelude::*;
use vmcc_config::{Discipline, Marking};
use vmcc_port::{ClassConfig, ConfigFile, LinkFacts, PortConfig, Rule, VmBudget, VmShare};
use vmcc_testkit::damage::damaged;
use vmcc_units::{BitsPerSec, Bytes, Limit, Packets};

const BASE: &str = r#"rate = "100mbit"
vm = { name = "vm0", rate = "150mbit", weight = 2, weights = 3 }
queue = "drr"
quantum = "1514B"
buffer = "200pkt"
phantom = 0.98
trust = ["priority"]
backend = "htb"
marking = { rule = "mq-ecn", lambda = 0.5, rtt = "250us" }
[[class]]
name = "gold"
weight = 4
guarantee = "10mbit"
ceiling = "80mbit"
dscp = [46, 10]
priority = [7]
[[class]]
name = "db"
buffer = "100kB"
marking = { rule = "tcn", rtt = "1ms" }
cgroup = "system.slice"
filter = [{ from = "10.0.0.1", protocol = 6, to_port = 5432 }, { to = "fd00::1" }]
"#;

/// Of this language.
const SPLICES: &[&str] =
    &["\"18446744073709551615B\"", "\"99999999999pkt\"", "[[class]]", "marking", "red", "\"600s\"", "inf"];

fn links() -> impl Strategy<Value = LinkFacts> {
    let speed = proptest::option::of((1u64..1 << 40).prop_map(BitsPerSec::new));
    let link = (1u64..70_000, speed);
    link.prop_map(|(mtu, speed)| LinkFacts { mtu: Bytes::new(mtu), speed })
}

/// Reads and plans; whatever comes out, nothing panics and every error can be shown at its place.
fn try_plan(text: &str, link: &LinkFacts) {
    let Ok(file) = ConfigFile::parse("x", text) else { return };
    if let Err(error) = file.config.plan(link) {
        assert!(!file.locate(&error).to_string().is_empty());
    }
}

fn rates() -> impl Strategy<Value = BitsPerSec> {
    (1u64..=4000).prop_map(|n| BitsPerSec::new(n * 500_000))
}

fn markings() -> impl Strategy<Value = Marking> {
    let text = prop_oneof![
        Just("rule = 'none'".to_owned()),
        (1u64..2_000_000).prop_map(|n| format!("rule = 'threshold'\nat = '{n}B'")),
        (1u64..5_000).prop_map(|n| format!("rule = 'threshold'\nat = '{n}us'")),
        (1u64..5_000).prop_map(|n| format!("rule = 'mq-ecn'\nrtt = '{n}us'")),
        Just("rule = 'tcn'\nlambda = 0.17".to_owned()),
    ];
    text.prop_map(|text| toml::from_str(&text).unwrap())
}

fn limits() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (1u64..3_000).prop_map(|n| Limit::Packets(Packets::new(n))),
        (1u64..3_000_000).prop_map(|n| Limit::Bytes(Bytes::new(n))),
    ]
}

fn class() -> impl Strategy<Value = ClassConfig> {
    (
        1u32..20,
        weighted(0.3, rates()),
        weighted(0.3, rates()),
        weighted(0.3, limits()),
        weighted(0.3, markings()),
    )
        .prop_map(|(weight, guarantee, ceiling, buffer, marking)| ClassConfig {
            weight,
            guarantee,
            ceiling,
            buffer,
            marking,
            ..ClassConfig::named("x")
        })
}

fn configs() -> impl Strategy<Value = PortConfig> {
    let queue = prop_oneof![Just(Discipline::Fifo), Just(Discipline::Drr), Just(Discipline::Priority)];
    let queue = weighted(0.8, queue);
    let share = prop_oneof![Just(VmShare::Split), Just(VmShare::Shared)];
    let vm = (rates(), share, 0u32..4, 0u32..4).prop_map(|(rate, share, weight, weights)| VmBudget {
        name: "v".into(),
        rate,
        share,
        weight,
        weights,
    });
    let classes = proptest::collection::vec(class(), 0..9);
    (
        weighted(0.9, rates()),
        weighted(0.2, vm),
        queue,
        limits(),
        weighted(0.8, markings()),
        weighted(0.3, 0.5..=1.0),
        classes,
    )
        .prop_map(|(rate, vm, queue, buffer, marking, phantom, mut classes)| {
            for (i, class) in classes.iter_mut().enumerate() {
                class.name = format!("c{i}");
                class.dscp = vec![i as u8];
            }
            PortConfig {
                rate,
                vm,
                queue,
                buffer,
                marking,
                phantom,
                trust: Vec::new(),
                classes,
                ..PortConfig::default()
            }
        })
}

fn consistent(config: &PortConfig, link: &LinkFacts) -> Result<bool, TestCaseError> {
    let Ok(plan) = config.plan(link) else { return Ok(false) };
    prop_assert_eq!(plan.classes.len(), config.classes.len().max(1));
    for class in &plan.classes {
        prop_assert!(class.quantum_bytes > 0 && class.buffer_bytes >= plan.frame_bytes);
        prop_assert!(class.right <= class.ceiling && class.ceiling <= plan.rate());
        if let Rule::Threshold(bytes) = class.rule {
            prop_assert!(bytes > 0 && bytes < class.buffer_bytes);
        }
    }
    if let Some(rate) = plan.cap.map(BitsPerSec::get).filter(|_| config.discipline() != Discipline::Priority)
    {
        let shares: u64 = plan.classes.iter().map(|class| class.right.get()).sum();
        prop_assert!(shares <= rate, "{shares} of {rate}");
        let capped = config.classes.iter().any(|c| c.ceiling.is_some() || c.guarantee.is_some());
        if !capped {
            // Less than a bit per second per class is lost to rounding.
            prop_assert!(rate - shares <= plan.classes.len() as u64, "{shares} of {rate}");
        }
    }
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,200}", link in links()) {
        try_plan(&text, &link);
    }

    #[test]
    fn damaged_configurations_do_not_panic(link in links(), text in damaged(vec![BASE], SPLICES)) {
        try_plan(&text, &link);
    }

    #[test]
    fn config_round_trips(config in configs()) {
        let text = toml::to_string(&config).unwrap();
        match ConfigFile::parse("x", &text) {
            Ok(file) => prop_assert_eq!(file.config, config),
            Err(error) => prop_assert!(config.plan(&LinkFacts { mtu: Bytes::new(1500), speed: None }).is_err(), "{}", error),
        }
    }
}

#[test]
fn resolved_plans_are_consistent() {
    use proptest::test_runner::{Config, TestRunner};
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 4000, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let planned = std::cell::Cell::new(0);
    let link = (100u64..9000).prop_map(|mtu| LinkFacts { mtu: Bytes::new(mtu), speed: None });
    let outcome = runner.run(&(configs(), link), |(config, link)| {
        planned.set(planned.get() + u32::from(consistent(&config, &link)?));
        Ok(())
    });
    outcome.unwrap();
    assert!(planned.get() > 200, "only {} of 4000 configurations were good", planned.get());
}

#[test]
fn base_config_is_valid() {
    let file = ConfigFile::parse("x", BASE).unwrap();
    file.config.plan(&LinkFacts { mtu: Bytes::new(1500), speed: None }).unwrap();
}

#[test]
fn guide_examples_are_valid() {
    let guide = include_str!("../../../../../docs/reference/port.md");
    let examples: Vec<&str> =
        guide.split("```toml\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let file = ConfigFile::parse("the guide", example).unwrap_or_else(|e| panic!("{e}"));
        file.config.plan(&LinkFacts { mtu: Bytes::new(1500), speed: None }).unwrap_or_else(|e| panic!("{e}"));
    }
}
