//! The two processes of a transfer, and what they used.

use crate::Result;
use crate::options::{Case, Options, list};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Runs on one processor only, if there are as many.
pub(crate) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    if set.set(cpu).is_ok() {
        // Where it is not allowed the figures of processor time are as good.
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

/// Seconds that passed, and seconds of processor in user space and in the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) wall: f64,
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl Usage {
    pub(crate) fn cpu(&self) -> f64 {
        self.user + self.system
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.wall, self.user, self.system)
    }
}

/// Measures from its start on.
pub(crate) struct Meter {
    began: Instant,
    user: f64,
    system: f64,
}

impl Meter {
    pub(crate) fn start() -> Meter {
        let (user, system) = used();
        Meter { began: Instant::now(), user, system }
    }

    pub(crate) fn stop(&self) -> Usage {
        let (user, system) = used();
        let wall = self.began.elapsed().as_secs_f64();
        Usage { wall, user: user - self.user, system: system - self.system }
    }
}

fn used() -> (f64, f64) {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("of itself");
    let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 * 1e-6;
    (seconds(usage.user_time()), seconds(usage.system_time()))
}

/// One of the two; it does not outlive this.
struct End {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl End {
    fn start(within: &[String], role: &str, case: &Case) -> Result<End> {
        let own = std::env::current_exe()?;
        let mut command = match within.split_first() {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(own);
                command
            }
            None => Command::new(own),
        };
        let command = command.arg(role).args(case.to_args()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{within:?}: {error}"))?;
        let out = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(End { child, out })
    }

    fn usage(mut self) -> Result<Usage> {
        let mut text = String::new();
        self.out.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        match list(text.trim()).as_deref() {
            Ok([wall, user, system]) => Ok(Usage { wall: *wall, user: *user, system: *system }),
            _ => Err(format!("a process of the transfer ended without figures, {status}").into()),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // It has ended already, or its peer has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The receiver.
pub(crate) struct Far {
    end: End,
    at: Vec<std::net::SocketAddr>,
}

impl Far {
    pub(crate) fn start(options: &Options, case: &Case) -> Result<Far> {
        let mut end = End::start(&options.far_in, "receive", case)?;
        let mut line = String::new();
        end.out.read_line(&mut line)?;
        let at = list(line.trim()).map_err(|error| format!("the receiver does not begin: {error}"))?;
        Ok(Far { end, at })
    }

    pub(crate) fn usage(self) -> Result<Usage> {
        self.end.usage()
    }
}

/// The sender.
pub(crate) struct Near(End);

impl Near {
    pub(crate) fn start(options: &Options, case: &Case, far: &Far) -> Result<Near> {
        let case = Case { at: far.at.clone(), ..case.clone() };
        End::start(&options.near_in, "send", &case).map(Near)
    }

    pub(crate) fn usage(self) -> Result<Usage> {
        self.0.usage()
    }
}
