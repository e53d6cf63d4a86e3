//! Both sides of `vmcc proxy` as processes, and the keys of their users.

use assert_cmd::Command as Assert;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Longest wait of a test.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// A side of the proxy, ended with the test.
pub(super) struct Side {
    pub(super) child: Child,
    pub(super) lines: BufReader<ChildStderr>,
}

impl Side {
    pub(super) fn start(args: &[&str]) -> Side {
        Side::run(Command::new(env!("CARGO_BIN_EXE_vmcc")).arg("proxy").args(args))
    }

    /// One that inherits a limit of this many open files, which it may raise.
    pub(super) fn limited(files: u32, args: &[&str]) -> Side {
        let limit = format!("ulimit -Sn {files}; exec \"$0\" proxy \"$@\"");
        Side::run(Command::new("sh").args(["-c", &limit, env!("CARGO_BIN_EXE_vmcc")]).args(args))
    }

    pub(super) fn run(command: &mut Command) -> Side {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Side { child, lines }
    }

    /// The address at the end of the first line that contains these words.
    pub(super) fn address(&mut self, words: &str) -> SocketAddr {
        let mut said = String::new();
        while self.lines.read_line(&mut said).unwrap() > 0 {
            let line = said.lines().next_back().unwrap();
            if line.starts_with(words) {
                return line.rsplit(' ').next().unwrap().parse().unwrap();
            }
        }
        panic!("it ended: {said}");
    }

    /// Reads until it says this.
    pub(super) fn says(&mut self, words: &str) {
        let mut said = String::new();
        while !said.contains(words) {
            assert!(self.lines.read_line(&mut said).unwrap() > 0, "{said}");
        }
    }

    pub(super) fn end(mut self) -> Option<i32> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two users, each with keys of its own.
pub(super) struct Users {
    pub(super) folder: TempDir,
}

impl Users {
    pub(super) fn new() -> Users {
        Users { folder: tempfile::tempdir().unwrap() }
    }

    /// `server` and `client`, who trust each other.
    pub(super) fn acquainted() -> Users {
        let users = Users::new();
        users.trust("server", "client");
        users.trust("client", "server");
        users
    }

    pub(super) fn keys(&self, user: &str) -> String {
        self.folder.path().join(user).display().to_string()
    }

    pub(super) fn fingerprint(&self, user: &str) -> String {
        let document = answer(&["keys", "--keys", &self.keys(user)]).1;
        document["fingerprint"].as_str().unwrap().to_owned()
    }

    pub(super) fn trust(&self, user: &str, other: &str) {
        let fingerprint = self.fingerprint(other);
        let args = ["keys", "--keys", &self.keys(user), "--trust", &fingerprint, "--comment", other];
        assert_eq!(answer(&args).0, 0);
    }
}

/// The exit code and the document of a command.
pub(super) fn answer(args: &[&str]) -> (i32, Value) {
    let mut command = Assert::new(env!("CARGO_BIN_EXE_vmcc"));
    let output = command.arg("--json").args(args).timeout(TIMEOUT).output().unwrap();
    (output.status.code().unwrap_or(-1), serde_json::from_slice(&output.stdout).unwrap())
}

pub(super) fn fails(args: &[&str], code: i32, words: &[&str]) {
    let (got, document) = answer(args);
    let text = document.to_string();
    assert_eq!(got, code, "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
}
