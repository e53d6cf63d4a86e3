//! The vmcc command line: the only place that prints, and the only one that asks the host about itself.

mod args;
mod commands;
mod failure;
mod interrupt;
mod own_algorithms;
mod run;
mod table;
mod ui;

use args::{Arguments, Command};
use clap::Parser;
use failure::{Exit, Failure};
use std::process::ExitCode;
use ui::Ui;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return wrong_use(&error),
    };
    let ui = Ui::new(arguments.json, arguments.quiet());
    match dispatch(arguments.command, &ui) {
        // A code that says more is not hidden by this one.
        Ok(Exit::Done) if ui.unwritten() => Exit::CheckFailed.into(),
        Ok(exit) => exit.into(),
        Err(failure) => {
            ui.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Help and version are answers; everything else that clap stops at is wrong use.
fn wrong_use(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if !error.use_stderr() {
        return match printed {
            Err(error) if !ui::went_away(&error) => {
                Ui::new(false, false).warn(&format!("this could not be written: {error}"));
                Exit::CheckFailed.into()
            }
            _ => Exit::Done.into(),
        };
    }
    if std::env::args_os().any(|a| a == "--json") {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        let failure = Failure::usage(first.trim_start_matches("error: ").to_owned());
        Ui::new(true, true).failure_json(&failure);
    }
    Exit::WrongUse.into()
}

fn dispatch(command: Command, ui: &Ui) -> Result<Exit, Failure> {
    match command {
        Command::Doctor => commands::doctor::doctor(ui),
        Command::Advise(options) => commands::advise(&options, ui),
        Command::Algorithms => commands::algorithms::algorithms(ui),
        Command::Algorithm { action } => commands::algorithm::algorithm(&action, ui),
        Command::Metrics => commands::metrics::metrics(ui),
        Command::Scenarios => commands::scenarios::list(ui),
        Command::Scenario { action } => commands::scenarios::scenario(&action, ui),
        Command::Run(options) => commands::run::run(&options, ui),
        Command::Demo(options) => commands::run::run(&options.for_scenario("demo"), ui),
        Command::Reproduce(options) => commands::reproduce::reproduce(&options, ui),
        Command::Search(options) => commands::search::search(&options, ui),
        Command::Report { folder } => commands::report::report(&folder, ui),
        Command::Compare(options) => commands::compare::compare(&options, ui),
        Command::Bench(options) => commands::bench::bench(&options, ui),
        Command::Up(options) => commands::up::up(&options, ui),
        Command::Down => commands::down(ui),
        Command::Status => commands::status(ui),
        Command::Top(options) => commands::top(&options, ui),
        Command::Events => commands::events(ui),
        Command::Mark(options) => commands::mark::mark(&options, ui),
        Command::Unmark(options) => commands::unmark(&options, ui),
        Command::Clean => commands::clean(ui),
        Command::Cp(options) => commands::cp::cp(&options, ui),
        Command::Proxy(options) => commands::proxy::proxy(&options, ui),
        Command::Keys(options) => commands::keys::keys(&options, ui),
        Command::Paths(options) => commands::paths::paths(&options, ui),
        Command::Serve(options) => commands::cp::serve(&options, ui),
        Command::Internal { action } => commands::internal::internal(action, ui),
    }
}
