//! The agent, and `vmcc down` after it, killed at any moment: the next one continues or restores everything.

use crate::agent::Down;
use crate::common::folder;
use crate::kept::{Agent, seen, state, up, within};
use crate::killed::before_calls;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_testkit::netns::{Namespace, run};

const SETTINGS: &str = r#"
[host]
notsent_lowat = "16384B"
sysctl = { "net.ipv4.conf.all.arp_ignore" = 1 }
[host.mptcp]
subflows = 3
[[host.mptcp.endpoint]]
nic = "nic*"
flags = ["signal"]
family = "ipv4"
"#;
const ALL: &str = "[algorithm.reno]\n[port.nic0]\nrate = '100mbit'\n";

struct Host {
    namespace: Namespace,
    dir: tempfile::TempDir,
    before: String,
    _down: Down,
}

impl Host {
    fn new() -> Self {
        let namespace = Namespace::new("k");
        let ns = &namespace;
        run(&format!("ip -n {ns} link add nic0 type veth peer name far0"));
        run(&format!("ip -n {ns} addr add 10.9.0.1/24 dev nic0"));
        run(&format!("ip -n {ns} link set far0 up"));
        run(&format!("ip -n {ns} link set nic0 up"));
        let before = seen(ns);
        Self { namespace, dir: folder(), before, _down: Down }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("vmcc.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// In turns, another agent adopts what is left and ends, and `vmcc down` puts it back.
    fn all_is_well(&self, file: &Path, at: &str, n: usize) {
        if n.is_multiple_of(2) {
            let mut next = Agent::start(&self.namespace, file);
            assert!(!next.heard().contains("warning"), "{at}: {}", next.heard());
            next.signal(Signal::SIGTERM);
            assert_eq!(next.ends(), Some(0), "{at}: {}", next.heard());
        } else {
            let down = within(&self.namespace, &["down"]).output().unwrap();
            let text = String::from_utf8_lossy(&down.stderr).into_owned();
            assert!(down.status.success() && !text.contains("warning"), "{at}: {text}");
        }
        assert_eq!(seen(&self.namespace), self.before, "{at}");
        assert_eq!(state(), Vec::<PathBuf>::new(), "{at}");
    }
}

/// Sends a signal to each agent that says that it is ready.
struct Ender {
    socket: PathBuf,
    stop: AtomicBool,
}

impl Ender {
    fn new(dir: &Path) -> Self {
        Self { socket: dir.join("notify"), stop: AtomicBool::new(false) }
    }

    fn during(&self, signal: Signal, test: impl FnOnce()) {
        let socket = UnixDatagram::bind(&self.socket).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = [0; 512];
                while !self.stop.load(Ordering::SeqCst) {
                    let Ok(length) = socket.recv(&mut bytes) else { continue };
                    if bytes[..length].starts_with(b"READY=1") {
                        let pid = fs::read_to_string("/run/vmcc/agent/lock").unwrap();
                        let _ = kill(Pid::from_raw(pid.parse().unwrap()), signal);
                    }
                }
            });
            // Also if the test fails: the thread would be waited for.
            struct Stop<'a>(&'a AtomicBool);
            impl Drop for Stop<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::SeqCst);
                }
            }
            let _stop = Stop(&self.stop);
            test();
        });
    }

    fn told(&self, mut command: Command) -> Command {
        command.env("NOTIFY_SOCKET", &self.socket).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

fn an_agent_is_killed(text: &str, most: usize) -> usize {
    let host = Host::new();
    let file = host.file(text);
    let ender = Ender::new(host.dir.path());
    let mut kills = 0;
    ender.during(Signal::SIGTERM, || {
        let agent = || ender.told(up(&host.namespace, &file));
        kills = before_calls(most, agent, |call, n| {
            host.all_is_well(&file, &format!("the agent, before call {n} ({call})"), n);
        });
    });
    kills
}

#[test]
fn root_agent_killed_anywhere_is_recovered_by_the_next_and_by_down() {
    let kills = an_agent_is_killed(SETTINGS, usize::MAX);
    assert!(kills > 20, "{kills}");
}

#[test]
fn root_agent_killed_while_loading_or_serving_ports_is_recovered() {
    let kills = an_agent_is_killed(&format!("{ALL}{SETTINGS}"), 24);
    assert!(kills > 20, "{kills}");
}

#[test]
fn root_down_killed_anywhere_can_be_repeated() {
    let host = Host::new();
    let file = host.file(&format!("{ALL}{SETTINGS}"));
    let down = || {
        let mut agent = Agent::start(&host.namespace, &file);
        agent.signal(Signal::SIGUSR1);
        assert_eq!(agent.ends(), Some(0));
        let mut down = within(&host.namespace, &["down"]);
        down.stdout(Stdio::null()).stderr(Stdio::null());
        down
    };
    let kills = before_calls(16, down, |call, n| {
        host.all_is_well(&file, &format!("down, before call {n} ({call})"), n);
    });
    assert!(kills > 10, "{kills}");
}
