//! Claims of a figure on several engines, side by side: as a table of a page, and as Markdown.

use crate::about::{About, Part, engine_title};
use maud::{Markup, html};
use vmcc_results::ClaimResult;
use vmcc_results::figure::{claim_needs, claim_value};

/// Text of a cell without a value.
const NONE: &str = "–";

/// One claim, and what came of it on each engine that has it.
struct Row<'a> {
    id: &'a str,
    results: Vec<Option<&'a ClaimResult>>,
}

impl<'a> Row<'a> {
    fn any(&self) -> impl Iterator<Item = &'a ClaimResult> {
        self.results.iter().flatten().copied()
    }

    fn paper(&self) -> &'a str {
        self.any().find_map(|claim| claim.paper.as_deref()).unwrap_or(NONE)
    }

    /// The bound on the value, where the check has a single one.
    fn needs(&self) -> Option<String> {
        self.any().find_map(claim_needs)
    }

    /// The bound on the value, or the whole check.
    fn condition(&self) -> String {
        let check = || self.any().next().map_or_else(String::new, |claim| format!("`{}`", claim.check));
        self.needs().unwrap_or_else(check)
    }
}

/// Every claim once, in the order of the engines' results.
fn rows<'a>(parts: &[Part<'a>]) -> Vec<Row<'a>> {
    let claims = |part: &Part<'a>| part.summary().map_or(&[][..], |summary| &summary.claims[..]);
    let mut rows: Vec<Row<'a>> = Vec::new();
    for claim in parts.iter().flat_map(claims) {
        if rows.iter().any(|row| row.id == claim.id) {
            continue;
        }
        let of = |part: &Part<'a>| claims(part).iter().find(|other| other.id == claim.id);
        rows.push(Row { id: &claim.id, results: parts.iter().map(of).collect() });
    }
    rows
}

/// Each claim with the paper's number and each engine's, and why it fails.
pub(crate) fn table(parts: &[Part<'_>]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th { "Claim" } th { "Paper" }
                @for part in parts { th.number { (engine_title(part.engine)) } }
                th.number { "Needs" } th { "Check" }
            } }
            tbody { @for row in rows(parts) { (table_row(&row)) } }
        } }
    }
}

fn table_row(row: &Row<'_>) -> Markup {
    let needs = row.needs().unwrap_or_else(|| NONE.to_owned());
    let mut remarks: Vec<&str> = Vec::new();
    for remark in row.any().flat_map(|claim| claim.note.iter().chain(&claim.analysis)) {
        if !remarks.contains(&remark.as_str()) {
            remarks.push(remark);
        }
    }
    html! {
        tr {
            td { (row.id) }
            td { (row.paper()) }
            @for result in &row.results { td.number { (cell(*result)) } }
            td.number { (needs) }
            td {
                @if let Some(claim) = row.any().next() { code { (claim.check) } }
                @for remark in remarks { br; small { (remark) } }
            }
        }
    }
}

fn cell(result: Option<&ClaimResult>) -> Markup {
    html! {
        @if let Some(claim) = result {
            @if let Some(value) = claim_value(claim) { (value) br; }
            (verdict(claim))
        } @else { (NONE) }
    }
}

/// Pass, fail, or neither.
pub(crate) fn verdict(claim: &ClaimResult) -> Markup {
    let (class, word) = match claim {
        ClaimResult { unmeasured: true, .. } => ("unmeasured", "not measured here"),
        ClaimResult { pass: true, .. } => ("pass", "pass"),
        _ => ("fail", "fail"),
    };
    html! { span class=(format!("badge {class}")) { (word) } }
}

