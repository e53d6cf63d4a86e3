//! MPTCP endpoints under an agent through outages, beside other writers, and where there are too many; what is said of
//! connections that stay with one path. No algorithm is loaded.

use crate::common::folder;
use crate::kept::{Agent, endpoints, until, within};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_netlink::Links;
use vmcc_testkit::netns::{Namespace, Server, join, own_name, run};

/// A server with an agent, and a client, joined by links of the same name at both ends.
struct Pair {
    server: Namespace,
    client: Namespace,
    dir: tempfile::TempDir,
}

impl Pair {
    fn new(links: usize) -> Self {
        let (server, client) = (Namespace::new("s"), Namespace::new("c"));
        for link in 0..links {
            join(&server, &client, &format!("p{link}"), &format!("10.9.{link}"));
            for end in [&server, &client] {
                until("a carrier", || is_operational(end, &format!("p{link}")));
            }
        }
        run(&format!("ip -n {client} mptcp limits set subflows 8 add_addr_accepted 8"));
        Self { server, client, dir: folder() }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("vmcc.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// As many connections to the first address, each with little to carry, and one that controls them.
    fn client(&self, connections: usize) -> Agent {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.client.0, "mptcpize", "run", "iperf3", "-c", "10.9.0.1"]);
        command.args(["-t", "600", "-b", "500K", "-P", &connections.to_string()]);
        Agent::spawn(command)
    }

    /// Number of the client's subflows to this address of the server.
    fn paths(&self, to: &str) -> usize {
        self.client.run(&format!("ss -Htn state established dst {to}")).lines().count()
    }

    fn doctor(&self, of: &Namespace, check: &str) -> Value {
        let output = within(of, &["doctor", "--json"]).output().unwrap();
        let answer: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        answer["checks"].as_array().unwrap().iter().find(|one| one["name"] == check).unwrap().clone()
    }
}

fn is_operational(ns: &Namespace, link: &str) -> bool {
    run(&format!("ip -n {ns} link show {link}")).contains("state UP")
}

const SIGNAL: &str =
    "[host.mptcp]\nsubflows = 8\naccept = 8\n[[host.mptcp.endpoint]]\nnic = 'p1'\nflags = ['signal']\n";

struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client has something for the address all the while, so that its neighbour entry fails again and again.
fn knocking(pair: &Pair, address: &str) -> Killed {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &pair.client.0, "ping", "-q", "-i", "0.2", address]);
    Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn root_every_connection_regains_its_path_after_an_outage() {
    let pair = Pair::new(2);
    let mut agent = Agent::start(&pair.server, &pair.file(SIGNAL));
    let _server = Server::start_multipath(&pair.server, 5201);
    let _client = pair.client(8);
    until("nine second paths", || pair.paths("10.9.1.1") == 9);
    let _knocking = knocking(&pair, "10.9.1.1");
    for outage in 0..3 {
        run(&format!("ip -n {} link set p1 down", pair.server));
        until("no second path", || pair.paths("10.9.1.1") == 0);
        let failing = || run(&format!("ip -n {} neigh show 10.9.1.1", pair.client));
        until("a neighbour entry that fails", || {
            ["INCOMPLETE", "FAILED"].iter().any(|one| failing().contains(one))
        });
        run(&format!("ip -n {} link set p1 up", pair.server));
        until(&format!("the paths are back after outage {outage}"), || pair.paths("10.9.1.1") == 9);
    }
    assert!(!agent.heard().contains("announced again"), "none was lost: {}", agent.heard());
    // The next change of a neighbour is the last that is heard.
    run(&format!("ip -n {} neigh replace 10.9.1.77 lladdr 02:00:00:00:00:77 dev p1", pair.server));
    until("neighbours are no longer followed", || !follows_neighbours(&pair.server));
}

