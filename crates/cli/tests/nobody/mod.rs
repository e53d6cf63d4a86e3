//! `vmcc cp` as a user without any right, whose far end is in another namespace.
#![allow(unreachable_pub, reason = "a part of one program")]

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use vmcc_testkit::netns::Namespace;

/// A user without any right.
pub const NOBODY: &str =
    "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs";

/// Files that [`NOBODY`] can read and write: the program, and a folder.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        files.open("");
        fs::copy(env!("CARGO_BIN_EXE_vmcc"), files.path("vmcc")).unwrap();
        for folder in ["here", "there"] {
            fs::create_dir(files.path(folder)).unwrap();
            files.open(folder);
        }
        files
    }

    pub fn open(&self, name: &str) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o777)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn script(&self, name: &str, text: &str) {
        fs::write(self.path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        self.open(name);
    }

    pub fn data(&self, len: u32) -> Vec<u8> {
        let data: Vec<u8> = (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 22) as u8).collect();
        fs::write(self.path("here/data"), &data).unwrap();
        data
    }

    /// The copy of `here/data` to a folder, where what is started as ssh is called `ssh`.
    pub fn cp(&self, within: &str, to: &str) -> Command {
        self.cp_to(within, "there", to)
    }

    /// As [`Files::cp`], to a host of this name.
    pub fn cp_to(&self, within: &str, host: &str, to: &str) -> Command {
        let text = |name: &str| self.path(name).display().to_string();
        let mut words: Vec<String> = within.split_whitespace().map(str::to_owned).collect();
        words.extend([text("vmcc"), "--json".into(), "cp".into(), "--ssh".into(), text("ssh")]);
        words.extend([
            "--remote-vmcc".into(),
            text("vmcc"),
            text("here/data"),
            format!("{host}:{}", text(to)),
        ]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

pub fn document(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

/// Started as ssh, by nobody, this reaches the far end that waits in the other namespace.
pub fn far_end(files: &Files, there: &Namespace) -> Child {
    far_end_by(files, there, "")
}

/// As [`far_end`], with this `SSH_CONNECTION`.
pub fn far_end_by(files: &Files, there: &Namespace, connection: &str) -> Child {
    let [input, output] = ["in", "out"].map(|name| {
        let pipe = files.path(name);
        // Of an earlier copy.
        let _ = fs::remove_file(&pipe);
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        files.open(name);
        pipe.display().to_string()
    });
    files.script("ssh", &format!("exec 3<&0\ncat <&3 >{input} &\nexec cat {output}"));
    let serve = format!("exec {} serve --once <{input} >{output}", files.path("vmcc").display());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &there.0]).args(NOBODY.split(' ')).args(["sh", "-c", &serve]);
    command.env("SSH_CONNECTION", connection).spawn().unwrap()
}

/// Trusts one key, so that it may listen for others than this host; nobody has it.
const STRANGER: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// A server that paths can be asked of, at port 4433 of every address; ends on drop.
pub struct Listening(Child);

impl Listening {
    pub fn new(files: &Files, there: &Namespace) -> Listening {
        let vmcc = files.path("vmcc").display().to_string();
        let serve = [&vmcc[..], "proxy", "--listen", "0.0.0.0:4433", "--peer", STRANGER];
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &there.0]).args(NOBODY.split(' ')).args(serve);
        command.env("VMCC_KEYS", files.path("there/keys")).stderr(Stdio::piped());
        let mut server = Listening(command.spawn().unwrap());
        let said = BufReader::new(server.0.stderr.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line.starts_with("listening")), "it ended");
        server
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
