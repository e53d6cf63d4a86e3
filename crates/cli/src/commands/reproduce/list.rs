//! The papers and their figures, with what there is of each.

use super::pages;
use crate::failure::{Exit, Failure, scenario_failure};
use crate::table;
use crate::ui::Ui;
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use vmcc_results::{ClaimResult, Summary};
use vmcc_scenario::papers::{self, Figure, Paper};
use vmcc_scenario::{Document, Overrides};

#[derive(Serialize)]
struct Entry {
    paper: &'static str,
    figure: &'static str,
    shows: &'static str,
    /// Reason for which there can be no scenario of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    without: Option<&'static str>,
    /// Claims of its scenario; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<usize>,
    /// By engine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    results: Vec<Last>,
}

/// The result that the folder has.
#[derive(Serialize)]
struct Last {
    engine: String,
    passed: usize,
    claims: usize,
}

pub(super) fn list(out: Option<&Path>, ui: &Ui) -> Result<Exit, Failure> {
    let mut entries = Vec::new();
    for paper in papers::ALL {
        for figure in paper.figures {
            entries.push(entry(paper, figure, out)?);
        }
    }
    let titles: Vec<_> = papers::ALL.iter().map(|p| json!({ "paper": p.key, "title": p.title })).collect();
    ui.answer(&json!({ "papers": titles, "figures": entries }), || text(&entries));
    Ok(Exit::Done)
}

fn entry(paper: &Paper, figure: &Figure, out: Option<&Path>) -> Result<Entry, Failure> {
    let scenario = paper.scenario(figure);
    let plan = |name| Document::open(name).and_then(|document| document.plan(&Overrides::default()));
    let plan = scenario.map(|s| plan(s.name)).transpose().map_err(|e| scenario_failure(&e))?;
    let name = format!("{}/{}", paper.key, figure.key);
    let results = out.map(|out| pages::results(out, &name)).transpose()?.unwrap_or_default();
    Ok(Entry {
        paper: paper.key,
        figure: figure.key,
        shows: figure.shows,
        without: figure.without,
        claims: plan.map(|plan| plan.claims.len()),
        results: results.into_iter().map(|(_, summary)| last(summary)).collect(),
    })
}

fn last(summary: Summary) -> Last {
    let (passed, claims) = ClaimResult::tally(&summary.claims);
    Last { engine: summary.engine, passed, claims }
}

fn text(entries: &[Entry]) -> String {
    let papers = papers::ALL.iter().map(|paper| {
        let mut table = table::plain(&["FIGURE", "STATE", "SHOWS"]);
        for entry in entries.iter().filter(|entry| entry.paper == paper.key) {
            table.add_row([
                format!("{}/{}", entry.paper, entry.figure),
                state(entry),
                entry.shows.to_owned(),
            ]);
        }
        format!("{}: {}\n\n{}", paper.key, paper.title, table::render(&table))
    });
    papers.collect::<Vec<_>>().join("\n\n")
}

fn state(entry: &Entry) -> String {
    let held = |last: &Last| format!("{} of {} claims hold ({})", last.passed, last.claims, last.engine);
    match (entry.results.as_slice(), entry.claims) {
        ([], Some(1)) => "1 claim".to_owned(),
        ([], Some(claims)) => format!("{claims} claims"),
        ([], None) => entry.without.map_or("no scenario yet".to_owned(), |why| format!("none: {why}")),
        (results, _) => results.iter().map(held).collect::<Vec<_>>().join(", "),
    }
}
