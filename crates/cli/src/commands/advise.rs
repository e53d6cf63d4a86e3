//! `vmcc advise`: whether several paths help an application here, with which settings, and why there is only one.

use crate::args::{AdviseOptions, ApplicationChoice};
use crate::failure::{Exit, Failure, chain};
use crate::interrupt;
use crate::table;
use crate::ui::Ui;
use serde::Serialize;
use vmcc_advise::facts::{Application, Kind, Route};
use vmcc_advise::gather::{self, GatherError, Request, Watch};
use vmcc_advise::{Advice, Facts, Gain, Scope, Verdict};

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    advice: &'a Advice,
    facts: &'a Facts,
}

pub(crate) fn advise(options: &AdviseOptions, ui: &Ui) -> Result<Exit, Failure> {
    let peer = options.to.as_ref().map(|peer| peer.host.clone());
    let request = Request {
        application: application(options, peer.clone(), ui)?,
        port: options.to.as_ref().and_then(|peer| peer.port),
        peer,
        rates_bps: options.rates.iter().map(|(nic, rate)| (nic.clone(), rate.get())).collect(),
    };
    let facts = gather::gather(&request).map_err(|error| failure(&error))?;
    let advice = vmcc_advise::advise(&facts);
    ui.answer(&Document { advice: &advice, facts: &facts }, || text(&advice, &facts));
    Ok(Exit::Done)
}

/// The application as watched; options go before what is seen.
fn application(options: &AdviseOptions, peer: Option<String>, ui: &Ui) -> Result<Application, Failure> {
    let mut application = Application::default();
    if let Some(time) = options.watch {
        let stop = interrupt::listen()?;
        ui.note(&format!("watching connections for {time}; Ctrl-C ends it earlier"));
        let watch = Watch { peer, duration: time.to_duration() };
        match gather::watch(&watch, stop).map_err(|error| failure(&error))? {
            Some(seen) => application = seen,
            None => ui.warn("no connection carried anything meanwhile; connections of other network namespaces are not seen from here"),
        }
    }
    let given = options.application.map(|kind| match kind {
        ApplicationChoice::Bulk => Kind::Bulk,
        ApplicationChoice::RequestResponse => Kind::RequestResponse,
    });
    let of_size = options.size.map(|_| Kind::Bulk);
    application.kind = given.or(application.kind).or(of_size);
    application.size_bytes = options.size.map(|size| size.get()).or(application.size_bytes);
    application.concurrency = options.concurrency.or(application.concurrency);
    application.demand_bps = options.demand.map(|rate| rate.get()).or(application.demand_bps);
    Ok(application)
}

