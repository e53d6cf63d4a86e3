//! The terminal: taken, drawn on, lent to the shell, and given back however this ends.

use nix::libc;
use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Frame, Terminal};
use std::io;
use std::sync::Once;
use std::time::Duration;

/// Interval at which the terminal is checked for a hangup that nothing reported.
const HANGUP_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// As it was before; what cannot be said to a terminal that is gone is said to nobody.
pub(super) fn restore() {
    let _ = ratatui::try_restore();
}

/// A terminal that is as before when this is dropped, also by a panic, whose message is then read there.
pub(super) struct Taken(Option<DefaultTerminal>);

impl Taken {
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        let mut taken = Self(None);
        taken.retake()?;
        Ok(taken)
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        match &mut self.0 {
            Some(terminal) => terminal.draw(draw).map(drop),
            None => Ok(()),
        }
    }

    /// Takes the terminal back after a suspension: its contents are unknown.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        self.give_back();
        let terminal = enter().inspect_err(|_| restore())?;
        self.0 = Some(terminal);
        Ok(())
    }

    /// Only if it was taken: leaving another screen twice sends the cursor to where it once was.
    fn give_back(&mut self) {
        let Some(mut terminal) = self.0.take() else { return };
        if terminal.show_cursor().is_err() {
            // It would try again, and complain to a terminal that is gone.
            std::mem::forget(terminal);
        }
        restore();
    }

    /// Stops this process as SIGTSTP does by itself; comes back when it is continued, and at once where no shell could do
    /// that.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.give_back();
        let stop: SigSet = [Signal::SIGTSTP].into_iter().collect();
        raise(Signal::SIGTSTP)?;
        // Held back until now.
        stop.thread_unblock()?;
        stop.thread_block()?;
        self.retake()
    }
}

fn enter() -> io::Result<DefaultTerminal> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    Terminal::new(CrosstermBackend::new(io::stdout()))
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn held() -> SigSet {
    [Signal::SIGTSTP, Signal::SIGCONT].into_iter().collect()
}

/// From here on the signals that stop and continue a process wait for [`signal`], also in threads that are started later.
pub(super) fn hold_signals() -> io::Result<()> {
    Ok(held().thread_block()?)
}

/// Waits for one of them.
pub(super) fn signal() -> io::Result<Signal> {
    Ok(held().wait()?)
}

/// True if the terminal has hung up.
pub(super) fn is_gone() -> bool {
    gone_within(Duration::ZERO)
}

pub(super) fn wait_until_gone() {
    while !gone_within(HANGUP_POLL_INTERVAL) {}
}

fn gone_within(most: Duration) -> bool {
    let mut asked = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    let most = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one place, which outlives the call.
    let found = unsafe { libc::poll(&raw mut asked, 1, most) };
    found > 0 && asked.revents != 0
}