/// The claims of figures as one table of Markdown: figure, claim, the paper's number, each engine's.
pub fn markdown(figures: &[(About<'_>, Vec<Part<'_>>)], engines: &[&str]) -> String {
    let titles: Vec<&str> = engines.iter().map(|engine| engine_title(engine)).collect();
    let mut lines = vec![
        format!("| figure | claim | paper | condition | {} |", titles.join(" | ")),
        format!("|---|---|---|---|{}", "---|".repeat(engines.len())),
    ];
    for (about, parts) in figures {
        let parts: Vec<Part<'_>> =
            engines.iter().filter_map(|e| parts.iter().find(|p| p.engine == *e)).copied().collect();
        for row in rows(&parts) {
            let of = |engine: &&str| {
                let place = parts.iter().position(|part| part.engine == *engine)?;
                row.results[place]
            };
            let cells: Vec<String> = engines.iter().map(|engine| words(of(engine))).collect();
            lines.push(format!(
                "| {} | {} | {} | {} | {} |",
                about.name,
                plain(row.id),
                plain(row.paper()),
                plain(&row.condition()),
                cells.join(" | ")
            ));
        }
    }
    lines.join("\n")
}

fn words(result: Option<&ClaimResult>) -> String {
    let Some(claim) = result else { return NONE.to_owned() };
    if claim.unmeasured {
        return "not measured here".to_owned();
    }
    let value = claim_value(claim).unwrap_or_default();
    match (claim.pass, value.is_empty()) {
        (true, true) => "holds".to_owned(),
        (true, false) => value,
        (false, true) => "**fails**".to_owned(),
        (false, false) => format!("**fails**: {value}"),
    }
}

/// A text that cannot end its cell.
fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::about::Outcome;
    use vmcc_results::Summary;

    fn summary(claims: &[(&str, Option<f64>, bool)]) -> Summary {
        let claim = |&(id, value, pass): &(&str, Option<f64>, bool)| {
            serde_json::json!({ "id": id, "check": "x > 1", "value": value, "pass": pass, "paper": "2 | 3 times",
                                "analysis": (!pass).then_some("too slow") })
        };
        let claims: Vec<_> = claims.iter().map(claim).collect();
        serde_json::from_value(serde_json::json!({
            "schema": 1, "scenario": "x", "engine": "sim", "cases": [], "work": {}, "claims": claims,
            "environment": { "vmcc": "0", "os": "linux", "cpus": 1 },
        }))
        .unwrap()
    }

    #[test]
    fn claim_has_a_cell_for_each_engine() {
        let (sim, kernel) = (
            summary(&[("first", Some(1.5), true), ("second", Some(0.5), false)]),
            summary(&[("second", None, true), ("third", Some(2.0), true)]),
        );
        let about = About { name: "p/fig1", shows: "x", errata: &[] };
        let parts = vec![
            Part { engine: "kernel", outcome: Outcome::Ran(&kernel) },
            Part { engine: "sim", outcome: Outcome::Ran(&sim) },
        ];
        let table = markdown(&[(about, parts.clone())], &["sim", "kernel"]);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| p/fig1 | first | 2 \\| 3 times | `x > 1` | 1.50 | – |",
                "| p/fig1 | second | 2 \\| 3 times | `x > 1` | **fails**: 0.500 | holds |",
                "| p/fig1 | third | 2 \\| 3 times | `x > 1` | – | 2.00 |",
            ]
        );
        let odd = summary(&[("a|b\r\nc", Some(1.0), true)]);
        let odd = [Part { engine: "sim", outcome: Outcome::Ran(&odd) }].to_vec();
        let about = About { name: "p/fig1", shows: "x", errata: &[] };
        let table = markdown(&[(about, odd)], &["sim"]);
        assert_eq!(
            table.split('\n').skip(2).collect::<Vec<_>>(),
            ["| p/fig1 | a\\|b  c | 2 \\| 3 times | `x > 1` | 1.00 |"]
        );
        let html = super::table(&parts).into_string();
        assert_eq!((html.matches("badge pass").count(), html.matches("badge fail").count()), (3, 1));
        assert!(html.contains("too slow"));
    }
}
