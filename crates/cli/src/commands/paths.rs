//! `vmcc paths`: which pairs of addresses carry packets to a server.

use crate::args::PathsOptions;
use crate::failure::{Exit, Failure, chain};
use crate::interrupt;
use crate::table;
use crate::ui::Ui;
use serde_json::{Value, json};
use std::time::Duration;
use vmcc_tunnel::ways::{self, Way, WaysError};

pub(crate) fn paths(options: &PathsOptions, ui: &Ui) -> Result<Exit, Failure> {
    let stop = interrupt::listen()?;
    let ways = ways::ways(&options.server, &options.locals, options.probes, stop)
        .map_err(|error| failure(&error))?;
    if ways.is_empty() {
        return Err(Failure::host(format!("no address of this host can be a path to {}", options.server))
            .help("bring an interface with an address of the same family up: `ip address`"));
    }
    let document: Vec<Value> = ways.iter().map(document).collect();
    ui.answer(&document, || text(&ways));
    let any = ways.iter().any(is_path);
    Ok(if any { Exit::Done } else { Exit::HostCannot })
}

fn is_path(way: &Way) -> bool {
    way.seen.as_ref().is_ok_and(|seen| !seen.round_trips.is_empty())
}

/// Why it is one, or is none.
fn verdict(way: &Way) -> String {
    match &way.seen {
        Err(reason) => reason.clone(),
        Ok(_) if is_path(way) => "a path".to_owned(),
        Ok(_) => "no answer".to_owned(),
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn document(way: &Way) -> Value {
    let seen = way.seen.as_ref().ok();
    let median = seen.and_then(|seen| seen.median()).map(milliseconds);
    json!({
        "local": way.local, "interface": way.interface, "remote": way.remote,
        "rtt_ms": median, "rtt_min_ms": seen.and_then(|seen| seen.round_trips.first().copied()).map(milliseconds),
        "loss": seen.map(|seen| seen.loss()), "path": is_path(way), "verdict": verdict(way),
    })
}

fn text(ways: &[Way]) -> String {
    let rows = ways.iter().map(|way| {
        let seen = way.seen.as_ref().ok().filter(|_| is_path(way));
        let time =
            |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{:.3}", milliseconds(time)));
        vec![
            way.interface.clone(),
            way.local.to_string(),
            way.remote.to_string(),
            time(seen.and_then(|seen| seen.round_trips.first().copied())),
            time(seen.and_then(|seen| seen.median())),
            seen.map_or("-".to_owned(), |seen| format!("{:.0}", seen.loss() * 100.0)),
            verdict(way),
        ]
    });
    let mut table =
        table::plain(&["interface", "from", "to", "RTT min ms", "median ms", "loss %", "verdict"]);
    table.add_rows(rows);
    table::align_right(&mut table, 3..6);
    table::render(&table)
}

/// A name that has no address.
pub(super) fn unknown(text: String) -> Failure {
    Failure::usage(text)
        .help("check the name, and that this host can look names up; an address does without that")
}

fn failure(error: &WaysError) -> Failure {
    match error {
        WaysError::Name(_) => unknown(chain(error)),
        WaysError::Interrupted => Failure::interrupted(chain(error)),
        _ => Failure::host(chain(error)),
    }
}