/// Tests for a netlink socket that subscribes to neighbour events: bit 2 of its groups.
fn follows_neighbours(ns: &Namespace) -> bool {
    let all = ns.within(|| fs::read_to_string("/proc/thread-self/net/netlink").unwrap());
    let mut groups =
        all.lines().skip(1).filter_map(|line| u32::from_str_radix(line.split_whitespace().nth(3)?, 16).ok());
    groups.any(|groups| groups & 4 != 0)
}

#[test]
fn root_address_that_a_peer_could_not_reach_is_announced_again() {
    let pair = Pair::new(2);
    let _server = Server::start_multipath(&pair.server, 5201);
    let _client = pair.client(1);
    until("two connections", || pair.paths("10.9.0.1") == 2);
    // As a failing neighbour entry, the connection is refused at once.
    run(&format!("ip -n {} route add unreachable 10.9.1.1/32", pair.client));
    let mut agent = Agent::start(&pair.server, &pair.file(SIGNAL));
    let mut again = || {
        agent.hears("10.9.1.1 announced again: no subflow uses it yet");
        std::time::Instant::now()
    };
    let (first, _, third) = (again(), again(), again());
    // After 2, 4 and 8 s; every two seconds if each were a new endpoint.
    assert!(third - first > Duration::from_secs(8), "{:?}", third - first);
    assert_eq!(pair.paths("10.9.1.1"), 0);
    run(&format!("ip -n {} route del unreachable 10.9.1.1/32", pair.client));
    until("both use it", || pair.paths("10.9.1.1") == 2);
    assert!(endpoints(&pair.server).contains("10.9.1.1 id 1 signal"), "{}", endpoints(&pair.server));
}

#[test]
fn root_endpoint_goes_with_its_carrier_and_comes_back_with_its_id() {
    let pair = Pair::new(3);
    let text =
        SIGNAL.replace("p1", "p*").replace("[host.mptcp]", "[agent]\ninterval = '3600s'\n[host.mptcp]");
    let _agent = Agent::start(&pair.server, &pair.file(&text));
    let ids = || {
        let all = endpoints(&pair.server);
        let mut ids: Vec<String> =
            all.lines().map(|line| line[..line.find(" signal").unwrap()].to_owned()).collect();
        ids.sort();
        ids
    };
    let before = ids();
    assert_eq!(before, ["10.9.0.1 id 1", "10.9.1.1 id 2", "10.9.2.1 id 3"]);
    for link in [0, 1] {
        run(&format!("ip -n {} link set p{link} down", pair.client));
    }
    until("both are gone", || ids() == before[2..]);
    let addresses = run(&format!("ip -n {} addr show", pair.server));
    assert!(addresses.contains("10.9.0.1/24") && addresses.contains("NO-CARRIER"), "{addresses}");
    // In another order.
    for link in [1, 0] {
        run(&format!("ip -n {} link set p{link} up", pair.client));
        until("it is back", || ids().contains(&before[link]));
    }
    assert_eq!(ids(), before);
}

#[test]
fn root_endpoint_removed_repeatedly_is_one_warning() {
    let pair = Pair::new(2);
    let text = SIGNAL.replace("[host.mptcp]", "[agent]\ninterval = '1s'\n[host.mptcp]");
    let mut agent = Agent::start(&pair.server, &pair.file(&text));
    let is_there = || endpoints(&pair.server).contains("10.9.1.1");
    let remove = || run(&format!("ip -n {} mptcp endpoint flush", pair.server));
    remove();
    let line = agent.hears("again, after another program changed it");
    assert!(line.contains("MPTCP endpoint 10.9.1.1 set again"), "{line}");
    // Set again at once, then after 20 s.
    for _ in 0..2 {
        until("it is set again", is_there);
        remove();
    }
    let warning = agent.hears("again and again");
    assert!(warning.contains("10.9.1.1") && warning.contains("NetworkManager"), "{warning}");
    let status = within(&pair.server, &["status", "--json"]).output().unwrap();
    assert!(String::from_utf8_lossy(&status.stdout).contains("again and again"));
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    let heard = agent.heard();
    assert_eq!(
        (heard.matches("after another program changed it").count(), heard.matches("again and again").count()),
        (1, 1),
        "{heard}"
    );
}

