//! `vmcc up --guard` and its policies on real connections: what is done to which path, and that every byte arrives.

use crate::agent::Down;
use crate::common;
use crate::kept::{Agent, endpoints, until, within};
use crate::killed::{Ended, killed_when};
use nix::sys::signal::Signal;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use vmcc_netlink::{PathManager, SubflowEnds};
use vmcc_port::Port;
use vmcc_system::diag::{Diag, Subflow};
use vmcc_testkit::netns::{Namespace, run};
use vmcc_testkit::paths::{Net, Over, Shape, shape, transfer};

const PORT: u16 = 5341;

/// Path manager of the client.
#[derive(Clone, Copy, PartialEq)]
enum Manager {
    Kernel,
    User,
}

/// A client with two paths to a server, and a guard in the client's namespace.
struct Guarded {
    net: Net,
    manager: Manager,
    _down: Down,
}

/// Ends the transfer when the test is over, however.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn subflows(ns: &Namespace) -> Vec<Subflow> {
    let all = ns.within(|| Diag::open().unwrap().subflows().unwrap());
    all.into_iter().filter(|s| s.remote.port() == PORT && s.established).collect()
}

impl Guarded {
    fn new(manager: Manager) -> Self {
        let net = Net::new(2, None);
        if manager == Manager::User {
            net.client.sysctl("mptcp/pm_type", "1");
        } else {
            run(&format!("ip -n {} mptcp limits set subflow 1 add_addr_accepted 0", net.client));
            run(&format!("ip -n {} mptcp endpoint add 10.77.1.1 dev p1 subflow", net.client));
        }
        Self { net, manager, _down: Down }
    }

    fn guard(&self, algorithm: &str, arguments: &[&str]) -> Agent {
        let mut guard =
            Agent::spawn(within(&self.net.client, &[&["up", algorithm, "--guard"], arguments].concat()));
        guard.hears("until Ctrl-C");
        self.net.select(&format!("mp_{algorithm}"));
        guard
    }

    /// A guard of an algorithm that is up then, to be killed.
    fn mortal(&self, algorithm: &str, arguments: &[&str]) -> Command {
        let up = |more: &[&str]| {
            let mut up = within(&self.net.client, &[&["up", algorithm], more].concat());
            up.stdout(Stdio::null()).stderr(Stdio::null());
            up
        };
        assert!(up(&[]).status().unwrap().success());
        self.net.select(&format!("mp_{algorithm}"));
        up(&[&["--guard"], arguments].concat())
    }

    /// Number of paths that carry data only when no other is left.
    fn backups(&self) -> usize {
        subflows(&self.net.client).iter().filter(|s| s.mptcp.is_some_and(|m| m.backup)).count()
    }

    /// The path of this number, once it carries data.
    fn path(&self, path: usize) -> Option<Subflow> {
        let local = format!("10.77.{path}.1").parse().unwrap();
        subflows(&self.net.client)
            .into_iter()
            .find(|s| s.local.ip() == std::net::IpAddr::V4(local) && s.mptcp.is_some_and(|m| m.established))
    }

    /// Opens a second path as a path manager in user space would.
    fn second_path(&self) {
        if self.manager == Manager::User {
            until("the first path", || self.path(0).is_some());
            let first = self.path(0).unwrap();
            let ends = SubflowEnds {
                token: first.mptcp.unwrap().token_local,
                local: "10.77.1.1:0".parse().unwrap(),
                local_id: 1,
                device: 0,
                remote: format!("10.77.1.2:{PORT}").parse().unwrap(),
            };
            until("the connection is far enough for another path", || {
                self.net.client.within(|| PathManager::open().unwrap().open_subflow(&ends)).is_ok()
            });
        }
    }

    /// Acts while a transfer over both paths runs, of which every byte arrives.
    fn while_it_sends(&self, act: impl FnOnce()) {
        self.while_it_begins(|| {
            until("both paths carry", || self.path(1).is_some_and(|s| s.bytes_acked > 100_000));
            act();
        });
    }

