//! A path that is only congested is no path that has failed.

use crate::agent::Down;
use crate::kept::{Agent, until, within};
use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_system::diag::{Diag, Subflow};
use vmcc_testkit::netns::{Namespace, run};
use vmcc_testkit::paths::{Net, Over, Shape, shape, transfer};

const PORT: u16 = 5400;

/// Ends what runs beside the test when that is over, however.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn guard(net: &Net) -> Agent {
    let mut guard = Agent::spawn(within(&net.client, &["up", "olia", "--guard", "--close-failed"]));
    guard.hears("until Ctrl-C");
    net.select("mp_olia");
    guard
}

fn from(client: &Namespace, local: &str) -> Option<Subflow> {
    let local: IpAddr = local.parse().unwrap();
    let all = client.within(|| Diag::open().unwrap().subflows().unwrap());
    all.into_iter().find(|s| s.local.ip() == local && s.established && s.mptcp.is_some_and(|m| m.established))
}

/// 20 Mbit/s at the client's second port, which go to the second class as long as it has anything.
fn prefer_others(net: &Net) {
    let tc = |command: &str| run(&format!("tc -n {} {command}", net.client));
    run(&format!("ip -n {} link set p1 gso_max_segs 1", net.client));
    tc("qdisc add dev p1 root handle 1: htb default 1");
    tc("class add dev p1 parent 1: classid 1:10 htb rate 20mbit burst 15k cburst 15k");
    tc("class add dev p1 parent 1:10 classid 1:1 htb rate 1kbit ceil 20mbit burst 1600 cburst 15k prio 1");
    tc("class add dev p1 parent 1:10 classid 1:2 htb rate 19mbit ceil 20mbit burst 15k cburst 15k prio 0");
    tc("qdisc add dev p1 parent 1:1 bfifo limit 300kb");
    tc("qdisc add dev p1 parent 1:2 bfifo limit 30kb");
}

/// 100 Mbit/s of that class, which is more than the port carries.
fn flood(client: &Namespace, over: &AtomicBool) {
    let class = 0x1_0002;
    let socket = client.within(|| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.set_priority(class).unwrap();
        socket.bind(&"10.77.1.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        socket
    });
    let to = "10.77.1.2:9".parse::<SocketAddr>().unwrap().into();
    while !over.load(Ordering::SeqCst) {
        // Most are refused, for there is no room, and nobody is there to receive the others.
        (0..10).for_each(|_| drop(socket.send_to(&[0; 1400], &to)));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn root_path_queued_on_the_local_host_has_not_failed() {
    let (net, _down) = (Net::new(2, None), Down);
    run(&format!("ip -n {} mptcp limits set subflow 1 add_addr_accepted 0", net.client));
    run(&format!("ip -n {} mptcp endpoint add 10.77.1.1 dev p1 subflow", net.client));
    shape(&net.client, "p0", Shape { rate_mbit: 20, buffer_kb: 60 });
    prefer_others(&net);
    let mut guard = guard(&net);
    let second = || from(&net.client, "10.77.1.1");
    let (over, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| transfer(&net, Over::Mptcp, PORT, |_| over.load(Ordering::SeqCst)));
        let _over = Ending(&over);
        until("both paths carry", || second().is_some_and(|s| s.bytes_acked > 1_000_000));
        let before = second().unwrap();
        let ending = Ending(&enough);
        scope.spawn(|| flood(&net.client, &enough));
        until("timeouts go by", || second().is_none_or(|s| s.unanswered_timeouts >= 3));
        // The guard has looked once more, at least.
        std::thread::sleep(Duration::from_secs(1));
        drop(ending);
        let same = || second().filter(|s| s.cookie == before.cookie);
        let held = same().expect("it is not closed").bytes_acked;
        until("it carries again", || same().is_some_and(|s| s.bytes_acked > held + 100_000));
    });
    guard.signal(Signal::SIGINT);
    guard.hears("closed 0 paths");
}
