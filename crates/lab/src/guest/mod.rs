//! Virtual machines that boot another kernel over the host's own root file system.
//!
//! A guest runs one program of the host under one kernel of Debian's and carries its output and exit code
//! back. It sees the host's files read-only through virtiofs, with a tmpfs over them that takes all writes; the
//! one exception is [`GuestOptions::shared_dir`]. It has no network but its own loopback, unless
//! [`GuestOptions::taps`] gives it one. It needs neither root nor hardware virtualisation: KVM is used where it works,
//! else QEMU's emulation, where 100 to 150 Mbit/s per path is the honest scale.
//!
//! ```no_run
//! use vmcc_lab::guest::{Guest, GuestOptions, kernel};
//!
//! let guest = Guest::new(GuestOptions::default());
//! let output = guest.run(&kernel("6.1")?, "uname", ["-r"])?;
//! assert!(output.stdout.starts_with(b"6.1."));
//! # Ok::<(), vmcc_lab::guest::GuestError>(())
//! ```
//!
//! The kernels come from `make setup-guest`, which also packs `scripts/guest-init.sh` into their initramfs.

mod error;
mod files;
mod job;
mod kernels;
mod power;
mod program;
mod qemu;
mod worker;

use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use error::GuestError;
pub use kernels::{KernelImage, kernel, kernels, newest_kernel};
pub use power::{DutyCycle, Power};
pub use worker::WorkerProgram;
pub(crate) use worker::{QUIT, Worker, WorkerEnd, place, take};

use job::Job;
pub(crate) use job::PATH;
use qemu::Qemu;

/// Timeout from the start of QEMU to the start of the program, emulated on a busy machine. Time spent waiting for a processor
/// of the host is not counted: at idle priority nothing would boot beside a compilation.
const BOOT_TIMEOUT_EMULATED: Duration = Duration::from_secs(120);
/// The same with KVM, which boots in about two seconds or, where it is broken, hangs.
const BOOT_TIMEOUT_KVM: Duration = Duration::from_secs(10);
/// Timeout for a guest whose program has ended to power off; then it is killed.
const POWER_OFF_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval of a running guest.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Cause of a failed boot if QEMU ended by itself.
const CRASHED: &str = "the guest ended before it ran the program";

/// KVM was tried in this process and did not bring up a guest.
static KVM_FAILED: AtomicBool = AtomicBool::new(false);

/// Accelerator: executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accel {
    /// The processor, through KVM.
    Kvm,
    /// QEMU's emulation (TCG).
    Emulation,
    /// Emulation of one processor in which every instruction takes a nanosecond of the guest's time, and idle time none
    /// of the host's: what takes time there is counted in instructions, the same on every machine. Ten times slower.
    Counted,
}

/// Which of a program's two output streams a piece of output belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Options of a guest: its resources and its time limit.
#[derive(Debug, Clone)]
pub struct GuestOptions {
    /// Virtual processors, 1 to 64; [`Accel::Counted`] has one.
    pub cpus: u32,
    /// Memory in bytes, at least 256 MiB; half of it at most may hold files that the guest writes.
    pub memory_bytes: u64,
    /// Time from the start of booting to the end of the program.
    pub time_limit: Duration,
    /// Environment of the program, besides PATH, HOME and LANG.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory of the program; `/` if absent.
    pub cwd: Option<PathBuf>,
    /// A directory of the host that the guest may write, under the same path.
    pub shared_dir: Option<PathBuf>,
    /// Taps of the calling thread's network namespace, each of which becomes a network card of the guest (virtio-net of
    /// 1 Gbit/s, `eth0` and on in this order; the program runs `modprobe virtio_net` first). They exist already, and need
    /// root or an owner.
    pub taps: Vec<String>,
    /// Setting this to true ends the run with [`GuestError::Interrupted`].
    pub stop: Option<&'static AtomicBool>,
    /// `None`: KVM if it brings the guest up, else emulation.
    pub accel: Option<Accel>,
    /// Takes the processor away from the guest and gives it back, from another thread.
    pub power: Option<Power>,
}

impl Default for GuestOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cpus: u32::try_from(cores.clamp(1, 4)).unwrap_or(1),
            memory_bytes: 1 << 30,
            time_limit: Duration::from_secs(300),
            env: Vec::new(),
            cwd: None,
            shared_dir: None,
            taps: Vec::new(),
            stop: None,
            accel: None,
            power: None,
        }
    }
}

/// Output of a program that ran in a guest.
#[derive(Debug)]
#[non_exhaustive]
pub struct GuestOutput {
    /// The program's exit code; 128 + n if signal n ended it, 127 if there is no such program.
    pub exit_code: i32,
    /// Everything it wrote to standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Accelerator that executed it.
    pub accel: Accel,
    /// From the start of QEMU to the start of the program.
    pub boot_time: Duration,
}

/// Runs programs in guests, one guest per run.
#[derive(Debug, Clone, Default)]
pub struct Guest {
    options: GuestOptions,
}

impl Guest {
    /// Guests with these options.
    pub fn new(options: GuestOptions) -> Self {
        Self { options }
    }

