//! `vmcc up --config`: the kernel is as the file says, follows what comes and goes, and is as before in the end.

use crate::agent::{Down, available};
use crate::common::{self, folder, json};
use crate::kept::{Agent, endpoints, seen, state, sysctl, until, up, within};
use nix::sys::signal::Signal;
use socket2::{Domain, Protocol, Socket, Type};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use vmcc_testkit::netns::{Namespace, own_name, run};

const EVERYTHING: &str = r#"
[agent]
interval = "1s"
[algorithm.reno]
[algorithm.vmcc]
theta = 5
[host]
congestion_control = "mp_vmcc"
notsent_lowat = "16384B"
sysctl = { "net.ipv4.tcp_rmem" = "4096 100000 200000", "net.ipv4.conf.all.arp_ignore" = 1 }
[host.mptcp]
subflows = 3
accept = 4
[[host.mptcp.endpoint]]
nic = "nic*"
flags = ["signal", "backup"]
family = "ipv4"
[port.nic0]
rate = "100mbit"
[guard]
enabled = true
"#;

/// A namespace with two interfaces, and a folder for files.
struct Host {
    namespace: Namespace,
    dir: tempfile::TempDir,
    _down: Down,
}

impl Host {
    fn new() -> Self {
        let host = Self { namespace: Namespace::new("k"), dir: folder(), _down: Down };
        host.nic(0);
        host.nic(1);
        host
    }

    fn nic(&self, n: u32) {
        let ns = &self.namespace;
        run(&format!("ip -n {ns} link add nic{n} type veth peer name far{n}"));
        run(&format!("ip -n {ns} addr add 10.9.{n}.1/24 dev nic{n}"));
        run(&format!("ip -n {ns} link set far{n} up"));
        run(&format!("ip -n {ns} link set nic{n} up"));
        // The kernel says so a moment later.
        let link = || run(&format!("ip -n {ns} link show"));
        until("a carrier", || !link().contains("LOWERLAYERDOWN"));
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("vmcc.toml");
        fs::write(&path, text).unwrap();
        path
    }

