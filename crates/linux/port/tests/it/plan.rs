//! The numbers that a configuration stands for.

use vmcc_config::{Discipline, Marking};
use vmcc_port::{ClassConfig, Lambda, LinkFacts, PortConfig, Rule, VmBudget, VmShare};
use vmcc_units::{BitsPerSec, Bytes, Limit, Packets};

const LINK: LinkFacts = LinkFacts { mtu: Bytes::new(1500), speed: None };

fn mbit(rate: u64) -> BitsPerSec {
    BitsPerSec::new(rate * 1_000_000)
}

fn weighted(weights: &[u32]) -> PortConfig {
    let class = |(i, &weight): (usize, &u32)| ClassConfig { weight, ..ClassConfig::named(format!("c{i}")) };
    let classes = weights.iter().enumerate().map(class).collect();
    PortConfig { rate: Some(mbit(70)), queue: Some(Discipline::Drr), classes, ..PortConfig::default() }
}

fn rights(config: &PortConfig) -> Vec<BitsPerSec> {
    config.plan(&LINK).unwrap().classes.iter().map(|class| class.right).collect()
}

#[test]
fn weights_share_the_rate_and_quanta_follow_them() {
    let plan = weighted(&[4, 2, 1]).plan(&LINK).unwrap();
    let numbers: Vec<_> = plan.classes.iter().map(|c| (c.right, c.quantum_bytes, c.ceiling)).collect();
    let all = mbit(70);
    assert_eq!(numbers, [(mbit(40), 6056, all), (mbit(20), 3028, all), (mbit(10), 1514, all)]);
}

#[test]
fn guarantees_come_before_weights() {
    let mut config = weighted(&[4, 2, 1]);
    config.classes[0].guarantee = Some(mbit(10));
    assert_eq!(rights(&config), [mbit(10), mbit(40), mbit(20)]);
}

#[test]
fn ceiling_caps_the_share() {
    let mut config = weighted(&[1, 1]);
    config.classes[0].ceiling = Some(mbit(8));
    let plan = config.plan(&LINK).unwrap();
    assert_eq!((plan.classes[0].right, plan.classes[0].ceiling), (mbit(8), mbit(8)));
}

#[test]
fn port_without_classes_has_a_default_class() {
    let plan = PortConfig { rate: Some(mbit(8)), ..PortConfig::default() }.plan(&LINK).unwrap();
    assert_eq!(plan.classes.len(), 1);
    assert_eq!(plan.classes[0].name, vmcc_port::ONLY_CLASS);
    assert_eq!(plan.classes[0].right, mbit(8));
    assert_eq!(plan.classes[0].buffer_bytes, 1000 * 1514);
    assert_eq!(plan.classes[0].limit, Limit::Packets(Packets::new(1000)));
}

#[test]
fn only_a_split_budget_is_divided() {
    let budget = |share, weight, weights| PortConfig {
        vm: Some(VmBudget { name: "vm0".into(), rate: mbit(80), share, weight, weights }),
        ..PortConfig::default()
    };
    let split = budget(VmShare::Split, 1, 4).plan(&LINK).unwrap();
    assert_eq!(split.cap, Some(mbit(20)));
    let shared = budget(VmShare::Shared, 1, 1).plan(&LINK).unwrap();
    assert_eq!(shared.cap, Some(mbit(80)));
}

#[test]
fn uncapped_port_has_the_link_speed_as_capacity() {
    let marking: Option<Marking> =
        Some(toml::from_str("rule = 'mq-ecn'\nrtt = '100us'\nlambda = 0.5").unwrap());
    let config = PortConfig { marking, ..PortConfig::default() };
    let plan = config.plan(&LinkFacts { speed: Some(mbit(1000)), ..LINK }).unwrap();
    assert_eq!((plan.cap, plan.capacity, plan.rate()), (None, Some(mbit(1000)), mbit(1000)));
    assert_eq!(plan.classes[0].rule, Rule::MqEcn(Lambda { lambda_q16: 32768, rtt_ns: Some(100_000) }));
}

#[test]
fn thresholds_resolve_to_bytes() {
    let rule = |at: &str| {
        let marking = Some(toml::from_str(&format!("rule = 'threshold'\nat = '{at}'")).unwrap());
        PortConfig { rate: Some(mbit(100)), marking, ..PortConfig::default() }.plan(&LINK).unwrap().classes[0]
            .rule
    };
    assert_eq!(rule("30kB"), Rule::Threshold(30_000));
    assert_eq!(rule("20pkt"), Rule::Threshold(20 * 1514));
    assert_eq!(rule("1ms"), Rule::Threshold(12_500));
}
