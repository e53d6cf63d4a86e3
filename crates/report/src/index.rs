//! One page over the result folders of several figures: their claims, and a link to each one's report.

use crate::REPORT_FILE;
use crate::page::{claims_table, head};
use maud::{DOCTYPE, Markup, html};
use vmcc_results::Summary;

/// A figure on the page.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its name, such as `vmcc/fig9`; its result folder has that path below the page.
    pub name: &'a str,
    /// What came of it.
    pub outcome: Outcome<'a>,
}

/// What came of a figure.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// It was run.
    Ran(&'a Summary),
    /// It could not be run, and why.
    NotRun(&'a str),
}

/// The whole file.
pub(crate) fn page(title: &str, entries: &[Entry<'_>]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, ""))
            body {
                header {
                    div.top { span.brand { "vmcc" } }
                    h1 { (title) }
                    (facts(entries))
                }
                main { @for entry in entries { (section(entry)) } }
                footer { "Made by vmcc " (env!("CARGO_PKG_VERSION")) "." }
            }
        }
    };
    page.into_string()
}

fn facts(entries: &[Entry<'_>]) -> Markup {
    let claims: Vec<bool> =
        entries.iter().filter_map(summary).flat_map(|s| s.claims.iter().map(|c| c.pass)).collect();
    let passed = claims.iter().filter(|pass| **pass).count();
    html! {
        ul.facts {
            li { b { (entries.len()) } (if entries.len() == 1 { " figure" } else { " figures" }) }
            li class=(if passed == claims.len() { "pass" } else { "fail" }) {
                b { (passed) " of " (claims.len()) } " claims hold"
            }
        }
    }
}

fn summary<'a>(entry: &Entry<'a>) -> Option<&'a Summary> {
    match entry.outcome {
        Outcome::Ran(summary) => Some(summary),
        Outcome::NotRun(_) => None,
    }
}

fn section(entry: &Entry<'_>) -> Markup {
    let name = entry.name;
    html! {
        section {
            @match entry.outcome {
                Outcome::Ran(summary) => {
                    h2 {
                        a href=(format!("{name}/{REPORT_FILE}")) { (name) }
                        @if let Some(title) = &summary.title { ": " (title) }
                    }
                    (claims_table(&summary.claims))
                    @if let Some(command) = &summary.environment.command { pre { code { (command) } } }
                }
                Outcome::NotRun(reason) => {
                    h2 { (name) }
                    p.note { "Not run: " (reason) }
                }
            }
        }
    }
}
