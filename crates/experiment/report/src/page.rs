//! The page around tables and plots.

use crate::bars;
use crate::plots::Plots;
use crate::sides::verdict;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use vmcc_metrics::unit::digits;
use vmcc_results::figure::{
    Column, MAX_ENTRIES, case_name, claim_needs, claim_value, columns, common_settings, entries, mean_text,
    unfinished_note, varying_keys,
};
use vmcc_results::limits::limit_notes;
use vmcc_results::parquet_files::plain_text;
use vmcc_results::{ClaimResult, Summary};

const UPLOT_JS: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
pub(crate) const UPLOT_CSS: &str = include_str!("../assets/uplot/uPlot.min.css");
const REPORT_JS: &str = include_str!("../assets/report.js");
const REPORT_CSS: &str = include_str!("../assets/report.css");
/// Nothing may be loaded from anywhere: the browser itself enforces that the file is self-contained.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
/// Bars for more cases than this are a wall, not a comparison.
const MAX_BARS: usize = 16;

/// Head of every page; `css`: beside the report's own.
pub(crate) fn head(title: &str, css: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            meta name="color-scheme" content="light dark";
            link rel="icon" href="data:,";
            title { (title) " - vmcc" }
            style { (PreEscaped(css)) (PreEscaped(REPORT_CSS)) }
        }
    }
}

/// The whole file.
pub(crate) fn page(summary: &Summary, plots: &Plots, scenario: Option<&str>) -> String {
    let title = summary.title.as_deref().unwrap_or(&summary.scenario);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, UPLOT_CSS))
            body {
                (header(summary, title))
                main {
                    (warnings(summary))
                    (claims(&summary.claims))
                    (chooser(plots))
                    (comparison(summary, plots))
                    (distributions(plots, unfinished_note(summary)))
                    @if let Some(histogram) = &plots.off_times { (histogram.section("")) }
                    (lines("series", "Over time", !plots.series.is_empty(), case_choice(plots)))
                    (table(summary))
                    (traffic(summary))
                    (rerun(summary, scenario))
                }
                footer {
                    "Made by vmcc " (summary.environment.vmcc) ". Beside this file: " code { "summary.json" } ", "
                    code { "flows.parquet" } " and " code { "series.parquet" } " with everything shown here."
                }
                (document(plots))
            }
        }
    };
    page.into_string()
}

/// Data and library for the browser's drawing.
pub(crate) fn document(plots: &Plots) -> Markup {
    html! {
        script type="application/json" id="data" { (PreEscaped(json_for_script(plots))) }
        script { (PreEscaped(UPLOT_JS)) }
        script { (PreEscaped(REPORT_JS)) }
    }
}

/// The line above everything: `brand`, and the choice of the theme.
pub(crate) fn top(brand: Markup) -> Markup {
    html! {
        div.top {
            span.brand { (brand) }
            button #theme type="button" title="Switch between light and dark" { "◐" }
        }
    }
}

/// JSON that cannot end the script element it is put into.
fn json_for_script(plots: &Plots) -> String {
    // Plots are plain lists of numbers and texts; serialization has no way to fail on them.
    serde_json::to_string(plots).unwrap_or_else(|_| "null".to_owned()).replace('<', "\\u003c")
}

fn header(summary: &Summary, title: &str) -> Markup {
    let runs: usize = summary.cases.iter().map(|c| c.runs.len()).sum();
    let (hold, all) = ClaimResult::tally(&summary.claims);
    html! {
        header {
            (top(html! { "vmcc" }))
            h1 { (title) }
            ul.facts {
                li { "scenario " b { (summary.scenario) } }
                @if let Some(source) = &summary.source { li { "source " b { (source) } } }
                li { "engine " b { (summary.engine) } }
                @for setting in common_settings(summary) { li { b { (setting) } } }
                li { b { (summary.cases.len()) } " cases" }
                li { b { (runs) } " runs" }
                @if !summary.claims.is_empty() {
                    li class=(if hold == all { "pass" } else { "fail" }) {
                        b { (hold) " of " (all) } " claims hold"
                    }
                }
            }
        }
    }
}

fn warnings(summary: &Summary) -> Markup {
    html! {
        @for warning in &summary.warnings { p.note { (warning) } }
        @for note in limit_notes(summary) { p.note { (note) } }
    }
}

fn claims(claims: &[ClaimResult]) -> Markup {
    html! {
        @if !claims.is_empty() {
            section #claims {
                h2 { "Claims" }
                (claims_table(claims))
            }
        }
    }
}

