//! `vmcc mark` and `vmcc unmark`: serving ports of virtual switches.

#[cfg(not(feature = "kernel"))]
mod absent;
mod classes;
#[cfg(feature = "kernel")]
mod counters;
#[cfg(feature = "kernel")]
mod live;
mod options;
#[cfg(feature = "kernel")]
mod serve;
#[cfg(feature = "kernel")]
mod settings;
#[cfg(feature = "kernel")]
mod show;
#[cfg(feature = "kernel")]
mod unmark;

#[cfg(feature = "kernel")]
pub(crate) use unmark::unmark;

use crate::args::{MarkOptions, MarkSettings};
use crate::failure::{Exit, Failure};
use crate::ui::Ui;
#[cfg(not(feature = "kernel"))]
use absent::{list, repair, serve, stats};
#[cfg(feature = "kernel")]
use counters::{list, repair, stats};
use options::Asked;
#[cfg(feature = "kernel")]
use serve::serve;

/// The version of the documents that these commands print.
#[cfg(feature = "kernel")]
const SCHEMA: u32 = 1;

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

/// A backend or a buffer alone would be a port that does nothing.
fn says_nothing(s: &MarkSettings) -> bool {
    let texts = [&s.rate, &s.classes, &s.marking, &s.threshold, &s.rtt, &s.vm];
    s.config.is_none() && texts.iter().all(|t| t.is_none()) && s.lambda.is_none() && s.phantom.is_none()
}
