//! Peers that have not negotiated ECN: nothing of such a connection may say that it can be marked.

use super::{PORT, load, side_by_side};
use crate::ports::{Pair, Server, client, config, run};
use vmcc_host::port::Port;
use vmcc_port::ClassStats;

const STEP: &str =
    "rate = '50mbit'\nbackend = 'htb'\nnot_ect = 'queue'\nmarking = { rule = 'threshold', at = '30kB' }";

/// What the port saw of a transfer from `kernel_name` to a peer with an ordinary algorithm.
fn through_a_marking_port(pair: &Pair, kernel_name: &str, peer_ecn: &str, multipath: bool) -> ClassStats {
    pair.a.sysctl("ipv4/tcp_congestion_control", kernel_name);
    pair.b.sysctl("ipv4/tcp_congestion_control", "reno");
    pair.b.sysctl("ipv4/tcp_ecn", peer_ecn);
    let port = Port::attach_in(&pair.netns(), "p0", &config(STEP)).unwrap_or_else(|e| panic!("{e}"));
    let start = if multipath { Server::start_multipath } else { Server::start };
    let server = start(&pair.b, PORT);
    if multipath {
        pair.a.run(&format!("mptcpize run iperf3 -c 10.78.0.2 -p {PORT} -t 2"));
    } else {
        client(pair, PORT, "-t 2");
    }
    drop(server);
    port.detach().unwrap().classes.remove(0)
}

/// With every setting of the peer's `tcp_ecn`: a SYN of an algorithm that needs ECN carries ECT, and an ordinary Linux
/// peer then negotiates none (RFC 3168 knows no ECT there).
pub fn without_ecn_nothing_is_marked() {
    side_by_side(&["dctcp", "xmp", "amp", "vmcc"], |name| {
        let loaded = load(name);
        for peer_ecn in ["0", "1", "2"] {
            let before = loaded.counters().without_ecn;
            let seen = through_a_marking_port(&Pair::new(), loaded.kernel_name(), peer_ecn, false);
            let left = loaded.counters().without_ecn - before;
            println!("{name}, peer's tcp_ecn {peer_ecn}: {left} connections left, {seen:?}");
            assert_eq!(seen.marked, 0, "{name}, {peer_ecn}: marked, and nothing echoes it");
            assert!(seen.not_ect > 0, "{name}, {peer_ecn}: the threshold was not met");
            assert!(left >= 2, "{name}, {peer_ecn}: iperf3 has two connections");
        }
    });
}

/// A subflow that joins is looked at by itself.
pub fn without_ecn_nothing_is_marked_on_joined_subflows() {
    let loaded = load("vmcc");
    let pair = Pair::new();
    run(&format!("ip -n {} addr add 10.78.0.3/24 dev p0", pair.b));
    for end in [&pair.a, &pair.b] {
        run(&format!("ip -n {end} mptcp limits set subflow 4 add_addr_accepted 4"));
        end.sysctl("mptcp/enabled", "1");
    }
    run(&format!("ip -n {} mptcp endpoint add 10.78.0.3 dev p0 signal", pair.b));
    let seen = through_a_marking_port(&pair, loaded.kernel_name(), "1", true);
    let joined = pair.a.run("nstat -asz MPTcpExtMPJoinSynAckRx");
    let left = loaded.counters().without_ecn;
    println!("vmcc over MPTCP: {left} subflows left, {seen:?}\n{joined}");
    assert_eq!(seen.marked, 0, "marked, and nothing echoes it");
    assert!(seen.not_ect > 0 && left >= 4, "two connections of two subflows: {left}");
}
