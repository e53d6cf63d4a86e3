//! An agent (`vmcc up --config`) in a network namespace of its own, and what the kernel says there.
#![allow(unreachable_pub, reason = "a part of one program")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use vmcc_testkit::netns::{Namespace, run};

/// A test that waits longer hangs.
const HANGS: Duration = Duration::from_secs(120);

/// An agent's process; killed at the latest when it is dropped.
pub struct Agent {
    child: Child,
    said: Receiver<String>,
    heard: Vec<String>,
}

/// `vmcc` with these arguments, in the network namespace alone.
pub fn within(namespace: &Namespace, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", namespace.file().display()))
        .arg(env!("CARGO_BIN_EXE_vmcc"))
        .args(arguments);
    command
}

/// The agent's command.
pub fn up(namespace: &Namespace, file: &Path) -> Command {
    within(namespace, &["up", "--config", file.to_str().unwrap()])
}

impl Agent {
    /// Started, and ready.
    pub fn start(namespace: &Namespace, file: &Path) -> Self {
        let mut agent = Self::spawn(up(namespace, file));
        agent.hears("ready: ");
        agent
    }

    /// Any program that stays, heard on both of its outputs.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (send, said) = channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stderr.take().unwrap()), Box::new(child.stdout.take().unwrap())];
        for output in outputs {
            let send = send.clone();
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            std::thread::spawn(move || lines.try_for_each(|line| send.send(line)));
        }
        Self { child, said, heard: Vec::new() }
    }

    /// Waits until it says something with this in it, and returns that line.
    pub fn hears(&mut self, part: &str) -> String {
        loop {
            let Ok(line) = self.said.recv_timeout(HANGS) else { panic!("no `{part}` in {:#?}", self.heard) };
            self.heard.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Everything that it has said so far.
    pub fn heard(&mut self) -> String {
        self.heard.extend(self.said.try_iter());
        self.heard.join("\n")
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for its end; its exit code.
    pub fn ends(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// State of a namespace according to the kernel, without vmcc.
pub fn seen(namespace: &Namespace) -> String {
    let mut all = String::new();
    for command in ["mptcp endpoint show", "mptcp limits show", "-o link show"] {
        all += &run(&format!("ip -n {namespace} {command}"));
    }
    all += &run(&format!("tc -n {namespace} qdisc show"));
    for name in
        ["ipv4.tcp_congestion_control", "ipv4.tcp_notsent_lowat", "ipv4.tcp_rmem", "ipv4.conf.all.arp_ignore"]
    {
        all += &sysctl(namespace, name);
    }
    all += &fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    all
}

/// A sysctl of the network, as `sysctl` would print it.
pub fn sysctl(namespace: &Namespace, name: &str) -> String {
    namespace.within(|| fs::read_to_string(format!("/proc/sys/net/{}", name.replace('.', "/"))).unwrap())
}

/// The endpoints that the kernel has.
pub fn endpoints(namespace: &Namespace) -> String {
    run(&format!("ip -n {namespace} mptcp endpoint show"))
}

/// Files that an agent keeps on disk.
pub fn state() -> Vec<PathBuf> {
    let entries = fs::read_dir("/run/vmcc").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("agent")).collect()
}

/// Waits until `is` holds.
pub fn until(what: &str, is: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is() {
        assert!(began.elapsed() < HANGS, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
