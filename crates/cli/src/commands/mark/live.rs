//! Counters of a port while it is served, on stderr: redrawn on a terminal, now and then elsewhere.

use super::show;
use crate::ui::Ui;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};
use vmcc_port::PortStats;

/// Interval between redraws on a terminal.
const REDRAW: Duration = Duration::from_secs(1);
/// Interval between reports elsewhere.
const REPEAT: Duration = Duration::from_secs(10);

/// Display of the counters.
pub(super) struct Live<'a> {
    ui: &'a Ui,
    area: ProgressBar,
    last: Instant,
    every: Duration,
}

impl<'a> Live<'a> {
    pub(super) fn new(ui: &'a Ui) -> Self {
        let area = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            area.set_style(style);
        }
        if ui.bars() {
            area.set_draw_target(ProgressDrawTarget::stderr());
        }
        let every = if ui.bars() { REDRAW } else { REPEAT };
        Self { ui, area, last: Instant::now(), every }
    }

    /// Shows what `stats` gives if it is time to.
    pub(super) fn show<E>(&mut self, stats: impl FnOnce() -> Result<PortStats, E>) -> Result<(), E> {
        if self.ui.quiet() || self.last.elapsed() < self.every {
            return Ok(());
        }
        self.last = Instant::now();
        let text = show::ports(&[stats()?]);
        if self.ui.bars() {
            self.area.set_message(text);
            self.area.tick();
        } else {
            self.ui.note(&text);
        }
        Ok(())
    }

    /// Leaves nothing on the terminal.
    pub(super) fn end(self) {
        self.area.finish_and_clear();
    }
}