    /// The same from its first packet: a verdict may come before a path has carried much.
    fn while_it_begins(&self, act: impl FnOnce()) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| transfer(&self.net, Over::Mptcp, PORT, |_| over.load(Ordering::SeqCst)));
            let _over = Ending(&over);
            self.second_path();
            act();
        });
    }

    fn shape(&self, rates_mbit: [u32; 2]) {
        for (path, rate_mbit) in rates_mbit.into_iter().enumerate() {
            shape(&self.net.client, &format!("p{path}"), Shape { rate_mbit, buffer_kb: 60 });
        }
    }

    /// Nothing comes back on the second path, and nobody says so; or it does again.
    fn silence(&self, silent: bool) {
        let verb = if silent { "add" } else { "del" };
        run(&format!("ip -n {} route {verb} blackhole 10.77.1.1/32", self.net.server));
    }

    /// Ports that mark almost everything.
    fn mark(&self) -> Vec<Port> {
        let config = serde_json::json!({ "rate": "50mbit", "marking": { "rule": "threshold", "at": "2kB" } });
        let config = serde_json::from_value(config).unwrap();
        let port = |path| Port::attach_in(&self.net.client.file(), &format!("p{path}"), &config).unwrap();
        (0..2).map(port).collect()
    }
}

/// Of 50 and 1 Mbit/s the faster carries a part, as it waits for what the slower one holds: by chance ten times as much, the
/// default, or not.
const USELESS: &str = "--suppress-useless=4";

/// vMCC to which all paths that are marked are alike.
const ACCUSING: [&str; 8] = [
    "--set",
    "vmcc.detector=counts",
    "--set",
    "vmcc.theta=1000",
    "--set",
    "vmcc.phi=1",
    "--set",
    "vmcc.early=86400000",
];

fn interrupted(mut guard: Agent) -> String {
    guard.signal(Signal::SIGINT);
    assert_eq!(guard.ends(), Some(130));
    guard.heard()
}

#[test]
fn root_dry_run_reports_closes_without_closing() {
    let on = Guarded::new(Manager::Kernel);
    let mut guard = on.guard("vmcc", &[&ACCUSING[..], &["--dry-run"]].concat());
    let _ports = on.mark();
    on.while_it_begins(|| {
        let line = guard.hears("would close");
        assert!(line.contains("shares a bottleneck"), "{line}");
        assert_eq!(subflows(&on.net.client).len(), 2);
    });
    guard.signal(Signal::SIGINT);
    guard.hears("closed 0 paths");
    let heard = guard.heard();
    assert_eq!(
        heard.matches("would close").count(),
        1,
        "of two that accuse each other one would stay: {heard}"
    );
}

#[test]
fn root_bottleneck_path_is_drained_under_the_userspace_path_manager() {
    let on = Guarded::new(Manager::User);
    let mut guard = on.guard("vmcc", &ACCUSING);
    let _ports = on.mark();
    on.while_it_begins(|| {
        let draining = guard.hears("draining ");
        let closed = guard.hears("closed ");
        let path = draining.split("draining ").nth(1).unwrap().split(" (").next().unwrap().to_owned();
        assert!(closed.contains(&path), "{draining} {closed}");
        until("one path is left", || subflows(&on.net.client).len() == 1);
    });
    interrupted(guard);
}

#[test]
fn root_bottleneck_path_is_closed_under_the_kernel_path_manager() {
    let on = Guarded::new(Manager::Kernel);
    let mut guard = on.guard("vmcc", &ACCUSING);
    let _ports = on.mark();
    on.while_it_begins(|| {
        guard.hears("closed ");
        until("one path is left", || subflows(&on.net.client).len() == 1);
    });
    let heard = interrupted(guard);
    assert!(!heard.contains("draining"), "{heard}");
}

