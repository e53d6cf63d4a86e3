//! Ctrl-C: the first asks everything to stop and clean up, the second leaves at once. What comes right after the first is
//! no second one: `timeout` signals a program and then its process group.

use crate::failure::{Exit, Failure};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

static STOP: AtomicBool = AtomicBool::new(false);
/// Signals this close together are one wish; a person takes longer to press a key again.
const ONE_WISH: Duration = Duration::from_millis(200);
/// How long who leaves at once may take for it.
const FAREWELL: Duration = Duration::from_millis(500);

/// Starts to listen for SIGINT, SIGTERM and SIGHUP and returns the flag that they set.
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
            std::thread::spawn(move || {
                finish();
                // Whoever would read this may be gone, too.
                let _ = writeln!(
                    std::io::stderr(),
                    "vmcc: stopped before everything was cleaned up; `vmcc clean` removes the rest"
                );
                let _ = done.send(());
            });
            // A terminal that nobody reads takes nothing, not even that.
            let _ = finished.recv_timeout(FAREWELL);
            std::process::exit(Exit::Interrupted as i32);
        }
    };
    match ctrlc::set_handler(handler) {
        // A command that runs another one has installed it already.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(&STOP),
        Err(error) => Err(Failure::host(format!("signals: cannot install a handler: {error}"))),
    }
}

/// Waits that long; whether it was not told to stop meanwhile.
#[cfg(feature = "kernel")]
pub(crate) fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let began = Instant::now();
    while !stop.load(Ordering::SeqCst) && began.elapsed() < time {
        std::thread::sleep(ONE_WISH.min(time.saturating_sub(began.elapsed())));
    }
    !stop.load(Ordering::SeqCst)
}

/// The flag, also without listening.
#[cfg(feature = "kernel")]
pub(crate) fn flag() -> &'static AtomicBool {
    &STOP
}
