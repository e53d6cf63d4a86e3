//! The loop of the live view: what is typed, what was seen, what happens to the terminal.

use super::look::Look;
use super::screen::{Screen, Wish};
use super::tty::{self, Taken};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Time within which a signal is noticed, and longest time that keys are handled before the screen is drawn.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Event of the loop.
pub(super) enum Heard {
    Typed(Event),
    /// Boxed: it is large beside the others, which come one a key.
    Seen(Box<Look>),
    Signal(Signal),
    /// Nobody is at the terminal any more.
    Gone,
    Failed(io::Error),
}

/// Reaction to an event.
enum Then {
    Draw,
    Suspend,
    Retake,
    End(Exit),
    Fail(io::Error),
}

/// Shows the screen, and has `ask` look at the host again and again, until a key or a signal ends it. What was seen is given
/// to `take`.
pub(super) fn run(
    screen: &mut Screen,
    interval: Duration,
    ask: &dyn Fn(),
    take: &dyn Fn(&mut Screen, Look),
    (tell, heard): (Sender<Heard>, Receiver<Heard>),
) -> Result<Exit, Failure> {
    // Also who leaves at once, because something hangs, leaves a terminal that can be used.
    let stop = interrupt::listen_and_finish(tty::restore)?;
    let mut terminal = Taken::take().or_else(failed)?;
    listen(tell);
    let mut due = Instant::now() + interval;
    let (mut looking, mut changed) = (false, true);
    while !stop.load(Ordering::SeqCst) {
        if !screen.paused && !looking && Instant::now() >= due {
            due = Instant::now() + interval;
            looking = true;
            ask();
        }
        if changed && let Err(error) = terminal.draw(|frame| screen.draw(frame)) {
            return ended(error);
        }
        let rest = if screen.paused || looking {
            POLL_INTERVAL
        } else {
            due.saturating_duration_since(Instant::now())
        };
        let Some(first) = next(&heard, rest.min(POLL_INTERVAL)) else {
            changed = false;
            continue;
        };
        changed = true;
        // Everything that has come is drawn at once; but who types and types shall see something, too.
        let (until, mut what) = (Instant::now() + POLL_INTERVAL, Some(first));
        while let Some(one) = what {
            looking &= !matches!(one, Heard::Seen(_));
            let then = match then(one, screen, take) {
                Then::Draw => Ok(()),
                Then::Suspend => terminal.suspend(),
                Then::Retake => terminal.retake(),
                Then::End(exit) => return Ok(exit),
                Then::Fail(error) => Err(error),
            };
            if let Err(error) = then {
                return ended(error);
            }
            what = if Instant::now() < until { heard.try_recv().ok() } else { None };
        }
    }
    Ok(Exit::Interrupted)
}

/// Whatever cannot be done on a terminal that is gone failed because of that.
fn ended(error: io::Error) -> Result<Exit, Failure> {
    if tty::is_gone() { Ok(Exit::Interrupted) } else { failed(error) }
}

fn failed<T>(error: io::Error) -> Result<T, Failure> {
    Err(Failure::host(format!("terminal: {error}")))
}

fn next(heard: &Receiver<Heard>, most: Duration) -> Option<Heard> {
    match heard.recv_timeout(most) {
        Ok(heard) => Some(heard),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            // Everyone who could say something is gone; signals are left.
            std::thread::sleep(most);
            None
        }
    }
}

fn then(heard: Heard, screen: &mut Screen, take: &dyn Fn(&mut Screen, Look)) -> Then {
    match heard {
        Heard::Seen(look) => take(screen, *look),
        Heard::Gone => return Then::End(Exit::Interrupted),
        Heard::Failed(error) => return Then::Fail(error),
        Heard::Signal(Signal::SIGTSTP) => return Then::Suspend,
        Heard::Signal(_) => return Then::Retake,
        Heard::Typed(Event::Key(key)) if key.kind != KeyEventKind::Release => match screen.key(key) {
            Wish::Nothing => {}
            Wish::Suspend => return Then::Suspend,
            Wish::Quit => return Then::End(Exit::Done),
            Wish::Interrupt => return Then::End(Exit::Interrupted),
        },
        // Another size: redraw.
        Heard::Typed(_) => {}
    }
    Then::Draw
}

/// Begins to hear keys, signals, and the end of the terminal. Keys have a thread of their own, because who reads them does
/// not come back from a terminal that is gone, nor from half a key.
fn listen(tell: Sender<Heard>) {
    let (signals, gone) = (tell.clone(), tell.clone());
    std::thread::spawn(move || {
        loop {
            let heard = event::read().map_or_else(Heard::Failed, Heard::Typed);
            let last = matches!(heard, Heard::Failed(_));
            if tell.send(heard).is_err() || last {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        while tty::signal().is_ok_and(|signal| signals.send(Heard::Signal(signal)).is_ok()) {}
    });
    std::thread::spawn(move || {
        tty::wait_until_gone();
        let _ = gone.send(Heard::Gone);
    });
}
