//! `vmcc run` and `vmcc demo`.

use crate::args::{RunOptions, ScaleChoice};
use crate::commands::report::report_failure;
use crate::failure::{Exit, Failure, engine_failure, folder_failure, scenario_failure};
use crate::interrupt;
use crate::own_algorithms;
use crate::run::progress::Progress;
use crate::run::{command, conclusion, engine, overview};
use crate::table::wrapped;
use crate::ui::{Ui, counted};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use vmcc_config::did_you_mean;
use vmcc_engine::{Engine, Execution, SCENARIO_FILE, Session, Shard, Stopped};
use vmcc_external::External;
use vmcc_results::figure::unfinished_note;
use vmcc_results::folder::{Access, FolderError, PartialFolder};
use vmcc_results::limits::limit_notes;
use vmcc_results::{ClaimResult, Summary};
use vmcc_scenario::{Document, Overrides, Plan, Scale, metrics};

pub(crate) fn run(options: &RunOptions, ui: &Ui) -> Result<Exit, Failure> {
    let prepared = prepare(options, ui)?;
    if let Some(scale) = prepared.document.missing_scale(overrides(options).scale) {
        ui.warn(&format!("{} has no [scale.{scale}]: it runs as written", prepared.document.name()));
    }
    if options.shard.is_some() {
        return prepared.perform_shard(options, ui);
    }
    let (summary, text) = prepared.perform(options, ui)?;
    ui.answer(&summary, || text);
    Ok(if summary.claims.iter().any(ClaimResult::fails) { Exit::CheckFailed } else { Exit::Done })
}

/// A scenario that this host can run.
pub(crate) struct Prepared {
    document: Document,
    plan: Plan,
    engine: Box<dyn Engine>,
    algorithms: Vec<External>,
}

/// Loads the user's own algorithms, reads the scenario and takes its engine.
pub(crate) fn prepare(options: &RunOptions, ui: &Ui) -> Result<Prepared, Failure> {
    let algorithms = own_algorithms::load(&options.common.algorithms, ui)?;
    let document = Document::open(&options.scenario).map_err(|e| scenario_failure(&e))?;
    let plan = document.plan(&overrides(options)).map_err(|e| scenario_failure(&e))?;
    options.common.columns.iter().try_for_each(|column| check_column(column, &plan))?;
    let engine = engine::choose(options.common.engine, options.common.threads, (&plan, &algorithms), ui)?;
    Ok(Prepared { document, plan, engine, algorithms })
}

impl Prepared {
    /// Runs it and gives the results their folder. Returns them, also as a text for people.
    pub(crate) fn perform(&self, options: &RunOptions, ui: &Ui) -> Result<(Summary, String), Failure> {
        let (command, session) = self.execute(options, ui)?;
        let summary = session.summary(self.command(options));
        for warning in overview::unmeasured(&summary, &options.common.columns) {
            ui.warn(&warning);
        }
        let published = command.publish(session, &summary, &self.inputs())?;
        let text = command.text(&summary, published.as_deref());
        Ok((summary, text))
    }

    /// Makes a part of the runs, which stay in the folder that other processes share.
    fn perform_shard(&self, options: &RunOptions, ui: &Ui) -> Result<Exit, Failure> {
        let (command, session) = self.execute(options, ui)?;
        let (finished, runs) = session.count_all();
        let (runs_of_shard, finish) = (session.runs(), format!("{} --resume", command.repeated()));
        let answer = ShardAnswer { runs_of_shard, finished, runs, finish };
        ui.answer(&answer, || {
            let own = counted(runs_of_shard, "run");
            format!("{own} of this part made, {finished} of all {runs} finished\nResults: {}", answer.finish)
        });
        Ok(Exit::Done)
    }

