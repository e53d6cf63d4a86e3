//! Program of the VM: sends on request, and notices its times off.

use crate::switch::run;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use vmcc_cc::{Algorithm, Params};
use vmcc_bpf::Loaded;
use vmcc_netlink::{MAX_LIMIT, PathManager};
use vmcc_system::cpu_steal::{gaps, timeouts};

pub const ADDRESSES: [&str; 2] = ["10.79.0.100", "10.79.1.100"];
pub const PORT: u16 = 5302;
/// The folder that both share.
pub const FOLDER: &str = "VMCC_TEST_FOLDER";
/// Prefix of an answer.
pub const SENT: &str = "sent: ";
/// Algorithm of the kernel that sends over one path, for comparison.
pub const ONE_PATH: &str = "cubic";

/// One transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Its name in the kernel; `+fq` behind it for a queue that paces.
    pub algorithm: String,
    pub to: String,
    pub seconds: u32,
    /// True if the VM has other work all the time, as its neighbours have.
    #[serde(default)]
    pub busy: bool,
}

/// Observations of the VM during a transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sent {
    /// Times for which nothing ran.
    pub off_us: Vec<u64>,
    pub timeouts: u64,
    pub spurious: u64,
    pub probes: u64,
}

pub fn job_file(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number}.job"))
}

/// Until the machine is switched off.
pub fn serve() {
    let folder = PathBuf::from(std::env::var(FOLDER).expect("a folder"));
    run("modprobe virtio_net");
    for (number, address) in ADDRESSES.into_iter().enumerate() {
        while !Path::new(&format!("/sys/class/net/eth{number}")).exists() {
            thread::sleep(Duration::from_millis(50));
        }
        run(&format!("ip addr add {address}/24 dev eth{number}"));
        run(&format!("ip link set eth{number} up"));
        vmcc_netlink::disable_segmentation_offload(&format!("eth{number}")).expect("a NIC");
    }
    run("modprobe tcp_cubic");
    // A transfer begins as if there had been none before; the lab's setting for its hosts.
    for (key, value) in
        [("ipv4/tcp_no_metrics_save", "1"), ("ipv4/tcp_notsent_lowat", "16384"), ("mptcp/enabled", "1")]
    {
        std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap_or_else(|e| panic!("{key}: {e}"));
    }
    let mut manager = PathManager::open().expect("MPTCP");
    manager.set_limits(MAX_LIMIT, MAX_LIMIT).expect("limits");
    let mut loaded: Vec<Loaded> = Vec::new();
    for number in 0.. {
        let file = job_file(&folder, number);
        while !file.exists() {
            thread::sleep(Duration::from_millis(50));
        }
        let job: Job = serde_json::from_slice(&std::fs::read(file).expect("a job")).expect("a job");
        println!("{SENT}{}", serde_json::to_string(&send(&job, &mut loaded)).expect("JSON"));
    }
}

fn send(job: &Job, loaded: &mut Vec<Loaded>) -> Sent {
    let (name, queue) = job.algorithm.split_once('+').unwrap_or((&job.algorithm, "pfifo_fast"));
    for number in 0..ADDRESSES.len() {
        // `fq` sends at the rate that TCP asks for; other queues leave that to TCP's own timers, if it asks for one at all.
        run(&format!("tc qdisc replace dev eth{number} root {queue}"));
    }
    if let Some(algorithm) = Algorithm::all().find(|a| a.info().kernel_name == name)
        && !loaded.iter().any(|one| one.algorithm() == algorithm)
    {
        loaded.push(Loaded::load(algorithm, &Params::defaults(algorithm)).unwrap_or_else(|e| panic!("{e}")));
    }
    std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name).expect("an algorithm");
    let client = format!("iperf3 -c {} -p {PORT} -t {}", job.to, job.seconds);
    let client = if name == ONE_PATH { client } else { format!("mptcpize run {client}") };
    let before = timeouts().expect("counters");
    let (ended, mut off_us) = (AtomicBool::new(false), Vec::new());
    thread::scope(|scope| {
        let noticing = scope.spawn(|| {
            let seen = gaps(&mut |off| {
                off_us.extend(off.map(|off| off.as_micros() as u64));
                if ended.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            seen.expect("what the scheduler knows");
        });
        let mut busy = job.busy.then(|| busy().expect("a busy loop"));
        let mut command = Command::new("sh");
        command.args(["-c", &client]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command.status().expect("iperf3");
        busy.as_mut().map(end);
        ended.store(true, Ordering::Relaxed);
        noticing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let after = timeouts().expect("counters");
    Sent {
        off_us,
        timeouts: after.all - before.all,
        spurious: after.spurious - before.spurious,
        probes: after.probes - before.probes,
    }
}

/// Something that always has to do.
fn busy() -> io::Result<Child> {
    Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn()
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