    /// Boots `kernel`, runs `program` with `args` in it, and returns what the program left.
    ///
    /// `program` is a name to be found in PATH or an absolute path of the host. Its exit code is part of the
    /// output, whatever it is; errors are about the guest.
    ///
    /// # Errors
    /// See [`GuestError`]. Nothing is left behind: no process, no socket, no file.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        kernel: &KernelImage,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
    ) -> Result<GuestOutput, GuestError> {
        self.run_streaming(kernel, program, args, &mut |_, _| {})
    }

    /// Like [`Guest::run`], and hands each piece of output to `sink` as it appears.
    ///
    /// # Errors
    /// As for [`Guest::run`].
    pub fn run_streaming<A: AsRef<OsStr>>(
        &self,
        kernel: &KernelImage,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
        sink: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<GuestOutput, GuestError> {
        self.check()?;
        let mut command = vec![program.as_ref().to_os_string()];
        command.extend(args.into_iter().map(|arg| arg.as_ref().to_os_string()));
        let may_try_kvm = match self.options.accel {
            Some(Accel::Emulation) => false,
            Some(other) => return self.boot_and_run(other, kernel, &command, sink),
            None => qemu::kvm_is_offered() && !KVM_FAILED.load(Ordering::Relaxed),
        };
        if may_try_kvm {
            match self.boot_and_run(Accel::Kvm, kernel, &command, sink) {
                Err(GuestError::Boot { .. }) => KVM_FAILED.store(true, Ordering::Relaxed),
                result => return result,
            }
        }
        match self.boot_and_run(Accel::Emulation, kernel, &command, sink) {
            // QEMU 7.2 now and then runs code that another emulated processor is patching, and the kernel crashes on the
            // breakpoint that it finds there. Nothing of the program has run.
            Err(GuestError::Boot { cause, .. }) if cause == CRASHED => {
                self.boot_and_run(Accel::Emulation, kernel, &command, sink)
            }
            result => result,
        }
    }

    fn check(&self) -> Result<(), GuestError> {
        let bad = |problem: String| Err(GuestError::Options { problem });
        if !(1..=64).contains(&self.options.cpus) {
            return bad(format!("{} processors; 1 to 64 are possible", self.options.cpus));
        }
        if self.options.memory_bytes < 256 << 20 {
            return bad(format!("{} bytes of memory; 256 MiB is the least", self.options.memory_bytes));
        }
        let missing = |tap: &&String| nix::net::if_::if_nametoindex(tap.as_str()).is_err();
        if let Some(tap) = self.options.taps.iter().find(missing) {
            return bad(format!(
                "tap `{tap}`, which does not exist; make it with `ip tuntap add {tap} mode tap`"
            ));
        }
        match &self.options.shared_dir {
            Some(dir) if !dir.is_absolute() || !dir.is_dir() => {
                bad(format!("shared directory {}; it must be an absolute path of a directory", dir.display()))
            }
            _ => Ok(()),
        }
    }

    fn boot_and_run(
        &self,
        accel: Accel,
        kernel: &KernelImage,
        command: &[OsString],
        sink: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<GuestOutput, GuestError> {
        let mut job = Job::create(kernel, command, &self.options)?;
        let started = Instant::now();
        let mut machine = Qemu::start(kernel, &job, &self.options, accel)?;
        let boot_limit = match accel {
            Accel::Kvm => BOOT_TIMEOUT_KVM,
            Accel::Emulation => BOOT_TIMEOUT_EMULATED,
            // May run when nothing else does: how long that takes says nothing.
            Accel::Counted => self.options.time_limit,
        };
        let fails_to_boot = |job: &Job, cause: String| GuestError::Boot {
            release: kernel.release().to_owned(),
            cause,
            console: job.diagnosis(),
        };

        let boot_time = loop {
            self.check_stop()?;
            let ended = machine.has_ended()?;
            if job.poll(sink)?.ready {
                break started.elapsed();
            }
            if ended {
                return Err(fails_to_boot(&job, CRASHED.to_owned()));
            }
            let elapsed = started.elapsed();
            if elapsed > self.options.time_limit || elapsed.saturating_sub(machine.waited()) > boot_limit {
                let limit_s = boot_limit.min(self.options.time_limit).as_secs();
                let cause = format!("it did not run the program within {limit_s} s");
                return Err(fails_to_boot(&job, cause));
            }
            std::thread::sleep(POLL_INTERVAL);
        };

        let mut exited: Option<(i32, Instant)> = None;
        loop {
            self.check_stop()?;
            let ended = machine.has_ended()?;
            let state = job.poll(sink)?;
            if let (None, Some(code)) = (exited, state.exit_code) {
                exited = Some((code, Instant::now()));
            }
            match exited {
                Some((exit_code, since)) if ended || since.elapsed() > POWER_OFF_TIMEOUT => {
                    let (stdout, stderr) = job.into_output();
                    return Ok(GuestOutput { exit_code, stdout, stderr, accel, boot_time });
                }
                None if ended => {
                    return Err(GuestError::Died {
                        release: kernel.release().to_owned(),
                        console: job.diagnosis(),
                    });
                }
                None if started.elapsed() > self.options.time_limit => {
                    return Err(GuestError::TimeLimit {
                        release: kernel.release().to_owned(),
                        limit: self.options.time_limit,
                        console: job.diagnosis(),
                    });
                }
                _ => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    fn check_stop(&self) -> Result<(), GuestError> {
        match self.options.stop {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(GuestError::Interrupted),
            _ => Ok(()),
        }
    }
}

/// Removes what runs left that were killed: their directories. Their processes die with them. Returns the
/// directories removed.
///
/// # Errors
/// A directory that can be read but not removed.
pub fn clean() -> Result<Vec<PathBuf>, GuestError> {
    job::remove_orphans()
}
