//! Network namespaces, and commands and traffic in them. Privileged tests of every crate take this file by its path.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Runs a command and shows what it said if it fails; its output.
pub fn run(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output =
        Command::new(words[0]).args(&words[1..]).output().unwrap_or_else(|e| panic!("{command}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command}: {err} {out}");
    out.into_owned()
}

/// A name of this process's own.
pub fn own_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("vmcct{}-{}{what}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A network namespace; removed on drop, with everything in it.
pub struct Namespace(pub String);

impl Namespace {
    pub fn new(what: &str) -> Self {
        let namespace = Self(own_name(what));
        run(&format!("ip netns add {namespace}"));
        run(&format!("ip -n {namespace} link set lo up"));
        namespace
    }

    pub fn file(&self) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}", self.0))
    }

    /// Runs `action` on a thread inside.
    pub fn within<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        let file = File::open(self.file()).unwrap_or_else(|e| panic!("{self}: {e}"));
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).expect("enter namespace");
                action()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Sets what `/proc/sys/net` has under `name`.
    pub fn sysctl(&self, name: &str, value: &str) {
        self.within(|| {
            fs::write(format!("/proc/sys/net/{name}"), value)
                .unwrap_or_else(|e| panic!("{name}={value}: {e}"));
        });
    }

    /// Runs a command inside; as [`run`].
    pub fn run(&self, command: &str) -> String {
        run(&format!("ip netns exec {self} {command}"))
    }

    /// Throughput of an iperf3 client inside, in bits per second at the receiver.
    pub fn iperf(&self, options: &str) -> f64 {
        let report: serde_json::Value =
            serde_json::from_str(&self.run(&format!("iperf3 -J {options}"))).expect("JSON");
        report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate")
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Joins two namespaces by a veth pair with the same name in each: address `net`.1 at the first, .2 at the second.
pub fn join(first: &Namespace, second: &Namespace, port: &str, net: &str) {
    run(&format!("ip -n {first} link add {port} type veth peer name {port} netns {second}"));
    for (end, host) in [(first, 1), (second, 2)] {
        run(&format!("ip -n {end} addr add {net}.{host}/24 dev {port}"));
        run(&format!("ip -n {end} link set {port} up"));
    }
}

/// An iperf3 server for one test; ends by itself or with this.
pub struct Server(Child);

impl Server {
    pub fn start(namespace: &Namespace, port: u16) -> Self {
        Self::start_as(namespace, &["iperf3"], port)
    }

    /// For MPTCP connections.
    pub fn start_multipath(namespace: &Namespace, port: u16) -> Self {
        Self::start_as(namespace, &["mptcpize", "run", "iperf3"], port)
    }

    fn start_as(namespace: &Namespace, program: &[&str], port: u16) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace.0]).args(program).args(["-s", "-1", "-p"]);
        command.arg(port.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self(command.spawn().expect("iperf3"));
        // Listening is seen from inside; a connection would use up the one test.
        while !namespace.run(&format!("ss -Hltn sport = :{port}")).contains("LISTEN") {
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Until its one test is over.
    pub fn wait(mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
