//! Scenarios in which a host is a virtual machine, some of them off now and then.

use crate::common::{folder, root, vmcc};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATHS: &str = r#"
[topology]
kind = "parallel-paths"
paths = [{ name = "a" }, { name = "b" }]
rate = "20mbit"
delay = "5ms"
"#;

/// A folder with a scenario, `vm.toml`, of this duration and warm-up, these settings of hosts and this queue on two paths.
fn scenario([duration, warmup]: [&str; 2], host: &str, buffer: &str, traffic: &str) -> tempfile::TempDir {
    let dir = folder();
    let head = format!("title = \"A VM\"\nduration = \"{duration}\"\nwarmup = \"{warmup}\"\n[host]\n{host}");
    let text = format!("{head}{PATHS}buffer = \"{buffer}\"\n{traffic}");
    fs::write(dir.path().join("vm.toml"), text).unwrap();
    dir
}

/// Runs `vmcc run vm.toml`, which must succeed, and returns its output. Programs that set-up unpacked and did not install are in PATH.
fn run(dir: &Path) -> Value {
    let tools = root().join("target/tools/usr");
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{path}", tools.join("bin").display(), tools.join("sbin").display());
    let arguments = ["run", "vm.toml", "--engine", "kernel", "--out", "out", "--json"];
    let output = vmcc(dir).env("PATH", path).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn metrics(document: &Value, case: usize) -> &Value {
    &document["cases"][case]["runs"][0]["metrics"]
}

fn number(metrics: &Value, pointer: &str) -> Option<f64> {
    metrics.pointer(pointer).and_then(Value::as_f64)
}

/// Goodput of each path.
fn carried(metrics: &Value) -> [Option<f64>; 2] {
    [0, 1].map(|path| number(metrics, &format!("/paths/{path}/goodput_bps")))
}

/// A sender, in one case never off, in the other for 300 of 500 ms.
fn sender() -> tempfile::TempDir {
    let traffic = r#"
[[traffic]]
kind = "bulk"
[[sweep.vm]]
name = "never"
[[sweep.vm]]
name = "often"
event = [{ kind = "deschedule", at = "0s", host = "client", on = "200ms", off = "300ms" }]
"#;
    scenario(["6s", "5s"], "cc = \"awake\"\n", "20pkt", traffic)
}

#[test]
#[ignore = "boots a VM, a minute"]
fn on_linux_descheduled_vm_is_detected_while_it_sends() {
    let dir = sender();
    let document = run(dir.path());
    assert_eq!(document["engine"], "kernel", "{document}");
    let (never, often) = (metrics(&document, 0), metrics(&document, 1));
    // A program that is slow to start, in the machine's first run above all, sends until the end: its last second is all that counts.
    let goodput = |metrics| number(metrics, "/goodput_bps").unwrap();
    assert!(goodput(never) > 2e6 && goodput(often) > 1e6, "{document}");
    assert_eq!(never["vm_stopped_us"], Value::Null, "nobody stopped it: {never}");
    assert!(number(often, "/vm_stopped_us/samples") >= Some(8.0), "{often}");
    assert!(number(often, "/vm_stopped_us/p50") >= Some(297e3), "{often}");
    assert!(number(often, "/vm_off_us/max") >= Some(280e3), "it notices by its own clock: {often}");
    assert!(number(often, "/window_pkt/mean") >= Some(1.0), "its sockets are sampled inside: {often}");
    let report = fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(report.contains("VM off time"), "the histogram is in the report");
}

/// A VM from which others fetch.
const ASKED: &str = "cc = \"vmcc\"\nparams.vmcc.trigger = 0\nmachines = \"client\"\n";

/// A cache in a VM, which is off now and then; a client outside fetches, and compares every byte.
#[test]
#[ignore = "boots a VM, half a minute"]
fn on_linux_objects_are_fetched_from_a_running_and_a_descheduled_vm() {
    let traffic = r#"
marking = { rule = "threshold", at = "10pkt" }
[[traffic]]
kind = "poisson"
per_second = 6.0
sizes = "150kB"
[[event]]
kind = "deschedule"
at = "4s"
host = "client"
on = "300ms"
off = "200ms"
"#;
    let dir = scenario(["8s", "1s"], ASKED, "40pkt", traffic);
    let document = run(dir.path());
    let metrics = metrics(&document, 0);
    // 48 on average, with a deviation of 7.
    let completed = number(metrics, "/completed").unwrap();
    assert!((20.0..80.0).contains(&completed), "{document}");
    assert!(number(metrics, "/unfinished") < Some(0.3 * completed), "{document}");
    assert!(
        number(metrics, "/window_pkt/samples") >= Some(completed),
        "its sockets are sampled inside: {metrics}"
    );
    let [a, b] = carried(metrics).map(Option::unwrap);
    assert!(a.min(b) > 0.05 * (a + b), "both paths carry: {metrics}");
    assert!(number(metrics, "/vm_stopped_us/samples") >= Some(6.0), "{metrics}");
    // Requests during the descheduled time wait for it.
    assert!(number(metrics, "/fct_us/max") > Some(200e3), "{metrics}");
}

/// One after the other, a file system, a web server, and one whose clients keep their connections, in the same VM.
#[test]
#[ignore = "boots a VM, a minute"]
fn on_linux_files_and_pages_are_fetched_from_a_vm() {
    let traffic = r#"
[[sweep.serves]]
name = "files"
traffic = [{ kind = "sized", size = "200kB", connections = 3, program = "nfs" }]
[[sweep.serves]]
name = "pages"
traffic = [{ kind = "poisson", per_second = 5.0, sizes = "100kB", program = "apache" }]
[[sweep.serves]]
name = "kept"
traffic = [{ kind = "poisson", per_second = 5.0, sizes = "100kB", program = "apache", kept_connections = 2 }]
[[traffic]]
kind = "bulk"
"#;
    let dir = scenario(["9s", "1s"], ASKED, "40pkt", traffic);
    let document = run(dir.path());
    let [files, pages, kept] = [0, 1, 2].map(|case| metrics(&document, case));
    assert_eq!([number(files, "/completed"), number(files, "/established")], [Some(3.0); 2], "{files}");
    // 45 on average, with a deviation of 7.
    for asked in [pages, kept] {
        let completed = number(asked, "/completed").unwrap();
        assert!((15.0..80.0).contains(&completed), "{asked}");
        assert!(number(asked, "/unfinished") < Some(0.4 * completed), "{asked}");
        assert!(carried(asked).iter().all(|path| *path > Some(0.0)), "both paths carry: {asked}");
    }
    assert_eq!(number(kept, "/established"), Some(2.0), "{kept}");
}

/// A run that boots a VM.
struct Running {
    vmcc: Child,
    dir: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        let dir = sender();
        let vmcc = Command::new(assert_cmd::cargo::cargo_bin("vmcc"))
            .args(["run", "vm.toml", "--engine", "kernel", "--out", "out", "--quiet"])
            .current_dir(dir.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { vmcc, dir }
    }

    /// Prefix of the names of its folders and, without the middle part, of its namespaces.
    fn name(&self) -> String {
        format!("vmcc-guest-{}-", self.vmcc.id())
    }

    fn folders(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let own = all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&self.name()));
        own.map(|entry| entry.path()).collect()
    }

    /// True if a file of this name is in one of its folders.
    fn has(&self, file: &str) -> bool {
        self.folders().iter().any(|folder| folder.join(file).exists())
    }

    fn namespaces(&self) -> Vec<String> {
        let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        let own = format!("vmcc-{}-", self.vmcc.id());
        text.split_whitespace().filter(|word| word.starts_with(&own)).map(str::to_owned).collect()
    }

    /// QEMU, what serves its files, and what confines that.
    fn processes(&self) -> Vec<String> {
        let listed = Command::new("ps").args(["-eo", "args"]).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        text.lines().filter(|line| line.contains(&self.name())).map(str::to_owned).collect()
    }

    fn await_step(&mut self, step: &str, reached: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !reached(self) {
            assert_eq!(self.vmcc.try_wait().unwrap(), None, "{step}: it ended before");
            assert!(begun.elapsed() < Duration::from_secs(300), "{step}: it does not come to that");
            sleep(Duration::from_millis(1));
        }
    }

    /// Ends it by a signal; afterwards nothing of it is there, if need be when its leftovers have been removed.
    fn end(mut self, step: &str, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.vmcc.id().to_string()]).status().unwrap().success());
        self.vmcc.wait().unwrap();
        let begun = Instant::now();
        while !self.processes().is_empty() && signal == "-INT" {
            assert!(begun.elapsed() < Duration::from_secs(30), "{step}: {:?}", self.processes());
            sleep(Duration::from_millis(100));
        }
        if signal == "-KILL" {
            vmcc(self.dir.path()).arg("clean").assert().success();
        }
        // Those that were killed need a moment.
        while !self.processes().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{step}: {:?}", self.processes());
            sleep(Duration::from_millis(100));
        }
        assert!(self.namespaces().is_empty(), "{step}: {:?}", self.namespaces());
        assert!(self.folders().is_empty(), "{step}: {:?}", self.folders());
        let records = fs::read_dir("/run/vmcc").unwrap().flatten();
        let own = format!("{}-", self.vmcc.id());
        let left: Vec<_> = records
            .map(|entry| entry.file_name())
            .filter(|n| n.to_string_lossy().starts_with(&own))
            .collect();
        assert!(left.is_empty(), "{step}: {left:?}");
    }
}

