//! `vmcc search`: patterns of traffic, links and losses that break a property.

use crate::args::SearchOptions;
use crate::failure::{Exit, Failure, engine_failure, scenario_failure};
use crate::interrupt;
use crate::own_algorithms;
use crate::run::progress::Progress;
use crate::table::{self, Tone, toned};
use crate::ui::{Ui, counted};
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use vmcc_external::External;
use vmcc_metrics::unit::digits;
use vmcc_scenario::{Document, Overrides, shell_word};
use vmcc_search::{Execution, Outcome, Property, PropertyOutcome, SearchError, Settings, Subject};
use vmcc_sim::Simulator;

/// Name of the summary among the findings.
const SUMMARY: &str = "search.json";

pub(crate) fn search(options: &SearchOptions, ui: &Ui) -> Result<Exit, Failure> {
    let algorithms = own_algorithms::load(&options.algorithms, ui)?;
    let document = Document::open(&options.scenario).map_err(|e| scenario_failure(&e))?;
    let overrides = Overrides { set: options.set.clone(), ..Overrides::default() };
    let plan = document.plan(&overrides).map_err(|e| scenario_failure(&e))?;
    let subject = Subject::new(&plan, options.control.as_deref()).map_err(search_failure)?;
    let settings = settings(options);
    settings.check(&subject).map_err(search_failure)?;
    let target = options.out.clone().unwrap_or_else(|| vmcc_engine::default_folder(&plan.name));
    // Before the folder, so that no interrupt leaves an empty one.
    let stop = interrupt::listen()?;
    let made = prepare(&target)?;
    let outcome = perform(options, &subject, &settings, (stop, ui));
    if outcome.is_err() && made {
        // Nothing was found, so the folder is empty.
        let _ = fs::remove_dir(&target);
    }
    let outcome = outcome?;
    let document = summary(options, &subject, &outcome);
    keep(&target, &outcome, &document, &algorithms)?;
    if outcome.interrupted {
        let found = counted(findings(&outcome), "finding");
        return Err(Failure::interrupted(format!("interrupted after {}", counted(outcome.runs, "run")))
            .help(format!(
                "{} has {found}, neither confirmed nor shrunk unless its text says so",
                target.display()
            )));
    }
    ui.answer(&document, || text(options, &subject, &outcome, &target));
    Ok(if findings(&outcome) > 0 { Exit::CheckFailed } else { Exit::Done })
}

fn settings(options: &SearchOptions) -> Settings {
    let mut properties: Vec<Property> = Vec::new();
    let wanted = if options.properties.is_empty() { &Property::ALL[..] } else { &options.properties };
    for property in wanted {
        if !properties.contains(property) {
            properties.push(*property);
        }
    }
    Settings { properties, budget: options.budget, seed: options.seed, strategy: options.strategy.into() }
}

fn perform(
    options: &SearchOptions,
    subject: &Subject,
    settings: &Settings,
    (stop, ui): (&AtomicBool, &Ui),
) -> Result<Outcome, Failure> {
    ui.note(&format!(
        "{}: {} compared with TCP ({}), at most {}",
        subject.name(),
        subject.algorithm(),
        subject.control(),
        counted(options.budget, "run")
    ));
    let engine = Simulator::default();
    let bar = Progress::new(ui, options.budget as usize, 0);
    let progress = |run| bar.update(run, 1.0);
    let jobs = vmcc_engine::jobs(&engine, options.jobs.map(|jobs| jobs as usize), 1);
    let how = Execution { jobs, stop, progress: &progress };
    vmcc_search::search(subject, &engine, settings, &how).map_err(search_failure)
}

