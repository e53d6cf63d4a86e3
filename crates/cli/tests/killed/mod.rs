//! Runs the program and kills it right before one of the calls that change something outside of it: what a crash, the
//! OOM killer or `kill -9` can leave is tried between any two of them. The program is not prepared for it in any way.
//!
//! The program is traced, with its threads and what it starts. A call that is stopped at its entry when the signal comes is
//! not made.
#![allow(unreachable_pub, reason = "a part of one program")]

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// End of a program that was to be killed.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// Before the call of this name.
    Killed(String),
    /// It makes fewer calls, and ended with this exit code.
    Itself(i32),
}

/// Runs `command` and kills it before its `n`th call (from 0) that changes something outside of it.
pub fn killed_before(command: Command, n: usize) -> Ended {
    let mut traced = Traced::start(command);
    match traced.until(n) {
        Stop::Before(_, call) => {
            traced.kill_all();
            Ended::Killed(call)
        }
        Stop::Ended(code) => Ended::Itself(code),
    }
}

/// Runs `command` and kills it before the first of those calls at which `is` holds: in the middle of what it says.
pub fn killed_when(command: Command, is: impl Fn() -> bool) -> Ended {
    let mut traced = Traced::start(command);
    loop {
        match traced.until(traced.made.len()) {
            Stop::Before(_, call) if is() => {
                traced.kill_all();
                return Ended::Killed(call);
            }
            Stop::Before(pid, _) => go_on(pid, None),
            Stop::Ended(code) => return Ended::Itself(code),
        }
    }
}

/// Runs `command` to its end; right before its `n`th call (from 0) that changes something, `meanwhile` runs. Answers the
/// call's name, if it came to that, and the exit code.
pub fn disturbed_before(command: Command, n: usize, meanwhile: impl FnOnce()) -> (Option<String>, i32) {
    let mut traced = Traced::start(command);
    let (pid, call) = match traced.until(n) {
        Stop::Before(pid, call) => (pid, call),
        Stop::Ended(code) => return (None, code),
    };
    meanwhile();
    go_on(pid, None);
    match traced.until(usize::MAX) {
        Stop::Ended(code) => (Some(call), code),
        Stop::Before(..) => unreachable!("there is no such call"),
    }
}

/// Kills the program that `command` makes before its calls, one after the other, and calls `after` with the name of the
/// call and its number; at first it ends by itself. Answers how many times it was killed.
///
/// Each time takes a whole run of the program: of calls that only make what goes with the process, the first and the last
/// of each name are taken, and of all that is left no more than `most`, evenly spread from the first to the last. Where
/// `VMCC_TEST_SCALE` asks for more, it is before every call.
pub fn before_calls(most: usize, command: impl Fn() -> Command, mut after: impl FnMut(&str, usize)) -> usize {
    let mut whole = Traced::start(command());
    let Stop::Ended(code) = whole.until(usize::MAX) else { unreachable!("there is no such call") };
    assert_eq!(code, 0, "the program succeeds when nothing kills it: {:?}", whole.made);
    after("its end", whole.made.len());
    let chosen = chosen(&whole.made, most);
    for n in &chosen {
        match killed_before(command(), *n) {
            Ended::Killed(call) => after(&call, *n),
            // It had to try something again the first time.
            Ended::Itself(code) => {
                assert_eq!(code, 0, "before call {n} of {:?}", whole.made);
                after("its end", *n);
            }
        }
    }
    chosen.len()
}

/// The numbers of the calls to be killed before.
fn chosen(calls: &[String], most: usize) -> Vec<usize> {
    if std::env::var("VMCC_TEST_SCALE").is_ok_and(|scale| scale.parse().is_ok_and(|s: u64| s > 1)) {
        return (0..calls.len()).collect();
    }
    let first = |n: usize| !calls[..n].contains(&calls[n]);
    let last = |n: usize| !calls[n + 1..].contains(&calls[n]);
    let wanted = |n: &usize| !PASSING.contains(&calls[*n].as_str()) || first(*n) || last(*n);
    let wanted: Vec<usize> = (0..calls.len()).filter(wanted).collect();
    if wanted.len() <= most {
        return wanted;
    }
    (0..most).map(|i| wanted[i * (wanted.len() - 1) / (most - 1)]).collect()
}

/// Reason for which [`Traced::until`] returned.
enum Stop {
    /// This thread is about to make the call.
    Before(Pid, String),
    Ended(i32),
}

struct Traced {
    main: Pid,
    /// Threads and processes that are inside of a call.
    inside: BTreeSet<Pid>,
    /// Everything that was ever traced and has not ended.
    alive: BTreeSet<Pid>,
    /// The calls that change something, in their order.
    made: Vec<String>,
}

