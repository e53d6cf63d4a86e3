//! MPTCP connections of a server whose agent ends, reads another file or sees an outage: none is harmed. No algorithm is loaded.

use crate::common::folder;
use crate::kept::{Agent, endpoints, until, within};
use nix::sys::signal::Signal;
use std::fs;
use std::process::Command;
use vmcc_system::diag::{Diag, Subflow};
use vmcc_testkit::netns::{Namespace, Server, join, run};

const LINKS: usize = 3;
const PORT: u16 = 5201;
/// The client's: one that controls, one that carries.
const CONNECTIONS: usize = 2;

/// A server with an agent that announces each address, and a client whose connections use all of them.
struct Pair {
    server: Namespace,
    client: Namespace,
    dir: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        let (server, client) = (Namespace::new("s"), Namespace::new("c"));
        for link in 0..LINKS {
            join(&server, &client, &format!("p{link}"), &format!("10.9.{link}"));
            for end in [&server, &client] {
                until("a carrier", || run(&format!("ip -n {end} link show p{link}")).contains("state UP"));
            }
        }
        run(&format!("ip -n {client} mptcp limits set subflows 8 add_addr_accepted 8"));
        let pair = Self { server, client, dir: folder() };
        pair.write("nic = 'p*'");
        pair
    }

    fn write(&self, rule: &str) {
        let limits = "[agent]\ninterval = '1s'\n[host.mptcp]\nsubflows = 8\naccept = 8\n";
        let text = format!("{limits}[[host.mptcp.endpoint]]\n{rule}\nflags = ['signal']\n");
        fs::write(self.file(), text).unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("vmcc.toml")
    }

    fn agent(&self) -> Agent {
        Agent::start(&self.server, &self.file())
    }

    fn client(&self) -> Agent {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.client.0, "mptcpize", "run", "iperf3", "-c", "10.9.0.1"]);
        command.args(["-t", "600", "-b", "500K"]);
        Agent::spawn(command)
    }

    /// The server's subflows at its address of a link.
    fn subflows(&self, link: usize) -> Vec<Subflow> {
        let all = self.server.within(|| Diag::open().unwrap().subflows().unwrap());
        let address = format!("10.9.{link}.1");
        let here = |one: &Subflow| one.established && one.local.ip().to_canonical().to_string() == address;
        all.into_iter().filter(here).collect()
    }

    /// Waits until every connection has a path by each of these links.
    fn until_paths(&self, links: std::ops::Range<usize>) {
        for link in links {
            until(&format!("paths by p{link}"), || self.subflows(link).len() == CONNECTIONS);
        }
    }

    fn received(&self) -> u64 {
        (0..LINKS).flat_map(|link| self.subflows(link)).map(|one| one.bytes_received).max().unwrap_or(0)
    }

    /// Waits until data arrive over the initial subflows, of which none has gone.
    fn carries(&self) {
        assert_eq!(self.subflows(0).len(), CONNECTIONS, "an initial subflow was closed");
        let before = self.received();
        until("data arrive", || self.received() > before);
    }

    fn down(&self) -> String {
        let output = within(&self.server, &["down"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    fn set_carriers(&self, state: &str) {
        (0..LINKS).for_each(|link| drop(run(&format!("ip -n {} link set p{link} {state}", self.client))));
    }
}

#[test]
fn root_agent_exit_keeps_endpoints_of_initial_subflows() {
    let pair = Pair::new();
    let _agent = pair.agent();
    let _server = Server::start_multipath(&pair.server, PORT);
    let client = pair.client();
    pair.until_paths(0..LINKS);
    let said = pair.down();
    assert!(said.contains("10.9.0.1 kept: 2 connections began at it"), "{said}");
    assert!(said.contains("`ip -n") || said.contains("`ip mptcp endpoint delete id"), "{said}");
    assert_eq!(endpoints(&pair.server).lines().count(), 1, "{}", endpoints(&pair.server));
    pair.carries();
    let status = within(&pair.server, &["status"]).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains("left by an agent") && status.contains("endpoint 10.9.0.1: signal dev"),
        "{status}"
    );
    assert!(pair.down().contains("10.9.0.1 kept"), "as often as it is asked");
    pair.carries();

    let mut again = pair.agent();
    pair.until_paths(0..LINKS);
    again.signal(Signal::SIGTERM);
    assert_eq!(again.ends(), Some(0), "{}", again.heard());
    assert!(again.heard().contains("but for 1 endpoints that connections use"), "{}", again.heard());
    pair.carries();

    drop(client);
    until("the connections have ended", || pair.received() == 0);
    until("the endpoint goes with the last of them", || !pair.down().contains("kept"));
    assert_eq!(endpoints(&pair.server), "");
}

#[test]
fn root_outage_of_all_links_costs_no_connection() {
    let pair = Pair::new();
    let mut agent = pair.agent();
    let _server = Server::start_multipath(&pair.server, PORT);
    let _client = pair.client();
    pair.until_paths(0..LINKS);
    let before = endpoints(&pair.server);
    pair.set_carriers("down");
    agent.hears("10.9.0.1 is kept though nothing asks for it");
    // Two more rounds without any carrier.
    for _ in 0..2 {
        agent.signal(Signal::SIGHUP);
        agent.hears("read again");
    }
    assert_eq!(endpoints(&pair.server), before, "the last paths stay");
    pair.set_carriers("up");
    agent.hears("no longer: host: MPTCP endpoint 10.9.0.1 is kept");
    pair.carries();
    pair.until_paths(0..LINKS);
    assert_eq!(agent.heard().matches("is kept though").count() % LINKS, 0, "{}", agent.heard());
}

#[test]
fn root_rule_change_keeps_an_endpoint_in_use() {
    let pair = Pair::new();
    let mut agent = pair.agent();
    let _server = Server::start_multipath(&pair.server, PORT);
    let client = pair.client();
    pair.until_paths(0..LINKS);
    pair.write("nic = 'p2'");
    agent.signal(Signal::SIGHUP);
    agent.hears("10.9.0.1 is kept though nothing asks for it");
    agent.hears("read again");
    let left = endpoints(&pair.server);
    assert!(left.contains("10.9.0.1 ") && !left.contains("10.9.1.1 "), "{left}");
    pair.carries();
    drop(client);
    agent.hears("MPTCP endpoint 10.9.0.1 is as before");
    assert!(!endpoints(&pair.server).contains("10.9.0.1 "), "{}", endpoints(&pair.server));
}

#[test]
fn root_endpoint_with_a_changed_id_begins_as_a_backup() {
    let pair = Pair::new();
    pair.write("nic = 'p1'");
    let mut agent = pair.agent();
    let _server = Server::start_multipath(&pair.server, PORT);
    let _client = pair.client();
    pair.until_paths(0..2);
    pair.write("nic = 'p1'\nid = 7");
    agent.signal(Signal::SIGHUP);
    let line = agent.hears("10.9.1.1 set: signal dev");
    assert!(line.contains("-> signal,backup dev") && line.ends_with("id 7"), "{line}");
    agent.hears("-> signal dev");
    pair.until_paths(0..2);
}

#[test]
fn root_address_of_two_links_is_one_endpoint_and_one_warning() {
    let pair = Pair::new();
    for link in [2, 1] {
        run(&format!("ip -n {} addr add 10.9.77.1/32 dev p{link}", pair.server));
    }
    let mut agent = pair.agent();
    for _ in 0..3 {
        agent.signal(Signal::SIGHUP);
        agent.hears("read again");
    }
    let heard = agent.heard();
    assert_eq!(heard.matches("10.9.77.1 is an address of p1 and of p2").count(), 1, "{heard}");
    assert_eq!(heard.matches("endpoint 10.9.77.1 set").count(), 1, "{heard}");
    let all = endpoints(&pair.server);
    let line = all.lines().find(|line| line.starts_with("10.9.77.1 ")).unwrap_or_default();
    assert!(line.contains("signal dev p1") && all.lines().count() == LINKS + 1, "{all}");
}

#[test]
fn root_userspace_path_manager_is_a_warning() {
    let pair = Pair::new();
    run(&format!("ip netns exec {} sysctl -qw net.mptcp.pm_type=1", pair.server));
    let mut agent = pair.agent();
    assert!(agent.heard().contains("user space manages their paths"), "{}", agent.heard());
}

#[test]
fn root_id_of_the_file_moves_an_automatic_one() {
    let pair = Pair::new();
    let mut agent = pair.agent();
    pair.write("nic = 'p2'\nid = 1\nflags = ['signal']\n[[host.mptcp.endpoint]]\nnic = 'p0'");
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    let all = endpoints(&pair.server);
    assert!(
        all.contains("10.9.2.1 id 1 ") && all.contains("10.9.0.1 id ") && all.lines().count() == 2,
        "{all}"
    );
    assert!(!agent.heard().contains("cannot"), "{}", agent.heard());
}

#[test]
fn root_ids_of_the_file_can_rotate_in_one_round() {
    let pair = Pair::new();
    let write = |ids: [u8; 3]| {
        let rule = |link: usize| format!("nic = 'p{link}'\nid = {}", ids[link]);
        let signal = "\nflags = ['signal']\n[[host.mptcp.endpoint]]\n";
        pair.write(&(0..LINKS).map(rule).collect::<Vec<_>>().join(signal));
        let text = fs::read_to_string(pair.file()).unwrap();
        fs::write(pair.file(), text.replace("interval = '1s'", "interval = '3600s'")).unwrap();
    };
    let rotate = |agent: &mut Agent, ids: [u8; 3]| {
        write(ids);
        agent.signal(Signal::SIGHUP);
        until("every new id", || {
            let all = endpoints(&pair.server);
            (0..LINKS).all(|link| all.contains(&format!("10.9.{link}.1 id {} ", ids[link])))
        });
    };
    write([1, 2, 3]);
    let mut agent = pair.agent();
    rotate(&mut agent, [2, 3, 1]);
    // Connections begin at the first address, so that its endpoint keeps its id.
    let _server = Server::start_multipath(&pair.server, PORT);
    let _client = pair.client();
    pair.until_paths(0..3);
    rotate(&mut agent, [2, 1, 3]);
    pair.until_paths(0..3);
    assert!(!agent.heard().contains("another endpoint's"), "{}", agent.heard());
}

#[test]
fn root_endpoint_keeps_its_id_when_the_new_one_is_taken() {
    let pair = Pair::new();
    pair.write("nic = 'p1'\nid = 2");
    let mut agent = pair.agent();
    run(&format!("ip -n {} mptcp endpoint add 10.9.0.1 id 7 subflow", pair.server));
    let _server = Server::start_multipath(&pair.server, PORT);
    let _client = pair.client();
    pair.until_paths(0..2);
    for rules in [
        "nic = 'p1'\nid = 7",
        "nic = 'p0'\nid = 2\nflags = ['signal']\n[[host.mptcp.endpoint]]\nnic = 'p1'\nid = 7",
    ] {
        pair.write(rules);
        agent.signal(Signal::SIGHUP);
        agent.hears("read again");
        let all = endpoints(&pair.server);
        assert!(all.contains("10.9.1.1 id 2 ") && all.contains("10.9.0.1 id 7 subflow"), "{all}");
    }
    assert!(agent.heard().contains("its id 7 is another endpoint's"), "{}", agent.heard());
    assert_eq!(pair.subflows(1).len(), CONNECTIONS, "none lost its path");
}

#[test]
fn root_endpoint_that_another_program_replaces_is_one_warning() {
    let pair = Pair::new();
    pair.write("nic = 'p1'");
    let mut agent = pair.agent();
    for _ in 0..4 {
        run(&format!("ip -n {} mptcp endpoint flush", pair.server));
        agent.signal(Signal::SIGHUP);
        agent.hears("read again");
        run(&format!("ip -n {} mptcp endpoint flush", pair.server));
        run(&format!("ip -n {} mptcp endpoint add 10.9.1.1 id 1 subflow", pair.server));
        agent.signal(Signal::SIGHUP);
        agent.hears("read again");
    }
    let heard = agent.heard();
    assert!(heard.matches("another program has set it").count() <= 2, "said, and no longer: {heard}");
    assert_eq!(heard.matches("changes it again and again").count(), 1, "{heard}");
}

#[test]
fn root_backup_flag_that_another_program_sets_is_its_change() {
    let pair = Pair::new();
    pair.write("nic = 'p1'");
    let mut agent = pair.agent();
    for _ in 0..3 {
        run(&format!("ip -n {} mptcp endpoint change id 1 backup", pair.server));
        agent.signal(Signal::SIGHUP);
        agent.hears("read again");
    }
    let heard = agent.heard();
    assert_eq!(heard.matches("set again, after another program changed it").count(), 1, "{heard}");
    assert_eq!(heard.matches("changes it again and again").count(), 1, "{heard}");
}

#[test]
fn root_port_renamed_under_the_agent_is_released_by_down() {
    let pair = Pair::new();
    fs::write(pair.file(), "[port.p1]\nrate = '100mbit'\nmarking = { rule = 'threshold', at = '30kB' }\n")
        .unwrap();
    let _agent = pair.agent();
    let served =
        || run(&format!("tc -n {} qdisc show", pair.server)) + &within_text(&pair, &["mark", "--list"]);
    assert!(served().contains("p1"), "{}", served());
    run(&format!("ip -n {} link set p1 down", pair.server));
    run(&format!("ip -n {} link set p1 name q1", pair.server));
    assert!(served().contains("q1"), "{}", served());
    pair.down();
    assert!(!served().contains("q1"), "{}", served());
}

fn within_text(pair: &Pair, arguments: &[&str]) -> String {
    let output = within(&pair.server, arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
