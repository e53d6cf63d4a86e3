//! `vmcc up`, `status` and `down` as an operator uses them.

use crate::agent::{Down, available};
use crate::common::{folder, json, output, refused, vmcc};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A process that does not outlive a failed test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_algorithm_can_be_selected_until_down() {
    let (dir, _down) = (folder(), Down);
    let (code, up) = json(dir.path(), &["up", "lia", "vmcc", "--set", "vmcc.theta=5"]);
    assert_eq!((code, &up["up"]), (0, &serde_json::json!(["mp_lia", "mp_vmcc"])), "{up}");
    assert!(available().contains("mp_lia") && available().contains("mp_vmcc"));

    let (code, status) = json(dir.path(), &["status"]);
    let name = |i: usize| status["algorithms"][i]["kernel_name"].as_str();
    assert_eq!((code, name(0), name(1)), (0, Some("mp_lia"), Some("mp_vmcc")), "{status}");
    assert!(status["algorithms"][0]["owner_pid"].is_null(), "it outlives its process: {status}");

    assert_eq!(up["parameters"]["mp_vmcc"]["theta"], 5.0, "{up}");
    assert_eq!(status["algorithms"][1]["parameters"], up["parameters"]["mp_vmcc"], "{status}");

    let again = output(dir.path(), &["up", "vmcc", "--set", "vmcc.theta=4", "--set", "vmcc.g=0.1"]);
    let text = String::from_utf8(again.stdout).unwrap();
    assert!(again.status.success() && text.contains("up: mp_vmcc (g=0.1, theta=4)"), "{text}");
    let status = vmcc(dir.path()).arg("status").env("COLUMNS", "200").output().unwrap();
    let text = String::from_utf8(status.stdout).unwrap();
    let line = |name: &str| text.lines().find(|l| l.contains(name)).unwrap_or_default();
    assert!(line("mp_vmcc").ends_with("g=0.1, theta=4") && line("mp_lia").ends_with("defaults"), "{text}");
    assert_eq!(json(dir.path(), &["clean"]).0, 0);
    assert!(available().contains("mp_vmcc"), "what is up on purpose is no leftover");

    let (code, down) = json(dir.path(), &["down"]);
    assert_eq!((code, &down["down"]), (0, &serde_json::json!(["mp_lia", "mp_vmcc"])), "{down}");
    assert!(!available().contains("mp_"));
    assert_eq!(json(dir.path(), &["down"]).1["down"], serde_json::json!([]), "nothing is left");
}

#[test]
fn root_down_reports_a_default_still_in_use() {
    let _down = Down;
    let script =
        r#""$0" up reno >/dev/null && echo mp_reno >/proc/sys/net/ipv4/tcp_congestion_control && "$0" down"#;
    let output =
        Command::new("unshare").args(["--net", "sh", "-c", script, env!("CARGO_BIN_EXE_vmcc")]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("go on using mp_reno"), "{said}");
    assert!(!available().contains("mp_"));
}

#[test]
fn root_bad_input_loads_nothing() {
    let (dir, _down) = (folder(), Down);
    for (arguments, says) in [
        (["up", "lia", "--set", "lia.nothing=1"], "nothing"),
        (["up", "vmcc", "--set", "vmcc.theta=5000"], "1000"),
        (["up", "vmc", "--set", "vmcc.theta=5"], "vmcc"),
    ] {
        let said = refused(dir.path(), &arguments, 2);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    assert!(!available().contains("mp_"));
}

#[test]
fn root_guard_ends_on_sigint_and_keeps_the_algorithms() {
    let _down = Down;
    let mut guard = Command::new(env!("CARGO_BIN_EXE_vmcc"));
    let guard = guard.args(["up", "vmcc", "--guard"]).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut guard = Ended(guard.spawn().unwrap());
    let mut said = BufReader::new(guard.0.stderr.take().unwrap());
    let mut first = String::new();
    said.read_line(&mut first).unwrap();
    assert!(first.contains("mp_vmcc"), "{first}");
    kill(Pid::from_raw(i32::try_from(guard.0.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(130), "as every command that is interrupted");
    assert!(available().contains("mp_vmcc"));
}
