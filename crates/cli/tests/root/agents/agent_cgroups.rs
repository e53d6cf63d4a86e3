//! The agent and cgroups: connections of those that the file names are given its congestion control, others are not.

use crate::agent::Down;
use crate::common;
use crate::kept::{Agent, until, within};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use vmcc_bpf::cgroup;
use vmcc_system::diag::Diag;
use vmcc_testkit::paths::{Net, Over, transfer};

/// A cgroup of the test's own; removed with what is in it.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Self {
        let path = cgroup::root().unwrap().join(format!("vmcc-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn inside(&self, name: &str) -> Self {
        let path = self.0.join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// As the agent's file has it.
    fn path(&self) -> &str {
        self.0.strip_prefix(cgroup::root().unwrap()).unwrap().to_str().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Moves this process there until it is dropped, and back then.
struct Moved(PathBuf);

impl Moved {
    fn to(cgroup: &Path) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
        fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        Self(cgroup::root().unwrap().join(own))
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        fs::write(self.0.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }
}

/// The congestion controls of both ends of a transfer over two paths, both of which start in this cgroup.
fn used(net: &Net, cgroup: &Path, over: Over) -> BTreeSet<String> {
    static PORT: AtomicU16 = AtomicU16::new(5380);
    let port = PORT.fetch_add(1, Ordering::SeqCst);
    let _moved = Moved::to(cgroup);
    let paths = if over == Over::Mptcp { 2 } else { 1 };
    let mut seen = BTreeSet::new();
    transfer(net, over, port, |_| {
        let both = [(&net.client, true), (&net.server, false)].map(|(ns, is_client)| {
            let all = ns.within(|| Diag::open().unwrap().subflows().unwrap());
            let is = |end: u16| end == port;
            all.into_iter()
                .filter(|s| s.established && is(if is_client { s.remote.port() } else { s.local.port() }))
                .map(|s| s.algorithm)
                .collect::<Vec<_>>()
        });
        seen = both.iter().flatten().cloned().collect();
        both.iter().all(|end| end.len() == paths)
    });
    seen
}

fn one(name: &str) -> BTreeSet<String> {
    [name.to_owned()].into()
}

fn two_paths() -> Net {
    let net = Net::new(2, None);
    net.select("reno");
    net
}

#[test]
fn root_cgroup_rule_sets_congestion_control_of_its_connections_only() {
    let (net, _down) = (two_paths(), Down);
    let (chosen, beside) = (Cgroup::new("chosen"), Cgroup::new("beside"));
    let inner = chosen.inside("inner");
    let folder = common::folder();
    let file = folder.path().join("vmcc.toml");
    let write = |rest: &str| {
        let rule = |path: &str, name| format!("[[cgroup]]\npath = '{path}'\ncongestion_control = '{name}'\n");
        let rules = [rule(inner.path(), "cubic"), rule(chosen.path(), "mp_lia")].concat();
        fs::write(
            &file,
            format!("[agent]\ninterval = '1s'\n[algorithm.lia]\n[algorithm.dctcp]\n{rules}{rest}"),
        )
        .unwrap();
    };
    write("");
    let mut agent = Agent::start(&net.client, &file);
    let used = |cgroup: &Cgroup, over| used(&net, &cgroup.0, over);
    assert_eq!(used(&chosen, Over::Mptcp), one("mp_lia"));
    assert_eq!(used(&chosen, Over::Tcp), one("mp_lia"));
    assert_eq!(used(&inner, Over::Mptcp), one("cubic"), "the innermost counts");
    assert_eq!(used(&beside, Over::Mptcp), one("reno"));

    // One that comes later, goes, and comes again under the same name.
    write(&format!(
        "[[cgroup]]\npath = 'vmcc-{}-late*'\ncongestion_control = 'mp_dctcp'\n",
        std::process::id()
    ));
    agent.signal(Signal::SIGHUP);
    agent.hears("read again");
    // Each is a new cgroup, however soon after the one before: nobody has changed a value of the agent's.
    for _ in 0..4 {
        let late = Cgroup::new("late-1");
        agent.hears("late-1 set: nothing -> mp_dctcp");
        // Without ECN it would leave the connection to Reno.
        assert_eq!(used(&late, Over::Mptcp), one("mp_dctcp"));
    }
    // A process that is killed leaves it, and the next one goes on.
    agent.signal(Signal::SIGKILL);
    agent.ends();
    assert_eq!(used(&chosen, Over::Tcp), one("mp_lia"));
    let mut agent = Agent::start(&net.client, &file);
    assert!(!agent.heard().contains(" set: "), "{}", agent.heard());
    agent.signal(Signal::SIGKILL);
    agent.ends();
    assert!(within(&net.client, &["down"]).output().unwrap().status.success());
    assert_eq!(used(&chosen, Over::Mptcp), one("reno"));
    until("nothing is left", || {
        cgroup::congestion_control(&cgroup::root().unwrap(), chosen.path()).unwrap().is_none()
    });
}
