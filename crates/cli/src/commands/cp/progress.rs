//! Progress of a copy: a bar on a terminal, nothing elsewhere.

use crate::ui::{Ui, harmless};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vmcc_apps::copy::Progress;

const INTERVAL: Duration = Duration::from_millis(100);
const STYLE: &str =
    "{bytes}/{total_bytes} [{bar:24}] {percent:>3}%, {binary_bytes_per_sec}, {eta} left, {prefix} {wide_msg}";

/// The bar, as long as the copy goes on.
pub(super) struct Shown {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    pub(super) fn start(ui: &Ui, progress: Arc<Progress>) -> Shown {
        let over = Arc::new(AtomicBool::new(false));
        let flag = over.clone();
        let thread = ui.bars().then(|| thread::spawn(move || show(&progress, &flag)));
        Shown { over, thread }
    }

    pub(super) fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread {
            // A bar that cannot be drawn is no fault of the copy.
            let _ = thread.join();
        }
    }
}

fn show(progress: &Progress, over: &AtomicBool) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template(STYLE) {
        bar.set_style(style.progress_chars("=> "));
    }
    let mut begun = false;
    while !over.load(Ordering::Relaxed) {
        let snapshot = progress.snapshot();
        // Before that ssh may ask for a password.
        if snapshot.files > 0 {
            if !begun {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                begun = true;
            }
            bar.set_length(snapshot.bytes);
            bar.set_position(snapshot.bytes_done);
            bar.set_prefix(format!("{}/{} files, {}", snapshot.files_done, snapshot.files, snapshot.paths));
            bar.set_message(harmless(&snapshot.current).replace('\n', "\\n"));
        }
        thread::sleep(INTERVAL);
    }
    bar.finish_and_clear();
}