#[test]
fn root_excess_endpoints_are_one_warning() {
    let pair = Pair::new(2);
    let more: String = (2..202).map(|host| format!("addr add 10.9.1.{host}/32 dev p1\n")).collect();
    let batch = pair.dir.path().join("addresses");
    // The client has one of them.
    fs::write(&batch, more.replace("10.9.1.2/32", "10.9.1.250/32")).unwrap();
    run(&format!("ip -n {} -batch {}", pair.server, batch.display()));
    let text = SIGNAL.replace("[host.mptcp]", "[agent]\ninterval = '1s'\n[host.mptcp]");
    let mut agent = Agent::start(&pair.server, &pair.file(&text));
    for _ in 0..3 {
        agent.signal(Signal::SIGHUP);
        agent.hears("read again");
    }
    let without = 201 - endpoints(&pair.server).lines().count();
    let heard = agent.heard();
    if without > 0 {
        assert!(heard.contains(&format!("{without} addresses have no MPTCP endpoint")), "{heard}");
    }
    assert_eq!(heard.matches("no MPTCP endpoint").count(), usize::from(without > 0), "{heard}");
    assert!(!heard.contains("no longer"), "{heard}");
}

#[test]
fn root_limits_that_allow_one_path_are_warned_about() {
    let pair = Pair::new(2);
    let mut agent = Agent::start(&pair.server, &pair.file(&SIGNAL.replace("subflows = 8", "subflows = 0")));
    assert!(
        agent.heard().contains("host: every MPTCP connection stays with its first path"),
        "{}",
        agent.heard()
    );
    let found = pair.doctor(&pair.server, "mptcp-limits");
    assert!(
        found["ok"] == false && found["remedy"].as_str().unwrap().contains("ip mptcp limits set"),
        "{found}"
    );
    pair.file(SIGNAL);
    agent.signal(Signal::SIGHUP);
    agent.hears("no longer: host: every MPTCP connection stays");
    assert_eq!(pair.doctor(&pair.server, "mptcp-limits")["ok"], true);
    run(&format!("ip -n {} mptcp limits set subflows 2 add_addr_accepted 0", pair.client));
    let defaults = pair.doctor(&pair.client, "mptcp-limits");
    assert!(defaults["reason"].as_str().unwrap().contains("accepts no announced address"), "{defaults}");
}

#[test]
fn root_events_of_a_wildcard_server_name_its_address() {
    let pair = Pair::new(2);
    for (end, host) in [(&pair.server, 1), (&pair.client, 2)] {
        run(&format!("ip -n {end} addr add fd00:9::{host}/64 dev p1 nodad"));
    }
    let text = SIGNAL.replace("flags", "family = 'any'\nflags");
    let _agent = Agent::start(&pair.server, &pair.file(&text));
    let mut events = Agent::spawn(within(&pair.server, &["events", "--json"]));
    events.hears("following the agent and the subflows");
    let _server = Server::start_multipath(&pair.server, 5201);
    let mut client = Command::new("ip");
    client.args(["netns", "exec", &pair.client.0, "mptcpize", "run", "iperf3", "-t", "600", "-b", "500K"]);
    let _client = Agent::spawn({
        client.args(["-c", "10.9.0.1"]);
        client
    });
    // The listener's sockets are of IPv6, whatever their addresses.
    let joined = events.hears("subflow-joined");
    assert!(
        joined.contains("\"local\":\"10.9.1.1:5201\"") && joined.contains("\"remote\":\"10.9.1.2:"),
        "{joined}"
    );
}

