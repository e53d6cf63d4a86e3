//! The agent and connections that run: with `live` they follow the default, and every byte arrives.

use crate::agent::Down;
use crate::common;
use crate::kept::{Agent, until, within};
use nix::sys::signal::Signal;
use socket2::Socket;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use vmcc_bpf::Loaded;
use vmcc_cc::{Algorithm, Params};
use vmcc_system::diag::Diag;
use vmcc_testkit::netns::run;
use vmcc_testkit::paths::{Net, Over, Shape, connect, listen, shape, transfer};

const PORT: u16 = 5395;

/// Ends the transfers when the test is over, however.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Of the client's sockets to a port.
fn used(net: &Net, port: u16) -> Vec<String> {
    let all = net.client.within(|| Diag::open().unwrap().subflows().unwrap());
    all.into_iter().filter(|s| s.established && s.remote.port() == port).map(|s| s.algorithm).collect()
}

fn available() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// True if this is the only algorithm of ours that is left.
fn is_left(name: &str) -> bool {
    available().split_whitespace().filter(|one| one.starts_with("mp_")).eq([name])
}

/// References to an algorithm that was taken down as `vmcc status` counts them, and those in no reachable namespace.
fn lingering(name: &str) -> Option<(u64, u64)> {
    let output = Command::new(env!("CARGO_BIN_EXE_vmcc")).args(["status", "--json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = status["lingering"].as_array().unwrap().iter().find(|one| one["kernel_name"] == name)?;
    Some((found["references"].as_u64().unwrap(), found["unreachable"].as_u64().unwrap()))
}

#[test]
fn root_orphan_of_a_deleted_namespace_is_reported_until_it_times_out() {
    let (net, _down) = (Net::new(1, None), Down);
    assert!(within(&net.client, &["up", "balia"]).output().unwrap().status.success());
    net.client.sysctl("ipv4/tcp_orphan_retries", "4");
    let listener = net.server.within(|| listen(Over::Tcp, PORT));
    let client = net.client.within(|| connect(Over::Tcp, PORT));
    client.set_tcp_congestion(b"mp_balia").unwrap();
    client.set_nonblocking(true).unwrap();
    while client.send(&[0; 1 << 16]).is_ok() {}
    assert_eq!(lingering("mp_balia"), None, "it is up");
    run(&format!("ip -n {} link set p0 down", net.client));
    drop((client, listener));

    let down = within(&net.client, &["down"]).output().unwrap();
    let said = String::from_utf8(down.stderr).unwrap();
    assert!(said.contains("mp_balia was taken down and is still in the kernel: 1 "), "{said}");
    assert_eq!(lingering("mp_balia"), Some((1, 0)), "its namespace has a name");
    drop(net);
    assert_eq!(lingering("mp_balia"), Some((1, 1)));
    let status = Command::new(env!("CARGO_BIN_EXE_vmcc")).arg("status").output().unwrap();
    let said = String::from_utf8(status.stdout).unwrap();
    assert!(
        said.contains("1 in deleted network namespaces") && said.contains("tcp_orphan_retries"),
        "{said}"
    );
    until("it has timed out", || lingering("mp_balia").is_none());
}

#[test]
fn root_running_connections_follow_the_default_and_are_restored() {
    let (net, _down) = (Net::new(2, None), Down);
    (0..2).for_each(|path| shape(&net.client, &format!("p{path}"), Shape { rate_mbit: 50, buffer_kb: 100 }));
    let folder = common::folder();
    let file = folder.path().join("vmcc.toml");
    let write = |name: &str| {
        let text = format!(
            "[algorithm.lia]\n[algorithm.vmcc]\n[host]\ncongestion_control = '{name}'\nlive = true\n"
        );
        fs::write(&file, text).unwrap();
    };
    let reno = Algorithm::by_name("reno").unwrap();
    let _other = Loaded::load(reno, &Params::defaults(reno)).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Ending(&over);
        let send = |kind, port| {
            let (net, over) = (&net, &over);
            scope.spawn(move || transfer(net, kind, port, |_| over.load(Ordering::SeqCst)))
        };
        net.select("mp_reno");
        send(Over::Tcp, PORT);
        until("it runs under another one", || used(&net, PORT) == ["mp_reno"]);
        net.select("reno");
        send(Over::Tcp, PORT + 1);
        send(Over::Mptcp, PORT + 2);
        until("all carry", || used(&net, PORT + 1).len() == 1 && used(&net, PORT + 2).len() == 2);
        let all = |name: &str| {
            used(&net, PORT + 1) == [name]
                && used(&net, PORT + 2) == [name; 2]
                && used(&net, PORT) == ["mp_reno"]
        };
        assert!(all("reno"));

        write("mp_lia");
        let mut agent = Agent::start(&net.client, &file);
        assert!(all("mp_lia"), "{:?}", used(&net, PORT + 2));
        let status = within(&net.client, &["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let lia =
            status["algorithms"].as_array().unwrap().iter().find(|a| a["kernel_name"] == "mp_lia").unwrap();
        assert_eq!(lia["connections"], 1, "its paths are coupled: {lia}");
        write("mp_vmcc");
        agent.signal(Signal::SIGHUP);
        agent.hears("read again");
        assert!(all("mp_vmcc"));
        agent.signal(Signal::SIGTERM);
        assert_eq!(agent.ends(), Some(0), "{}", agent.heard());
        assert!(all("reno") && is_left("mp_reno"), "{}", available());

        let mut killed = Agent::start(&net.client, &file);
        assert!(all("mp_vmcc"));
        killed.signal(Signal::SIGKILL);
        killed.ends();
        assert!(all("mp_vmcc"));
        assert!(within(&net.client, &["down"]).output().unwrap().status.success());
        assert!(all("reno") && is_left("mp_reno"), "{}", available());
    });
}

/// Two connections from the same namespace: one with its default, one whose program has chosen an algorithm.
struct Two {
    net: Net,
    _sockets: [Socket; 3],
}

impl Two {
    fn connected(default: &str, chosen: &str) -> Self {
        let net = Net::new(1, None);
        let listener = net.server.within(|| listen(Over::Tcp, PORT + 9));
        net.select(default);
        let [one, other] = [(); 2].map(|()| net.client.within(|| connect(Over::Tcp, PORT + 9)));
        other.set_tcp_congestion(chosen.as_bytes()).unwrap();
        let two = Self { net, _sockets: [listener, one, other] };
        until("both are connected", || two.have(&[default, chosen]));
        two
    }

    fn have(&self, expected: &[&str]) -> bool {
        let (mut found, mut expected) = (used(&self.net, PORT + 9), expected.to_vec());
        found.sort();
        expected.sort_unstable();
        found == expected
    }
}

/// Has Linux accept `cubic` as the default of further network namespaces, or refuse it, while this lives.
struct Allowed {
    before: String,
}

impl Allowed {
    const LIST: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

    fn cubic(may: bool) -> Self {
        let before = fs::read_to_string(Self::LIST).unwrap();
        let others = before.split_whitespace().filter(|name| *name != "cubic");
        let list: Vec<&str> = others.chain(may.then_some("cubic")).collect();
        fs::write(Self::LIST, list.join(" ")).unwrap();
        Self { before }
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        fs::write(Self::LIST, &self.before).unwrap();
    }
}

/// A file of the agent that gives a namespace and its connections this algorithm.
fn live(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let file = folder.path().join("vmcc.toml");
    fs::write(&file, format!("[host]\ncongestion_control = '{name}'\nlive = true\n")).unwrap();
    file
}

#[test]
fn root_connection_that_chose_the_algorithm_keeps_it_when_the_agent_ends() {
    let (_allowed, _down) = (Allowed::cubic(true), Down);
    let two = Two::connected("reno", "cubic");
    let folder = common::folder();
    let file = live(&folder, "cubic");
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut agent = Agent::start(&two.net.client, &file);
        assert!(two.have(&["cubic", "cubic"]), "{:?}", used(&two.net, PORT + 9));
        agent.signal(signal);
        agent.ends();
        assert!(within(&two.net.client, &["down"]).output().unwrap().status.success());
        assert!(two.have(&["reno", "cubic"]), "{signal}: {:?}", used(&two.net, PORT + 9));
        assert!(!std::path::Path::new("/sys/fs/bpf/vmcc-live").exists(), "{signal}");
    }
}

/// Linux refuses it as the default of another network namespace than the initial one.
#[test]
fn root_restricted_algorithm_leaves_running_connections_as_they_were() {
    let (_restricted, _down) = (Allowed::cubic(false), Down);
    let two = Two::connected("reno", "cubic");
    let folder = common::folder();
    let mut agent = Agent::start(&two.net.client, &live(&folder, "cubic"));
    assert!(two.have(&["reno", "cubic"]), "{:?}", used(&two.net, PORT + 9));
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.ends(), Some(0));
    assert!(agent.heard().contains("tcp_allowed_congestion_control lists it"), "{}", agent.heard());
    assert!(two.have(&["reno", "cubic"]), "{:?}", used(&two.net, PORT + 9));
}
