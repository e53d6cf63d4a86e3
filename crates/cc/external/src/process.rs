//! Programs that run for an algorithm: compilers, and the check. They have limits, and a process group of their own: what they started
//! ends with them.

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of each file that a program writes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Bytes of each output that are read.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// Interval at which a program's end is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time that a program may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// CPU time of each of its processes, in seconds.
    pub cpu_s: u64,
    /// Time from its start to its end, for one that waits.
    pub time: Duration,
}

/// Limits of a compiler; an algorithm takes it a second.
pub const COMPILER_LIMITS: Limits = Limits { cpu_s: 60, time: Duration::from_secs(300) };

/// Error of running a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
    /// It did not end in time.
    #[error("it does not end within {} s", limit.as_secs())]
    Timeout {
        /// Time that it had.
        limit: Duration,
        /// Its output so far.
        stdout: Vec<u8>,
    },
    /// `stop` was set.
    #[error("interrupted")]
    Interrupted,
}

/// Runs a program to its end, then ends what it left running. It is killed when `stop` becomes true, or this process dies.
///
/// # Errors
/// It cannot be started, takes too long, or is to stop.
pub fn run(command: &mut Command, limits: Limits, stop: &AtomicBool) -> Result<Output, RunError> {
    // Files, because processes that outlive the program would keep pipes open.
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).process_group(0);
    restrict(command, limits.cpu_s);
    let mut child = command.spawn()?;
    let ended = wait(&child, limits.time, stop);
    // Nobody else has its number, or that of its group, before it is waited for.
    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
    let _ = child.kill();
    let status = child.wait()?;
    let stdout = read(stdout)?;
    if ended? {
        Ok(Output { status, stdout, stderr: read(stderr)? })
    } else {
        Err(RunError::Timeout { limit: limits.time, stdout })
    }
}

/// Gives a program its limits, and the death of this thread as its own.
fn restrict(command: &mut Command, cpu_s: u64) {
    let limits =
        [(Resource::RLIMIT_CPU, cpu_s), (Resource::RLIMIT_FSIZE, MAX_FILE_BYTES), (Resource::RLIMIT_CORE, 0)];
    // SAFETY: the closure runs between fork and exec and makes system calls alone, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for (resource, most) in limits {
                let (soft, hard) = getrlimit(resource)?;
                // A process that ignores the signal of the soft limit is killed at the hard one.
                setrlimit(resource, soft.min(most), hard.min(most + 1))?;
            }
            #[cfg(target_os = "linux")]
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            Ok(())
        });
    }
}

/// Waits until a program ends, but does not reap it; false if it does not end in time.
fn wait(child: &Child, time: Duration, stop: &AtomicBool) -> Result<bool, RunError> {
    let began = Instant::now();
    while !has_ended(child)? {
        if stop.load(Ordering::SeqCst) {
            return Err(RunError::Interrupted);
        }
        if began.elapsed() > time {
            return Ok(false);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(true)
}

fn has_ended(child: &Child) -> io::Result<bool> {
    // SAFETY: all zeros are a valid value, which the call overwrites if the child has ended.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `found` is valid for the call, which writes nothing else.
    let refused = unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut found, options) } != 0;
    if refused { Err(io::Error::last_os_error()) } else { Ok(found.si_signo != 0) }
}

fn read(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    const LIMITS: Limits = Limits { cpu_s: 1, time: Duration::from_secs(600) };

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run_script(script: &str, limits: Limits) -> Result<Output, RunError> {
        run(&mut shell(script), limits, &AtomicBool::new(false))
    }

    /// True if there is no process of that number, or one that nobody has reaped yet.
    #[cfg(target_os = "linux")]
    fn is_gone(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
    }

    #[test]
    fn output_and_exit_status_are_returned() {
        let done = run_script("echo out; echo err >&2; exit 3", LIMITS).expect("it runs");
        assert_eq!((done.stdout, done.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(done.status.code(), Some(3));
        let missing = run(&mut Command::new("/nonexistent"), LIMITS, &AtomicBool::new(false));
        assert!(matches!(missing, Err(RunError::System(error)) if error.kind() == io::ErrorKind::NotFound));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn orphaned_child_processes_are_killed() {
        let done = run_script("sleep 1000 & echo $!", LIMITS).expect("it runs");
        let pid = String::from_utf8(done.stdout).expect("a number");
        let began = Instant::now();
        while !is_gone(pid.trim()) {
            assert!(began.elapsed() < Duration::from_secs(60), "process {pid} is there");
            thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn wall_and_cpu_time_limits_are_enforced() {
        let short = Limits { time: Duration::from_millis(500), ..LIMITS };
        match run_script("echo begun; exec sleep 1000", short) {
            // A busy machine may not have come to its first line.
            Err(RunError::Timeout { limit, stdout }) => {
                assert!(limit == short.time && b"begun\n".starts_with(&stdout), "{stdout:?}");
            }
            other => panic!("{other:?}"),
        }
        let computing = run_script("while :; do :; done", LIMITS).expect("it runs");
        assert_eq!(computing.status.signal(), Some(libc::SIGXCPU));
        let limits = run_script("ulimit -f; ulimit -c", LIMITS).expect("it runs");
        let limits = String::from_utf8(limits.stdout).expect("numbers");
        assert!(!limits.contains("unlimited") && limits.ends_with("\n0\n"), "{limits}");
    }

    #[test]
    fn programs_stop_with_their_caller() {
        let stopped = run(&mut shell("exec sleep 1000"), LIMITS, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(RunError::Interrupted)), "{stopped:?}");
    }
}