/// Ends the writer when the test is over, however.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn root_address_listing_is_complete_during_changes() {
    let ns = Namespace::new("d");
    run(&format!("ip -n {ns} link add d0 type veth peer name d1"));
    let file = folder();
    let batch = file.path().join("addresses");
    let all: String =
        (0..600).map(|n| format!("addr add 10.{}.{}.1/32 dev d0\n", 20 + n / 200, n % 200)).collect();
    fs::write(&batch, all).unwrap();
    run(&format!("ip -n {ns} -batch {}", batch.display()));
    let over = AtomicBool::new(false);
    let missing = std::thread::scope(|scope| {
        scope.spawn(|| {
            ns.within(|| {
                let mut links = Links::open().unwrap();
                let port = links.find("d0").unwrap().unwrap().index;
                while !over.load(Ordering::SeqCst) {
                    // The first of the list, so that all others move up.
                    run("ip addr del 10.20.0.1/32 dev d0");
                    links.add_address(port, "10.20.0.1".parse().unwrap(), 32).unwrap();
                }
            });
        });
        let _over = Ending(&over);
        ns.within(|| {
            let mut links = Links::open().unwrap();
            let listed = |_| match links.addresses() {
                Ok(all) => {
                    let all: BTreeSet<String> = all.iter().map(|one| one.address.to_string()).collect();
                    599 - all.iter().filter(|one| one.starts_with("10.") && *one != "10.20.0.1").count()
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
                    0
                }
            };
            (0..20).map(listed).sum::<usize>()
        })
    });
    assert_eq!(missing, 0);
}

/// Container engines leave cgroup2 alone where both versions are mounted.
#[test]
fn root_rule_that_fits_no_cgroup_is_warned_about_on_a_hybrid_host() {
    let pair = Pair::new(1);
    let text = "[[cgroup]]\npath = 'machine.slice/libpod-*.scope'\ncongestion_control = 'cubic'\n";
    let mut agent = Agent::start(&pair.server, &pair.file(text));
    let warned = agent.heard().contains("no cgroup fits `machine.slice/libpod-*.scope`");
    assert_eq!(warned, vmcc_bpf::cgroup::is_hybrid(), "{}", agent.heard());
}

/// Whatever was lost with the events that the kernel had no room for.
#[test]
fn root_namespace_is_covered_though_its_event_was_lost() {
    let pair = Pair::new(1);
    let name = own_name("q");
    let text =
        format!("[agent]\ninterval = '3600s'\n[[namespace]]\nname = '{name}'\nmptcp = {{ subflows = 5 }}\n");
    let agent = Agent::start(&pair.server, &pair.file(&text));
    agent.signal(Signal::SIGSTOP);
    let queue: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    for n in 0..=queue {
        // Two in turn: the kernel keeps one event of several that are alike.
        let other = PathBuf::from(format!("/run/vmcc-test-{}-{}", std::process::id(), n % 2));
        fs::write(&other, "").unwrap();
        fs::remove_file(&other).unwrap();
    }
    run(&format!("ip netns add {name}"));
    let ns = Namespace(name);
    agent.signal(Signal::SIGCONT);
    until("it is covered", || run(&format!("ip -n {ns} mptcp limits show")).contains("subflows 5"));
}