/// Each claim with our number, the paper's, and why it fails.
fn claims_table(claims: &[ClaimResult]) -> Markup {
    let none = || "–".to_owned();
    html! {
        div.scroll { table {
            thead { tr { th { "Claim" } th { "Verdict" } th.number { "Ours" } th.number { "Needs" } th { "Paper" } th { "Check" } } }
            tbody {
                @for claim in claims {
                    tr {
                        td { (claim.id) }
                        td { (verdict(claim)) }
                        td.number { (claim_value(claim).unwrap_or_else(none)) }
                        td.number { (claim_needs(claim).unwrap_or_else(none)) }
                        td { (claim.paper.as_deref().unwrap_or("–")) }
                        td {
                            code { (claim.check) }
                            @for remark in claim.note.iter().chain(&claim.analysis) { br; small { (remark) } }
                        }
                    }
                }
            }
        } }
    }
}

/// Sweep lines when an axis is a number, else bars.
fn comparison(summary: &Summary, plots: &Plots) -> Markup {
    if !plots.sweeps.is_empty() {
        return sweeps(plots);
    }
    let Some(bars) = bars_of(summary, plots) else { return html! {} };
    html! { section #comparison { h2 { "Comparison" } (bars) } }
}

/// Lines over a numeric axis.
pub(crate) fn sweeps(plots: &Plots) -> Markup {
    let axis = plots.sweeps.first().map(|plot| plot.x.label.as_str()).unwrap_or_default();
    let intro = html! { p.hint { "Means over the runs of each case; bands are 95 % confidence intervals (Student's t)." } };
    lines("sweeps", &format!("Sweep over {axis}"), !plots.sweeps.is_empty(), intro)
}

/// Shares of values.
pub(crate) fn distributions(plots: &Plots, unfinished: Option<String>) -> Markup {
    lines(
        "distributions",
        "Distributions",
        !plots.distributions.is_empty(),
        html! {
            p.hint { "Share of values up to the one on the horizontal axis, all runs of a case together: of the flows that \
                      the table counts, without warm-up and competing ones. Hover for values, click a name to \
                      hide its line, Ctrl-click to see it alone, drag to zoom, double-click to reset." }
            @if let Some(note) = unfinished { p.note { (note) } }
        },
    )
}

/// Which lines are shown, where there would be too many.
pub(crate) fn chooser(plots: &Plots) -> Markup {
    html! {
        @if plots.choices.len() > 1 && plots.has_lines() {
            section #chooser {
                h2 { "Cases shown" }
                p.hint { "Of the lines below; downloads have the lines that are shown." }
                @for choice in &plots.choices {
                    label.choice { (choice.key) " "
                        select data-key=(choice.key) {
                            option value="" selected[choice.shown.is_none()] { "all" }
                            @for value in &choice.values {
                                option value=(value) selected[choice.shown.as_ref() == Some(value)] { (value) }
                            }
                        }
                    } " "
                }
            }
        }
    }
}

/// Cases beside each other, those of each setting apart where they are many. `None` where there is nothing to compare.
pub(crate) fn bars_of(summary: &Summary, plots: &Plots) -> Option<Markup> {
    if summary.cases.len() < 2 || !plots.sweeps.is_empty() {
        return None;
    }
    let groups = groups(summary, plots);
    let several = groups.len() > 1;
    // What a group has in common stands above it.
    let varying = varying_keys(summary);
    let told = |key: &&String| !several || plots.choices.iter().any(|c| c.key == **key && c.shown.is_none());
    let keys: Vec<String> = varying.iter().filter(told).cloned().collect();
    let names: Vec<String> = summary.cases.iter().map(|case| case_name(case, &keys)).collect();
    Some(html! {
        @if summary.cases.iter().any(|c| c.runs.len() > 1) {
            p.hint { "Means over the runs of each case; whiskers are 95 % confidence intervals (Student's t)." }
        }
        @for (number, (name, members)) in groups.iter().enumerate() {
            @let cards = html! { div.cards {
                @for column in columns(summary).iter().filter(|c| tells_apart(c, members)) {
                    (bars::card(column, &names, members))
                }
            } };
            @if several { details open[number == 0] { summary { (name) } (cards) } } @else { (cards) }
        }
    })
}

/// Indices of cases that are compared with each other, with what they have in common.
fn groups(summary: &Summary, plots: &Plots) -> Vec<(String, Vec<usize>)> {
    if summary.cases.len() <= MAX_BARS {
        return vec![(String::new(), (0..summary.cases.len()).collect())];
    }
    let fixed = || plots.choices.iter().filter(|choice| choice.shown.is_some());
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (index, case) in summary.cases.iter().enumerate() {
        let value = |key: &str| case.set.get(key).map(plain_text).unwrap_or_default();
        let name = fixed().map(|c| format!("{} {}", c.key, value(&c.key))).collect::<Vec<_>>().join(", ");
        match groups.iter_mut().find(|(other, _)| *other == name) {
            Some((_, members)) => members.push(index),
            None => groups.push((name, vec![index])),
        }
    }
    groups
}

