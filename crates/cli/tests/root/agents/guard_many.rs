//! A path that fails under many connections: each is closed once, tried again once, and all of them together.

use crate::agent::Down;
use crate::kept::{Agent, endpoints, until, within};
use std::sync::atomic::{AtomicBool, Ordering};
use vmcc_system::diag::Diag;
use vmcc_testkit::netns::{Namespace, run};
use vmcc_testkit::paths::{Net, Over, Shape, shape, transfer};

const CONNECTIONS: u16 = 8;
const PORT: u16 = 5360;

/// Number of the client's second paths that carry data, or are in a handshake.
fn second_paths(client: &Namespace, established: bool) -> usize {
    let all = client.within(|| Diag::open().unwrap().subflows_and_attempts().unwrap());
    let is = |local: std::net::SocketAddr| local.ip().to_string() == "10.77.1.1";
    all.iter().filter(|s| is(s.local) && s.established == established && s.mptcp.is_some()).count()
}

/// Number of subflows that the client has requested.
fn joins(client: &Namespace) -> u64 {
    let text = client.within(|| std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap());
    let mut lines = text.lines().filter(|line| line.starts_with("MPTcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(name, _)| *name == "MPJoinSynTx").unwrap().1.parse().unwrap()
}

/// Ends the transfers when the test is over, however.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn root_failed_path_of_many_connections_is_retried_once() {
    let net = Net::new(2, None);
    let _down = Down;
    run(&format!("ip -n {} mptcp limits set subflow 1 add_addr_accepted 0", net.client));
    run(&format!("ip -n {} mptcp endpoint add 10.77.1.1 dev p1 id 7 subflow", net.client));
    (0..2).for_each(|path| shape(&net.client, &format!("p{path}"), Shape { rate_mbit: 80, buffer_kb: 400 }));
    let arguments = ["up", "lia", "--guard", "--close-failed", "--retry", "2s"];
    let mut guard = Agent::spawn(within(&net.client, &arguments));
    guard.hears("until Ctrl-C");
    net.select("mp_lia");
    let all = usize::from(CONNECTIONS);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for port in PORT..PORT + CONNECTIONS {
            let (net, over) = (&net, &over);
            scope.spawn(move || transfer(net, Over::Mptcp, port, |_| over.load(Ordering::SeqCst)));
        }
        let _over = Ending(&over);
        until("all have two paths", || second_paths(&net.client, true) == all);
        run(&format!("ip -n {} route add blackhole 10.77.1.1/32", net.server));
        (0..all).for_each(|_| drop(guard.hears("closed 10.77.1.1:")));
        let before = joins(&net.client);
        (0..all).for_each(|_| drop(guard.hears("tried again 10.77.1.1:")));
        until("all ask for another one", || second_paths(&net.client, false) == all);
        // They would be tried again by now, if a handshake were nothing.
        std::thread::sleep(std::time::Duration::from_secs(5));
        let heard = guard.heard();
        assert_eq!(heard.matches("tried again").count(), all, "{heard}");
        run(&format!("ip -n {} route del blackhole 10.77.1.1/32", net.server));
        until("all have two paths again", || second_paths(&net.client, true) == all);
        assert_eq!(joins(&net.client) - before, u64::from(CONNECTIONS), "once each: {}", guard.heard());
    });
    let endpoints = endpoints(&net.client);
    assert!(endpoints.contains("10.77.1.1 id 7 "), "{endpoints}");
}