    fn down(&self) -> (i32, serde_json::Value) {
        json(self.dir.path(), &["down"])
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn root_config_is_applied_and_restored_by_down() {
    let host = Host::new();
    let ns = &host.namespace;
    let before = seen(ns);
    let mut agent = Agent::start(ns, &host.file(EVERYTHING));
    assert!(available().contains("mp_reno") && available().contains("mp_vmcc"), "{}", available());
    assert_eq!(sysctl(ns, "ipv4.tcp_congestion_control").trim(), "mp_vmcc");
    assert_eq!(sysctl(ns, "ipv4.tcp_notsent_lowat").trim(), "16384");
    assert_eq!(sysctl(ns, "ipv4.tcp_rmem").trim(), "4096\t100000\t200000");
    assert_eq!(sysctl(ns, "ipv4.conf.all.arp_ignore").trim(), "1");
    assert_eq!(run(&format!("ip -n {ns} mptcp limits show")).trim(), "add_addr_accepted 4 subflows 3");
    let found = endpoints(ns);
    for nic in 0..2 {
        let ours = found.lines().find(|l| l.starts_with(&format!("10.9.{nic}.1 "))).unwrap_or_default();
        assert!(ours.contains("signal backup") && ours.contains(&format!("dev nic{nic}")), "{found}");
    }
    assert_eq!(found.lines().count(), 2, "{found}");
    let queues = run(&format!("tc -n {ns} qdisc show dev nic0"));
    assert!(!before.contains("clsact") && queues.contains("clsact"), "{queues}");
    let parameters = json(host.dir.path(), &["status"]).1["algorithms"][1]["parameters"]["theta"].clone();
    assert_eq!(parameters, 5.0);

    let (code, down) = host.down();
    assert_eq!((code, &down["down"]), (0, &serde_json::json!(["mp_reno", "mp_vmcc"])), "{down}");
    assert_eq!(down["agent"], agent.pid().as_raw(), "{down}");
    assert_eq!(agent.ends(), Some(0), "{}", agent.heard());
    assert_eq!(down["left"], serde_json::json!([]), "{down}");
    assert_eq!(seen(ns), before, "{down}");
    assert_eq!(state(), Vec::<PathBuf>::new());
}

#[test]
fn root_sigterm_restores_like_down() {
    let host = Host::new();
    let before = seen(&host.namespace);
    for (signal, code) in [(Signal::SIGTERM, 0), (Signal::SIGINT, 130)] {
        let mut agent = Agent::start(&host.namespace, &host.file(EVERYTHING));
        assert_ne!(seen(&host.namespace), before);
        agent.signal(signal);
        assert_eq!(agent.ends(), Some(code), "{}", agent.heard());
        assert_eq!(seen(&host.namespace), before, "{}", agent.heard());
        assert_eq!(state(), Vec::<PathBuf>::new());
    }
}

#[test]
fn root_endpoints_follow_interfaces_and_addresses() {
    let host = Host::new();
    let ns = &host.namespace;
    // Longer than the test: what is seen here was announced.
    let file = host.file(&EVERYTHING.replace("\"1s\"", "\"3600s\"").replace("[algorithm.reno]\n", ""));
    let mut agent = Agent::start(ns, &file);
    run(&format!("ip -n {ns} link del nic1"));
    until("an interface that goes takes its endpoint along", || !endpoints(ns).contains("10.9.1.1"));
    host.nic(1);
    host.nic(2);
    let has = |part: &str| endpoints(ns).contains(part);
    until("a new one gets one", || has("10.9.1.1") && has("10.9.2.1"));
    run(&format!("ip -n {ns} addr add 10.9.7.1/24 dev nic2"));
    until("a new address", || has("10.9.7.1"));
    run(&format!("ip -n {ns} addr del 10.9.7.1/24 dev nic2"));
    until("an address that goes", || !has("10.9.7.1"));
    run(&format!("ip -n {ns} link set nic2 down"));
    until("an interface that is off", || !has("10.9.2.1"));
    run(&format!("ip -n {ns} mptcp endpoint flush"));
    // Nobody announces that; a look at everything is asked for by the file being read again.
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    assert!(has("10.9.0.1") && has("10.9.1.1"), "{}", endpoints(ns));
    agent.signal(Signal::SIGTERM);
    assert_eq!((agent.ends(), endpoints(ns).as_str()), (Some(0), ""), "{}", agent.heard());
}

/// An MPTCP connection within a namespace; its two ends.
fn connection(ns: &Namespace) -> [TcpStream; 2] {
    ns.within(|| {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mptcp = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        let listener = mptcp();
        listener.bind(&any.into()).unwrap();
        listener.listen(1).unwrap();
        let client = mptcp();
        client.connect(&listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        [TcpStream::from(client), TcpStream::from(server)]
    })
}

#[test]
fn root_endpoint_added_beside_connections_is_a_backup_until_joined() {
    let host = Host::new();
    let ns = &host.namespace;
    // Longer than the test: what clears the flag is no look at everything.
    let file =
        "[agent]\ninterval = '3600s'\n[host]\n[[host.mptcp.endpoint]]\nnic = 'nic*'\nflags = ['signal']\n";
    let mut agent = Agent::start(ns, &host.file(file));
    assert!(!agent.heard().contains("backup"), "nothing joins: {}", agent.heard());
    let of_nic2 = || endpoints(ns).lines().find(|line| line.starts_with("10.9.2.1 ")).map(str::to_owned);
    let ends = connection(ns);
    host.nic(2);
    agent.hears("MPTCP endpoint 10.9.2.1 set: nothing -> signal,backup dev");
    let cleared = agent.hears("MPTCP endpoint 10.9.2.1 set: signal,backup dev");
    assert!(cleared.contains("-> signal dev"), "{cleared}");
    let id = |line: Option<String>| line.and_then(|line| line.split(' ').nth(2).map(str::to_owned));
    assert!(of_nic2().is_some_and(|line| !line.contains("backup")), "{}", endpoints(ns));
    let before = id(of_nic2());
    // Killed while it settles: the next one finishes, and the endpoint stays the same one.
    run(&format!("ip -n {ns} link del nic2"));
    until("it goes with its interface", || of_nic2().is_none());
    host.nic(2);
    agent.hears("nothing -> signal,backup dev");
    agent.signal(Signal::SIGKILL);
    agent.ends();
    let again = id(of_nic2());
    let mut agent = Agent::start(ns, &host.file(file));
    assert!(of_nic2().is_some_and(|line| !line.contains("backup")), "{}", agent.heard());
    assert!(before.is_some() && id(of_nic2()) == again, "{}", endpoints(ns));
    agent.signal(Signal::SIGTERM);
    assert_eq!((agent.ends(), endpoints(ns).as_str()), (Some(0), ""), "{}", agent.heard());
    drop(ends);
}

#[test]
fn root_new_namespace_is_configured_by_its_rule_and_can_be_deleted() {
    let host = Host::new();
    let pattern = own_name("n");
    let rules = format!(
        "[agent]\ninterval = '3600s'\n[[namespace]]\nname = '{pattern}x'\n[[namespace]]\nname = '{pattern}*'\nnotsent_lowat = \
         '4096B'\nmptcp = {{ subflows = 5 }}"
    );
    let mut agent = Agent::start(&host.namespace, &host.file(&rules));
    let (one, other) = (format!("{pattern}-1"), format!("{pattern}x"));
    run(&format!("ip netns add {other}"));
    run(&format!("ip netns add {one}"));
    let (one, other) = (Namespace(one), Namespace(other));
    until("it is covered", || sysctl(&one, "ipv4.tcp_notsent_lowat").trim() == "4096");
    until("all of it", || run(&format!("ip -n {one} mptcp limits show")).contains("subflows 5"));
    assert_ne!(sysctl(&other, "ipv4.tcp_notsent_lowat").trim(), "4096", "the first rule that fits counts");
    // Its end of a pair goes with it, so it is really gone, and nobody holds it.
    let port = own_name("p");
    let port = &port[port.len() - 9..];
    run(&format!("ip -n {} link add {port} type veth peer name {port} netns {one}", host.namespace));
    drop(one);
    let there = || run(&format!("ip -n {} -o link show", host.namespace)).contains(port);
    until("a namespace that is removed goes", || !there());
    // A rule that is gone leaves what was before.
    let again = Namespace::new("m");
    let name = &again.0;
    let rule = format!("[[namespace]]\nname = '{name}'\nnotsent_lowat = '4096B'");
    let before = sysctl(&again, "ipv4.tcp_notsent_lowat");
    host.file(&rule);
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    assert_eq!(sysctl(&again, "ipv4.tcp_notsent_lowat").trim(), "4096");
    host.file("");
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    assert_eq!(sysctl(&again, "ipv4.tcp_notsent_lowat"), before, "{}", agent.heard());
}

#[test]
fn root_invalid_reload_keeps_the_old_config_and_names_the_line() {
    let host = Host::new();
    let ns = &host.namespace;
    let refused = up(ns, &host.file("[host]\nnotsent_lowatt = '1B'")).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = said(&refused);
    assert!(text.contains("vmcc.toml:2:1") && text.contains("did you mean `notsent_lowat`?"), "{text}");
    assert_eq!(state(), Vec::<PathBuf>::new());

    let mut agent = Agent::start(ns, &host.file("[host]\nnotsent_lowat = '4096B'"));
    host.file("[host]\nnotsent_lowat = '16ms'");
    agent.signal(Signal::SIGHUP);
    let text = agent.hears("not usable");
    assert!(text.contains("vmcc.toml:2:17"), "{text}");
    assert_eq!(sysctl(ns, "ipv4.tcp_notsent_lowat").trim(), "4096");
    host.file("[host]\nnotsent_lowat = '8192B'");
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    assert_eq!(sysctl(ns, "ipv4.tcp_notsent_lowat").trim(), "8192");
}

#[test]
fn root_second_agent_is_refused_with_the_pid_of_the_first() {
    let host = Host::new();
    let file = host.file("[host]\nnotsent_lowat = '4096B'");
    let agent = Agent::start(&host.namespace, &file);
    let second = up(&host.namespace, &file).output().unwrap();
    let text = said(&second);
    assert_eq!(second.status.code(), Some(3), "{text}");
    assert!(text.contains(&format!("process {}", agent.pid())), "{text}");
    assert_eq!(sysctl(&host.namespace, "ipv4.tcp_notsent_lowat").trim(), "4096");
}

#[test]
fn root_values_set_by_others_are_kept() {
    let host = Host::new();
    let ns = &host.namespace;
    run(&format!("ip -n {ns} mptcp endpoint add 10.9.0.1 subflow"));
    let mut agent = Agent::start(
        ns,
        &host.file(&EVERYTHING.replace("\"1s\"", "\"3600s\"").replace("[algorithm.reno]\n", "")),
    );
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    let text = agent.heard();
    assert!(
        text.contains("host: MPTCP endpoint 10.9.0.1: another program has set it: subflow dev 0"),
        "{text}"
    );
    // Whatever announces a change while it runs, it would set its values again.
    drop(agent);
    ns.sysctl("ipv4/tcp_notsent_lowat", "777");
    run(&format!("ip -n {ns} mptcp limits set subflows 1 add_addr_accepted 1"));
    let (code, down) = host.down();
    assert_eq!(code, 0, "{down}");
    let left: Vec<&str> =
        down["left"].as_array().unwrap().iter().filter_map(|l| l["what"].as_str()).collect();
    assert_eq!(left, ["MPTCP limit accept", "MPTCP limit subflows", "net/ipv4/tcp_notsent_lowat"], "{down}");
    assert_eq!(sysctl(ns, "ipv4.tcp_notsent_lowat").trim(), "777");
    assert!(
        endpoints(ns).starts_with("10.9.0.1 ") && endpoints(ns).lines().count() == 1,
        "{}",
        endpoints(ns)
    );
}

#[test]
fn root_values_changed_by_others_are_reconciled() {
    let host = Host::new();
    let mut agent = Agent::start(
        &host.namespace,
        &host.file("[agent]\ninterval = '1s'\n[host]\nnotsent_lowat = '4096B'"),
    );
    host.namespace.sysctl("ipv4/tcp_notsent_lowat", "777");
    let line = agent.hears("after another program changed it");
    assert!(line.contains("net/ipv4/tcp_notsent_lowat") && line.contains("777 -> 4096"), "{line}");
    assert_eq!(sysctl(&host.namespace, "ipv4.tcp_notsent_lowat").trim(), "4096");
}

#[test]
fn root_algorithms_loaded_before_keep_their_parameters() {
    let host = Host::new();
    assert_eq!(json(host.dir.path(), &["up", "vmcc", "--set", "vmcc.theta=3"]).0, 0);
    let theta = || json(host.dir.path(), &["status"]).1["algorithms"][0]["parameters"]["theta"].as_f64();
    let agent = Agent::start(&host.namespace, &host.file("[algorithm.vmcc]\ntheta = 5"));
    assert_eq!(theta(), Some(5.0));
    drop(agent);
    let (code, down) = host.down();
    assert_eq!(
        (code, &down["down"], &down["agent"]),
        (0, &serde_json::json!([]), &serde_json::Value::Null),
        "{down}"
    );
    assert_eq!(theta(), Some(3.0), "the one that was killed had not put it back");
    assert_eq!(host.down().1["down"], serde_json::json!(["mp_vmcc"]));
}

#[test]
fn root_handover_keeps_all_state_for_the_next_agent() {
    let host = Host::new();
    let ns = &host.namespace;
    let before = seen(ns);
    let file = host.file(EVERYTHING);
    let mut first = Agent::start(ns, &file);
    let during = seen(ns);
    first.signal(Signal::SIGUSR1);
    assert_eq!(first.ends(), Some(0));
    assert_eq!(seen(ns), during);
    let mut second = Agent::start(ns, &file);
    assert!(!second.heard().contains(" set: "), "nothing was left to do: {}", second.heard());
    assert_eq!(seen(ns), during);
    second.signal(Signal::SIGTERM);
    assert_eq!((second.ends(), seen(ns)), (Some(0), before));
}

/// Its files are the kernel's, and go with the folder.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// As systemd starts it: the capabilities of the unit, no new ones, and mounts of its own.
#[test]
fn root_capabilities_of_the_unit_suffice() {
    let host = Host::new();
    let ns = &host.namespace;
    let unit = fs::read_to_string(common::root().join("dist/vmcc.service")).unwrap();
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let rights: Vec<String> =
        rights.split(' ').map(|right| right.trim_start_matches("CAP_").to_lowercase()).collect();
    let before = seen(ns);
    let cgroups = vmcc_bpf::cgroup::root().unwrap();
    let name = &format!("vmcc-{}-rights", std::process::id());
    let _chosen = Cgroup::new(cgroups.join(name));
    // Where the kernel lets a program decide so.
    let upgrade = vmcc_bpf::upgrade::check_support().is_ok();
    let rule = format!("[[cgroup]]\npath = '{name}'\ncongestion_control = 'mp_vmcc'\nupgrade = {upgrade}\n");
    let file = host.file(&(EVERYTHING.to_owned() + &rule));
    let given = || vmcc_bpf::cgroup::congestion_control(&cgroups, name).unwrap();
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", ns.file().display()));
    command.args([
        "unshare",
        "--mount",
        "--propagation",
        "slave",
        "setpriv",
        "--no-new-privs",
        "--inh-caps",
        "-all",
    ]);
    command.args(["--bounding-set", &format!("-all,+{}", rights.join(",+")), env!("CARGO_BIN_EXE_vmcc")]);
    command.args(["up", "--config", file.to_str().unwrap()]);
    let mut agent = Agent::spawn(command);
    let ready = agent.hears("ready: ");
    assert!(!ready.contains("cannot"), "{}", agent.heard());
    assert_eq!(sysctl(ns, "ipv4.tcp_congestion_control").trim(), "mp_vmcc");
    assert_eq!(given().as_deref(), Some("mp_vmcc"));
    assert_eq!(vmcc_bpf::upgrade::is_set(&cgroups, name).unwrap(), upgrade);
    agent.signal(Signal::SIGTERM);
    assert_eq!((agent.ends(), seen(ns)), (Some(0), before), "{}", agent.heard());
    assert_eq!(given(), None);
}

#[test]
fn root_fifty_up_down_cycles_leave_nothing() {
    let host = Host::new();
    let ns = &host.namespace;
    let (before, links) = (seen(ns), fs::read_dir("/sys/fs/bpf").unwrap().count());
    let file = host.file(&EVERYTHING.replace("[algorithm.reno]\n", ""));
    for n in 0..50 {
        let mut agent = Agent::start(ns, &file);
        if n % 2 == 0 {
            agent.signal(Signal::SIGTERM);
            assert_eq!(agent.ends(), Some(0), "{}", agent.heard());
        } else {
            let down = within(ns, &["down"]).output().unwrap();
            assert!(down.status.success(), "{}", said(&down));
        }
    }
    assert_eq!(seen(ns), before);
    assert_eq!(state(), Vec::<PathBuf>::new());
    assert_eq!(vmcc_bpf::list().unwrap(), []);
    assert_eq!(fs::read_dir("/sys/fs/bpf").unwrap().count(), links);
}
