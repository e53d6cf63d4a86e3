//! A VM with two network cards that sends to a host over two user-space links, and is descheduled now and then.
#![allow(unreachable_pub, reason = "as `switch`")]

pub mod neighbours;
pub mod sender;
pub mod wire;

use neighbours::{ORDINARY, Shared};
use sender::{FOLDER, Job, PORT, SENT, Sent, job_file};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use crate::switch::{Namespace, run};
use vmcc_lab::guest::{Accel, DutyCycle, Guest, GuestError, GuestOptions, Power, Stream, kernel};
use vmcc_netlink::{MAX_LIMIT, PathManager};
use wire::{Shape, Wire};

/// The host's.
const HERE: [&str; 2] = ["10.79.0.1", "10.79.1.1"];
/// The test of this binary that is the VM's program.
const PROGRAM: &str = "guest::descheduled::inside_the_sender";
/// Timeout of any step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// More than what iperf3's ends tell each other before the data.
const UNDER_WAY_BYTES: u64 = 50_000;
/// Time at a transfer's start that is not measured.
const SETTLING: Duration = Duration::from_secs(1);

pub struct Lab {
    // In the order in which they end: the VM lets go of its taps first.
    vm: Vm,
    _wires: Vec<Wire>,
    receiver: Namespace,
    _between: Namespace,
    folder: tempfile::TempDir,
    jobs: u32,
}

/// Results of a transfer.
#[derive(Debug)]
pub struct Transfer {
    /// At the receiver, while the pattern lasted.
    pub goodput_bps: f64,
    /// For how long the VM was off each time.
    pub off: Vec<Duration>,
    pub seen: Sent,
}

impl Lab {
    pub fn new(shape: Shape) -> Self {
        let (between, receiver) = (Namespace::new("s"), Namespace::new("h"));
        let folder = tempfile::tempdir().expect("a folder");
        let mut wires = Vec::new();
        for (number, address) in HERE.into_iter().enumerate() {
            let mut wire = Wire::new(&between, &format!("w{number}"), shape);
            let (bridge, near, tap) = (format!("br{number}"), wire.near().to_owned(), format!("tap{number}"));
            run(&format!("ip -n {between} link add {bridge} type bridge"));
            run(&format!("ip -n {between} tuntap add {tap} mode tap"));
            for port in [&near, &tap] {
                run(&format!("ip -n {between} link set {port} master {bridge}"));
            }
            for link in [&near, &tap, &bridge] {
                run(&format!("ip -n {between} link set {link} up"));
            }
            let end = format!("e{number}");
            wire.lead_to(&receiver, &end);
            run(&format!("ip -n {receiver} addr add {address}/24 dev {end}"));
            run(&format!("ip -n {receiver} link set {end} up"));
            wires.push(wire);
        }
        receiver.sysctl("mptcp/enabled", "1");
        receiver.within(|| {
            let mut manager = PathManager::open().expect("MPTCP");
            manager.set_limits(MAX_LIMIT, 0).expect("limits");
            manager.signal(HERE[1].parse().expect("an address")).expect("an endpoint");
        });
        let vm = between.within(|| Vm::start(folder.path()));
        Self { vm, _wires: wires, receiver, _between: between, folder, jobs: 0 }
    }

    /// Sends for some seconds while the VM is off by these turns; `None`: it always runs.
    pub fn transfer(&mut self, algorithm: &str, seconds: u32, turn: Option<DutyCycle>) -> Transfer {
        let turns = turn.into_iter().flat_map(std::iter::repeat);
        let measured = SETTLING.as_secs_f64()..f64::MAX;
        self.carry((algorithm, seconds, false), measured, |power, enough| {
            power.deschedule(Instant::now(), turns, enough)
        })
    }

    /// Sends beside other virtual machines on one processor, each with something to do all the time, for some seconds with this
    /// weight (`None`: they do nothing); and the share that the sender had of it.
    pub fn transfer_beside(
        &mut self,
        algorithm: &str,
        seconds: u32,
        weight: Option<u32>,
        shared: &Shared,
    ) -> (Transfer, f64) {
        let (lasts, mut share) = (Duration::from_secs(seconds.into()), 0.0);
        let measured = SETTLING.as_secs_f64()..(SETTLING + lasts).as_secs_f64();
        // One second more: its end costs it time, too.
        let job = (algorithm, seconds + SETTLING.as_secs() as u32 + 1, true);
        let transfer = self.carry(job, measured, |_, _| {
            shared.suspend(weight.is_none());
            shared.weigh(weight.unwrap_or(ORDINARY));
            thread::sleep(SETTLING);
            let (begun, before) = (Instant::now(), shared.used());
            thread::sleep(lasts);
            share = shared.used().saturating_sub(before).as_secs_f64() / begun.elapsed().as_secs_f64();
            // What begins and what ends with a small share takes minutes.
            shared.suspend(true);
            shared.weigh(ORDINARY);
            Vec::new()
        });
        (transfer, share)
    }

