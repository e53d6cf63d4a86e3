//! Detection of shared bottlenecks on real subflows: twins stay two. Needs root: without it these tests fail, they do
//! not skip.

mod common;

use common::{Net, Over, Shape, alone, transfer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_cc::{Algorithm, Params};
use vmcc_host::Loaded;
use vmcc_host::diag::{Diag, Subflow};
use vmcc_host::guard::{CloseRequest, Guard};
use vmcc_host::port::Port;

/// Slow, so that the queue and not a busy machine is what a round trip consists of: some 20 ms.
const SHAPE: Shape = Shape { rate_mbit: 10, buffer_kb: 150 };
const MARKING: &str = "marking = { rule = 'threshold', at = '8kB' }";

/// A guarded transfer, until a path is closed or the time is over; what was closed, and what is left.
fn guarded(net: &Net, port: u16, ports: &[&str], at_most: Duration) -> (Vec<CloseRequest>, Vec<Subflow>) {
    let vmcc = Algorithm::by_name("vmcc").unwrap();
    let loaded = Loaded::load(vmcc, &Params::defaults(vmcc)).unwrap_or_else(|e| panic!("{e}"));
    net.select(loaded.kernel_name());
    let marking = toml::from_str(MARKING).unwrap();
    let _ports: Vec<Port> =
        ports.iter().map(|name| Port::attach_in(&net.client.file(), name, &marking).unwrap()).collect();
    let guard = Guard::new(&loaded).unwrap().expect("vMCC asks to close paths");
    let over = AtomicBool::new(false);
    let end = Instant::now() + at_most;
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut left = Vec::new();
            transfer(net, Over::Mptcp, port, |_| {
                let over = over.load(Ordering::SeqCst);
                if over {
                    let all = Diag::open().unwrap().subflows().unwrap();
                    left = all.into_iter().filter(|s| s.remote.port() == port && s.established).collect();
                }
                over
            });
            left
        });
        let mut closed = Vec::new();
        while closed.is_empty() && Instant::now() < end {
            closed = guard.step(Duration::from_millis(200)).unwrap();
        }
        over.store(true, Ordering::SeqCst);
        (closed, traffic.join().unwrap())
    })
}

#[test]
fn root_twins_are_left_alone() {
    let _alone = alone();
    let net = Net::new(2, Some(SHAPE));
    let (closed, left) = guarded(&net, 5322, &["p0", "p1"], Duration::from_secs(20));
    assert_eq!((closed.len(), left.len()), (0, 2), "{closed:?} {left:?}");
    assert!(left.iter().all(|s| s.bytes_acked > 5_000_000), "both carried: {left:?}");
}