#[test]
fn root_min_paths_2_retains_two_paths() {
    let on = Guarded::new(Manager::Kernel);
    let mut guard = on.guard("vmcc", &[&ACCUSING[..], &["--min-paths", "2"]].concat());
    let _ports = on.mark();
    on.while_it_begins(|| {
        let line = guard.hears("spared ");
        assert!(line.contains("shares a bottleneck") && line.contains("2 paths are to stay"), "{line}");
        assert_eq!(subflows(&on.net.client).len(), 2);
    });
    guard.signal(Signal::SIGINT);
    guard.hears("closed 0 paths");
}

fn a_failed_path_is_closed_and_tried_again(manager: Manager) {
    let on = Guarded::new(manager);
    on.shape([50, 50]);
    let mut guard = on.guard("lia", &["--close-failed", "--retry", "3s"]);
    on.while_it_sends(|| {
        let before = on.path(1).unwrap();
        on.silence(true);
        let line = guard.hears("closed ");
        assert!(line.contains("10.77.1.1:") && line.contains("nothing came back"), "{line}");
        until("it is closed", || on.path(1).is_none());
        assert!(on.path(0).is_some(), "the other one stays");
        on.silence(false);
        let line = guard.hears("tried again");
        assert!(line.contains("10.77.1.1:"), "{line}");
        until("another one carries in its place", || on.path(1).is_some_and(|s| s.bytes_acked > 100_000));
        assert_ne!(on.path(1).unwrap().cookie, before.cookie);
    });
    interrupted(guard);
}

#[test]
fn root_failed_path_is_retried_under_the_kernel_path_manager() {
    a_failed_path_is_closed_and_tried_again(Manager::Kernel);
}

#[test]
fn root_failed_path_is_retried_under_the_userspace_path_manager() {
    a_failed_path_is_closed_and_tried_again(Manager::User);
}

#[test]
fn root_useless_path_is_a_backup_until_its_backoff_ends() {
    let on = Guarded::new(Manager::User);
    let mut guard = on.guard("lia", &[USELESS, "--retry", "4s"]);
    // Or the fast path waits for what the slow one holds, and is hardly faster.
    on.net.client.sysctl("ipv4/tcp_notsent_lowat", "16384");
    on.shape([50, 1]);
    on.while_it_sends(|| {
        let line = guard.hears("suppressed ");
        assert!(line.contains("10.77.1.1:") && line.contains("Mbit/s while the best carried"), "{line}");
        let is_backup = |backup| on.path(1).is_some_and(|s| s.mptcp.unwrap().backup == backup);
        until("it is a backup", || is_backup(true));
        guard.hears("no longer suppressed");
        until("it is none", || is_backup(false));
    });
    interrupted(guard);
}

#[test]
fn root_useless_path_is_closed_under_the_kernel_path_manager() {
    let on = Guarded::new(Manager::Kernel);
    let mut guard = on.guard("lia", &[USELESS, "--close-failed"]);
    // Or the fast path waits for what the slow one holds, and is hardly faster.
    on.net.client.sysctl("ipv4/tcp_notsent_lowat", "16384");
    on.shape([50, 1]);
    on.while_it_sends(|| {
        let line = guard.hears("closed ");
        assert!(line.contains("10.77.1.1:") && line.contains("Mbit/s while the best carried"), "{line}");
        // Now the other one is silent, too: it is the last.
        run(&format!("ip -n {} route add blackhole 10.77.0.1/32", on.net.server));
        let is_silent = |s: Subflow| s.unanswered_timeouts >= 4;
        until("four timeouts have passed", || on.path(0).is_none_or(is_silent));
        assert!(on.path(0).is_some());
        run(&format!("ip -n {} route del blackhole 10.77.0.1/32", on.net.server));
    });
    let heard = interrupted(guard);
    assert_eq!(heard.matches("closed 10.77.").count(), 1, "{heard}");
}

