//! A folder with a far end in it.

use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as StdCommand, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// Starts what follows the host's name.
pub(crate) const SSH: &str = "shift; exec sh -c \"$*\"";
/// Two addresses at each end.
const ENDS: [&str; 8] =
    ["--local", "127.0.0.1", "--local", "127.0.0.2", "--remote", "127.0.0.3", "--remote", "127.0.0.4"];

pub(crate) struct World {
    folder: TempDir,
}

impl World {
    pub(crate) fn new() -> World {
        World::with_ssh(SSH)
    }

    pub(crate) fn with_ssh(script: &str) -> World {
        let world = World { folder: tempfile::tempdir().unwrap() };
        let ssh = world.path("ssh");
        fs::write(&ssh, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(world.path("far")).unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn far(&self, name: &str) -> String {
        format!("there:{}", self.path("far").join(name).display())
    }

    pub(crate) fn write(&self, name: &str, len: usize) -> (PathBuf, Vec<u8>) {
        let data: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
        fs::write(self.path(name), &data).unwrap();
        (self.path(name), data)
    }

    pub(crate) fn arguments(&self, args: &[&str]) -> Vec<String> {
        let ssh = self.path("ssh").display().to_string();
        let program = env!("CARGO_BIN_EXE_vmcc");
        let begin = ["--json", "cp", "--ssh", &ssh, "--remote-vmcc", program];
        begin.iter().chain(&ENDS).chain(args).map(ToString::to_string).collect()
    }

    /// The exit code and the document.
    pub(crate) fn cp(&self, args: &[&str]) -> (i32, Value) {
        let output = self.output(&self.arguments(args));
        let document = serde_json::from_slice(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), document.unwrap_or_else(|e| panic!("{e}: {stderr}")))
    }

    /// Runs it to its end; a copy that hangs is killed, and fails.
    pub(crate) fn output(&self, arguments: &[String]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmcc"));
        command
            .current_dir(self.folder.path())
            .args(arguments)
            .timeout(Duration::from_secs(60))
            .output()
            .unwrap()
    }

    /// A copy to `copy` that has sent some, and not all.
    pub(crate) fn begin(&self, source: &Path) -> Child {
        self.begin_args(&[text(source), &self.far("copy")], "far/.copy.vmcc-part", || {
            fs::remove_file(self.path("far/copy")).unwrap();
        })
    }

    /// A copy of which more than a MiB has arrived in `part`, and not all. Where the machine let it come to its end before that was seen,
    /// `undo` removes what it made, and it begins again.
    pub(crate) fn begin_args(&self, args: &[&str], part: &str, undo: impl Fn()) -> Child {
        loop {
            match self.try_begin(args, part) {
                Ok(child) => return child,
                Err(output) => assert!(output.status.success(), "{output:?}"),
            }
            undo();
        }
    }

    fn try_begin(&self, args: &[&str], part: &str) -> Result<Child, Output> {
        let mut command = StdCommand::new(env!("CARGO_BIN_EXE_vmcc"));
        command.current_dir(self.folder.path()).args(self.arguments(args));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let part = self.path(part);
        let begun = || part.metadata().is_ok_and(|metadata| metadata.len() > 1 << 20);
        while !begun() {
            if child.try_wait().unwrap().is_some() {
                return Err(child.wait_with_output().unwrap());
            }
            sleep(Duration::from_millis(2));
        }
        Ok(child)
    }

    /// Copies and fails with this code and these words.
    pub(crate) fn fails(&self, args: &[&str], code: i32, words: &[&str]) {
        let (got, document) = self.cp(args);
        let text = document.to_string();
        assert_eq!(got, code, "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
