//! Detection from inside that this machine was descheduled.
//!
//! A thread that sleeps until a moment wakes up later than that if
//!
//! - the processor had other things to do: then the kernel's scheduler knows how long the thread was runnable and waited;
//! - nothing ran at all, because the virtual machine was off: then the timer itself was late, and the thread hardly waited.
//!
//! So what is late and was not spent waiting is time for which the machine was off. The clock stands still while a machine
//! is suspended on purpose, which therefore is none.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Interval of the checks: a gap that is found is at most that much shorter than it was.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Shortest gap that counts. A timer that an idle processor serves is late by less.
pub const MIN_GAP: Duration = Duration::from_millis(10);
/// Its second figure is this thread's run delay (runnable and waiting), in nanoseconds.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Looks until `each` says that it is enough, which it is asked after every look with the time for which the machine was
/// off before it, if it was.
///
/// # Errors
/// The kernel does not say how long a thread waits, without which a busy machine could not be told from one that was off.
pub fn gaps(each: &mut dyn FnMut(Option<Duration>) -> ControlFlow<()>) -> io::Result<()> {
    // Kept open: opening it costs more than all the rest of a look.
    let scheduled = File::open(SCHEDSTAT)?;
    let mut waited = run_delay(&scheduled)?;
    let mut due = Instant::now() + CHECK_INTERVAL;
    loop {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (at, before) = (Instant::now(), waited);
        waited = run_delay(&scheduled)?;
        let off = off_time(at.saturating_duration_since(due), waited.saturating_sub(before));
        if each(off).is_break() {
            return Ok(());
        }
        // After a gap from then on: it is one, and not a hundred looks that were missed.
        due = (due + CHECK_INTERVAL).max(at);
    }
}

/// Of a timer that was `late`, with the thread `waiting` since it was set, the time for which nothing ran.
fn off_time(late: Duration, waiting: Duration) -> Option<Duration> {
    late.checked_sub(waiting).filter(|off| *off >= MIN_GAP)
}

fn run_delay(scheduled: &File) -> io::Result<Duration> {
    let mut bytes = [0; 128];
    let length = scheduled.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes[..length]);
    let nanoseconds = text.split_whitespace().nth(1).and_then(|figure| figure.parse().ok());
    nanoseconds
        .map(Duration::from_nanos)
        .ok_or_else(|| io::Error::other(format!("{SCHEDSTAT}: `{}`", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runqueue_wait_is_not_counted_as_steal() {
        let ms = Duration::from_millis;
        assert_eq!(off_time(ms(120), ms(0)), Some(ms(120)));
        assert_eq!(off_time(ms(120), ms(20)), Some(ms(100)));
        assert_eq!(off_time(ms(120), ms(115)), None);
        assert_eq!(off_time(ms(9), ms(0)), None);
        assert_eq!(off_time(ms(20), ms(30)), None);
    }

    #[test]
    fn sampling_ends_on_request() {
        let mut looks = 0;
        let looked = gaps(&mut |_| {
            looks += 1;
            if looks == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // A kernel that keeps no such figures is refused at once.
        assert_eq!(looks, if looked.is_ok() { 3 } else { 0 });
    }
}
