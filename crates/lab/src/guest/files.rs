//! The server of a guest's root file system: virtiofsd, confined by bubblewrap to a read-only view of the
//! host, so that no guest can change the host's files whatever it does.
//!
//! Two virtiofsd exist: the one written in C that QEMU shipped until version 7, and its successor in Rust.
//! Without root both run in a user namespace that maps the caller to root.

use super::program::{dies_with_parent, find, log_file};
use super::{GuestError, Job};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Paths of virtiofsd in distributions, outside PATH.
const VIRTIOFSD_PATHS: [&str; 3] =
    ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/lib/virtiofsd"];
/// Timeout for virtiofsd to listen, on a machine that has hardly any time for it.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(super) struct FileServer {
    process: Child,
    socket: PathBuf,
}

impl FileServer {
    pub(super) fn start(job: &Job, shared_dir: Option<&Path>) -> Result<Self, GuestError> {
        let bwrap = find("bwrap", &[]).ok_or(GuestError::ProgramMissing { program: "bwrap (bubblewrap)" })?;
        let virtiofsd = find("virtiofsd", &VIRTIOFSD_PATHS);
        let virtiofsd = virtiofsd.ok_or(GuestError::ProgramMissing { program: "virtiofsd" })?;
        let socket = job.dir().join("files.socket");
        let log_path = job.dir().join("virtiofsd.log");
        let log = log_file(&log_path)?;
        let errors = log.try_clone().map_err(GuestError::file(&log_path))?;

        let root = nix::unistd::geteuid().is_root();
        let mut command = if root { dies_with_parent(&bwrap) } else { with_filter(&bwrap, job)? };
        command.args(confinement(job.dir(), shared_dir, root));
        command.arg(&virtiofsd).args(options(&virtiofsd, &socket));
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let process = command
            .spawn()
            .map_err(|e| GuestError::Helper { program: "bwrap".to_owned(), cause: e.to_string() })?;
        let mut server = Self { process, socket };
        server.wait_until_it_listens(job)?;
        Ok(server)
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    fn wait_until_it_listens(&mut self, job: &Job) -> Result<(), GuestError> {
        let started = Instant::now();
        let fails = |why: &str| GuestError::Helper {
            program: "virtiofsd".to_owned(),
            cause: format!("{why}\n{}\n", job.diagnosis()),
        };
        while !self.socket.exists() {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return Err(fails("it ended at once"));
            }
            if started.elapsed() > START_TIMEOUT {
                return Err(fails("it does not listen"));
            }
            std::thread::sleep(super::POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        // bubblewrap's child dies with it. Neither call can fail on a child that was not waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// bubblewrap's options: everything read-only but the job's directory and the shared one.
fn confinement(job: &Path, shared_dir: Option<&Path>, root: bool) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
    if !root {
        add(&["--unshare-user", "--uid", "0", "--gid", "0"]);
    }
    // virtiofsd drops the capabilities that it does not need by itself; it keeps a lock in /run.
    add(&[
        "--die-with-parent",
        "--cap-add",
        "ALL",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--tmpfs",
        "/run",
    ]);
    for dir in [Some(job), shared_dir].into_iter().flatten() {
        words.extend(["--bind".into(), dir.into(), dir.into()]);
    }
    words.push("--".into());
    words
}

/// virtiofsd's options, in the words of the one that is installed.
fn options(virtiofsd: &Path, socket: &Path) -> Vec<OsString> {
    let mut socket_option = OsString::from("--socket-path=");
    socket_option.push(socket);
    let help = Command::new(virtiofsd).arg("--help").stdin(Stdio::null()).output();
    let help = help.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    let in_rust = String::from_utf8_lossy(&help).contains("--shared-dir");
    let rest: &[&str] = if in_rust {
        &[
            "--shared-dir=/",
            "--cache=always",
            "--sandbox=none",
            "--inode-file-handles=never",
            "--log-level=warn",
        ]
    } else {
        &["-o", "source=/,cache=always,sandbox=chroot,log_level=warn", "--rlimit-nofile=0"]
    };
    [socket_option].into_iter().chain(rest.iter().map(OsString::from)).collect()
}

/// bubblewrap with a system call filter under which setgroups(2) succeeds and does nothing.
///
/// virtiofsd insists on dropping its supplementary groups, which a user namespace made without privilege
/// refuses. Keeping them opens nothing: the caller had them before.
fn with_filter(bwrap: &Path, job: &Job) -> Result<Command, GuestError> {
    let path = job.dir().join("filter");
    std::fs::write(&path, setgroups_filter()).map_err(GuestError::file(&path))?;
    let mut command = dies_with_parent(Path::new("/bin/sh"));
    // A shell, because a Command cannot hand on a file descriptor above 2.
    command.args(["-c", r#"exec 9<"$1"; shift; exec "$@""#, "sh"]).arg(&path).arg(bwrap);
    command.args(["--seccomp", "9"]);
    Ok(command)
}

/// The filter as classic BPF, `struct sock_filter` after `struct sock_filter` (see seccomp(2)).
fn setgroups_filter() -> Vec<u8> {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    const SYS_SETGROUPS: u32 = 116;
    const RET_ALLOW: u32 = 0x7fff_0000;
    // "Fail with error 0", which is success.
    const RET_ERRNO_0: u32 = 0x0005_0000;
    // (code, skip if true, skip if false, operand); offsets 4 and 0 of seccomp_data are arch and nr.
    let program: [(u16, u8, u8, u32); 6] = [
        (LOAD_WORD, 0, 0, 4),
        (JUMP_IF_EQUAL, 0, 3, AUDIT_ARCH_X86_64),
        (LOAD_WORD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, SYS_SETGROUPS),
        (RETURN, 0, 0, RET_ERRNO_0),
        (RETURN, 0, 0, RET_ALLOW),
    ];
    let bytes = program.iter().flat_map(|(code, if_true, if_false, operand)| {
        let code = code.to_ne_bytes();
        let operand = operand.to_ne_bytes();
        [&code[..], &[*if_true, *if_false], &operand].concat()
    });
    bytes.collect()
}
