//! `vmcc run` and `vmcc demo`.

use crate::args::{RunOptions, ScaleChoice};
use crate::commands::report::report_failure;
use crate::failure::{Exit, Failure, folder_failure, scenario_failure};
use crate::interrupt;
use crate::run::engine::{self, Engine};
use crate::run::environment::{self, environment};
use crate::run::execute::{Execution, Stopped, indices};
use crate::run::progress::Progress;
use crate::run::{claims, command, conclusion, overview, storage};
use crate::ui::Ui;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmcc_results::figure::unfinished_note;
use vmcc_results::folder::{FolderError, PartialFolder, RunIndex, StoredRun};
use vmcc_results::{Case, Run, SCHEMA_VERSION, Summary, Work};
use vmcc_scenario::{Document, Overrides, Plan, Scale};

/// Name of the copy of the scenario inside a result folder.
const SCENARIO_FILE: &str = "scenario.toml";

pub(crate) fn run(options: &RunOptions, ui: &Ui) -> Result<Exit, Failure> {
    let document = Document::open(&options.scenario).map_err(|e| scenario_failure(&e))?;
    let plan = document.plan(&overrides(options)).map_err(|e| scenario_failure(&e))?;
    let engine = engine::choose(options.common.engine, &plan, ui)?;
    let (target, folder) = storage::open(options, &plan, engine.name(), ui)?;
    let session = Session { options, plan: &plan, engine: engine.as_ref(), target: &target, ui };
    let mut finished = folder.as_ref().map(|f| f.finished().clone()).unwrap_or_default();
    session.announce(finished.len());
    let cpu_before = environment::process_cpu_s();
    let resumed_cpu_s: f64 = finished.values().filter_map(|r| r.work.cpu_s).sum();
    if let Err(stopped) = session.execute(folder.as_ref(), &mut finished) {
        return Err(session.stopped(stopped, folder, finished.len()));
    }
    let spent =
        environment::process_cpu_s().zip(cpu_before).map(|(now, before)| now - before + resumed_cpu_s);
    let summary = session.summarize(&finished, spent);
    let published = match folder {
        Some(folder) => Some(session.publish(folder, &summary, document.text())?),
        None => None,
    };
    ui.answer(&summary, || session.text(&summary, published.as_deref()));
    Ok(if summary.claims.iter().all(|c| c.pass) { Exit::Done } else { Exit::CheckFailed })
}

fn overrides(options: &RunOptions) -> Overrides {
    Overrides {
        set: options.common.set.clone(),
        scale: match options.common.scale {
            ScaleChoice::Full => Scale::Full,
            ScaleChoice::Small => Scale::Small,
        },
        seed: options.common.seed,
        runs: options.common.runs,
    }
}

/// One `vmcc run`.
struct Session<'a> {
    options: &'a RunOptions,
    plan: &'a Plan,
    engine: &'a dyn Engine,
    target: &'a Path,
    ui: &'a Ui,
}

