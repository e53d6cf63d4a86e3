//! Which engine runs a plan.

use crate::args::EngineChoice;
use crate::failure::{Failure, engine_failure};
#[cfg(feature = "kernel")]
use crate::own_algorithms;
use crate::ui::Ui;
use vmcc_engine::Engine;
use vmcc_external::External;
use vmcc_scenario::Plan;
use vmcc_sim::Simulator;

/// The engine for `plan`: the one that was asked for, or the first that can. Says which, and why.
///
/// The simulator shares a run among `threads`.
pub(crate) fn choose(
    choice: EngineChoice,
    threads: Option<u32>,
    (plan, own): (&Plan, &[External]),
    ui: &Ui,
) -> Result<Box<dyn Engine>, Failure> {
    let engine = first(choice, threads, (plan, own), ui)?;
    if threads.is_some() && engine.name() != "sim" {
        ui.warn(&format!("--threads: engine {} has no threads to share a run among", engine.name()));
    }
    Ok(engine)
}

/// The simulator; says where a network cannot be cut into as many parts as there are threads.
fn simulator(threads: Option<u32>, plan: &Plan, ui: &Ui) -> Result<Box<dyn Engine>, Failure> {
    let wanted = threads.unwrap_or(1);
    let simulator = Simulator::threaded(wanted);
    if wanted > 1 {
        let used = plan.cases.iter().map(|case| simulator.threads_for(case));
        let used = used.collect::<Result<Vec<_>, _>>().map_err(|e| engine_failure(&e))?;
        let (least, most) = (used.iter().min().copied(), used.iter().max().copied());
        if let (Some(least), Some(most)) = (least, most)
            && least < wanted as usize
        {
            let parts = if least == most { format!("{most}") } else { format!("{least} to {most}") };
            ui.warn(&format!(
                "--threads {wanted}: cut at links with enough delay, the network gives work to {parts}; using {parts}"
            ));
        }
    }
    Ok(Box::new(simulator))
}

fn first(
    choice: EngineChoice,
    threads: Option<u32>,
    (plan, own): (&Plan, &[External]),
    ui: &Ui,
) -> Result<Box<dyn Engine>, Failure> {
    match choice {
        EngineChoice::Sim => simulator(threads, plan, ui),
        EngineChoice::Kernel => kernel(plan, own),
        EngineChoice::Guest => guest(plan, own),
        EngineChoice::Auto => {
            let mut reasons = Vec::new();
            for (name, attempt) in [("kernel", kernel as Attempt), ("guest", guest as Attempt)] {
                match attempt(plan, own) {
                    Ok(engine) => {
                        ui.note(&auto_note(engine.name(), &reasons));
                        return Ok(engine);
                    }
                    Err(failure) => reasons.push(format!("not {name}: {}", failure.message)),
                }
            }
            ui.note(&auto_note("sim", &reasons));
            simulator(threads, plan, ui)
        }
    }
}

type Attempt = fn(&Plan, &[External]) -> Result<Box<dyn Engine>, Failure>;

fn auto_note(name: &str, reasons: &[String]) -> String {
    match reasons {
        [] => format!("engine: {name} (this host can)"),
        _ => format!("engine: {name} ({})", reasons.join("; ")),
    }
}

#[cfg(feature = "kernel")]
fn kernel(plan: &Plan, own: &[External]) -> Result<Box<dyn Engine>, Failure> {
    own_algorithms::compile(own)?;
    let worker = worker("guest-sender", "engine kernel")?;
    let engine = vmcc_lab::engine::Kernel::for_plan(plan, Some(worker)).map_err(|e| engine_failure(&e))?;
    Ok(Box::new(engine.with_quic_options(own_algorithms::library_options(own))))
}

/// The guest runs this program, as its worker.
#[cfg(feature = "kernel")]
fn guest(plan: &Plan, own: &[External]) -> Result<Box<dyn Engine>, Failure> {
    if let Some(own) = own.first() {
        let (file, name) = (own.source.path.display(), own.algorithm);
        return Err(Failure::usage(format!(
            "engine guest: it has the registry's algorithms, not {name} of {file}"
        ))
        .help("use --engine sim, or --engine kernel as root"));
    }
    let worker = worker("guest-worker", "engine guest")?;
    let engine = vmcc_lab::engine::GuestEngine::for_plan(plan, worker).map_err(|e| engine_failure(&e))?;
    Ok(Box::new(engine))
}

/// This program, as what a guest runs.
#[cfg(feature = "kernel")]
fn worker(role: &str, engine: &str) -> Result<vmcc_lab::guest::WorkerProgram, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::host(format!("{engine}: {e}")))?;
    let arguments = ["internal", role].map(Into::into).to_vec();
    Ok(vmcc_lab::guest::WorkerProgram { program, arguments, stop: Some(crate::interrupt::flag()) })
}

#[cfg(not(feature = "kernel"))]
fn kernel(_: &Plan, _: &[External]) -> Result<Box<dyn Engine>, Failure> {
    Err(crate::failure::without_kernel("engine kernel"))
}

#[cfg(not(feature = "kernel"))]
fn guest(_: &Plan, _: &[External]) -> Result<Box<dyn Engine>, Failure> {
    Err(crate::failure::without_kernel("engine guest"))
}
