//! The page of one figure: its claims and plots on every engine that ran it, side by side.

use crate::about::{self, About, Outcome, Part, engine_title};
use crate::page::{self, document, head};
use crate::plots::Plots;
use crate::{REPORT_FILE, sides};
use maud::{DOCTYPE, Markup, html};
use vmcc_results::{ClaimResult, Summary};

/// The whole file; `plots` are of the engines that ran it.
pub(crate) fn page(about: &About<'_>, parts: &[Part<'_>], plots: Vec<(&str, Plots)>) -> String {
    let summaries: Vec<&Summary> = parts.iter().filter_map(Part::summary).collect();
    let title = summaries.iter().find_map(|s| s.title.as_deref()).unwrap_or(about.shows);
    let bars: Vec<_> = parts
        .iter()
        .filter_map(|part| {
            let (_, plots) = plots.iter().find(|(engine, _)| *engine == part.engine)?;
            Some((part.engine, page::bars_of(part.summary()?, plots)))
        })
        .collect();
    let off_times = plots.iter().filter_map(|(engine, plots)| {
        plots.off_times.as_ref().map(|times| times.section(&format!(", {}", engine_title(engine))))
    });
    let off_times: Vec<Markup> = off_times.collect();
    let merged = Plots::side_by_side(plots.into_iter().map(|(e, plots)| (engine_title(e), plots)).collect());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{}: {title}", about.name), page::UPLOT_CSS))
            body {
                header {
                    (page::top(html! { a href="../../index.html" { "vmcc" } }))
                    h1 { (about.name) ": " (title) }
                    (facts(parts))
                }
                main {
                    (about::errata(about.errata))
                    section #claims { h2 { "Claims" } (sides::table(parts)) }
                    (page::chooser(&merged))
                    @for (engine, bars) in bars { @if let Some(bars) = bars {
                        section { h2 { "Comparison, " (engine_title(engine)) } (bars) }
                    } }
                    (page::sweeps(&merged))
                    (page::distributions(&merged, None))
                    @for times in off_times { (times) }
                    @for part in parts { (engine_section(part)) }
                }
                footer { "Made by vmcc " (env!("CARGO_PKG_VERSION")) "." }
                (document(&merged))
            }
        }
    };
    page.into_string()
}

fn facts(parts: &[Part<'_>]) -> Markup {
    html! {
        ul.facts {
            @for part in parts {
                @if let Some(summary) = part.summary() {
                    @let (hold, all) = ClaimResult::tally(&summary.claims);
                    li class=(if hold == all { "pass" } else { "fail" }) {
                        (engine_title(part.engine)) " " b { (hold) " of " (all) } " claims hold"
                    }
                }
            }
        }
    }
}

/// Command and machine of an engine's part, with a link to all of it.
fn engine_section(part: &Part<'_>) -> Markup {
    let title = engine_title(part.engine);
    match part.outcome {
        Outcome::NotRun(reason) => html! { section { h2 { (title) } p.note { "Not run: " (reason) } } },
        Outcome::Ran(summary) => html! {
            section {
                h2 { (title) }
                p { a href=(format!("{}/{REPORT_FILE}", part.engine)) { "All its cases, over time and as a table" } }
                @for warning in &summary.warnings { p.note { (warning) } }
                @if let Some(command) = &summary.environment.command { pre { code { (command) } } }
                (page::environment(summary))
            }
        },
    }
}
