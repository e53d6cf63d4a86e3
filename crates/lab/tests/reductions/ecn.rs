//! Peers that have not negotiated ECN: nothing of such a connection may say that it can be marked, but the SYN that asks for
//! ECN. That is sent before there is an answer, and Linux lets it carry ECT where the algorithm needs ECN (RFC 8257 section
//! 3.5); a mark on it tells nobody of a window.

use super::{PORT, load, side_by_side};
use vmcc_port::ClassStats;
use vmcc_port::Port;
use vmcc_testkit::netns::{Namespace, Server, run};
use vmcc_testkit::port::{Pair, client, config};

/// Port with a class of its own for ECT packets: all of them are counted, independent of the backlog.
const STEP: &str = "rate = '50mbit'\nqueue = 'drr'\nbackend = 'htb'\nnot_ect = 'queue'\nmarking = { rule = 'threshold', at = '30kB' }\n\
     [[class]]\nname = 'ect'\necn = 'ect'\n[[class]]\nname = 'rest'\n";

/// Counters of a port for a transfer with an algorithm that needs ECN.
#[derive(Debug)]
struct Seen {
    ect: ClassStats,
    rest: ClassStats,
    /// SYNs that the sender's namespace has sent, those that it repeated included.
    syns: u64,
}

impl Seen {
    fn assert_syns_alone_can_be_marked(&self, what: &str) {
        assert!(
            self.ect.packets <= self.syns,
            "{what}: says that it can be marked, and nothing echoes marks: {self:?}"
        );
        assert!(self.rest.not_ect > 0, "{what}: the threshold was not met: {self:?}");
    }
}

fn syns_sent(namespace: &Namespace) -> u64 {
    let counted = namespace.run("nstat -asz TcpActiveOpens TcpExtTCPSynRetrans");
    let values = counted.lines().filter(|line| line.starts_with("Tcp"));
    values.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

/// From `kernel_name` to a peer with an ordinary algorithm.
fn through_a_marking_port(pair: &Pair, kernel_name: &str, peer_ecn: &str, multipath: bool) -> Seen {
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
    let [ect, rest] = port.detach().unwrap().classes.try_into().expect("two classes");
    Seen { ect, rest, syns: syns_sent(&pair.a) }
}

/// The settings of an ordinary peer's `tcp_ecn` with which it declines ECN. A SYN that asks for AccECN is answered with
/// RFC 3168's even though it carries ECT.
fn declining() -> &'static [&'static str] {
    let pair = Pair::new();
    let has_accecn = pair.b.within(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "3")).is_ok();
    if has_accecn { &["0"] } else { &["0", "1", "2"] }
}

/// With every setting of the peer's `tcp_ecn`: a SYN of an algorithm that needs ECN carries ECT, and an ordinary Linux
/// peer then negotiates none (RFC 3168 knows no ECT there).
pub fn without_ecn_nothing_is_marked() {
    side_by_side(&["dctcp", "xmp", "amp", "vmcc"], |name| {
        let loaded = load(name);
        for peer_ecn in declining() {
            let before = loaded.counters().without_ecn;
            let seen = through_a_marking_port(&Pair::new(), loaded.kernel_name(), peer_ecn, false);
            let left = loaded.counters().without_ecn - before;
            println!("{name}, peer's tcp_ecn {peer_ecn}: {left} connections left, {seen:?}");
            seen.assert_syns_alone_can_be_marked(&format!("{name}, {peer_ecn}"));
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
    let seen = through_a_marking_port(&pair, loaded.kernel_name(), declining()[0], true);
    let joined = pair.a.run("nstat -asz MPTcpExtMPJoinSynAckRx");
    let left = loaded.counters().without_ecn;
    println!("vmcc over MPTCP: {left} subflows left, {seen:?}\n{joined}");
    seen.assert_syns_alone_can_be_marked("joined");
    assert!(left >= 4 && seen.syns >= 4, "two connections of two subflows: {left}, {seen:?}");
}