#[test]
fn root_endpoint_removed_by_a_killed_guard_is_restored() {
    for by_down in [false, true] {
        let on = Guarded::new(Manager::Kernel);
        on.shape([50, 50]);
        let guard = on.mortal("lia", &["--close-failed", "--retry", "1s"]);
        let is_there = || endpoints(&on.net.client).contains("10.77.1.1 ");
        on.while_it_sends(|| {
            on.silence(true);
            let ended = killed_when(guard, || !is_there());
            assert!(matches!(ended, Ended::Killed(_)) && !is_there(), "{ended:?}");
            on.silence(false);
            let mut down = within(&on.net.client, &["down"]);
            if by_down {
                assert!(down.status().unwrap().success());
            } else {
                on.guard("lia", &[]).hears("its endpoint, which was away for that, is back");
            }
            assert!(is_there());
            until("another path carries again", || on.path(1).is_some_and(|s| s.bytes_acked > 100_000));
        });
        let restored = endpoints(&on.net.client);
        assert!(restored.contains("subflow") && restored.contains("dev p1"), "{restored}");
    }
}

/// Of two paths one is of no use.
fn suppressing() -> (Guarded, Agent) {
    let on = Guarded::new(Manager::User);
    let guard = on.guard("lia", &[USELESS]);
    on.net.client.sysctl("ipv4/tcp_notsent_lowat", "16384");
    on.shape([50, 1]);
    (on, guard)
}

#[test]
fn root_backup_set_by_a_killed_guard_is_reset_by_the_next() {
    let (on, mut guard) = suppressing();
    on.while_it_sends(|| {
        guard.hears("suppressed ");
        guard.signal(Signal::SIGKILL);
        guard.ends();
        assert_eq!((on.backups(), subflows(&on.net.client).len()), (1, 2));
        on.guard("lia", &[]).hears("the guard that made it a backup has ended");
        until("it is none", || on.backups() == 0);
        assert_eq!(subflows(&on.net.client).len(), 2);
    });
}

#[test]
fn root_guard_exit_resets_its_backups() {
    let (on, mut guard) = suppressing();
    on.while_it_sends(|| {
        guard.hears("suppressed ");
        until("it is a backup", || on.backups() == 1);
        guard.signal(Signal::SIGINT);
        guard.hears("no longer suppressed");
        assert_eq!(guard.ends(), Some(130));
        until("it is none", || on.backups() == 0);
    });
    assert_eq!(std::fs::read_dir("/run/vmcc/guard").map_or(0, Iterator::count), 0);
}

#[test]
fn root_guard_policies_follow_the_config_file() {
    let on = Guarded::new(Manager::Kernel);
    on.shape([50, 50]);
    let folder = common::folder();
    let file = folder.path().join("vmcc.toml");
    let write = |policies: &str| {
        let text = format!("[algorithm.lia]\n[guard]\nenabled = true\nclose_failed = true\n{policies}");
        std::fs::write(&file, text).unwrap();
    };
    write("dry_run = true\n");
    let mut agent = Agent::start(&on.net.client, &file);
    on.net.select("mp_lia");
    on.while_it_sends(|| {
        on.silence(true);
        let line = agent.hears("would close ");
        assert!(line.contains("10.77.1.1:") && line.contains("nothing came back"), "{line}");
        assert_eq!(subflows(&on.net.client).len(), 2);
        write("dry_run = 'maybe'\n");
        agent.signal(Signal::SIGHUP);
        agent.hears("dry_run");
        assert_eq!(subflows(&on.net.client).len(), 2, "a bad file keeps the old policies");
        write("retry = '500s'\n");
        agent.signal(Signal::SIGHUP);
        agent.hears("closed 10.77.1.1:");
        until("it is closed", || on.path(1).is_none());
        let status = within(&on.net.client, &["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let closed = &status["connections"][0]["closed"][0];
        assert!(closed["reason"].as_str().unwrap().contains("nothing came back"), "{status}");
        on.silence(false);
        // Another guard begins, which knows of the path that the one before has closed.
        write("retry = '2s'\n");
        agent.signal(Signal::SIGHUP);
        agent.hears("tried again ");
        until("another one carries in its place", || on.path(1).is_some_and(|s| s.bytes_acked > 100_000));
    });
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.ends(), Some(0), "{}", agent.heard());
}