    /// Makes the runs of the shard, or all of them.
    fn execute<'a>(
        &'a self,
        options: &'a RunOptions,
        ui: &'a Ui,
    ) -> Result<(Command<'a>, Session<'a>), Failure> {
        let (plan, engine) = (&self.plan, self.engine.as_ref());
        // Before the folder, so that no interrupt leaves an empty one.
        let stop = interrupt::listen()?;
        let (target, folder) = open(options, plan, engine.name(), ui)?;
        let command = Command { options, plan, engine, target, stop, ui };
        let mut session =
            Session::new(plan, engine, folder).with_shard(options.shard.unwrap_or(Shard::WHOLE));
        command.announce(&session);
        match command.execute(&mut session) {
            Ok(()) => Ok((command, session)),
            Err(failure) => Err(command.stopped(failure, session)),
        }
    }

    /// Files that the results keep: the scenario and the user's own algorithms.
    fn inputs(&self) -> Vec<(String, &[u8])> {
        let scenario = (SCENARIO_FILE.to_owned(), self.document.text().as_bytes());
        [scenario].into_iter().chain(own_algorithms::files(&self.algorithms)).collect()
    }

    /// The command that repeats it, as its results have it.
    pub(crate) fn command(&self, options: &RunOptions) -> String {
        command::command(options, &self.plan, self.engine.name(), None)
    }
}

/// Answer of `vmcc run --shard`.
#[derive(Serialize)]
struct ShardAnswer {
    /// Runs of this part.
    runs_of_shard: usize,
    /// Finished runs of all parts.
    finished: usize,
    runs: usize,
    /// The command that makes the result folder.
    finish: String,
}

/// Checks that some case can have this metric.
fn check_column(column: &str, plan: &Plan) -> Result<(), Failure> {
    if plan.cases.iter().any(|case| metrics(&case.scenario).iter().any(|name| name == column)) {
        return Ok(());
    }
    let known = plan.cases.first().map(|case| metrics(&case.scenario)).unwrap_or_default();
    let like = did_you_mean(column, known.iter().map(String::as_str));
    let help = like.unwrap_or_else(|| "`vmcc metrics` lists them".to_owned());
    Err(Failure::usage(format!("--columns: there is no metric `{column}` in {}", plan.name)).help(help))
}

/// The folder for the results and its name. A folder that was asked for must be usable; without one in a place
/// where nothing can be written, the results are only printed.
fn open(
    options: &RunOptions,
    plan: &Plan,
    engine: &str,
    ui: &Ui,
) -> Result<(PathBuf, Option<PartialFolder>), Failure> {
    if let Some(out) = &options.common.out {
        let access = match options.shard {
            Some(_) => Access::Shared,
            None if options.common.resume => Access::Resumed,
            None => Access::New,
        };
        let folder = vmcc_engine::open(out, plan, engine, access);
        return folder.map(|f| (out.clone(), Some(f))).map_err(|e| folder_failure(&e, out));
    }
    let (target, folder) = vmcc_engine::open_unnamed(&vmcc_engine::default_folder(&plan.name), plan, engine);
    match folder {
        Ok(folder) => Ok((target, Some(folder))),
        Err(FolderError::Io { path, source }) => {
            ui.warn(&format!("{}: {source}; the results are printed and not kept", path.display()));
            Ok((target, None))
        }
        Err(error) => Err(folder_failure(&error, &target)),
    }
}

fn overrides(options: &RunOptions) -> Overrides {
    Overrides {
        set: options.common.set.clone(),
        scale: match options.common.scale {
            ScaleChoice::Full => Scale::Full,
            ScaleChoice::Small => Scale::Small,
            ScaleChoice::Quick => Scale::Quick,
        },
        seed: options.common.seed,
        runs: options.common.runs,
    }
}

/// One `vmcc run`.
struct Command<'a> {
    options: &'a RunOptions,
    plan: &'a Plan,
    engine: &'a dyn Engine,
    target: PathBuf,
    /// Set by an interrupt.
    stop: &'static AtomicBool,
    ui: &'a Ui,
}

