//! A user's own algorithm in the kernel: `vmcc up FILE`, and `--algorithm` on the kernel engine.

use crate::common::{folder, json, output, refused, vmcc};
use std::fs;
use std::path::Path;

/// A rate and window that a kernel carries at any load; the claim is that data arrives.
const SCENARIO: &str = r#"
title = "Two paths of the kernel under an algorithm of the user's own"
duration = "2s"
warmup = "500ms"
[topology]
kind = "parallel-paths"
paths = 2
rate = "20mbit"
delay = "1ms"
buffer = "60kB"
[[traffic]]
kind = "bulk"
[sweep]
cc = ["lia", "kown"]
"#;

fn available() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// An algorithm in a folder of its own.
fn own(name: &str) -> tempfile::TempDir {
    let dir = folder();
    assert_eq!(json(dir.path(), &["algorithm", "new", name]).0, 0);
    dir
}

/// Takes the algorithms of this test down, also after a failure.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = output(self.0, &["down"]);
    }
}

#[test]
fn root_own_file_is_loaded_selected_and_taken_down() {
    let dir = own("kown");
    let _down = Down(dir.path());
    let (code, up) = json(dir.path(), &["up", "./kown.c", "--set", "kown.gain=0.5"]);
    assert_eq!(
        (code, &up["up"][0], &up["parameters"]["mp_kown"]["gain"]),
        (0, &"mp_kown".into(), &0.5.into()),
        "{up}"
    );
    assert!(available().contains("mp_kown"), "{}", available());
    let (code, status) = json(dir.path(), &["status"]);
    assert!(code == 0 && status.to_string().contains("mp_kown"), "{status}");
    let table = String::from_utf8(output(dir.path(), &["status"]).stdout).unwrap();
    assert!(table.lines().any(|line| line.contains("mp_kown") && line.contains("own file")), "{table}");
    // The same file joins by any path, another file of that name does not.
    let absolute = dir.path().join("kown.c");
    for file in ["./kown.c", "kown.c", absolute.to_str().unwrap()] {
        let (code, up) = json(dir.path(), &["up", file, "--set", "kown.gain=0.5"]);
        assert_eq!(code, 0, "{file}: {up}");
    }
    let other =
        fs::read_to_string(dir.path().join("kown.c")).unwrap().replace("congestions++", "congestions += 2");
    fs::write(dir.path().join("kown.c"), other).unwrap();
    let message = refused(dir.path(), &["up", "./kown.c"], 3);
    assert!(message.contains("mp_kown is already registered by another version of its file"), "{message}");
    assert_eq!(output(dir.path(), &["down"]).status.code(), Some(0));
    assert!(!available().contains("mp_kown"), "{}", available());
}

#[test]
fn root_kernel_engine_runs_an_own_algorithm() {
    let dir = own("kown");
    fs::write(dir.path().join("kernel.toml"), SCENARIO).unwrap();
    let run = ["run", "kernel.toml", "--engine", "kernel", "--algorithm", "kown.c", "--out", "out"];
    let (code, document) = json(dir.path(), &run);
    assert_eq!(code, 0, "{document}");
    for case in 0..2 {
        let goodput = document["cases"][case]["runs"][0]["metrics"]["goodput_bps"].as_f64().unwrap();
        assert!(goodput > 5e6, "{case}: {document}");
    }
    assert!(!available().contains("mp_kown"), "{}", available());
}

/// The ends of QUIC are processes without rights; they have the algorithm from this one.
#[test]
fn root_quic_runs_an_own_algorithm_on_the_kernel_engine() {
    let dir = own("kown");
    fs::write(dir.path().join("kernel.toml"), format!("{SCENARIO}\n[host]\nprotocol = \"quic\"\n")).unwrap();
    let run = ["run", "kernel.toml", "--engine", "kernel", "--algorithm", "kown.c", "--out", "out"];
    let (code, document) = json(dir.path(), &run);
    assert_eq!(code, 0, "{document}");
    let goodput = document["cases"][1]["runs"][0]["metrics"]["goodput_bps"].as_f64().unwrap();
    assert!(goodput > 5e6, "{document}");
}

/// A loop whose length the verifier cannot know: native checks pass, the kernel refuses, the log and the rules are shown.
#[test]
fn root_verifier_refusal_shows_its_log_and_the_rules() {
    let dir = own("kown");
    let file = dir.path().join("kown.c");
    let text = fs::read_to_string(&file).unwrap();
    let body = "CC_STATE(kown_state, self)->congestions++;";
    assert!(text.contains(body));
    let unbounded = "volatile uint32_t left = ev->cwnd_pkt & 0xffff;\n\twhile (left)\n\t\tleft--;";
    fs::write(&file, text.replace(body, unbounded)).unwrap();
    let message = refused(dir.path(), &["up", "./kown.c"], 3);
    assert!(message.contains("the kernel refused mp_kown") && message.contains("bound loops"), "{message}");
    assert!(!available().contains("mp_kown"), "{}", available());
}

#[test]
fn root_missing_or_failing_clang_is_named() {
    let dir = own("kown");
    let up = |clang: &str| {
        let done = vmcc(dir.path()).args(["up", "./kown.c"]).env("CLANG", clang).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, error) = up("/nonexistent/clang");
    assert!(code == 3 && error.contains("/nonexistent/clang") && error.contains("install clang"), "{error}");
    let (code, error) = up("true");
    assert!(code == 3 && error.contains("`true`") && error.contains("set CLANG"), "{error}");
    let file = dir.path().join("kown.c");
    let text = fs::read_to_string(&file).unwrap();
    // Only the kernel's build sees it.
    fs::write(&file, text + "#ifdef __bpf__\n#error no kernel\n#endif\n").unwrap();
    let message = refused(dir.path(), &["up", "./kown.c"], 2);
    assert!(message.contains("kown.c:") && message.contains("no kernel"), "{message}");
    assert!(!available().contains("mp_kown"), "{}", available());
}
