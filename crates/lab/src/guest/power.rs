//! Taking the processor away from a guest, as a hypervisor does that has others to serve.
//!
//! QEMU is stopped and continued as a whole: no processor of the guest runs, no timer of it expires, what arrives waits in
//! its taps. Its clock goes on meanwhile, as that of a VM does whose hypervisor serves others.

use crate::cpu;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest sleep before the stop flag is checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Says when a guest runs. Clones are of the same guest: one goes into [`GuestOptions::power`](super::GuestOptions::power),
/// the other stays with who decides.
#[derive(Debug, Clone, Default)]
pub struct Power(Arc<Mutex<Option<Pid>>>);

/// Duty cycle of a guest: how long it runs, and how long it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DutyCycle {
    /// Time that it runs.
    pub on: Duration,
    /// Time that it is then stopped.
    pub off: Duration,
}

impl Power {
    /// Lets the guest run and stop by these turns from a moment on, until they end or `enough` is set; it runs afterwards. For
    /// how long it was off each time: what was asked for and by how much this process was late. The moments of turns are those
    /// of the pattern, whatever was late before. Without a running guest nothing happens but time.
    pub fn deschedule(
        &self,
        begin: Instant,
        turns: impl IntoIterator<Item = DutyCycle>,
        enough: &AtomicBool,
    ) -> Vec<Duration> {
        let mut at = begin;
        let mut times = Vec::new();
        for turn in turns {
            at += turn.on;
            sleep_until(at, enough);
            if enough.load(Ordering::Relaxed) {
                break;
            }
            let running = Running(self);
            running.0.signal(Signal::SIGSTOP);
            let stopped = Instant::now();
            at += turn.off;
            sleep_until(at, enough);
            drop(running);
            times.push(stopped.elapsed());
        }
        times
    }

    fn signal(&self, signal: Signal) {
        let guest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = *guest {
            // One that ended by itself and was not waited for yet can still be told, to no effect.
            let _ = kill(pid, signal);
        }
    }

    /// CPU time of the host that a running guest has used.
    pub(crate) fn used(&self) -> Option<Duration> {
        let guest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cpu::used_by(guest.as_ref()?.as_raw())
    }

    /// A guest has begun.
    pub(super) fn begins(&self, process: u32) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            i32::try_from(process).ok().map(Pid::from_raw);
    }

    /// True if the guest has ended by itself; never blocks.
    pub(super) fn has_ended(&self, process: &mut Child) -> io::Result<bool> {
        // Nobody tells it anything between its end and that this is known.
        let mut guest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = process.try_wait()?.is_some();
        if ended {
            *guest = None;
        }
        Ok(ended)
    }

    /// It is about to be waited for: its number may be another process's from then on.
    pub(super) fn ends(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A guest that runs again when this is dropped, however its turn ends.
struct Running<'a>(&'a Power);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGCONT);
    }
}

fn sleep_until(at: Instant, enough: &AtomicBool) {
    loop {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() || enough.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(left.min(POLL_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn state(of: &Child) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", of.id())).expect("a process");
        stat.rsplit_once(") ").expect("its state").1[..1].to_owned()
    }

    #[test]
    fn process_is_stopped_and_continued_by_schedule() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let (power, enough) = (Power::default(), AtomicBool::new(false));
        power.begins(child.id());
        let turn = DutyCycle { on: Duration::from_millis(5), off: Duration::from_millis(40) };
        let (times, stopped) = thread::scope(|scope| {
            let turns = scope.spawn(|| power.deschedule(Instant::now(), vec![turn; 4], &enough));
            let mut stopped = false;
            while !turns.is_finished() {
                stopped |= state(&child) == "T";
                thread::sleep(Duration::from_millis(1));
            }
            (turns.join().expect("turns"), stopped)
        });
        assert!(stopped && times.len() == 4 && times.iter().all(|time| !time.is_zero()), "{times:?}");
        assert_ne!(state(&child), "T");
        power.ends();
        assert_eq!(power.deschedule(Instant::now(), vec![turn; 1], &enough).len(), 1);
        enough.store(true, Ordering::Relaxed);
        assert_eq!(power.deschedule(Instant::now(), vec![turn; 1000], &enough), Vec::<Duration>::new());
        child.kill().and_then(|()| child.wait()).expect("its end");
    }
}