    /// A transfer of an algorithm for some seconds, with something else to do or not, of which a part is measured; what happens
    /// meanwhile says for how long the VM was off.
    fn carry(
        &mut self,
        (algorithm, seconds, busy): (&str, u32, bool),
        measured: Range<f64>,
        meanwhile: impl FnOnce(&Power, &AtomicBool) -> Vec<Duration> + Send,
    ) -> Transfer {
        // Of a connection whose other end is slow to close something is left for a while.
        while self.received_bytes() > 0 {
            self.vm.is_there();
            thread::sleep(Duration::from_millis(20));
        }
        let mut server = self.server();
        let job = Job { algorithm: algorithm.to_owned(), to: HERE[0].to_owned(), seconds, busy };
        let file = job_file(self.folder.path(), self.jobs);
        let written = file.with_extension("new");
        std::fs::write(&written, serde_json::to_vec(&job).expect("JSON")).expect("a file");
        std::fs::rename(written, file).expect("a file");
        self.jobs += 1;
        while self.received_bytes() < UNDER_WAY_BYTES {
            self.vm.is_there();
            thread::sleep(Duration::from_millis(20));
        }
        let (power, enough) = (&self.vm.power, AtomicBool::new(false));
        let (output, off) = thread::scope(|scope| {
            let meanwhile = scope.spawn(|| meanwhile(power, &enough));
            let output = server.take().expect("a server").wait_with_output().expect("iperf3");
            enough.store(true, Ordering::Relaxed);
            (output, meanwhile.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let goodput_bps = goodput(&String::from_utf8_lossy(&output.stdout), &measured);
        Transfer { goodput_bps, off, seen: self.vm.answer() }
    }

    /// On the connection that has most.
    fn received_bytes(&self) -> u64 {
        let sockets = self.receiver.run(&format!("ss -Htin state established sport = :{PORT}"));
        let counts = sockets.split_whitespace().filter_map(|word| word.strip_prefix("bytes_received:"));
        counts.filter_map(|count| count.parse().ok()).max().unwrap_or(0)
    }

    fn server(&self) -> Option<Child> {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &self.receiver.0,
            "mptcpize",
            "run",
            "iperf3",
            "-s",
            "-1",
            "-J",
            "-i",
            "0.5",
        ]);
        command.args(["-p", &PORT.to_string()]).stdout(Stdio::piped()).stderr(Stdio::null());
        let server = command.spawn().expect("iperf3");
        while !self.receiver.run(&format!("ss -Hltn sport = :{PORT}")).contains("LISTEN") {
            thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }
}

/// Of what iperf3 saw arrive in the intervals that begin in this time.
fn goodput(report: &str, measured: &Range<f64>) -> f64 {
    let report: serde_json::Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    let intervals = report["intervals"].as_array().cloned().unwrap_or_default();
    // They begin a bit before or after what they are called by.
    let within = |sum: &&serde_json::Value| {
        sum["start"].as_f64().is_some_and(|start| measured.contains(&(start + 0.01)))
    };
    let later = intervals.iter().map(|one| &one["sum"]).filter(within);
    let (bytes, seconds) = later.fold((0.0, 0.0), |(bytes, seconds), sum| {
        (bytes + sum["bytes"].as_f64().unwrap_or(0.0), seconds + sum["seconds"].as_f64().unwrap_or(0.0))
    });
    assert!(seconds > 0.0, "iperf3 measured nothing: {report}");
    bytes * 8.0 / seconds
}

/// A running VM; ends with this.
struct Vm {
    power: Power,
    stop: &'static AtomicBool,
    said: Receiver<String>,
    thread: Option<JoinHandle<()>>,
}

impl Vm {
    /// On `tap0` and `tap1` of this thread's namespace.
    fn start(folder: &std::path::Path) -> Self {
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let power = Power::default();
        let options = GuestOptions {
            // One, as the papers' VMs.
            cpus: 1,
            accel: Some(Accel::Emulation),
            taps: vec!["tap0".to_owned(), "tap1".to_owned()],
            shared_dir: Some(folder.to_owned()),
            env: vec![(FOLDER.into(), folder.into())],
            stop: Some(stop),
            power: Some(power.clone()),
            time_limit: Duration::from_secs(4 * 3600),
            ..GuestOptions::default()
        };
        let image = kernel("6.18").unwrap_or_else(|e| panic!("{e}"));
        let program = std::env::current_exe().expect("this binary");
        let (tell, said) = channel();
        let thread = thread::spawn(move || {
            let mut heard = String::new();
            let mut listen = |stream, text: &[u8]| match stream {
                Stream::Stdout => {
                    heard.push_str(&String::from_utf8_lossy(text));
                    while let Some((line, rest)) = heard.split_once('\n') {
                        // Not at the beginning of a line: a test begins one. Nobody listens any more when this has ended.
                        let _ = line.split_once(SENT).map(|(_, answer)| tell.send(answer.to_owned()));
                        heard = rest.to_owned();
                    }
                }
                Stream::Stderr => print!("VM: {}", String::from_utf8_lossy(text)),
            };
            let arguments = [PROGRAM, "--ignored", "--nocapture"];
            match Guest::new(options).run_streaming(&image, program, arguments, &mut listen) {
                Err(GuestError::Interrupted) => {}
                other => panic!("the VM ended by itself: {other:?}"),
            }
        });
        Self { power, stop, said, thread: Some(thread) }
    }

    fn is_there(&self) {
        assert!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "the VM ended");
    }

    fn answer(&self) -> Sent {
        match self.said.recv_timeout(TIMEOUT) {
            Ok(line) => serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")),
            Err(RecvTimeoutError::Timeout) => panic!("the VM says nothing"),
            Err(RecvTimeoutError::Disconnected) => panic!("the VM ended"),
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it panicked with has been printed.
            let _ = thread.join();
        }
    }
}
