//! Response of an algorithm to Linux's loss recovery. Needs root: without it these tests fail, they do not skip.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_bpf::Loaded;
use vmcc_cc::{Algorithm, Params};
use vmcc_system::diag::{CaState, Diag, Subflow};
use vmcc_testkit::netns::run;
use vmcc_testkit::paths::{Net, Over, Shape, alone, transfer};

fn load(name: &str) -> Loaded {
    let algorithm = Algorithm::by_name(name).unwrap();
    Loaded::load(algorithm, &Params::defaults(algorithm)).unwrap_or_else(|e| panic!("{e}"))
}

/// The sender's socket, as the client's namespace sees it.
fn sender(net: &Net, port: u16) -> Option<Subflow> {
    let all = net.client.within(|| Diag::open().unwrap().subflows().unwrap());
    all.into_iter().find(|s| s.remote.port() == port)
}

/// The same, once `is` holds.
fn sender_when(net: &Net, port: u16, mut is: impl FnMut(&Subflow) -> bool) -> Subflow {
    let began = Instant::now();
    loop {
        let found = sender(net, port);
        if let Some(found) = found.as_ref().filter(|found| is(found)) {
            return found.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{found:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends the transfer when the test is over, however.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn root_timeout_halves_ssthresh_and_the_transfer_continues() {
    let _alone = alone();
    let loaded = load("reno");
    let net = Net::new(1, Some(Shape { rate_mbit: 20, buffer_kb: 200 }));
    net.select(loaded.kernel_name());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| transfer(&net, Over::Tcp, 5501, |_| over.load(Ordering::SeqCst)));
        let _over = Ending(&over);
        sender_when(&net, 5501, |s| s.bytes_acked > 2_000_000);
        run(&format!("ip -n {} link set p0 down", net.server));
        // Nothing is acknowledged any more: the window stays until the timer expires.
        let mut before = None;
        let during = sender_when(&net, 5501, |s| {
            if s.ca_state != CaState::Loss {
                before = Some(s.clone());
            }
            s.ca_state == CaState::Loss
        });
        run(&format!("ip -n {} link set p0 up", net.server));
        let before = before.expect("seen before the timeout");
        assert!(during.cwnd_pkt <= 2, "{during:?}");
        let threshold = during.ssthresh_pkt.expect("reduced");
        let (least, most) = (before.in_flight_pkt / 4, before.cwnd_pkt.max(before.in_flight_pkt) / 2 + 20);
        assert!((least..=most).contains(&threshold), "before {before:?}\nduring {during:?}");
        sender_when(&net, 5501, |s| s.bytes_acked > during.bytes_acked + 1_000_000);
    });
}

#[test]
fn root_local_drops_limit_the_window() {
    let _alone = alone();
    for name in ["reno", "dctcp"] {
        let loaded = load(name);
        // A buffer of a few packets, which the sender itself overflows: Linux reduces without a retransmission.
        let net = Net::new(1, Some(Shape { rate_mbit: 50, buffer_kb: 8 }));
        net.select(loaded.kernel_name());
        let mut last = None;
        transfer(&net, Over::Tcp, 5502, |sent| {
            last = sender(&net, 5502);
            sent >= 8 << 20
        });
        let end = last.expect("asked at least once");
        assert!(end.bytes_sent > end.bytes_acked, "nothing was dropped: {end:?}");
        // The path holds the buffer and what the shaper's burst lets through.
        assert!(end.ssthresh_pkt.is_some_and(|t| (2..100).contains(&t)), "{end:?}");
        assert!(end.cwnd_pkt < 200, "{end:?}");
    }
}
