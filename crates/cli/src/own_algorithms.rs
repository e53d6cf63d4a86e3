//! Algorithms of the user's own C files, as `--algorithm` and `vmcc up` take them.

use crate::failure::{Failure, external_failure};
use crate::interrupt;
use crate::ui::Ui;
#[cfg(feature = "kernel")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use vmcc_external::{Checker, External};

/// Compiles, checks and registers files, in their order. Ctrl-C ends it after cleaning up.
pub(crate) fn load(files: &[PathBuf], ui: &Ui) -> Result<Vec<External>, Failure> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let stop = interrupt::listen()?;
    let own = |file: &PathBuf| -> Result<External, Failure> {
        let own = vmcc_external::load(file, &checker(stop)?).map_err(|e| external_failure(&e))?;
        if !own.warnings.is_empty() {
            ui.warn(&format!("{}: the compiler warns:\n{}", file.display(), own.warnings));
        }
        Ok(own)
    };
    let loaded = files.iter().map(own).collect();
    if stop.load(Ordering::SeqCst) { Err(Failure::interrupted("interrupted")) } else { loaded }
}

/// Files that results keep of them: their texts, and the headers beside them. Of two headers with one name, that of the first.
pub(crate) fn files(own: &[External]) -> Vec<(String, &[u8])> {
    let mut files: Vec<(String, &[u8])> = Vec::new();
    for own in own {
        files.push((own.source.file_name(), own.source.text.as_bytes()));
        for (name, content) in &own.headers {
            if files.iter().all(|(there, _)| there != name) {
                files.push((name.clone(), content.as_slice()));
            }
        }
    }
    files
}

/// Compiles them for the kernel as well.
#[cfg(feature = "kernel")]
pub(crate) fn compile(own: &[External]) -> Result<(), Failure> {
    let compile = |own: &External| vmcc_bpf::compile(&own.source, interrupt::flag());
    own.iter().try_for_each(compile).map_err(compile_failure)
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
pub(crate) fn compile_failure(error: vmcc_bpf::CompileError) -> Failure {
    match error {
        vmcc_bpf::CompileError::Refused { .. } => Failure::usage(error),
        vmcc_bpf::CompileError::Workspace(error) => external_failure(&error),
        other => Failure::host(other),
    }
}

/// A build without the kernel engine has nothing to compile for.
#[cfg(not(feature = "kernel"))]
pub(crate) fn compile(_: &[External]) -> Result<(), Failure> {
    Err(crate::failure::without_kernel("an algorithm for the kernel"))
}

/// This program, as what checks an algorithm in a process of its own.
fn checker(stop: &'static AtomicBool) -> Result<Checker, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::host(format!("this program's path: {e}")))?;
    Ok(Checker { program, arguments: ["internal", "algorithm-check"].map(Into::into).into(), stop })
}