impl Session<'_> {
    fn announce(&self, finished: usize) {
        let runs = indices(self.plan).len();
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let cases = self.plan.cases.len();
        let name = &self.plan.name;
        self.ui.note(&format!("{name}: {cases} case{}, {runs} run{}", plural(cases), plural(runs)));
        if finished > 0 {
            self.ui.note(&format!("resuming: {finished} of {runs} runs were finished before"));
        }
    }

    fn jobs(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let wanted = self.options.common.jobs.map_or_else(processors, |jobs| jobs as usize);
        let most = self.engine.most_jobs().unwrap_or(wanted);
        if self.options.common.jobs.is_some() && wanted > most {
            let name = self.engine.name();
            self.ui.warn(&format!(
                "--jobs {wanted}: runs of engine {name} would disturb each other; using {most}"
            ));
        }
        wanted.min(most)
    }

    fn execute(
        &self,
        folder: Option<&PartialFolder>,
        finished: &mut BTreeMap<RunIndex, StoredRun>,
    ) -> Result<(), Stopped> {
        let stop = interrupt::listen().map_err(Stopped::Failed)?;
        let progress = Progress::new(self.ui, indices(self.plan).len(), finished.len());
        let execution = Execution {
            plan: self.plan,
            engine: self.engine,
            jobs: self.jobs(),
            folder,
            progress: &progress,
            stop,
        };
        execution.run(finished)
    }

    /// Cleans up after a run that did not come to its end.
    fn stopped(&self, stopped: Stopped, folder: Option<PartialFolder>, finished: usize) -> Failure {
        let kept = folder.map(PartialFolder::abandon);
        let failure = match stopped {
            Stopped::Interrupted => Failure::interrupted("interrupted"),
            Stopped::Failed(failure) => failure,
            Stopped::Storage(error) => folder_failure(&error, self.target),
        };
        match kept {
            Some(Ok(Some(partial))) => self.resumable(failure, &partial, finished),
            Some(Err(error)) => {
                self.ui.warn(&format!("{error}"));
                failure
            }
            Some(Ok(None)) | None => failure,
        }
    }

    /// Adds to a failure how to continue after it.
    fn resumable(&self, failure: Failure, partial: &Path, finished: usize) -> Failure {
        let runs = indices(self.plan).len();
        let resume = command::command(self.options, self.plan, self.engine.name(), Some(self.target));
        let remedy = failure.help.as_ref().map(|h| format!("{h}; ")).unwrap_or_default();
        let partial = partial.display();
        failure.help(format!(
            "{remedy}{finished} of {runs} runs are kept in {partial}; continue with: {resume} --resume"
        ))
    }

    fn summarize(&self, finished: &BTreeMap<RunIndex, StoredRun>, cpu_s: Option<f64>) -> Summary {
        let cases: Vec<Case> = self
            .plan
            .cases
            .iter()
            .enumerate()
            .map(|(index, case)| {
                let runs = (0..self.plan.runs).filter_map(|run| finished.get(&(index as u32, run)));
                let runs = runs.map(|r| Run { seed: r.seed, metrics: r.metrics.clone() }).collect();
                Case { set: case.set.clone(), warmup_us: case.scenario.warmup.get() / 1_000, runs }
            })
            .collect();
        let mut work = finished.values().map(|r| r.work).fold(Work::default(), Work::plus);
        work.cpu_s = cpu_s.or(work.cpu_s);
        work.peak_rss_bytes = work.peak_rss_bytes.max(environment::peak_rss_bytes());
        let mut environment =
            environment(command::command(self.options, self.plan, self.engine.name(), None));
        for (key, value) in self.engine.facts() {
            match key.as_str() {
                "kernel" => environment.kernel = Some(value),
                _ => drop(environment.extra.insert(key, json!(value))),
            }
        }
        let mut warnings: Vec<String> = finished.values().flat_map(|r| r.warnings.clone()).collect();
        let mut seen = std::collections::BTreeSet::new();
        warnings.retain(|w| seen.insert(w.clone()));
        warnings.extend(claims::not_applicable(self.plan));
        Summary {
            schema: SCHEMA_VERSION,
            scenario: self.plan.name.clone(),
            title: Some(self.plan.title.clone()),
            source: self.plan.source.clone(),
            engine: self.engine.name().to_owned(),
            environment,
            claims: claims::check(self.plan, &cases),
            cases,
            work,
            warnings,
        }
    }

    fn publish(&self, folder: PartialFolder, summary: &Summary, scenario: &str) -> Result<PathBuf, Failure> {
        let partial = folder.partial_path().to_owned();
        let kept = |failure: Failure| self.resumable(failure, &partial, indices(self.plan).len());
        let storage = |error: FolderError| kept(folder_failure(&error, self.target));
        let assembled = folder.assemble(summary, &[(SCENARIO_FILE, scenario.as_bytes())]).map_err(storage)?;
        if let Err(error) = vmcc_report::write(assembled.path()) {
            assembled.discard();
            return Err(kept(report_failure(&error, self.target)));
        }
        assembled.publish().map_err(storage)
    }

    fn text(&self, summary: &Summary, published: Option<&Path>) -> String {
        let mut text = format!("{}\n\n{}", overview::headline(summary), overview::cases(summary));
        if let Some(note) = unfinished_note(summary) {
            text.push_str(&format!("\n\n{note}"));
        }
        if let Some(sentence) = conclusion::sentence(summary) {
            text.push_str(&format!("\n\n{sentence}"));
        }
        let not_applicable = &self.plan.not_applicable;
        if !summary.claims.is_empty() || !not_applicable.is_empty() {
            text.push_str(&format!("\n\n{}", overview::claims(&summary.claims, not_applicable)));
        }
        for warning in &summary.warnings {
            text.push_str(&format!("\n\nNote: {warning}"));
        }
        if let Some(folder) = published {
            text.push_str(&format!("\n\nReport: {}", folder.join(vmcc_report::REPORT_FILE).display()));
        }
        text
    }
}
