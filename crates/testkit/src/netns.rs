//! Network namespaces, commands in them, and iperf3 between them.

use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Runs a command and returns its output.
///
/// # Panics
/// With the command's own words, when it fails.
pub fn run(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output =
        Command::new(words[0]).args(&words[1..]).output().unwrap_or_else(|e| panic!("{command}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command}: {err} {out}");
    out.into_owned()
}

/// A name that no other process has, nor an earlier call of this one.
pub fn own_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("vmcct{}-{}{what}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A network namespace; removed on drop, with everything in it.
#[derive(Debug)]
pub struct Namespace(pub String);

impl Namespace {
    /// Makes one; `what` is part of its name.
    pub fn new(what: &str) -> Self {
        let namespace = Self(own_name(what));
        run(&format!("ip netns add {namespace}"));
        run(&format!("ip -n {namespace} link set lo up"));
        namespace
    }

    /// Its file, as `ip netns` names it.
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

/// An iperf3 server for one test; ends by itself or on drop.
#[derive(Debug)]
pub struct Server(Child);

impl Server {
    /// Starts one and waits until it listens.
    pub fn start(namespace: &Namespace, port: u16) -> Self {
        Self::start_as(namespace, &["iperf3"], port)
    }

    /// As [`Server::start`], for MPTCP connections.
    pub fn start_multipath(namespace: &Namespace, port: u16) -> Self {
        Self::start_as(namespace, &["mptcpize", "run", "iperf3"], port)
    }

    fn start_as(namespace: &Namespace, program: &[&str], port: u16) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace.0]).args(program).args(["-s", "-1", "-p"]);
        command.arg(port.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self(command.spawn().expect("iperf3"));
        // A connection would use up the one test, so listening is seen from inside.
        while !namespace.run(&format!("ss -Hltn sport = :{port}")).contains("LISTEN") {
            let ended = server.0.try_wait().expect("a child");
            assert!(
                ended.is_none(),
                "{program:?} ended before it listened at port {port} of {namespace}: {ended:?}"
            );
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Waits until its one test is over.
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