/// A moment of a run, by what is there then.
type Step = (&'static str, fn(&Running) -> bool);

const STEPS: [Step; 6] = [
    ("a namespace", |run| !run.namespaces().is_empty()),
    ("a folder", |run| !run.folders().is_empty()),
    ("a process", |run| !run.processes().is_empty()),
    ("QEMU", |run| run.processes().iter().any(|line| line.contains("qemu"))),
    ("a job", |run| run.has("0.job")),
    // Both are taken by the machine, which has booted by then.
    ("a machine that has its job", |run| run.has("control") && !run.has("cards") && !run.has("0.job")),
];

#[test]
#[ignore = "boots VMs, three minutes"]
fn on_linux_vm_killed_at_any_step_leaves_nothing() {
    for (step, reached) in STEPS {
        let mut run = Running::start();
        run.await_step(step, reached);
        run.end(step, "-KILL");
    }
}

#[test]
#[ignore = "boots VMs, a minute"]
fn on_linux_ctrl_c_and_kill_leave_nothing_of_a_vm() {
    let (step, reached) = STEPS[5];
    for signal in ["-INT", "-KILL"] {
        let mut run = Running::start();
        run.await_step(step, reached);
        // It sends.
        sleep(Duration::from_secs(5));
        run.end(step, signal);
    }
}
