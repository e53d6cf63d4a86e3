//! The pages over results: one for each figure with all its engines, one over all figures of the folder.

use super::figure::Figure;
use crate::args::ReproduceEngine;
use crate::commands::report::report_failure;
use crate::failure::{Failure, folder_failure};
use std::path::{Path, PathBuf};
use vmcc_report::{About, Outcome, Part};
use vmcc_results::Summary;
use vmcc_results::folder::{FolderError, read_summary};
use vmcc_scenario::papers;

/// A figure with what its folder has, by engine.
pub(super) struct Kept {
    name: String,
    shows: &'static str,
    errata: &'static [&'static str],
    results: Vec<(ReproduceEngine, Summary)>,
}

impl Kept {
    fn about(&self) -> About<'_> {
        About { name: &self.name, shows: self.shows, errata: self.errata }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let part = |(engine, summary)| Part {
            engine: ReproduceEngine::name(engine),
            outcome: Outcome::Ran(summary),
        };
        self.results.iter().map(|(engine, summary)| part((*engine, summary))).collect()
    }
}

/// Every figure of the papers with its results below `out`.
pub(super) fn kept(out: &Path) -> Result<Vec<Kept>, Failure> {
    let figures =
        papers::ALL.iter().flat_map(|paper| paper.figures.iter().map(move |figure| (paper, figure)));
    let one = |(paper, figure): (&papers::Paper, &papers::Figure)| {
        let name = format!("{}/{}", paper.key, figure.key);
        let results = results(out, &name)?;
        Ok(Kept { name, shows: figure.shows, errata: figure.errata, results })
    };
    figures.map(one).collect()
}

/// Results of a figure in `out`, by engine.
pub(super) fn results(out: &Path, name: &str) -> Result<Vec<(ReproduceEngine, Summary)>, Failure> {
    let mut results = Vec::new();
    for engine in ReproduceEngine::ALL {
        results.extend(read(&out.join(name).join(engine.name()))?.map(|summary| (engine, summary)));
    }
    Ok(results)
}

fn read(folder: &Path) -> Result<Option<Summary>, Failure> {
    match read_summary(folder) {
        Ok(summary) => Ok(Some(summary)),
        Err(FolderError::NotAResult(_)) => Ok(None),
        Err(error) => Err(folder_failure(&error, folder)),
    }
}

/// Draws the page of each figure that was just run, and the index, which has what earlier commands left in `out`, too.
pub(super) fn draw(ran: &[Figure], engine: ReproduceEngine, out: &Path) -> Result<PathBuf, Failure> {
    let kept = kept(out)?;
    let mut entries = Vec::new();
    for figure in &kept {
        let mut parts = figure.parts();
        let now = ran.iter().find(|now| now.name == figure.name);
        if let Some(refusal) = now.and_then(|now| now.outcome.as_ref().err()) {
            parts.push(Part { engine: engine.name(), outcome: Outcome::NotRun(&refusal.message) });
        }
        if now.is_some() && !figure.results.is_empty() {
            let folder = out.join(&figure.name);
            vmcc_report::write_figure(&folder, &figure.about(), &parts)
                .map_err(|error| report_failure(&error, &folder))?;
        }
        if !parts.is_empty() {
            entries.push((figure.about(), parts));
        }
    }
    vmcc_report::write_index(out, "Figures of papers, reproduced", &entries)
        .map_err(|error| report_failure(&error, out))
}

/// The claims of what is in `out`, of these figures, as a table of Markdown.
pub(super) fn table(out: &Path, names: Option<&[String]>) -> Result<String, Failure> {
    let kept = kept(out)?;
    let wanted =
        |figure: &&Kept| !figure.results.is_empty() && names.is_none_or(|names| names.contains(&figure.name));
    let figures: Vec<_> = kept.iter().filter(wanted).map(|figure| (figure.about(), figure.parts())).collect();
    let engines = ReproduceEngine::ALL.into_iter().filter(|engine| {
        let has =
            |(_, parts): &(About<'_>, Vec<Part<'_>>)| parts.iter().any(|part| part.engine == engine.name());
        figures.iter().any(has)
    });
    let engines: Vec<&str> = engines.map(ReproduceEngine::name).collect();
    if engines.is_empty() {
        return Err(Failure::usage(format!("{}: it has no results of these figures", out.display()))
            .help("give the --out of an earlier `vmcc reproduce`"));
    }
    Ok(vmcc_report::markdown(&figures, &engines))
}
