//! `vmcc algorithm`: begins and checks algorithms of the user's own C files.

use super::algorithms::Entry;
use crate::args::AlgorithmAction;
use crate::failure::{Exit, Failure, external_failure};
#[cfg(feature = "kernel")]
use crate::interrupt;
#[cfg(feature = "kernel")]
use crate::own_algorithms::compile_failure;
use crate::own_algorithms::load;
use crate::ui::Ui;
use serde_json::json;
use std::path::Path;
use vmcc_external::External;

pub(crate) fn algorithm(action: &AlgorithmAction, ui: &Ui) -> Result<Exit, Failure> {
    match action {
        AlgorithmAction::New { name, folder } => new(name, folder, ui),
        AlgorithmAction::Check { file } => check(file, ui),
    }
}

fn new(name: &str, folder: &Path, ui: &Ui) -> Result<Exit, Failure> {
    let files = vmcc_external::create(name, folder).map_err(|e| external_failure(&e))?;
    ui.answer(&json!({ "files": files }), || {
        let [source, vectors, scenario] = &files;
        let (source, vectors, scenario) = (source.display(), vectors.display(), scenario.display());
        format!(
            "{source}: the algorithm\n{vectors}: its vectors\n{scenario}: a scenario that compares it with LIA\n\n\
             check it:   vmcc algorithm check {source}\n\
             run it:     vmcc run {scenario} --engine sim --algorithm {source}"
        )
    });
    Ok(Exit::Done)
}

fn check(file: &Path, ui: &Ui) -> Result<Exit, Failure> {
    let own = load(&[file.to_owned()], ui)?.remove(0);
    let (info, passed) = (own.algorithm.info(), own.passed);
    let kernel = kernel_build(&own)?;
    let document = json!({
        "algorithm": Entry::from(info),
        "file": file,
        "steps": passed.steps,
        "vectors": passed.vectors,
        "kernel_steps": kernel.as_ref().ok(),
        "warnings": own.warnings,
    });
    ui.answer(&document, || {
        let vectors = match passed.vectors {
            Some(values) => format!("{values} values of {}", file.with_extension("csv").display()),
            None => format!("no vectors: {} is not there", file.with_extension("csv").display()),
        };
        let kernel = match &kernel {
            Ok(steps) => format!("passed: {steps} steps that the kernel's build repeats bit for bit"),
            Err(reason) => format!("not compared with the kernel's build: {reason}"),
        };
        let parameters = match info.params {
            [] => "none".to_owned(),
            params => params.iter().map(|p| format!("{} ({})", p.name, p.range_text())).collect::<Vec<_>>().join(", "),
        };
        format!(
            "{}: {}\nparameters: {parameters}\npassed: {} calls of hooks on any state and steps of connections with 1 to {} paths\npassed: \
             {vectors}\n{kernel}",
            info.name,
            info.title,
            passed.steps,
            vmcc_cc::MAX_PATHS,
        )
    });
    Ok(Exit::Done)
}

/// Compares the file's native build with the kernel's; returns the number of steps, or the reason why this host cannot.
#[cfg(feature = "kernel")]
fn kernel_build(own: &External) -> Result<Result<usize, String>, Failure> {
    use vmcc_bpf::CompileError;
    use vmcc_bpf::replay::{CompareError, compare};
    if !nix::unistd::geteuid().is_root() {
        return Ok(Err("run it as root".to_owned()));
    }
    match vmcc_bpf::compile(&own.source, interrupt::flag()) {
        Err(error @ (CompileError::NoClang { .. } | CompileError::Start { .. })) => {
            return Ok(Err(error.to_string()));
        }
        compiled => compiled.map_err(compile_failure)?,
    }
    match compare(own.algorithm) {
        Err(error @ CompareError::Host(_)) => Ok(Err(error.to_string())),
        compared => compared.map(Ok).map_err(|error| Failure::usage(error).help(vmcc_agent::VERIFIER_RULES)),
    }
}

#[cfg(not(feature = "kernel"))]
fn kernel_build(_: &External) -> Result<Result<usize, String>, Failure> {
    Ok(Err("this vmcc was built without the kernel engine".to_owned()))
}
