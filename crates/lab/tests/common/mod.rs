//! Helpers of the privileged tests. They run one at a time: each loads the machine.
#![allow(dead_code, reason = "each program uses its part")]

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use vmcc_lab::{
    Cc, Control, Direction, Error, Flow, Job, LabSpec, Layout, Machines, Path, Programs, Role, Shape,
    Transport, Wire,
};
use vmcc_results::RunOutput;
use vmcc_scenario::model::{Marking, Queue};
use vmcc_testkit::control::payload_bps;
use vmcc_units::Nanos;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Holds the machine until dropped.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    // A test that failed leaves nothing behind that matters to the next one.
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) fn native(name: &str) -> Cc {
    Cc::Native(name.to_owned())
}

pub(crate) fn registry(name: &str) -> Cc {
    Cc::Registry(vmcc_cc::Params::defaults(vmcc_cc::Algorithm::by_name(name).unwrap()))
}

pub(crate) fn path(name: &str) -> Path {
    let shape = Shape {
        rate: "100mbit".parse().unwrap(),
        buffer: "150kB".parse().unwrap(),
        marking: Marking::None,
        queue: Queue::default(),
    };
    Path::alike(name, Direction { shape: Some(shape), wire: Wire::default() })
}

pub(crate) fn flow(label: &str, cc: Cc, seconds: u64) -> Flow {
    Flow {
        label: label.into(),
        role: Role::Measured,
        from: 0,
        to: 1,
        cc,
        ecn: None,
        transport: Transport::Mptcp { first: 0 },
        class: 0,
        connections: 1,
        job: Job::Bulk { writes_at: None },
        round: 0,
        start: Nanos::ZERO,
        stop: Nanos::from_secs(seconds),
        unloaded: None,
    }
}

/// One flow over two paths of 100 Mbit/s.
pub(crate) fn two_paths(cc: Cc, seconds: u64) -> LabSpec {
    LabSpec {
        run_id: None,
        layout: Layout::ParallelPaths,
        hosts: vec!["client".into(), "server".into()],
        paths: vec![path("a"), path("b")],
        flows: vec![flow("bulk", cc, seconds)],
        remaps: Vec::new(),
        cuts: Vec::new(),
        throttles: Vec::new(),
        machines: Machines::default(),
        duration: Nanos::from_secs(seconds),
        warmup: Nanos::from_secs(1),
        sample_interval: Nanos::from_millis(10),
        series_interval: Nanos::from_millis(100),
        receive_buffer: None,
        send_buffer: None,
        notsent_lowat: None,
        min_rto: None,
        min_paths: 1,
    }
}

/// A case of a scenario of three seconds.
pub(crate) fn case(text: &str) -> vmcc_scenario::ResolvedCase {
    let text = format!("title='t'\nduration='3s'\nwarmup='0s'\n{text}");
    let plan =
        vmcc_scenario::Document::parse("t", &text).and_then(|d| d.plan(&vmcc_scenario::Overrides::default()));
    plan.unwrap_or_else(|e| panic!("{e}\n{text}")).cases.remove(0)
}

pub(crate) fn run(spec: &LabSpec) -> Result<RunOutput, Error> {
    run_with(spec, Programs::default())
}

pub(crate) fn run_with(spec: &LabSpec, programs: Programs) -> Result<RunOutput, Error> {
    let cancel = AtomicBool::new(false);
    vmcc_lab::run(spec, &mut Control { cancel: &cancel, progress: &mut |_| {}, programs, machine: None })
}

/// Runs, and calls `look` a few times per second with the time since the traffic started.
pub(crate) fn watched(spec: &LabSpec, look: &mut dyn FnMut(Duration)) -> RunOutput {
    let cancel = AtomicBool::new(false);
    let mut progress = |progress: &vmcc_lab::Progress| look(progress.elapsed);
    let mut control =
        Control { cancel: &cancel, progress: &mut progress, programs: Programs::default(), machine: None };
    vmcc_lab::run(spec, &mut control).unwrap()
}

/// Runs a command that must succeed, and answers what it printed.
pub(crate) fn command(line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = std::process::Command::new(words.next().unwrap());
    let output = command.args(words).output().unwrap_or_else(|e| panic!("{line}: {e}"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `spec` until the verdict holds, or has failed while the machine carries what it carries when idle.
pub(crate) fn judged(spec: &LabSpec, verdict: impl Fn(&RunOutput)) {
    vmcc_testkit::judge(|| run(spec).unwrap(), verdict, |_| control());
}

/// Share of two paths of 100 Mbit/s that plain TCP under the kernel's Reno fills now.
pub(crate) fn control() -> f64 {
    let mut spec = two_paths(native("reno"), 3);
    spec.flows = [0, 1]
        .map(|subnet| Flow {
            transport: Transport::Tcp { subnet },
            ..flow(["a", "b"][subnet], native("reno"), 3)
        })
        .to_vec();
    run(&spec).unwrap().metrics.goodput_bps.unwrap() / payload_bps(200)
}

/// The cgroups of a run.
pub(crate) fn cgroups_of(run_id: &str) -> Vec<std::path::PathBuf> {
    let roots = vmcc_system::cpu_steal::hierarchies().into_iter();
    let inside = roots.flat_map(|root| std::fs::read_dir(root).into_iter().flatten().flatten());
    let ours = inside.filter(|e| e.file_name().to_string_lossy().starts_with(&format!("vmcc-{run_id}-")));
    ours.map(|entry| entry.path()).collect()
}

/// Namespaces whose name says that `run_id` made them.
pub(crate) fn namespaces_of(run_id: &str) -> Vec<String> {
    let Ok(names) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("vmcc-{run_id}-"))).collect()
}

/// Processes in the network namespace of that name.
pub(crate) fn processes_in(name: &str) -> Vec<i32> {
    use std::os::unix::fs::MetadataExt;
    let Ok(wanted) = std::fs::metadata(format!("/run/netns/{name}")) else { return Vec::new() };
    let processes = std::fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inside = |pid: &i32| {
        let theirs = std::fs::metadata(format!("/proc/{pid}/ns/net"));
        theirs.is_ok_and(|theirs| (theirs.dev(), theirs.ino()) == (wanted.dev(), wanted.ino()))
    };
    pids.filter(inside).collect()
}
