//! One page over the figures of a folder: their claims on every engine, and a link to each one's page.

use crate::INDEX_FILE;
use crate::about::{self, About, Outcome, Part, engine_title};
use crate::page::head;
use crate::sides;
use maud::{DOCTYPE, Markup, html};
use vmcc_results::ClaimResult;

/// The whole file.
pub(crate) fn page(title: &str, figures: &[(About<'_>, Vec<Part<'_>>)]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, ""))
            body {
                header {
                    div.top { span.brand { "vmcc" } }
                    h1 { (title) }
                    (facts(figures))
                }
                main {
                    (contents(figures))
                    @for (about, parts) in figures { (section(about, parts)) }
                }
                footer { "Made by vmcc " (env!("CARGO_PKG_VERSION")) "." }
            }
        }
    };
    page.into_string()
}

/// Number of claims that hold, and of all that an engine checked.
fn hold(parts: &[Part<'_>], engine: &str) -> Option<(usize, usize)> {
    let summary = parts.iter().find(|part| part.engine == engine)?.summary()?;
    Some(ClaimResult::tally(&summary.claims))
}

fn engines<'a>(figures: &[(About<'_>, Vec<Part<'a>>)]) -> Vec<&'a str> {
    let mut engines: Vec<&str> = Vec::new();
    for part in figures.iter().flat_map(|(_, parts)| parts) {
        if !engines.contains(&part.engine) {
            engines.push(part.engine);
        }
    }
    engines
}

fn facts(figures: &[(About<'_>, Vec<Part<'_>>)]) -> Markup {
    html! {
        ul.facts {
            li { b { (figures.len()) } (if figures.len() == 1 { " figure" } else { " figures" }) }
            @for engine in engines(figures) {
                @let counts = || figures.iter().filter_map(|(_, parts)| hold(parts, engine));
                @let (passed, all) = counts().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                li class=(if passed == all { "pass" } else { "fail" }) {
                    (engine_title(engine)) " " b { (passed) " of " (all) } " claims hold"
                }
            }
        }
    }
}

fn contents(figures: &[(About<'_>, Vec<Part<'_>>)]) -> Markup {
    let engines = engines(figures);
    html! {
        div.scroll { table {
            thead { tr {
                th { "Figure" } th { "Shows" }
                @for engine in &engines { th.number { (engine_title(engine)) } }
            } }
            tbody { @for (about, parts) in figures { tr {
                td { a href=(format!("{}/{INDEX_FILE}", about.name)) { (about.name) } }
                td { (about.shows) }
                @for engine in &engines {
                    td.number { @match hold(parts, engine) {
                        Some((passed, all)) => { (passed) " of " (all) },
                        None => { "–" },
                    } }
                }
            } } }
        } }
    }
}

fn section(about: &About<'_>, parts: &[Part<'_>]) -> Markup {
    let title = parts.iter().filter_map(Part::summary).find_map(|summary| summary.title.as_deref());
    html! {
        section {
            h2 { a href=(format!("{}/{INDEX_FILE}", about.name)) { (about.name) } ": " (title.unwrap_or(about.shows)) }
            (about::errata(about.errata))
            @if parts.iter().any(|part| part.summary().is_some()) { (sides::table(parts)) }
            @for part in parts { @match part.outcome {
                Outcome::Ran(summary) => {
                    @if let Some(command) = &summary.environment.command { pre { code { (command) } } }
                },
                Outcome::NotRun(reason) => { p.note { (engine_title(part.engine)) ": not run: " (reason) } },
            } }
        }
    }
}