impl Traced {
    #[expect(
        clippy::zombie_processes,
        reason = "waited for by its number, with what it starts: `until`, `kill_all`"
    )]
    fn start(mut command: Command) -> Self {
        // SAFETY: only makes a system call between fork and exec.
        unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
        let child = command.spawn().expect("the program starts");
        let main = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        // It stands at its exec.
        waitpid(main, None).expect("a child");
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_EXITKILL
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK;
        ptrace::setoptions(main, options).expect("a traced child");
        go_on(main, None);
        Self { main, inside: BTreeSet::new(), alive: BTreeSet::from([main]), made: Vec::new() }
    }

    fn until(&mut self, n: usize) -> Stop {
        loop {
            // Only what this thread traces: another test may wait for its own children.
            let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
            match waitpid(None, Some(flags)).expect("something is traced") {
                WaitStatus::PtraceSyscall(pid) => {
                    if let Some(call) = self.entered(pid) {
                        self.made.push(call.clone());
                        if self.made.len() - 1 == n {
                            return Stop::Before(pid, call);
                        }
                    }
                    go_on(pid, None);
                }
                WaitStatus::PtraceEvent(pid, _, _) => go_on(pid, None),
                // A new thread or process starts with this; of others it is a signal like any.
                WaitStatus::Stopped(pid, Signal::SIGSTOP) if self.alive.insert(pid) => go_on(pid, None),
                WaitStatus::Stopped(pid, signal) => go_on(pid, Some(signal)),
                WaitStatus::Exited(pid, code) if pid == self.main => return Stop::Ended(code),
                WaitStatus::Signaled(pid, signal, _) if pid == self.main => {
                    panic!("ended by {signal}, which was not sent here")
                }
                WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _) => {
                    self.alive.remove(&pid);
                }
                other => panic!("an unexpected stop: {other:?}"),
            }
        }
    }

    /// The name of the call that `pid` is about to make, if it changes something.
    fn entered(&mut self, pid: Pid) -> Option<String> {
        if self.inside.remove(&pid) {
            return None;
        }
        self.inside.insert(pid);
        let info = ptrace::syscall_info(pid).ok()?;
        // SAFETY: at the entry of a call the kernel fills this member.
        let entry = unsafe { info.u.entry };
        let call = change(i64::try_from(entry.nr).ok()?, &entry.args)?;
        (call != "sendto" || !only_lists(pid, entry.args[1])).then_some(call)
    }

    /// Kills what was started and waits until the kernel has released all of it.
    fn kill_all(&self) {
        for pid in &self.alive {
            // A thread is killed with its process.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) if pid == self.main => {
                    return;
                }
                Ok(_) => {}
                Err(error) => panic!("waiting for what was killed: {error}"),
            }
        }
    }
}

/// True if the netlink request at this address of the process asks for a list, which changes nothing.
fn only_lists(pid: Pid, request: u64) -> bool {
    // `struct nlmsghdr`: the length, the type and the flags, the sequence number and the sender.
    let Ok(word) = ptrace::read(pid, request as ptrace::AddressType) else { return false };
    let flags = word.to_ne_bytes()[6..].try_into().map_or(0, u16::from_ne_bytes);
    i32::from(flags) & libc::NLM_F_DUMP == libc::NLM_F_DUMP
}

fn go_on(pid: Pid, signal: Option<Signal>) {
    // It may have been killed meanwhile.
    let _ = ptrace::syscall(pid, signal);
}

/// Commands of bpf(2) that make, change or remove something.
const BPF_CHANGES: [(u64, &str); 16] = [
    (0, "BPF_MAP_CREATE"),
    (2, "BPF_MAP_UPDATE_ELEM"),
    (3, "BPF_MAP_DELETE_ELEM"),
    (5, "BPF_PROG_LOAD"),
    (6, "BPF_OBJ_PIN"),
    (8, "BPF_PROG_ATTACH"),
    (9, "BPF_PROG_DETACH"),
    (17, "BPF_RAW_TRACEPOINT_OPEN"),
    (18, "BPF_BTF_LOAD"),
    (22, "BPF_MAP_FREEZE"),
    (26, "BPF_MAP_UPDATE_BATCH"),
    (27, "BPF_MAP_DELETE_BATCH"),
    (28, "BPF_LINK_CREATE"),
    (29, "BPF_LINK_UPDATE"),
    (34, "BPF_LINK_DETACH"),
    (35, "BPF_PROG_BIND_MAP"),
];

/// Those that make or fill what goes with the process, unless another call keeps it.
const PASSING: [&str; 6] = [
    "BPF_MAP_CREATE",
    "BPF_MAP_UPDATE_ELEM",
    "BPF_PROG_LOAD",
    "BPF_RAW_TRACEPOINT_OPEN",
    "BPF_BTF_LOAD",
    "BPF_MAP_FREEZE",
];

/// Calls that change files, mounts or, through netlink, the network. Also those that only old C libraries make.
const CHANGES: &[(i64, &str)] = &[
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_symlinkat, "symlinkat"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_mount, "mount"),
    (libc::SYS_umount2, "umount2"),
    (libc::SYS_write, "write"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, "link"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink"),
];

fn change(number: i64, arguments: &[u64; 6]) -> Option<String> {
    let named =
        |table: &[(u64, &str)], key| table.iter().find(|(k, _)| *k == key).map(|(_, n)| (*n).to_owned());
    if number == libc::SYS_bpf {
        return named(&BPF_CHANGES, arguments[0]);
    }
    if number == libc::SYS_openat {
        let writes = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;
        return (arguments[2] & writes != 0).then(|| "openat, to write".to_owned());
    }
    CHANGES.iter().find(|(n, _)| *n == number).map(|(_, name)| (*name).to_owned())
}
