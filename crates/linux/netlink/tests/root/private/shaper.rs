//! Shapers of `vmcc-netlink` on a real port. Needs root: without it these tests fail, they do not skip.

use std::net::UdpSocket;
use vmcc_netlink::{Links, Shaper, TrafficControl, os_code};
use vmcc_testkit::netns::run;
use vmcc_testkit::port::Pair;
use vmcc_units::BitsPerSec;

const SHAPER: Shaper =
    Shaper { rate: BitsPerSec::new(100_000_000), burst_bytes: 6250, limit_bytes: 150_000, limit_pkt: None };

fn port() -> u32 {
    let ports = Links::open().unwrap().list().unwrap();
    ports.iter().find(|port| port.name == "p0").unwrap().index
}

#[test]
fn root_shaper_is_changed_in_place() {
    let pair = Pair::new();
    pair.a.within(|| TrafficControl::open().unwrap().add_shaper(port(), &SHAPER).unwrap());
    pair.a.within(|| {
        UdpSocket::bind("10.78.0.1:0").unwrap().send_to(b"through the queue", "10.78.0.2:9").unwrap()
    });
    let sent = || pair.a.within(|| TrafficControl::open().unwrap().root(port()).unwrap().unwrap().counters);
    let before = sent();
    assert!(before.sent_pkt > 0, "{before:?}");
    let faster = Shaper { rate: BitsPerSec::new(40_000_000_000), limit_bytes: 300_000, ..SHAPER };
    pair.a.within(|| TrafficControl::open().unwrap().change_shaper(port(), &faster).unwrap());
    let queues = pair.queues();
    assert!(queues.contains("tbf 1: root") && queues.contains("rate 40Gbit"), "{queues}");
    assert!(sent().sent_pkt >= before.sent_pkt, "the same queue");
    let in_packets = Shaper { limit_pkt: Some(10), ..SHAPER };
    let refused =
        pair.a.within(|| TrafficControl::open().unwrap().change_shaper(port(), &in_packets).unwrap_err());
    assert!(refused.to_string().contains("stays"), "{refused}");
}

#[test]
fn root_shaper_in_packets_stays_in_packets() {
    let pair = Pair::new();
    let limit = |limit_pkt| Shaper { limit_pkt, ..SHAPER };
    pair.a.within(|| TrafficControl::open().unwrap().add_shaper(port(), &limit(Some(100))).unwrap());
    assert!(pair.queues().contains("limit 100p"), "{}", pair.queues());
    pair.a.within(|| TrafficControl::open().unwrap().change_shaper(port(), &limit(Some(50))).unwrap());
    assert!(pair.queues().contains("limit 50p"), "{}", pair.queues());
    pair.a.within(|| TrafficControl::open().unwrap().change_shaper(port(), &limit(None)).unwrap_err());
}

#[test]
fn root_missing_shaper_is_an_error() {
    let pair = Pair::new();
    let error = |port| TrafficControl::open().unwrap().change_shaper(port, &SHAPER).unwrap_err();
    assert_eq!(pair.a.within(|| os_code(&error(port()))), Some(nix::libc::ENOENT));
    run(&format!("tc -n {} qdisc add dev p0 root handle 1: bfifo limit 77777", pair.a));
    assert_eq!(pair.a.within(|| os_code(&error(port()))), Some(nix::libc::EINVAL), "not a shaper");
    assert!(pair.queues().contains("limit 77777b"), "{}", pair.queues());
}