impl Command<'_> {
    fn announce(&self, session: &Session<'_>) {
        let runs = session.runs();
        let (cases, name) = (self.plan.cases.len(), &self.plan.name);
        self.ui.note(&format!("{name}: {}, {}", counted(cases, "case"), counted(runs, "run")));
        let finished = session.finished();
        if finished > 0 {
            self.ui.note(&format!("resuming: {finished} of {runs} runs were finished before"));
        }
    }

    fn jobs(&self) -> usize {
        let wanted = self.options.common.jobs.map(|jobs| jobs as usize);
        let threads = self.options.common.threads.unwrap_or(1) as usize;
        let jobs = vmcc_engine::jobs(self.engine, wanted, threads);
        if let Some(wanted) = wanted.filter(|wanted| *wanted > jobs) {
            let name = self.engine.name();
            self.ui.warn(&format!(
                "--jobs {wanted}: runs of engine {name} would disturb each other; using {jobs}"
            ));
        }
        jobs
    }

    fn execute(&self, session: &mut Session<'_>) -> Result<(), Failure> {
        let bar = Progress::new(self.ui, session.runs(), session.finished());
        let progress = |run, fraction| bar.update(run, fraction);
        let done = session.execute(&Execution { jobs: self.jobs(), stop: self.stop, progress: &progress });
        done.map_err(|stopped| match stopped {
            Stopped::Failed(error) => engine_failure(&error),
            Stopped::Storage(error) => folder_failure(&error, &self.target),
            _ => Failure::interrupted("interrupted"),
        })
    }

    /// Cleans up after a run that did not come to its end.
    fn stopped(&self, failure: Failure, session: Session<'_>) -> Failure {
        let (finished, runs) = (session.finished(), session.runs());
        match session.abandon() {
            Ok(Some(partial)) => self.resumable(failure, &partial, (finished, runs)),
            Ok(None) => failure,
            Err(error) => {
                self.ui.warn(&format!("{error}"));
                failure
            }
        }
    }

    /// The command that does the same in the same folder, but for how it uses what is there.
    fn repeated(&self) -> String {
        command::command(self.options, self.plan, self.engine.name(), Some(&self.target))
    }

    /// Adds to a failure how to continue after it.
    fn resumable(&self, failure: Failure, partial: &Path, (finished, runs): (usize, usize)) -> Failure {
        let (repeated, pace) = (self.repeated(), command::pace(self.options));
        let rest = self.options.shard.map_or("--resume".to_owned(), |shard| format!("--shard {shard}"));
        let remedy = failure.help.as_ref().map(|h| format!("{h}; ")).unwrap_or_default();
        let partial = partial.display();
        failure.help(format!(
            "{remedy}{finished} of {runs} runs are kept in {partial}; continue with: {repeated}{pace} {rest}"
        ))
    }

    /// Gives the results their name, with the report; `None` when they are not kept.
    fn publish(
        &self,
        session: Session<'_>,
        summary: &Summary,
        inputs: &[(String, &[u8])],
    ) -> Result<Option<PathBuf>, Failure> {
        let (runs, partial) = (session.runs(), session.partial_path().map(Path::to_owned));
        let kept = |failure: Failure| match &partial {
            Some(partial) => self.resumable(failure, partial, (runs, runs)),
            None => failure,
        };
        let storage = |error: FolderError| kept(folder_failure(&error, &self.target));
        let Some(assembled) = session.assemble(summary, inputs).map_err(storage)? else { return Ok(None) };
        if let Err(error) = vmcc_report::write(assembled.path()) {
            assembled.discard();
            return Err(kept(report_failure(&error, &self.target)));
        }
        assembled.publish().map(Some).map_err(storage)
    }

    fn text(&self, summary: &Summary, published: Option<&Path>) -> String {
        let mut text = format!(
            "{}\n\n{}",
            overview::headline(summary),
            overview::cases(summary, &self.options.common.columns)
        );
        let traffic = overview::traffic(summary);
        if !traffic.is_empty() {
            text.push_str(&format!("\n\n{traffic}"));
        }
        let notes = unfinished_note(summary).into_iter().chain(limit_notes(summary));
        for sentence in notes.chain(conclusion::sentence(summary)) {
            text.push_str(&format!("\n\n{}", wrapped(&sentence)));
        }
        let not_applicable = &self.plan.not_applicable;
        if !summary.claims.is_empty() || !not_applicable.is_empty() {
            text.push_str(&format!("\n\n{}", overview::claims(&summary.claims, not_applicable)));
        }
        for warning in &summary.warnings {
            text.push_str(&format!("\n\n{}", wrapped(&format!("Note: {warning}"))));
        }
        if let Some(folder) = published {
            text.push_str(&format!("\n\nReport: {}", folder.join(vmcc_report::REPORT_FILE).display()));
        }
        text
    }
}
