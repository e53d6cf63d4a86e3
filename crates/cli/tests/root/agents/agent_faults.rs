//! `vmcc up` and `vmcc down` that are killed at any moment, started at the same time, in another network namespace, and
//! where something has run out.

use crate::agent::{Down, available};
use crate::common::{folder, json};
use crate::kept::{Agent, state, sysctl, until, within};
use crate::killed::before_calls;
use nix::sys::signal::Signal;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use vmcc_cc::{Algorithm, Params};
use vmcc_testkit::netns::{Namespace, own_name, run};

fn silent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmcc"));
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A script in which `$0` is the program.
fn shell(script: &str) -> Output {
    Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_vmcc")]).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that the commands of a user after a crash work, and that nothing is left then.
fn all_is_well(dir: &Path, at: &str) {
    let (code, status) = json(dir, &["status"]);
    assert_eq!(code, 0, "{at}: {status}");
    for one in status["algorithms"].as_array().unwrap() {
        assert!(one["orphaned"] == false && one["owner_pid"].is_null(), "{at}: {status}");
    }
    // Other parameters than those of what was killed: it is adopted, not joined.
    let (code, up) = json(dir, &["up", "lia", "reno", "dctcp", "--set", "dctcp.g=0.5"]);
    assert_eq!(code, 0, "{at}: {up}");
    let (code, down) = json(dir, &["down"]);
    let mut names: Vec<&str> = down["down"].as_array().unwrap().iter().filter_map(|n| n.as_str()).collect();
    names.sort_unstable();
    assert_eq!((code, names), (0, vec!["mp_dctcp", "mp_lia", "mp_reno"]), "{at}: {down}");
    nothing_is_left(at);
}

fn nothing_is_left(at: &str) {
    assert!(!available().contains("mp_"), "{at}: {}", available());
    assert!(!Path::new("/sys/fs/bpf/vmcc").exists(), "{at}: pins are left");
    assert_eq!(vmcc_bpf::list().unwrap(), [], "{at}");
}

#[test]
fn root_up_killed_anywhere_is_recovered_by_up_and_down() {
    let (dir, _down) = (folder(), Down);
    let up = || silent(&["up", "lia", "dctcp"]);
    let kills = before_calls(usize::MAX, up, |call, n| {
        all_is_well(dir.path(), &format!("up, before call {n} ({call})"))
    });
    // To register and to pin each of them, among others.
    assert!(kills > 8, "{kills}");
}

#[test]
fn root_down_killed_anywhere_is_recovered_by_up_and_down() {
    let (dir, _down) = (folder(), Down);
    let down = || {
        assert_eq!(json(dir.path(), &["up", "lia", "dctcp"]).0, 0);
        silent(&["down"])
    };
    let kills = before_calls(usize::MAX, down, |call, n| {
        all_is_well(dir.path(), &format!("down, before call {n} ({call})"))
    });
    assert!(kills > 3, "{kills}");
}

#[test]
fn root_up_in_a_named_namespace_is_up_on_the_host() {
    let (dir, _down) = (folder(), Down);
    let name = format!("vmcc-faults-{}", std::process::id());
    let inside = |arguments: &str| {
        shell(&format!(
            "ip netns add {name} && ip netns exec {name} \"$0\" {arguments}; s=$?; ip netns del {name}; exit $s"
        ))
    };
    let up = inside("up lia");
    assert!(up.status.success(), "{}", said(&up));
    assert!(available().contains("mp_lia"), "it stays when the last process of the namespace has ended");
    let (_, status) = json(dir.path(), &["status"]);
    assert_eq!(status["algorithms"][0]["kept"], true, "{status}");
    let down = inside("down");
    assert!(down.status.success(), "{}", said(&down));
    assert!(String::from_utf8_lossy(&down.stdout).contains("down: mp_lia"), "{down:?}");
    nothing_is_left("down in a namespace");
}

/// A folder for somebody's own pins, say; `rmdir` removes it.
struct Foreign(&'static str);

impl Foreign {
    fn new(path: &'static str) -> Self {
        std::fs::create_dir_all(path).unwrap();
        Self(path)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(self.0);
        let _ = std::fs::remove_dir("/sys/fs/bpf/vmcc");
    }
}

#[test]
fn root_foreign_folder_among_the_pins_is_ignored() {
    let (dir, _down) = (folder(), Down);
    {
        let _foreign = Foreign::new("/sys/fs/bpf/vmcc/mp_lia");
        assert_eq!(json(dir.path(), &["up", "reno"]).0, 0);
        let (code, status) = json(dir.path(), &["status"]);
        assert_eq!((code, &status["algorithms"][0]["kept"]), (0, &json!(true)), "{status}");
        let refused = silent(&["up", "lia"]).stderr(Stdio::piped()).output().unwrap();
        let text = said(&refused);
        assert!(text.contains("/sys/fs/bpf/vmcc/mp_lia") && text.contains("remove it"), "{text}");
        let (code, down) = json(dir.path(), &["down"]);
        assert_eq!((code, &down["down"]), (0, &json!(["mp_reno"])), "{down}");
        assert_eq!(json(dir.path(), &["clean"]).0, 0);
    }
    nothing_is_left("with the folder gone");
}

#[test]
fn root_unreachable_host_mounts_error_has_a_remedy() {
    let (dir, _down) = (folder(), Down);
    let name = format!("vmcc-mounts-{}", std::process::id());
    let refused = |within: &str, arguments: &str| {
        let done = shell(&format!(
            "ip netns add {name} && ip netns exec {name} {within} \"$0\" {arguments}; s=$?; ip netns del {name}; exit $s"
        ));
        let text = said(&done);
        assert_eq!(done.status.code(), Some(3), "{within}, {arguments}: {text}");
        assert!(text.contains("nsenter --net="), "{within}, {arguments}: {text}");
    };
    // Processes of its own, of which the first has these mounts too; and no right to look at those outside.
    let (processes, rights) =
        ("unshare --pid --fork --mount-proc", "setpriv --inh-caps -sys_ptrace --bounding-set -sys_ptrace");
    for within in [processes, rights] {
        refused(within, "up lia");
        nothing_is_left(within);
        assert_eq!(json(dir.path(), &["up", "lia"]).0, 0);
        refused(within, "down");
        assert!(available().contains("mp_lia"), "{within}");
        assert_eq!(json(dir.path(), &["down"]).0, 0);
    }
}

#[test]
fn root_concurrent_ups_agree() {
    let (dir, _down) = (folder(), Down);
    let spawn = |_| silent(&["up", "lia", "reno"]).stderr(Stdio::piped()).spawn().unwrap();
    let all: Vec<_> = (0..4).map(spawn).collect();
    for one in all {
        let output = one.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    let (_, down) = json(dir.path(), &["down"]);
    assert_eq!(down["down"], json!(["mp_lia", "mp_reno"]), "{down}");
    nothing_is_left("after all");
}

/// Removal by one process does not block another one, and an incomplete load does not disturb readers.
#[test]
fn root_concurrent_ups_and_downs_are_serialized() {
    let (dir, _down) = (folder(), Down);
    let spawn = |arguments: &&[&str]| silent(arguments).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..12 {
        let all: Vec<_> = [
            &["up", "ewtcp", "lia"][..],
            &["down"],
            &["status"],
            &["up", "lia"],
            &["down"],
            &["clean"],
            &["status"],
        ]
        .iter()
        .map(spawn)
        .collect();
        for one in all {
            let output = one.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
        }
    }
    json(dir.path(), &["down"]);
    nothing_is_left("after all");
}

#[test]
fn root_descriptor_exhaustion_is_reported() {
    let _down = Down;
    let mut refused = 0;
    for files in (4..96).step_by(4) {
        let done = shell(&format!("ulimit -n {files}; exec \"$0\" up lia"));
        if done.status.success() {
            break;
        }
        let text = said(&done);
        // With fewer than the C library needs it does not even start.
        if text.contains("error: ") {
            refused += 1;
            assert_eq!(done.status.code(), Some(3), "{files} files: {text}");
            assert!(text.contains("ulimit -n") && !text.contains("doctor"), "{files} files: {text}");
        }
        nothing_is_left("out of files");
        let down = shell(&format!("\"$0\" up lia && ulimit -n {files} && \"$0\" down"));
        let claims = String::from_utf8_lossy(&down.stdout).contains("no algorithm was loaded");
        assert!(!claims, "{files} files: {down:?}");
        assert!(shell("\"$0\" down").status.success());
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn root_unwritable_output_is_not_reported_as_host_failure() {
    let _down = Down;
    let full = shell("exec \"$0\" up lia >/dev/full");
    assert_eq!(full.status.code(), Some(1), "{}", said(&full));
    let text = said(&full);
    assert!(
        text.contains("done, but its answer could not be written") && text.contains("up: mp_lia"),
        "{text}"
    );
    assert!(available().contains("mp_lia"));
}

#[test]
fn root_guard_reuses_registered_algorithms() {
    let _down = Down;
    let logged = || {
        let log = Command::new("dmesg").output().unwrap();
        assert!(log.status.success(), "{}", said(&log));
        String::from_utf8_lossy(&log.stdout).matches("already registered").count()
    };
    assert!(shell("exec \"$0\" up vmcc reno").status.success());
    let before = logged();
    let mut guard = silent(&["up", "vmcc", "reno", "--guard"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(guard.stderr.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("until Ctrl-C"), "{first}");
    let logged_meanwhile = logged() - before;
    guard.kill().unwrap();
    guard.wait().unwrap();
    assert_eq!(logged_meanwhile, 0);
}

/// A file with these lines.
fn file(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("vmcc.toml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn root_normalized_and_empty_values_are_restored() {
    let (dir, ns) = (folder(), Namespace::new("f"));
    let before = sysctl(&ns, "ipv4.tcp_keepalive_time");
    let text = "[host.sysctl]\n'net.ipv4.ip_local_reserved_ports' = '1,2,3'\n'net.ipv4.tcp_keepalive_time' = '00100'";
    let mut agent = Agent::start(&ns, &file(dir.path(), text));
    assert_eq!(sysctl(&ns, "ipv4.ip_local_reserved_ports"), "1-3\n");
    assert!(agent.heard().contains("the kernel made `1-3` of `1,2,3`"), "{}", agent.heard());
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.ends(), Some(0), "{}", agent.heard());
    let now = ["ipv4.ip_local_reserved_ports", "ipv4.tcp_keepalive_time"].map(|name| sysctl(&ns, name));
    assert_eq!(now, ["\n".to_owned(), before], "{}", agent.heard());
    assert!(!agent.heard().contains("another program") && state().is_empty(), "{}", agent.heard());
}

#[test]
fn root_unconfigured_limit_is_left_to_others() {
    let (dir, ns) = (folder(), Namespace::new("f"));
    let mut agent = Agent::start(&ns, &file(dir.path(), "[host.mptcp]\nsubflows = 3"));
    run(&format!("ip -n {ns} mptcp limits set subflows 3 add_addr_accepted 5"));
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.ends(), Some(0), "{}", agent.heard());
    let limits = run(&format!("ip -n {ns} mptcp limits show"));
    assert_eq!(limits.trim(), "add_addr_accepted 5 subflows 2", "{}", agent.heard());
}

#[test]
fn root_setting_of_a_deleted_interface_leaves_the_record() {
    let (dir, ns) = (folder(), Namespace::new("f"));
    run(&format!("ip -n {ns} link add n1 type veth peer name n2"));
    let text = "[host.sysctl]\n'net.ipv4.conf.n1.arp_ignore' = 1";
    let mut agent = Agent::start(&ns, &file(dir.path(), text));
    run(&format!("ip -n {ns} link del n1"));
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.ends(), Some(0), "{}", agent.heard());
    assert!(agent.heard().contains("arp_ignore is not there any more"), "{}", agent.heard());
    assert!(state().is_empty(), "{}", agent.heard());
}

#[test]
fn root_failed_restore_is_reported_and_retried() {
    let (dir, ns) = (folder(), Namespace::new("f"));
    let text = "[host.sysctl]\n'net.ipv4.ip_unprivileged_port_start' = 80";
    let mut agent = Agent::start(&ns, &file(dir.path(), text));
    let range = sysctl(&ns, "ipv4.ip_local_port_range");
    // The kernel keeps the two ranges apart.
    ns.sysctl("ipv4/ip_local_port_range", "100 60999");
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.ends(), Some(1), "{}", agent.heard());
    let text = agent.heard();
    assert!(
        !text.contains("everything is as before\n") && text.contains("not everything is as before"),
        "{text}"
    );
    ns.sysctl("ipv4/ip_local_port_range", range.trim());
    let down = within(&ns, &["down"]).output().unwrap();
    assert!(down.status.success(), "{}", said(&down));
    assert_eq!((sysctl(&ns, "ipv4.ip_unprivileged_port_start").trim(), state().len()), ("1024", 0));
}

#[test]
fn root_descriptor_exhaustion_loses_no_namespace() {
    let (dir, ns) = (folder(), Namespace::new("f"));
    let stem = own_name("r");
    let add = |n: usize| {
        let namespace = Namespace(format!("{stem}{n:02}"));
        run(&format!("ip netns add {namespace}"));
        namespace
    };
    let mut all: Vec<Namespace> = (0..8).map(add).collect();
    let before = sysctl(&all[0], "ipv4.tcp_keepalive_time");
    let text = format!(
        "[agent]\ninterval = '1s'\n[[namespace]]\nname = '{stem}*'\nsysctl = {{ 'net.ipv4.tcp_keepalive_time' = 100 }}"
    );
    let file = file(dir.path(), &text);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 32; exec \"$0\" \"$@\"", "nsenter"]);
    command.arg(format!("--net={}", ns.file().display())).arg(env!("CARGO_BIN_EXE_vmcc"));
    command.args(["up", "--config", file.to_str().unwrap()]);
    let mut agent = Agent::spawn(command);
    agent.hears("ready: 8 values set");
    all.extend((8..40).map(add));
    agent.hears("ulimit -n");
    agent.signal(Signal::SIGTERM);
    let code = agent.ends();
    for one in &all {
        assert_eq!(sysctl(one, "ipv4.tcp_keepalive_time"), before, "{one}: {}", agent.heard());
    }
    assert_eq!((code, state().len()), (Some(0), 0), "{}", agent.heard());
}

/// Somebody else has the algorithm: nobody may be told that its paths are watched.
#[test]
fn root_guard_that_cannot_start_is_reported_as_off() {
    let (dir, ns) = (folder(), Namespace::new("g"));
    let file = file(dir.path(), "[agent]\ninterval = '1s'\n[algorithm.vmcc]\n[guard]\nenabled = true\n");
    let vmcc = Algorithm::by_name("vmcc").unwrap();
    let other = vmcc_bpf::Loaded::load(vmcc, &Params::defaults(vmcc)).unwrap();
    let mut agent = Agent::start(&ns, &file);
    let is_on = || {
        let status = within(&ns, &["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        status["agent"]["guard"].as_bool()
    };
    until("it is on", || is_on() == Some(false));
    drop(other);
    until("it stays off", || is_on() == Some(true));
    agent.signal(Signal::SIGTERM);
    assert_eq!((agent.ends(), state().len()), (Some(0), 0), "{}", agent.heard());
}
