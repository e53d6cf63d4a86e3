//! The terminal: taken, drawn on, and given back however this ends.

use super::screen::{Screen, Wish};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How soon a signal is noticed.
const GLANCE: Duration = Duration::from_millis(200);

/// A terminal that is as before when this is dropped; ratatui sees to panics.
struct Taken(ratatui::DefaultTerminal);

impl Taken {
    fn take() -> io::Result<Self> {
        ratatui::try_init().map(Self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the screen, and looks at the host again and again, until a key or a signal ends it.
pub(super) fn run(
    screen: &mut Screen,
    interval: Duration,
    look: &mut dyn FnMut(&mut Screen),
) -> Result<Exit, Failure> {
    // Also who leaves at once, because something hangs, leaves a terminal that can be used.
    let stop = interrupt::listen_and_finish(ratatui::restore)?;
    let failed = |error: io::Error| Failure::host(format!("terminal: {error}"));
    let mut terminal = Taken::take().map_err(failed)?;
    let mut last = Instant::now();
    let mut changed = true;
    while !stop.load(Ordering::SeqCst) {
        if !screen.paused && last.elapsed() >= interval {
            last = Instant::now();
            look(screen);
            changed = true;
        }
        if changed {
            terminal.0.draw(|frame| screen.draw(frame)).map_err(failed)?;
            changed = false;
        }
        let rest = if screen.paused { GLANCE } else { interval.saturating_sub(last.elapsed()).min(GLANCE) };
        match pending(screen, rest).map_err(failed)? {
            None => {}
            Some(Wish::Nothing) => changed = true,
            Some(Wish::Quit) => return Ok(Exit::Done),
            Some(Wish::Interrupt) => return Ok(Exit::Interrupted),
        }
    }
    Ok(Exit::Interrupted)
}

/// What was typed within `most`; `None`: nothing happened.
fn pending(screen: &mut Screen, most: Duration) -> io::Result<Option<Wish>> {
    let mut patience = most;
    let mut wish = None;
    while event::poll(patience)? {
        wish = Some(Wish::Nothing);
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match screen.key(key) {
                Wish::Nothing => {}
                other => return Ok(Some(other)),
            },
            // Another size: drawn anew.
            _ => {}
        }
        patience = Duration::ZERO;
    }
    Ok(wish)
}