fn search_failure(error: SearchError) -> Failure {
    let failure = match &error {
        SearchError::Engine(error) => return engine_failure(error),
        other => Failure::usage(other),
    };
    match error.remedy() {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

/// Makes the folder, or accepts an empty one. Returns true if it is new.
fn prepare(target: &Path) -> Result<bool, Failure> {
    match fs::read_dir(target) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) => Err(Failure::usage(format!("{}: the folder is not empty", target.display()))
                .help("give another folder with --out")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(target).map(|()| true).map_err(|error| unwritable(target, &error))
        }
        Err(error) => Err(unwritable(target, &error)),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::host(format!("{}: {error}", path.display())).help("give a folder that can be written with --out")
}

fn findings(outcome: &Outcome) -> usize {
    outcome.properties.iter().filter(|property| property.finding.is_some()).count()
}

fn file_name(property: Property) -> String {
    format!("{property}.toml")
}

/// Writes each finding, the user's algorithms and the summary.
fn keep<'a>(
    target: &Path,
    outcome: &'a Outcome,
    document: &Value,
    algorithms: &'a [External],
) -> Result<(), Failure> {
    let summary = format!("{document:#}\n");
    let finding = |outcome: &'a PropertyOutcome| {
        Some((file_name(outcome.property), outcome.finding.as_ref()?.scenario.as_bytes()))
    };
    let findings = outcome.properties.iter().filter_map(finding);
    let files = findings.chain(own_algorithms::files(algorithms));
    for (name, content) in files.chain([(SUMMARY.to_owned(), summary.as_bytes())]) {
        let path = target.join(name);
        fs::write(&path, content).map_err(|error| unwritable(&path, &error))?;
    }
    Ok(())
}

fn summary(options: &SearchOptions, subject: &Subject, outcome: &Outcome) -> Value {
    let properties: Vec<Value> = outcome
        .properties
        .iter()
        .map(|property| {
            let mut value = json!(property);
            if property.finding.is_some() {
                value["finding"]["file"] = json!(file_name(property.property));
            }
            value
        })
        .collect();
    json!({
        "schema": 1,
        "scenario": subject.name(),
        "set": options.set,
        "algorithm": subject.algorithm(),
        "control": subject.control(),
        "strategy": vmcc_search::Strategy::from(options.strategy),
        "seed": options.seed,
        "budget": options.budget,
        "runs": outcome.runs,
        "interrupted": outcome.interrupted,
        "properties": properties,
    })
}

fn text(options: &SearchOptions, subject: &Subject, outcome: &Outcome, target: &Path) -> String {
    let mut lines = table::plain(&["PROPERTY", "", "SCORE", "CHANGES", "OTHER SEEDS", "FILE"]);
    table::align_right(&mut lines, 2..5);
    for PropertyOutcome { property, worst_score, finding } in &outcome.properties {
        let row = match finding {
            Some(finding) => [
                toned("BROKEN", Tone::Bad),
                digits(finding.score),
                finding.changes.to_string(),
                finding
                    .held_out
                    .map_or_else(String::new, |held| format!("{} of {}", held.failed, held.seeds)),
                file_name(*property),
            ],
            None => {
                let score = worst_score.map_or_else(|| "-".to_owned(), digits);
                [toned("holds", Tone::Good), score, String::new(), String::new(), String::new()]
            }
        };
        lines.add_row(std::iter::once(property.name().to_owned()).chain(row));
    }
    let (name, algorithm) = (subject.name(), subject.algorithm());
    let mut text = format!(
        "{algorithm} in {name}: {} of {} broken in {}\n\n{}",
        findings(outcome),
        if outcome.properties.len() == 1 {
            "1 property".to_owned()
        } else {
            format!("{} properties", outcome.properties.len())
        },
        counted(outcome.runs, "run"),
        table::render(&lines)
    );
    text.push_str(&format!("\n\n{}", table::wrapped(
        "A score above 1 is a violation: the ratio of the claim's value and its bound. `holds`: the search found no violation that other seeds confirm.",
    )));
    if let Some(first) = outcome.properties.iter().find(|property| property.finding.is_some()) {
        text.push_str(&format!(
            "\n\nSee one: {}",
            run_command(options, &target.join(file_name(first.property)))
        ));
    }
    text
}

/// The command that runs a finding.
fn run_command(options: &SearchOptions, file: &Path) -> String {
    let mut words = ["vmcc", "run"].map(str::to_owned).to_vec();
    words.extend([file.display().to_string(), "--engine".to_owned(), "sim".to_owned()]);
    for own in &options.algorithms {
        words.extend(["--algorithm".to_owned(), own.display().to_string()]);
    }
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}
