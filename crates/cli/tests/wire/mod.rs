//! Two network namespaces joined by a veth pair, traffic between them, and the program run in the first.
#![allow(unreachable_pub, reason = "a part of one program")]

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;
use vmcc_testkit::control::tbf_share;
use vmcc_testkit::netns::{Namespace, Server, join, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vmcc");
const RECORDS: &str = "/run/vmcc/ports";

/// Namespaces `a` and `b`, joined by `p0` in each: 10.79.0.1 at a, .2 at b. Packets of wire size only. The program
/// runs in `a`. Removed on drop.
pub struct Pair {
    pub a: Namespace,
    pub b: Namespace,
    folder: tempfile::TempDir,
    inode: u64,
}

impl Pair {
    pub fn new() -> Self {
        let (a, b) = (Namespace::new("a"), Namespace::new("b"));
        let inode = fs::metadata(a.file()).unwrap().ino();
        let pair = Self { a, b, folder: tempfile::tempdir().unwrap(), inode };
        pair.join("p0", 79);
        for ns in [&pair.a, &pair.b] {
            ns.sysctl("ipv4/tcp_ecn", "1");
            ns.sysctl("ipv4/tcp_congestion_control", "reno");
        }
        pair
    }

    /// Another pair of ports, 10.`net`.0.1 and .2.
    pub fn join(&self, port: &str, net: u8) {
        join(&self.a, &self.b, port, &format!("10.{net}.0"));
        for ns in [&self.a, &self.b] {
            // One segment per packet, so that queues count packets as the wire has them.
            run(&format!("ip -n {ns} link set {port} gso_max_segs 1"));
        }
    }

    /// `ip` in the sending namespace.
    pub fn ip(&self, arguments: &str) -> String {
        run(&format!("ip -n {} {arguments}", self.a))
    }

    /// `tc` in the sending namespace.
    pub fn tc(&self, arguments: &str) -> String {
        run(&format!("tc -n {} {arguments}", self.a))
    }

    /// Output of `tc` for all queues, and for the filters at the port.
    pub fn queues(&self) -> String {
        let filters = |hook: &str| {
            let shown =
                Command::new("tc").args(["-n", &self.a.0, "filter", "show", "dev", "p0", hook]).output();
            // Nothing when the port is gone.
            String::from_utf8(shown.unwrap().stdout).unwrap()
        };
        [self.tc("qdisc show"), filters("egress"), filters("ingress")].concat()
    }

    /// Writes a file where the program runs.
    pub fn file(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.a.file().display())).arg(PROGRAM).args(arguments);
        command.current_dir(self.folder.path());
        command
    }

    /// The program, silent, for who starts it himself.
    pub fn silent(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the program with at most this many open files.
    pub fn with_open_files(&self, files: u32, arguments: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.a.file().display()));
        command.args(["sh", "-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), PROGRAM]);
        command.args(arguments).current_dir(self.folder.path()).output().unwrap()
    }

    /// Runs the program with `--json`; the exit code and the document, which is all of stdout.
    pub fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let output = self.output(&[arguments, &["--json"]].concat());
        let document = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().unwrap(), document)
    }

    /// Runs the program, which must succeed; its stdout.
    pub fn text(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the program, which must refuse with this exit code, change nothing, and say why; its stderr.
    pub fn refused(&self, arguments: &[&str], code: i32) -> String {
        let (before, records) = (self.queues(), self.records());
        let output = self.output(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty() && stderr.contains("error: "), "{arguments:?}: {stderr}");
        assert_eq!(self.queues(), before, "{arguments:?} changed something");
        assert_eq!(self.records(), records, "{arguments:?} left a record");
        stderr
    }

    /// Starts the program and kills it after this time, wherever it is then.
    pub fn killed_after(&self, arguments: &[&str], time: Duration) {
        let mut child = self.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(time);
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// Starts `vmcc mark p0 --foreground` and waits until it serves.
    pub fn foreground(&self, arguments: &[&str]) -> Foreground {
        let mut command = self.command(&[&["mark", "p0", "--foreground"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        stderr.read_line(&mut first).unwrap();
        assert!(first.contains("is served") || first.contains("was served already"), "{first}");
        Foreground { child, _stderr: stderr }
    }

    /// An iperf3 run to `b` over `p0`, in bits per second at the receiver.
    pub fn iperf(&self, options: &str) -> f64 {
        let _server = self.server(5301);
        self.client(&format!("-c 10.79.0.2 -p 5301 {options}"))
    }

    /// Judges a transfer by `p0`: it carries `least` to 1 of `rate_mbit`.
    pub fn judge_share(&self, options: &str, rate_mbit: u32, least: f64) {
        let verdict = |share: &f64| assert!((least..1.0).contains(share), "{share} of {rate_mbit} Mbit/s");
        let share = || self.iperf(options) / (f64::from(rate_mbit) * 1e6);
        vmcc_testkit::judge(share, verdict, |_| tbf_share(rate_mbit, Duration::ZERO, 4));
    }

    /// An iperf3 server in `b`, for one test.
    pub fn server(&self, port: u16) -> Server {
        Server::start(&self.b, port)
    }

    /// Throughput of an iperf3 client in `a`, measured at the receiver, in bits per second.
    pub fn client(&self, options: &str) -> f64 {
        self.a.iperf(options)
    }

    /// Records of ports of the sending namespace.
    pub fn records(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(RECORDS) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|n| n.starts_with(&format!("{}-", self.inode))).collect();
        names.sort();
        names
    }

    /// No port is served, and no record speaks of one.
    pub fn assert_nothing_left(&self) {
        assert_eq!(self.json(&["mark", "--list"]).1["ports"], serde_json::json!([]));
        assert_eq!(self.records(), Vec::<String>::new());
        let queues = self.tc("qdisc show");
        assert!(!queues.contains("htb") && !queues.contains("clsact"), "{queues}");
        let links = run(&format!("ip -n {} link", self.a));
        assert!(!links.contains(": vmcc"), "a device of ours stays: {links}");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for record in self.records() {
            let _ = fs::remove_file(PathBuf::from(RECORDS).join(record));
        }
    }
}

/// A running `vmcc mark --foreground`; killed on drop.
pub struct Foreground {
    child: Child,
    /// Open, so that writing there does not fail.
    _stderr: BufReader<ChildStderr>,
}

impl Foreground {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&mut self, name: &str) {
        run(&format!("kill -{name} {}", self.child.id()));
    }

    /// Waits until it ends: its exit code and its stdout.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        (self.child.wait().unwrap().code(), out)
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
