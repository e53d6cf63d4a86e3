//! Facts about a figure beside its results.

use maud::{Markup, html};
use vmcc_results::Summary;

/// A figure of a paper.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Its name, such as `vmcc/fig9`; its folder has that path below the index.
    pub name: &'a str,
    /// Subject of the figure.
    pub shows: &'a str,
    /// Contradictions in the paper about it.
    pub errata: &'a [&'a str],
}

/// Outcome of a figure on an engine.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// It was run.
    Ran(&'a Summary),
    /// It could not be run, and why.
    NotRun(&'a str),
}

/// A figure on one engine.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The engine: its results are in a folder of that name below the figure's.
    pub engine: &'a str,
    /// Its outcome.
    pub outcome: Outcome<'a>,
}

impl<'a> Part<'a> {
    /// Its results.
    pub fn summary(&self) -> Option<&'a Summary> {
        match self.outcome {
            Outcome::Ran(summary) => Some(summary),
            Outcome::NotRun(_) => None,
        }
    }
}

/// An engine's name for people.
pub(crate) fn engine_title(engine: &str) -> &str {
    match engine {
        "sim" => "simulator",
        "guest" => "kernel in a guest",
        other => other,
    }
}

/// Errors in the paper.
pub(crate) fn errata(errata: &[&str]) -> Markup {
    html! {
        @if !errata.is_empty() {
            details.errata open[errata.len() < 4] {
                summary { "Where the paper contradicts itself, or does not say (" (errata.len()) ")" }
                ul { @for one in errata { li { (one) } } }
            }
        }
    }
}
