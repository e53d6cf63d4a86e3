//! Nothing of a run outlives it: after an error, a signal, or (with `clean`) a kill.

use crate::common::{alone, cgroups_of, namespaces_of, native, processes_in, run, two_paths};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vmcc_lab::{Error, Job};
use vmcc_scenario::model::ObjectProgram;
use vmcc_units::Nanos;

fn record_of(run_id: &str) -> PathBuf {
    Path::new("/run/vmcc").join(format!("{run_id}.json"))
}

/// The example program, running, with traffic flowing.
struct Running {
    child: Child,
    run_id: String,
}

impl Running {
    fn start(tag: &str) -> Self {
        let run_id = format!("{tag}-{}", std::process::id());
        let own = std::env::current_exe().unwrap();
        let program = own.parent().unwrap().parent().unwrap().join("examples/two_paths");
        let mut child =
            Command::new(program).args([run_id.as_str(), "60", "50"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // The first report comes before traffic; by the third it flows.
        for _ in 0..3 {
            lines.next().unwrap().unwrap();
        }
        // Keeps reading, so that the program never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let running = Self { child, run_id };
        assert_eq!(namespaces_of(&running.run_id).len(), 4, "snd, rcv and two middles");
        assert!(record_of(&running.run_id).exists());
        assert_eq!(cgroups_of(&running.run_id).len(), 1, "the throttled sender's");
        running
    }

    /// Sends the signal and waits; returns the exit code and the processes that were inside.
    fn stop(&mut self, signal: Signal) -> (Option<i32>, Vec<i32>) {
        let inside: Vec<i32> =
            namespaces_of(&self.run_id).iter().flat_map(|name| processes_in(name)).collect();
        assert!(inside.len() >= 2, "iperf3 at both ends: {inside:?}");
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        (self.child.wait().unwrap().code(), inside)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_alive(pid: &i32) -> bool {
    // A killed process may be waiting for init to reap it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn root_signals_end_a_run_cleanly() {
    let _alone = alone();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut running = Running::start("sig");
        let (code, inside) = running.stop(signal);
        assert_eq!(code, Some(130));
        assert_eq!(namespaces_of(&running.run_id), Vec::<String>::new());
        assert!(!record_of(&running.run_id).exists());
        assert!(cgroups_of(&running.run_id).is_empty());
        assert!(!inside.iter().any(is_alive), "{inside:?}");
    }
}

#[test]
fn root_clean_removes_leftovers_of_a_killed_run_only() {
    let _alone = alone();
    let mut dead = Running::start("dead");
    let mut live = Running::start("live");
    let (code, inside) = dead.stop(Signal::SIGKILL);
    assert_eq!(code, None, "killed");
    assert_eq!(namespaces_of(&dead.run_id).len(), 4, "a killed run cannot clean up");

    let cleaned = vmcc_lab::clean().unwrap();
    assert!(cleaned.runs.contains(&dead.run_id) && cleaned.alive.contains(&live.run_id), "{cleaned:?}");
    assert_eq!(namespaces_of(&dead.run_id), Vec::<String>::new());
    assert!(!record_of(&dead.run_id).exists());
    assert!(cgroups_of(&dead.run_id).is_empty() && cleaned.cgroups.len() == 1, "{cleaned:?}");
    assert!(!inside.iter().any(is_alive), "the kernel kills programs with their run: {inside:?}");

    assert_eq!(namespaces_of(&live.run_id).len(), 4, "a live run is left alone");
    assert_eq!(live.stop(Signal::SIGINT).0, Some(130));
    assert!(!vmcc_lab::clean().unwrap().runs.contains(&dead.run_id), "cleaning twice finds nothing");
}

#[test]
fn root_error_during_setup_leaves_nothing() {
    let _alone = alone();
    // The last namespace to be made is taken, so that everything before it has to go.
    let run_id = format!("half-{}", std::process::id());
    let taken = format!("/run/netns/vmcc-{run_id}-mid1");
    std::fs::create_dir_all("/run/netns").unwrap();
    std::fs::write(&taken, "").unwrap();
    let mut spec = two_paths(native("reno"), 2);
    spec.run_id = Some(run_id.clone());
    let error = run(&spec).unwrap_err();
    assert!(matches!(&error, Error::NamespaceTaken { name } if name.ends_with("mid1")), "{error}");
    assert_eq!(namespaces_of(&run_id), [format!("vmcc-{run_id}-mid1")], "what was not ours is still there");
    std::fs::remove_file(&taken).unwrap();
    assert!(!record_of(&run_id).exists());
}

/// The run that [`root_web_server_ends_with_its_run`] kills.
#[test]
#[ignore = "another test's program"]
fn root_run_with_a_web_server() {
    let mut spec = two_paths(native("reno"), 60);
    spec.run_id = Some(format!("web-{}", std::os::unix::process::parent_id()));
    let sizes = vec!["1kB".parse().unwrap()];
    spec.flows[0].job = Job::Objects {
        holder: ObjectProgram::Apache,
        kept: false,
        sizes,
        per_second: 10.0,
        seed: 1,
        linger: Nanos::from_millis(50),
    };
    run(&spec).unwrap();
}

/// Apache changes its user, with which it loses the signal that its parent's death sends.
#[test]
fn root_web_server_ends_with_its_run() {
    let _alone = alone();
    let run_id = format!("web-{}", std::process::id());
    let arguments = ["--exact", "root::agents::cleanup::root_run_with_a_web_server", "--ignored"];
    let mut child = Command::new(std::env::current_exe().unwrap()).args(arguments).spawn().unwrap();
    let apaches = || {
        let inside: Vec<i32> = namespaces_of(&run_id).iter().flat_map(|name| processes_in(name)).collect();
        let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        inside.into_iter().filter(|pid| name(pid).starts_with("apache2")).collect::<Vec<_>>()
    };
    let appear = Instant::now() + Duration::from_secs(30);
    while apaches().is_empty() && Instant::now() < appear {
        std::thread::sleep(Duration::from_millis(100));
    }
    let servers = apaches();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!servers.is_empty(), "no web server within half a minute");
    let gone = Instant::now() + Duration::from_secs(10);
    while servers.iter().any(is_alive) && Instant::now() < gone {
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = servers.iter().filter(|pid| is_alive(pid)).count();
    assert!(vmcc_lab::clean().unwrap().runs.contains(&run_id));
    assert_eq!(left, 0, "it outlived its run");
}
