//! Ctrl-C: the first asks everything to stop and clean up, the second leaves at once. What comes right after the first is
//! no second one: `timeout` signals a program and then its process group. Signals that are ignored when a command begins stay
//! ignored: that is how `nohup`, and a shell's background job, keep them from it.

use crate::failure::{Exit, Failure};
use nix::libc;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

static STOP: AtomicBool = AtomicBool::new(false);
/// Signals this close together are one wish; a person takes longer to press a key again.
const ONE_WISH: Duration = Duration::from_millis(200);
/// Timeout of the work that precedes an immediate exit.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// Starts to listen for SIGINT, SIGTERM and SIGHUP, as far as they are not ignored, and returns the flag that they set.
pub(crate) fn listen() -> Result<&'static AtomicBool, Failure> {
    listen_and_finish(|| {})
}

/// The same; `finish` is called before this process leaves at once.
pub(crate) fn listen_and_finish(finish: fn()) -> Result<&'static AtomicBool, Failure> {
    let handler = move || {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        let first = *FIRST.get_or_init(Instant::now);
        if STOP.swap(true, Ordering::SeqCst) && first.elapsed() > ONE_WISH {
            // Cleaning up hangs or takes too long for the user's taste.
            let (done, finished) = mpsc::channel();
            thread::spawn(move || {
                finish();
                // The reader of this may be gone, too.
                let _ = writeln!(
                    std::io::stderr(),
                    "vmcc: stopped before everything was cleaned up; `vmcc clean` removes the rest"
                );
                let _ = done.send(());
            });
            // A terminal that nobody reads takes nothing, not even that.
            let _ = finished.recv_timeout(EXIT_TIMEOUT);
            std::process::exit(Exit::Interrupted as i32);
        }
    };
    static LISTENING: Mutex<bool> = Mutex::new(false);
    let mut listening = LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
    // A command that runs another one listens already.
    if !*listening {
        let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = Signals::new(wanted).map_err(|error| {
            let failure = Failure::host(format!("signals: cannot install a handler: {error}"));
            match error.raw_os_error() {
                Some(libc::EMFILE) => failure.help("allow more open files (`ulimit -n 1024`)"),
                _ => failure,
            }
        })?;
        // A write beyond the limit of file sizes is to fail with its own error, not to kill. A handler, unlike an ignored signal, is not
        // inherited by programs that are started.
        let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
        thread::spawn(move || signals.forever().for_each(|_| handler()));
        *listening = true;
    }
    Ok(&STOP)
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all zeros are a valid value, which the call only overwrites; nothing is set.
    let now = unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0).then_some(now)
    };
    now.is_some_and(|now| now.sa_sigaction == libc::SIG_IGN)
}

/// Waits that long; whether it was not told to stop meanwhile.
#[cfg(feature = "kernel")]
pub(crate) fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let began = Instant::now();
    while !stop.load(Ordering::SeqCst) && began.elapsed() < time {
        thread::sleep(ONE_WISH.min(time.saturating_sub(began.elapsed())));
    }
    !stop.load(Ordering::SeqCst)
}

/// The flag, also without listening.
#[cfg(feature = "kernel")]
pub(crate) fn flag() -> &'static AtomicBool {
    &STOP
}
