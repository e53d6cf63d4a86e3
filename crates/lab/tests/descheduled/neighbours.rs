//! Virtual machines that share a processor with the sender, by the scheduler's weights: a cgroup each, with `cpu.weight` or, in
//! version 1, with the `cpu.shares` that are the same.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vmcc_lab::guest::{Accel, Guest, GuestError, GuestOptions, kernel};

/// Default `cpu.weight`, and that of each neighbour.
pub const ORDINARY: u32 = 100;
/// Weights of the credit scheduler, of which 256 is ordinary, and as `cpu.weight`.
pub const WEIGHTS: [(u32, u32); 3] = [(8, 3), (32, 12), (128, 50)];
/// That of the virtual machines, and of everything else.
const PROCESSORS: (usize, usize) = (1, 0);
const COUNT: usize = 3;
const MEMORY_BYTES: u64 = 256 << 20;
const BUSY: &str = "echo busy; while :; do :; done";
const TIMEOUT: Duration = Duration::from_secs(120);

/// The sender's emulator with its weight, and three others that always have something to do. What they need ends with this.
pub struct Shared {
    sender: Pid,
    stop: &'static AtomicBool,
    threads: Vec<JoinHandle<()>>,
    emulators: Vec<Pid>,
    // After the processes in them.
    own: Group,
    _groups: Vec<Group>,
}

impl Shared {
    /// With the only guest that this process has so far.
    pub fn new() -> Self {
        let sender = *emulators().first().expect("a sender");
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let threads = (0..COUNT).map(|_| neighbour(stop)).collect();
        let emulators: Vec<Pid> = emulators().into_iter().filter(|pid| *pid != sender).collect();
        assert_eq!(emulators.len(), COUNT, "emulators");
        let group = |(number, pid): (usize, &Pid)| {
            let group = Group::new(number);
            group.take(*pid);
            group.weigh(ORDINARY);
            pin(*pid);
            group
        };
        let groups = emulators.iter().enumerate().map(group).collect();
        let own = group((COUNT, &sender));
        let shared = Self { sender, stop, threads, emulators, own, _groups: groups };
        shared.suspend(true);
        shared
    }

    /// Stops the neighbours if `yes`, resumes them if not.
    pub fn suspend(&self, yes: bool) {
        let signal = if yes { Signal::SIGSTOP } else { Signal::SIGCONT };
        self.emulators.iter().for_each(|pid| kill(*pid, signal).expect("a neighbour"));
    }

    /// Gives the sender a weight.
    pub fn weigh(&self, weight: u32) {
        self.own.weigh(weight);
    }

    /// CPU time that the sender has used.
    pub fn used(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.sender)).expect("a sender");
        let after = stat.rsplit_once(") ").expect("its state").1;
        let ticks =
            after.split(' ').skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum::<u64>();
        Duration::from_millis(10 * ticks)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.suspend(false);
        self.stop.store(true, Ordering::Relaxed);
        // What they panicked with has been printed.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        let root = self.own.0.parent().expect("a hierarchy").join("cgroup.procs");
        let _ = std::fs::write(root, self.sender.to_string());
    }
}

/// A guest that is busy when this returns.
fn neighbour(stop: &'static AtomicBool) -> JoinHandle<()> {
    let (tell, said) = channel();
    let thread = thread::spawn(move || {
        let options = GuestOptions {
            cpus: 1,
            memory_bytes: MEMORY_BYTES,
            accel: Some(Accel::Emulation),
            stop: Some(stop),
            time_limit: Duration::from_secs(4 * 3600),
            ..GuestOptions::default()
        };
        let image = kernel("6.18").unwrap_or_else(|e| panic!("{e}"));
        let mut listen = |_, _: &[u8]| {
            // A waiter has what it waited for after the first time.
            let _ = tell.send(());
        };
        match Guest::new(options).run_streaming(&image, "sh", ["-c", BUSY], &mut listen) {
            Err(GuestError::Interrupted) => {}
            other => panic!("a neighbour ended by itself: {other:?}"),
        }
    });
    said.recv_timeout(TIMEOUT).expect("a busy neighbour");
    thread
}

/// Everything that this thread starts from now on is on the processor that the virtual machines do not share.
pub fn keep_off() {
    sched_setaffinity(Pid::from_raw(0), &only(PROCESSORS.1)).expect("a processor");
}

fn only(processor: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor).expect("a processor");
    set
}

fn pin(process: Pid) {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("threads").flatten();
    for thread in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        sched_setaffinity(Pid::from_raw(thread), &only(PROCESSORS.0)).expect("a processor");
    }
}

/// The emulators of this process's guests, by the names of their jobs' folders.
pub fn emulators() -> BTreeSet<Pid> {
    let job = format!("vmcc-guest-{}-", std::process::id());
    let pids = std::fs::read_dir("/proc").expect("processes").flatten();
    let is_one = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        name.starts_with("qemu") && String::from_utf8_lossy(&words).contains(&job)
    };
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_one).map(Pid::from_raw).collect()
}

/// A cgroup of the hierarchy that has the controller `cpu`; removed with this, if it is empty.
struct Group(PathBuf);

impl Group {
    fn new(number: usize) -> Self {
        let hierarchies = vmcc_system::cpu_steal::hierarchies();
        let root = hierarchies.iter().find(|root| has_weights(root)).expect("a controller `cpu`");
        let given = root.join("cgroup.subtree_control");
        if given.exists() {
            std::fs::write(given, "+cpu").expect("a controller");
        }
        let path = root.join(format!("vmcc-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a cgroup");
        Self(path)
    }

    fn take(&self, process: Pid) {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).expect("a process");
    }

    fn weigh(&self, weight: u32) {
        let (file, value) = match self.0.join("cpu.weight").exists() {
            true => ("cpu.weight", weight),
            false => ("cpu.shares", (weight * 1024 + 50) / 100),
        };
        std::fs::write(self.0.join(file), value.to_string()).expect("a weight");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn has_weights(root: &Path) -> bool {
    let controllers = std::fs::read_to_string(root.join("cgroup.controllers"));
    controllers.map_or_else(
        |_| root.join("cpu.shares").exists(),
        |names| names.split_whitespace().any(|name| name == "cpu"),
    )
}
