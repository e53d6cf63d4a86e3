//! A machine with this host's kernel and programs, files of its own and systemd: where packages can be installed.
#![allow(unreachable_pub, reason = "a part of one program")]

use crate::common::root;
use crate::kept::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use vmcc_testkit::netns::Namespace;

/// The package of this build, under a version, made in a folder.
fn package(folder: &Path, version: &str) -> PathBuf {
    let mut command = Command::new(root().join("scripts/deb.sh"));
    command.arg(env!("CARGO_BIN_EXE_vmcc")).arg(folder).arg(version).env("DEB_COMPRESS", "none");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// The package that a variable names; that of this build, under a version, if it names none.
pub fn package_of(variable: &str, folder: &Path, version: &str) -> PathBuf {
    let named = std::env::var_os(variable).filter(|path| !path.is_empty());
    named.map_or_else(|| package(folder, version), PathBuf::from)
}

pub struct Machine {
    /// `unshare`, whose child is systemd.
    outside: Child,
    init: Pid,
    folder: tempfile::TempDir,
}

impl Machine {
    /// Starts one whose network is this namespace.
    pub fn start(network: &Namespace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["upper", "work", "root"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        // It ends with this thread, also if that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter"]);
        command.arg(format!("--net={}", network.file().display())).args(["unshare", "--pid", "--fork"]);
        command.args(["--kill-child", "--mount", "--propagation", "private", "--cgroup", "--uts", "--ipc"]);
        command.arg(root().join("crates/cli/tests/machine/boot.sh")).arg(folder.path());
        let outside = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let child = || {
            let id = outside.id();
            fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default()
        };
        until("a process 1", || !child().is_empty());
        let init = Pid::from_raw(child().trim().parse().unwrap());
        let machine = Self { outside, init, folder };
        let runs = |output: Output| String::from_utf8_lossy(&output.stdout).trim() == "running";
        until("systemd, which package `systemd` has", || {
            runs(machine.command("systemctl is-system-running").output().unwrap())
        });
        machine
    }

    /// A shell's line in it.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--pid", "--uts", "--ipc", "--net"]);
        command.args(["--cgroup", "chroot"]).arg(self.folder.path().join("root")).args(["sh", "-c", line]);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs a command, which must succeed, and returns its output.
    pub fn run(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        said
    }

    /// Configures the agent. The change takes a moment.
    pub fn configure(&self, text: &str) {
        self.run(&format!("printf %s \"{text}\" >/etc/vmcc/vmcc.toml && systemctl reload vmcc"));
    }

    /// Gives it a file, and says where that is in it.
    pub fn put(&self, file: &Path) -> PathBuf {
        let to = Path::new("opt").join(file.file_name().unwrap());
        fs::copy(file, Path::new(&format!("/proc/{}/root", self.init)).join(&to)).unwrap();
        Path::new("/").join(to)
    }

    /// Files that it has and this host has not, with this in their names, but for what was put there.
    pub fn files_of(&self, name: &str) -> Vec<String> {
        let mut find = Command::new("find");
        find.current_dir(self.folder.path().join("upper")).args([".", "-path", "./opt", "-prune", "-o"]);
        let listed = find.args(["-name", &format!("*{name}*"), "-print"]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // With process 1 go all others, and with them their mounts.
        let _ = kill(self.init, Signal::SIGKILL);
        let _ = self.outside.wait();
    }
}
