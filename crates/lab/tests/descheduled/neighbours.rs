//! Busy loops that share a processor with the VM, by the scheduler's weights.
//!
//! A weight is that of a cgroup's `cpu.weight`, of which 100 is what a process of nice 0 has. Where no hierarchy has the `cpu`
//! controller, nice levels are the same weights in the kernel (`sched_prio_to_weight`), within one session.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Nice levels with the kernel's weights of 87, 335 and 1277, of which 1024 is that of nice 0: cpu.weight 8, 32 and 128 are
/// 82, 328 and 1311.
pub const NICE_OF_WEIGHT: [(u32, i32); 3] = [(8, 11), (32, 5), (128, -1)];
/// They and the VM.
const PROCESSOR: usize = 1;
const COUNT: usize = 3;

/// Others with as much to do, at nice 0. They end with this.
pub struct Neighbours(Vec<Child>);

impl Neighbours {
    pub fn new() -> Self {
        let one = |_| {
            let child = busy(0).expect("a busy loop");
            pin(child.id() as i32).expect("a processor");
            child
        };
        Self((0..COUNT).map(one).collect())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(end);
    }
}

/// Something that always has to do.
pub fn busy(nice: i32) -> io::Result<Child> {
    let loops = ["-n", &nice.to_string(), "sh", "-c", "while :; do :; done"].map(str::to_owned);
    Command::new("nice").args(loops).stdin(Stdio::null()).spawn()
}

pub fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn pin(thread: i32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(PROCESSOR)?;
    sched_setaffinity(Pid::from_raw(thread), &set)?;
    Ok(())
}

/// The emulator of this process's only guest, by the name of its job's folder.
pub fn emulator() -> Option<i32> {
    let job = format!("vmcc-guest-{}-", std::process::id());
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        name.starts_with("qemu") && String::from_utf8_lossy(&words).contains(&job)
    };
    pids.into_iter().find(is_it)
}

/// All threads of a process share the neighbours' processor, with a weight.
pub fn share(process: i32, nice: i32) -> io::Result<()> {
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
        let Some(thread) = thread.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        pin(thread)?;
        // SAFETY: no memory is involved.
        let set = unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, thread as u32, nice) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// What a process has used of its processor.
pub fn used(process: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = after.split(' ').skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(10 * ticks)
}
