//! The engines behind one face, and the choice between them.

use crate::args::EngineChoice;
use crate::failure::{Failure, chain};
use crate::ui::Ui;
use std::sync::atomic::AtomicBool;
use vmcc_results::RunOutput;
use vmcc_scenario::{Plan, ResolvedCase};
use vmcc_sim::{Options, SimError};

/// Why a run gave no output.
pub(crate) enum RunError {
    /// The stop flag was set; everything has been cleaned up.
    Interrupted,
    /// Anything else.
    Failed(Failure),
}

/// Something that can run a case.
pub(crate) trait Engine: Sync {
    /// Name, as in results.
    fn name(&self) -> &'static str;

    /// How many runs may go on at the same time; `None` when they do not disturb each other.
    fn most_jobs(&self) -> Option<usize>;

    /// What the results should say about the engine beyond the host: key and value.
    fn facts(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Runs `case` with `seed`. Returns soon after `stop` is set; calls `progress` with the fraction done.
    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, RunError>;
}

/// The packet-level simulator.
struct Simulator;

impl Engine for Simulator {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn most_jobs(&self) -> Option<usize> {
        None
    }

    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, RunError> {
        let options = Options { threads: 1, cancel: Some(stop), progress: Some(progress) };
        vmcc_sim::run_case(case, seed, &options).map_err(|error| match error {
            SimError::Canceled => RunError::Interrupted,
            other => RunError::Failed(
                Failure::usage(chain(&other)).help("change the scenario, or see `vmcc scenario check`"),
            ),
        })
    }
}

/// The engine for `plan`: the one that was asked for, or the first that can. Says which, and why.
pub(crate) fn choose(choice: EngineChoice, plan: &Plan, ui: &Ui) -> Result<Box<dyn Engine>, Failure> {
    match choice {
        EngineChoice::Sim => Ok(Box::new(Simulator)),
        EngineChoice::Kernel => kernel(plan),
        EngineChoice::Guest => guest(plan),
        EngineChoice::Auto => {
            let mut reasons = Vec::new();
            for (name, attempt) in [("kernel", kernel as Attempt), ("guest", guest as Attempt)] {
                match attempt(plan) {
                    Ok(engine) => {
                        ui.note(&auto_note(engine.name(), &reasons));
                        return Ok(engine);
                    }
                    Err(failure) => reasons.push(format!("not {name}: {}", failure.message)),
                }
            }
            ui.note(&auto_note("sim", &reasons));
            Ok(Box::new(Simulator))
        }
    }
}

type Attempt = fn(&Plan) -> Result<Box<dyn Engine>, Failure>;

fn auto_note(name: &str, reasons: &[String]) -> String {
    match reasons {
        [] => format!("engine: {name} (this host can)"),
        _ => format!("engine: {name} ({})", reasons.join("; ")),
    }
}

#[cfg(feature = "kernel")]
fn kernel(plan: &Plan) -> Result<Box<dyn Engine>, Failure> {
    crate::kernel::engine::kernel(plan)
}

#[cfg(feature = "kernel")]
fn guest(plan: &Plan) -> Result<Box<dyn Engine>, Failure> {
    crate::kernel::guest::guest(plan)
}

#[cfg(not(feature = "kernel"))]
fn kernel(_: &Plan) -> Result<Box<dyn Engine>, Failure> {
    Err(crate::failure::without_kernel("engine kernel"))
}

#[cfg(not(feature = "kernel"))]
fn guest(_: &Plan) -> Result<Box<dyn Engine>, Failure> {
    Err(crate::failure::without_kernel("engine guest"))
}