/// A figure that is the same in every case needs no picture.
fn tells_apart(column: &Column, members: &[usize]) -> bool {
    let mut means = members.iter().map(|case| column.cells[*case].map(|c| c.mean));
    let first = means.next();
    means.any(|mean| Some(mean) != first)
}

fn lines(id: &str, title: &str, any: bool, intro: Markup) -> Markup {
    html! {
        @if any {
            section id=(id) {
                h2 { (title) }
                (intro)
                noscript { p.note { "These plots are drawn by a script inside this file, which is switched off." } }
                div.cards.plots {}
            }
        }
    }
}

fn case_choice(plots: &Plots) -> Markup {
    html! {
        p.hint { "The first run of one case. Values are means over the interval between points; dots without a line are \
                  events." }
        @if plots.cases.len() > 1 {
            label.choice { "Case "
                select #case { @for (i, case) in plots.cases.iter().enumerate() { option value=(i) { (case) } } }
            }
        }
    }
}

fn table(summary: &Summary) -> Markup {
    let keys = varying_keys(summary);
    let columns = columns(summary);
    html! {
        section #cases {
            h2 { "Cases" }
            div.scroll { table {
                thead { tr {
                    @for key in &keys { th { (key) } }
                    @for c in &columns { th.number { (c.title) @if !c.scale.unit.is_empty() { br; small { (c.scale.unit) } } } }
                    th.number { "runs" }
                } }
                tbody {
                    @for (row, case) in summary.cases.iter().enumerate() {
                        tr {
                            @for key in &keys { td { (case.set.get(key).map(plain_text).unwrap_or_default()) } }
                            @for c in &columns {
                                td.number { @if let Some(cell) = c.cells[row] { (mean_text(cell, c.scale)) } @else { "–" } }
                            }
                            td.number { (case.runs.len()) }
                        }
                    }
                }
            } }
        }
    }
}

/// The entries of traffic: a row for each in each case.
fn traffic(summary: &Summary) -> Markup {
    let (keys, entries) = (varying_keys(summary), entries(summary));
    let Some((_, columns)) = entries.first() else { return html! {} };
    html! {
        section #traffic {
            h2 { "Traffic" }
            @if entries.len() == MAX_ENTRIES { p.hint { "The first " (MAX_ENTRIES) " entries; all are in summary.json." } }
            div.scroll { table {
                thead { tr {
                    @for key in &keys { th { (key) } }
                    th { "entry" }
                    @for c in columns { th.number { (c.title) } }
                } }
                tbody {
                    @for (row, case) in summary.cases.iter().enumerate() {
                        @for (name, columns) in &entries {
                            tr {
                                @for key in &keys { td { (case.set.get(key).map(plain_text).unwrap_or_default()) } }
                                td { (name) }
                                @for c in columns {
                                    td.number { @if let Some(cell) = c.cells[row] { (mean_text(cell, c.scale)) " " small { (c.scale.unit) } } @else { "–" } }
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

/// Versions, machine, seeds and cost.
pub(crate) fn environment(summary: &Summary) -> Markup {
    let environment = &summary.environment;
    let seeds = summary.cases.first().map(|c| c.runs.iter().map(|r| r.seed.to_string()).collect::<Vec<_>>());
    let seeds = match seeds.as_deref() {
        Some([first, .., last]) => format!("{first} to {last}"),
        Some([only]) => only.clone(),
        _ => "–".to_owned(),
    };
    let optional = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".to_owned());
    let mut facts = vec![
        ("vmcc", environment.vmcc.clone()),
        ("Engine", summary.engine.clone()),
        ("Seeds", seeds),
        ("Kernel", optional(&environment.kernel)),
        ("System", environment.os.clone()),
        ("Processor", format!("{} ({} usable)", optional(&environment.cpu), environment.cpus)),
        ("Started", optional(&environment.started)),
    ];
    let work = &summary.work;
    facts.extend(work.packet_hops.map(|n| ("Packet-hops", n.to_string())));
    facts.extend(work.events.map(|n| ("Events", n.to_string())));
    facts.extend(work.cpu_s.map(|s| ("CPU time", format!("{} s", digits(s)))));
    facts.extend(work.peak_rss_bytes.map(|n| ("Peak memory", format!("{} MB", digits(n as f64 / 1e6)))));
    html! {
        dl {
            @for (name, value) in &facts { div { dt { (name) } dd { (value) } } }
            @for (name, value) in &environment.extra { div { dt { (name) } dd { (plain_text(value)) } } }
        }
    }
}

fn rerun(summary: &Summary, scenario: Option<&str>) -> Markup {
    html! {
        section #rerun {
            h2 { "Run it again" }
            @if let Some(command) = &summary.environment.command { pre { code { (command) } } }
            (environment(summary))
            @if let Some(text) = scenario {
                details { summary { "The scenario as it was run (before options of the command line)" } pre { code { (text) } } }
            }
        }
    }
}
