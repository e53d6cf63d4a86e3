//! `vmcc mark` and `vmcc unmark`: serving ports of virtual switches.

use crate::args::{MarkOptions, MarkSettings, UnmarkOptions};
use crate::failure::{Exit, Failure};
use crate::port::options::Asked;
use crate::ui::Ui;

pub(crate) fn mark(options: &MarkOptions, ui: &Ui) -> Result<Exit, Failure> {
    if options.schema {
        let schema = vmcc_port::schema();
        ui.answer(&schema, || format!("{schema:#}"));
        return Ok(Exit::Done);
    }
    let Some(port) = &options.port else { return list(options, ui) };
    if options.stats {
        return stats(port, options, ui);
    }
    if options.repair {
        return repair(port, ui);
    }
    if says_nothing(&options.settings) {
        return Err(Failure::usage(format!("port {port}: nothing says how to serve it")).help(
            "give --config FILE, --rate RATE or --threshold LENGTH; `vmcc mark PORT --stats` prints counters",
        ));
    }
    serve(port, &Asked::read(&options.settings)?, options.foreground, ui)
}

/// A backend alone would be a port that does nothing.
fn says_nothing(s: &MarkSettings) -> bool {
    let texts = [&s.rate, &s.classes, &s.marking, &s.threshold, &s.rtt, &s.buffer, &s.trust, &s.vm];
    s.config.is_none() && texts.iter().all(|t| t.is_none()) && s.lambda.is_none() && s.phantom.is_none()
}

#[cfg(feature = "kernel")]
mod with_kernel {
    use super::{Asked, Exit, Failure, MarkOptions, Ui, UnmarkOptions};
    use crate::kernel::mark as kernel;

    pub(super) fn serve(port: &str, asked: &Asked, foreground: bool, ui: &Ui) -> Result<Exit, Failure> {
        kernel::serve(port, asked, foreground, ui)
    }

    pub(super) fn list(options: &MarkOptions, ui: &Ui) -> Result<Exit, Failure> {
        kernel::list(options.prometheus, ui)
    }

    pub(super) fn stats(port: &str, options: &MarkOptions, ui: &Ui) -> Result<Exit, Failure> {
        kernel::stats(port, options.prometheus, ui)
    }

    pub(super) fn repair(port: &str, ui: &Ui) -> Result<Exit, Failure> {
        kernel::repair(port, ui)
    }

    pub(crate) fn unmark(options: &UnmarkOptions, ui: &Ui) -> Result<Exit, Failure> {
        match &options.port {
            Some(port) => kernel::unmark(port, ui),
            None => kernel::unmark_all(ui),
        }
    }
}
#[cfg(feature = "kernel")]
pub(crate) use with_kernel::unmark;
#[cfg(feature = "kernel")]
use with_kernel::{list, repair, serve, stats};

#[cfg(not(feature = "kernel"))]
mod without {
    use super::{Asked, Exit, Failure, MarkOptions, Ui, UnmarkOptions};
    use crate::failure::without_kernel;

    pub(super) fn serve(_: &str, _: &Asked, _: bool, _: &Ui) -> Result<Exit, Failure> {
        Err(without_kernel("vmcc mark"))
    }

    pub(super) fn list(_: &MarkOptions, _: &Ui) -> Result<Exit, Failure> {
        Err(without_kernel("vmcc mark --list"))
    }

    pub(super) fn stats(_: &str, _: &MarkOptions, _: &Ui) -> Result<Exit, Failure> {
        Err(without_kernel("vmcc mark --stats"))
    }

    pub(super) fn repair(_: &str, _: &Ui) -> Result<Exit, Failure> {
        Err(without_kernel("vmcc mark --repair"))
    }

    pub(crate) fn unmark(_: &UnmarkOptions, _: &Ui) -> Result<Exit, Failure> {
        Err(without_kernel("vmcc unmark"))
    }
}
#[cfg(not(feature = "kernel"))]
pub(crate) use without::unmark;
#[cfg(not(feature = "kernel"))]
use without::{list, repair, serve, stats};
