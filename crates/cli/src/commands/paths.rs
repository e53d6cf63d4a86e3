//! `vmcc paths`: which pairs of addresses carry packets to a server, and which of them are worth using together.

use crate::args::PathsOptions;
use crate::failure::{Exit, Failure, chain};
use crate::interrupt;
use crate::table;
use crate::ui::Ui;
use serde_json::{Value, json};
use std::time::Duration;
use vmcc_apps::probe::{self, Choice, Hop, ProbeError, ProbeStats, ProbedRoute, Verdict};

pub(crate) fn paths(options: &PathsOptions, ui: &Ui) -> Result<Exit, Failure> {
    let relays = super::relays::find(&options.relays)?;
    let stop = interrupt::listen()?;
    let routes = probe::probe_routes(&options.server, &options.locals, &relays, options.probes, stop)
        .map_err(|error| failure(&error))?;
    if routes.is_empty() {
        return Err(Failure::host(format!("no address of this host can be a path to {}", options.server))
            .help("bring an interface with an address of the same family up: `ip address`"));
    }
    let ranked = probe::rank(routes, Choice { most: options.most, beta: options.beta });
    let document: Vec<Value> = ranked.iter().map(|one| document(one, &ranked)).collect();
    ui.answer(&document, || text(&ranked));
    let any = ranked.iter().any(|(route, _)| route.estimate().is_some());
    Ok(if any { Exit::Done } else { Exit::HostCannot })
}

type Ranked = (ProbedRoute, Verdict);

/// Verdict on a path: chosen, or the reason for which it is not.
fn verdict((route, verdict): &Ranked, all: &[Ranked]) -> String {
    match (verdict, &route.stats) {
        (Verdict::Chosen, _) => "chosen".to_owned(),
        (Verdict::Overlaps(share, with), _) => {
            let (other, percent) = (&all[*with].0, share * 100.0);
            let by = other.relay.as_ref().map_or(String::new(), |relay| format!(" by {relay}"));
            format!("shares {percent:.0} % with {}{by} to {}", other.local, other.remote)
        }
        (Verdict::NotNeeded, _) => "enough without it".to_owned(),
        (Verdict::NoPath, Err(reason)) => reason.clone(),
        (Verdict::NoPath, Ok(_)) => "no answer".to_owned(),
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn hop(hop: &Hop) -> Value {
    json!({ "address": hop.address, "rtt_ms": hop.round_trip.map(milliseconds) })
}

fn document(one: &Ranked, all: &[Ranked]) -> Value {
    let route = &one.0;
    let stats = route.stats.as_ref().ok();
    let estimate = route.estimate();
    let overlap = match one.1 {
        Verdict::Overlaps(share, _) => Some(share),
        _ => None,
    };
    json!({
        "local": route.local, "interface": route.interface, "relay": route.relay, "remote": route.remote,
        "rtt_ms": estimate.map(|(rtt, _)| milliseconds(rtt)),
        "rtt_min_ms": stats.and_then(|stats| stats.round_trips.first().copied()).map(milliseconds),
        "loss": estimate.map(|(_, loss)| loss).or(stats.map(ProbeStats::loss)),
        "of_traffic": stats.is_some_and(|stats| stats.traffic.is_some()),
        "score": probe::score(route), "hops": route.hops().iter().map(hop).collect::<Vec<_>>(), "overlap": overlap,
        "path": estimate.is_some(), "chosen": one.1 == Verdict::Chosen, "verdict": verdict(one, all),
    })
}

fn text(ranked: &[Ranked]) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = ranked.iter().map(|one| {
        let (route, _) = one;
        let estimate = route.estimate();
        let hops = route.hops().len();
        vec![
            route.interface.clone(),
            route.local.to_string(),
            or_none(route.relay.clone()),
            route.remote.to_string(),
            or_none(estimate.map(|(rtt, _)| format!("{:.3}", milliseconds(rtt)))),
            or_none(estimate.map(|(_, loss)| format!("{:.1}", loss * 100.0))),
            or_none((hops > 0).then(|| hops.to_string())),
            or_none(probe::score(route).map(|score| format!("{score:.0}"))),
            verdict(one, ranked),
        ]
    });
    let mut table = table::plain(&[
        "interface",
        "from",
        "by",
        "to",
        "RTT ms",
        "loss %",
        "hops",
        "score pkt/s",
        "verdict",
    ]);
    table.add_rows(rows);
    table::align_right(&mut table, 4..8);
    table::render(&table)
}

/// A name that has no address.
pub(super) fn unknown(text: String) -> Failure {
    Failure::usage(text)
        .help("check the name, and that this host can look names up; an address does without that")
}

fn failure(error: &ProbeError) -> Failure {
    match error {
        ProbeError::Name(_) | ProbeError::Relay(_) => unknown(chain(error)),
        ProbeError::Interrupted => Failure::interrupted(chain(error)),
        _ => Failure::host(chain(error)),
    }
}
