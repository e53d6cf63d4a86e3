//! `vmcc algorithm`: algorithms of the user's own C files, which other commands take with `--algorithm`.

use super::algorithms::Entry;
use crate::args::AlgorithmAction;
use crate::failure::{Exit, Failure, external_failure};
use crate::interrupt;
use crate::ui::Ui;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use vmcc_external::{Checker, External};

pub(crate) fn algorithm(action: &AlgorithmAction, ui: &Ui) -> Result<Exit, Failure> {
    match action {
        AlgorithmAction::New { name, folder } => new(name, folder, ui),
        AlgorithmAction::Check { file } => check(file, ui),
    }
}

/// Compiles, checks and registers files, in their order. Ctrl-C ends it after cleaning up.
pub(crate) fn load(files: &[PathBuf], ui: &Ui) -> Result<Vec<External>, Failure> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let stop = interrupt::listen()?;
    let own = |file: &PathBuf| -> Result<External, Failure> {
        let own = vmcc_external::load(file, &checker()?).map_err(|e| external_failure(&e))?;
        if !own.warnings.is_empty() {
            ui.warn(&format!("{}: the compiler warns:\n{}", file.display(), own.warnings));
        }
        Ok(own)
    };
    let loaded = files.iter().map(own).collect();
    if stop.load(Ordering::SeqCst) { Err(Failure::interrupted("interrupted")) } else { loaded }
}

/// Compiles them for the kernel as well.
#[cfg(feature = "kernel")]
pub(crate) fn compile(own: &[External]) -> Result<(), Failure> {
    own.iter().try_for_each(|own| vmcc_bpf::compile(&own.source)).map_err(compile_failure)
}

/// Options with which a process of this program has the same algorithms, without compiling them.
#[cfg(feature = "kernel")]
pub(crate) fn library_options(own: &[External]) -> Vec<String> {
    let absolute =
        |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string();
    let options = |own: &External| {
        let (file, library) = (absolute(&own.source.path), absolute(own.library()));
        ["--algorithm".to_owned(), file, "--library".to_owned(), library]
    };
    own.iter().flat_map(options).collect()
}

#[cfg(feature = "kernel")]
fn compile_failure(error: vmcc_bpf::CompileError) -> Failure {
    match error {
        vmcc_bpf::CompileError::Refused { .. } => Failure::usage(error),
        other => Failure::host(other),
    }
}

/// A build without the kernel engine has nothing to compile for.
#[cfg(not(feature = "kernel"))]
pub(crate) fn compile(_: &[External]) -> Result<(), Failure> {
    Err(crate::failure::without_kernel("an algorithm for the kernel"))
}

/// This program, as what checks an algorithm in a process of its own.
fn checker() -> Result<Checker, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::host(format!("this program's path: {e}")))?;
    Ok(Checker { program, arguments: ["internal", "algorithm-check"].map(Into::into).into() })
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
    match vmcc_bpf::compile(&own.source) {
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