fn failure(error: &GatherError) -> Failure {
    let text = chain(error);
    let failure = if error.is_bad_request() { Failure::usage(text) } else { Failure::host(text) };
    match error.remedy() {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

fn text(advice: &Advice, facts: &Facts) -> String {
    let mut parts = vec![verdict(advice, facts)];
    parts.push(causes(advice, facts));
    parts.extend(paths(facts));
    if !advice.settings.is_empty() {
        parts.push(settings(advice));
    }
    if !advice.other_end.is_empty() {
        parts.push(list("the other end needs", advice.other_end.iter().map(String::as_str)));
    }
    parts.push(format!("the agent's file for it (`vmcc up --config FILE`):\n\n{}", advice.file));
    parts.join("\n\n")
}

fn list<'a>(head: &str, lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<String> = lines.map(|line| format!("\n  {line}")).collect();
    format!("{head}:{}", lines.concat())
}

fn verdict(advice: &Advice, facts: &Facts) -> String {
    let head = match advice.verdict {
        Verdict::Helps => "several paths help",
        Verdict::Survival => "several paths give no more goodput; connections survive a failed path",
        Verdict::No => "several paths do not help",
        Verdict::Unknown => "whether several paths help is not known yet",
    };
    let scope = match (advice.scope, advice.verdict) {
        (Scope::Everything, _) => "; use them for all connections",
        (Scope::Selective, Verdict::Helps | Verdict::Survival) => "; use them for chosen programs",
        _ => "",
    };
    let gain = advice.gain.filter(|_| advice.verdict != Verdict::No).map(gain);
    let mut text =
        format!("{head}{}{scope}\napplication: {}", gain.unwrap_or_default(), seen(&facts.application));
    for reason in &advice.reasons {
        let evidence = reason.evidence.map(|place| format!(" ({place})"));
        text.push_str(&format!("\n  {}{}", reason.text, evidence.unwrap_or_default()));
    }
    text
}

fn gain(gain: Gain) -> String {
    let Gain { low, expected, high } = gain;
    match expected {
        Some(expected) => format!(": {expected:.2} times TCP's goodput ({low:.2} to {high:.2})"),
        None => format!(": between {low:.2} and {high:.2} times TCP's goodput"),
    }
}

fn seen(application: &Application) -> String {
    let kind = match application.kind {
        Some(Kind::Bulk) => "bulk",
        Some(Kind::RequestResponse) => "request-response",
        None => "not known",
    };
    let size = application.size_bytes.map(|size| format!(", {}", vmcc_units::Bytes::new(size)));
    let concurrency = application.concurrency.map(|count| format!(", {count} at a time"));
    let mixed = if application.mixed { ", bulk beside small messages" } else { "" };
    [kind, &size.unwrap_or_default(), &concurrency.unwrap_or_default(), mixed].concat()
}

fn causes(advice: &Advice, facts: &Facts) -> String {
    let lines: Vec<String> =
        advice.causes.iter().map(|cause| format!("\n  {}\n    help: {}", cause.text, cause.remedy)).collect();
    let probed = facts.peer.as_ref().is_some_and(|peer| peer.probe.is_some());
    match (advice.works_now, lines.is_empty()) {
        (true, true) => "several paths work now".to_owned(),
        (true, false) => format!("several paths work now, but:{}", lines.concat()),
        (false, false) => format!("only one path now, because:{}", lines.concat()),
        (false, true) if probed => {
            "only one path now; no cause was found: `vmcc doctor` checks the kernel".to_owned()
        }
        (false, true) => {
            "no obstacle is set here; `--to HOST:PORT` opens a connection and counts its paths".to_owned()
        }
    }
}

/// Pairs of addresses, or interfaces where there is no peer.
fn paths(facts: &Facts) -> Option<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rate = |name: &str| {
        let nic = facts.nics.iter().find(|nic| nic.name == name);
        or_none(nic.and_then(|nic| nic.rate_bps).map(|rate| vmcc_units::BitsPerSec::new(rate).to_string()))
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for path in &facts.paths {
        let route = match &path.route {
            Route::Own { gateway } | Route::Bound { gateway } => {
                gateway.map_or("on the link".to_owned(), |via| format!("via {via}"))
            }
            Route::Other { nic, .. } => format!("leaves by {nic}"),
            Route::None => "none".to_owned(),
        };
        let rtt = path.rtt_us.map(|us| format!("{:.3}", us as f64 / 1e3));
        let again = path.retransmitted.map(|share| format!("{:.2}", share * 100.0));
        rows.push(vec![
            path.nic.clone(),
            path.local.to_string(),
            path.remote.to_string(),
            route,
            rate(&path.nic),
            or_none(rtt),
            or_none(again),
        ]);
    }
    if facts.peer.is_none() {
        for nic in &facts.nics {
            let addresses = nic.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let state = if nic.running { "up" } else { "down" };
            let dash = || "-".to_owned();
            rows.push(vec![
                nic.name.clone(),
                addresses,
                dash(),
                state.to_owned(),
                rate(&nic.name),
                dash(),
                dash(),
            ]);
        }
    }
    let mut table = table::plain(&["NIC", "FROM", "TO", "ROUTE", "RATE", "RTT ms", "SENT AGAIN %"]);
    let any = !rows.is_empty();
    table.add_rows(rows);
    table::align_right_from(&mut table, 4);
    any.then(|| table::render_keyed(&table, 2))
}

fn settings(advice: &Advice) -> String {
    let mut table = table::plain(&["SET", "TO", "NOW", "BECAUSE"]);
    for setting in &advice.settings {
        let now = setting.now.as_deref().unwrap_or("-");
        let evidence = setting.evidence.map(|place| format!(" ({place})")).unwrap_or_default();
        table.add_row([setting.name, &setting.value, now, &format!("{}{evidence}", setting.reason)]);
    }
    table::render(&table)
}