#[test]
fn root_mptcp_blackhole_is_reported() {
    let pair = Pair::new(1);
    let _server = Server::start_multipath(&pair.server, 5201);
    pair.client.run("iptables -A OUTPUT -p tcp --tcp-option 30 -j DROP");
    let seconds = pair.client.run("mptcpize run iperf3 -c 10.9.0.1 -n 1K");
    assert!(seconds.contains("iperf Done"), "it falls back: {seconds}");
    let status = within(&pair.client, &["status", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let fallbacks = &status["fallbacks"];
    assert!(
        fallbacks["blackholes"].as_u64() > Some(0) && fallbacks["dropped"].as_u64() > Some(0),
        "{status}"
    );
    let said = within(&pair.client, &["status"]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("fell back to TCP") && said.contains("net.mptcp.blackhole_timeout"), "{said}");
    pair.client.run("ip link set lo up");
    let found = pair.doctor(&pair.client, "mptcp-blackhole");
    assert!(found["ok"] == false && found["reason"].as_str().unwrap().contains("TCP option 30"), "{found}");
    assert_eq!(pair.doctor(&pair.server, "mptcp-blackhole")["ok"], true);
}

/// Four interfaces at each end of a routed network in which each address reaches each other one.
#[test]
fn root_laminar_endpoints_give_disjoint_paths() {
    let (server, client, router) = (Namespace::new("s"), Namespace::new("c"), Namespace::new("r"));
    router.sysctl("ipv4/ip_forward", "1");
    for nic in 0..4 {
        join(&client, &router, &format!("c{nic}"), &format!("10.10.{nic}"));
        join(&server, &router, &format!("s{nic}"), &format!("10.11.{nic}"));
        for (end, link, net) in [(&client, 'c', 10), (&server, 's', 11)] {
            until("a carrier", || is_operational(end, &format!("{link}{nic}")));
            let (table, gateway) = (100 + nic, format!("10.{net}.{nic}.2"));
            run(&format!("ip -n {end} route add default via {gateway} dev {link}{nic} table {table}"));
            run(&format!("ip -n {end} rule add from 10.{net}.{nic}.1 table {table}"));
        }
    }
    run(&format!("ip -n {client} route add default via 10.10.0.2"));
    run(&format!("ip -n {server} route add default via 10.11.0.2"));
    let dir = folder();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    run(&format!("ip -n {server} mptcp limits set subflows 8 add_addr_accepted 8"));
    for nic in 1..4 {
        run(&format!("ip -n {server} mptcp endpoint add 10.11.{nic}.1 dev s{nic} signal"));
    }
    let laminar = "[host.mptcp]\nsubflows = 8\naccept = 8\n[[host.mptcp.endpoint]]\nnic = 'c3'\nflags = ['laminar']\nid = 9\n\
                   [[host.mptcp.endpoint]]\nnic = 'c*'\nflags = ['laminar']\n";
    let mut agent = Agent::start(&client, &file("client.toml", laminar));
    if !vmcc_bpf::probe::has_laminar_endpoints() {
        assert!(agent.heard().contains("no laminar endpoints"), "{}", agent.heard());
        return;
    }
    assert!(agent.heard().contains("10.10.3.1 set: nothing -> laminar dev"), "{}", agent.heard());
    assert!(endpoints(&client).contains("10.10.3.1 id 9 "), "{}", endpoints(&client));
    let _server = Server::start_multipath(&server, 5201);
    let mut command = Command::new("ip");
    command.args([
        "netns",
        "exec",
        &client.0,
        "mptcpize",
        "run",
        "iperf3",
        "-c",
        "10.11.0.1",
        "-t",
        "600",
        "-b",
        "500K",
    ]);
    let _client = Agent::spawn(command);
    // Of two connections; sorted pairs of addresses.
    let pairs = || {
        let sockets = client.run("ss -Htn state established dport = :5201");
        let address = |end: &str| end.split([':', '%']).next().unwrap_or_default().to_owned();
        let pair = |line: &str| {
            let ends: Vec<&str> = line.split_whitespace().skip(2).collect();
            (address(ends[0]), address(ends[1]))
        };
        let mut all: Vec<(String, String)> = sockets.lines().map(pair).collect();
        all.sort();
        all
    };
    until("four paths each", || pairs().len() == 8);
    let all = pairs();
    let distinct = |ends: Vec<&String>| ends.into_iter().collect::<BTreeSet<_>>().len();
    let once: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct(all.iter().map(|(local, _)| local).collect()), 4, "{all:?}");
    assert_eq!(distinct(all.iter().map(|(_, remote)| remote).collect()), 4, "{all:?}");
    assert_eq!(once.len(), 4, "both connections pair the same addresses, each with one: {all:?}");
    // An outage removes no endpoint: Linux would open no path to one that is added beside running connections.
    run(&format!("ip -n {router} link set c2 down"));
    until("no carrier", || !is_operational(&client, "c2"));
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    assert!(endpoints(&client).contains("10.10.2.1 "), "{}", endpoints(&client));
    run(&format!("ip -n {router} link set c2 up"));
    until("four paths each again", || pairs() == all);
}
