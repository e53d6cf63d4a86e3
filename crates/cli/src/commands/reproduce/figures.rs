//! Runs figures, each into its folder below one, and draws the page over them.

use super::figure::Figure;
use super::{overview, pages};
use crate::args::{DemoOptions, ReproduceEngine, ReproduceOptions, RunOptions, ScaleChoice};
use crate::commands::run::{self, Prepared};
use crate::failure::{Exit, Failure, folder_failure};
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use vmcc_results::folder::{FolderError, SUMMARY_FILE, read_summary};
use vmcc_results::{ClaimResult, Summary};
use vmcc_scenario::shell_word;

pub(super) fn reproduce(
    what: &str,
    names: &[String],
    options: &ReproduceOptions,
    ui: &Ui,
) -> Result<Exit, Failure> {
    let out =
        options.out.clone().unwrap_or_else(|| vmcc_engine::default_folder(&format!("reproduce-{what}")));
    let tasks: Vec<RunOptions> = names.iter().map(|name| task(name, &out, options)).collect();
    if !options.resume {
        tasks.iter().try_for_each(refuse_finished)?;
    }
    let mut figures = Vec::new();
    for task in &tasks {
        let outcome = match run::prepare(task, ui) {
            Ok(prepared) => Ok(one(&prepared, task, ui).map_err(|f| resumable(f, what, &out, options))?),
            Err(refusal) => Err(refusal),
        };
        figures.push(Figure { name: task.scenario.clone(), outcome });
    }
    if figures.iter().all(|figure| figure.outcome.is_err()) {
        return Err(none_ran(what, figures));
    }
    let index = pages::draw(&figures, options.engine, &out)?;
    ui.answer(&overview::document(&figures, options, &index), || overview::text(&figures, &index));
    Ok(exit(&figures))
}

/// A figure that was asked for by its name is refused by its own message; of several the first speaks for all.
fn none_ran(what: &str, figures: Vec<Figure>) -> Failure {
    let refused = figures.into_iter().find_map(|figure| Some((figure.name, figure.outcome.err()?)));
    match refused {
        Some((name, refusal)) if name == what => refusal,
        Some((name, refusal)) => Failure {
            message: format!("{what}: none of its figures can be run: {name}: {}", refusal.message),
            ..refusal
        },
        None => Failure::usage(format!("{what}: it has no figures")),
    }
}

/// Options of `vmcc run` for one figure.
fn task(name: &str, out: &Path, options: &ReproduceOptions) -> RunOptions {
    let on_kernel = options.engine != ReproduceEngine::Sim;
    let scale = match (on_kernel, options.quick) {
        (true, _) => ScaleChoice::Small,
        (false, true) => ScaleChoice::Quick,
        (false, false) => ScaleChoice::Full,
    };
    let target = out.join(name).join(options.engine.name());
    let common = DemoOptions {
        algorithms: Vec::new(),
        engine: options.engine.choice(),
        set: Vec::new(),
        seed: None,
        runs: (on_kernel && options.quick).then_some(1),
        threads: None,
        columns: Vec::new(),
        jobs: options.jobs,
        scale,
        resume: options.resume && partial(&target).exists(),
        out: Some(target),
        quiet: options.quiet,
    };
    common.for_scenario(name)
}

/// Folder in which an interrupted session keeps its finished runs.
fn partial(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

fn refuse_finished(task: &RunOptions) -> Result<(), Failure> {
    match task.common.out.as_ref().filter(|target| target.join(SUMMARY_FILE).exists()) {
        Some(target) => Err(folder_failure(&FolderError::Exists(target.clone()), target)),
        None => Ok(()),
    }
}

/// The figure's results: those that are there, when resuming, or new ones.
fn one(prepared: &Prepared, task: &RunOptions, ui: &Ui) -> Result<Summary, Failure> {
    if let Some(target) = task.common.out.as_ref().filter(|target| target.join(SUMMARY_FILE).exists()) {
        let summary = read_summary(target).map_err(|e| folder_failure(&e, target))?;
        if summary.environment.command.as_deref() != Some(prepared.command(task).as_str()) {
            let path = target.display();
            return Err(Failure::usage(format!("{path}: holds the result of another command"))
                .help("give the options that it was begun with, or another folder with --out"));
        }
        ui.note(&format!("{}: finished before", task.scenario));
        return Ok(summary);
    }
    prepared.perform(task, ui).map(|(summary, _)| summary)
}

/// Adds to an interruption how to continue with all figures, instead of with the one.
fn resumable(failure: Failure, what: &str, out: &Path, options: &ReproduceOptions) -> Failure {
    if failure.exit != Exit::Interrupted {
        return failure;
    }
    let engine = options.engine.name();
    let quick = if options.quick { " --quick" } else { "" };
    let jobs = options.jobs.map(|jobs| format!(" --jobs {jobs}")).unwrap_or_default();
    let out = shell_word(&out.display().to_string());
    failure.help(format!(
        "what is finished is kept; continue with: vmcc reproduce {what} --engine {engine}{quick} --out {out}{jobs} --resume"
    ))
}

/// A claim that failed says more than a figure that was not run.
fn exit(figures: &[Figure]) -> Exit {
    let ran = figures.iter().filter_map(|figure| figure.outcome.as_ref().ok());
    if ran.flat_map(|summary| &summary.claims).any(ClaimResult::fails) {
        return Exit::CheckFailed;
    }
    figures.iter().find_map(|figure| figure.outcome.as_ref().err()).map_or(Exit::Done, |refusal| refusal.exit)
}
