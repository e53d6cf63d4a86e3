//! How Linux's loss recovery reaches an algorithm. Needs root: without it these tests fail, they do not skip.

mod common;

use common::{Net, Over, Shape, alone, run, transfer};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_cc::{Algorithm, Params};
use vmcc_host::Loaded;
use vmcc_host::diag::{CaState, Diag, Subflow};

fn load(name: &str) -> Loaded {
    let algorithm = Algorithm::by_name(name).unwrap();
    Loaded::load(algorithm, &Params::defaults(algorithm)).unwrap_or_else(|e| panic!("{e}"))
}

/// The sender's socket, as the client's namespace sees it.
fn sender(net: &Net, port: u16) -> Subflow {
    let all = net.client.within(|| Diag::open().unwrap().subflows().unwrap());
    all.into_iter().find(|s| s.remote.port() == port).expect("the connection")
}

#[test]
fn root_a_timeout_halves_the_threshold_and_the_transfer_goes_on() {
    let _alone = alone();
    let loaded = load("reno");
    let net = Net::new(1, Some(Shape { rate_mbit: 50, buffer_kb: 200 }));
    net.select(loaded.kernel_name());
    let until = Instant::now() + Duration::from_millis(2500);
    thread::scope(|scope| {
        scope.spawn(|| transfer(&net, Over::Tcp, 5501, |_| Instant::now() >= until));
        thread::sleep(Duration::from_millis(700));
        let before = sender(&net, 5501);
        run(&format!("ip -n {} link set p0 down", net.server));
        thread::sleep(Duration::from_millis(700));
        let during = sender(&net, 5501);
        run(&format!("ip -n {} link set p0 up", net.server));
        assert_eq!(during.ca_state, CaState::Loss, "{during:?}");
        assert!(during.cwnd_pkt <= 2, "{during:?}");
        let threshold = during.ssthresh_pkt.expect("reduced");
        let (least, most) = (before.in_flight_pkt / 4, before.cwnd_pkt.max(before.in_flight_pkt) / 2 + 20);
        assert!((least..=most).contains(&threshold), "before {before:?}\nduring {during:?}");
    });
}

#[test]
fn root_drops_at_the_own_port_hold_the_window_down() {
    let _alone = alone();
    for name in ["reno", "dctcp"] {
        let loaded = load(name);
        // A buffer of a few packets, which the sender itself overflows: Linux reduces without a retransmission.
        let net = Net::new(1, Some(Shape { rate_mbit: 50, buffer_kb: 8 }));
        net.select(loaded.kernel_name());
        let mut last = None;
        let until = Instant::now() + Duration::from_millis(1500);
        transfer(&net, Over::Tcp, 5502, |_| {
            last = Some(sender(&net, 5502));
            Instant::now() >= until
        });
        let end = last.expect("asked at least once");
        assert!(end.bytes_sent > end.bytes_acked, "nothing was dropped: {end:?}");
        // The path holds the buffer and what the shaper's burst lets through.
        assert!(end.ssthresh_pkt.is_some_and(|t| (2..100).contains(&t)), "{end:?}");
        assert!(end.cwnd_pkt < 200, "{end:?}");
    }
}
