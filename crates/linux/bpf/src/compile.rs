//! Compiling a user's own algorithm into the objects that the kernel loads.
//!
//! The wrapper, its headers and libbpf's are embedded; clang is the only thing needed. The objects stay for the rest of the process, as
//! those of the registry do, and [`crate::Loaded::load`] finds them.

use crate::clang;
use crate::objects::{self, Object};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use vmcc_external::{ExternalError, Source, Workspace, shortened, write_files};

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// Error of compiling an algorithm for the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// There is no clang.
    #[error(
        "{}: there is no clang to compile it for the kernel; install clang 14 or newer (Debian: `apt install clang`), or set CLANG to one",
        path.display()
    )]
    NoClang {
        /// The user's file.
        path: PathBuf,
    },
    /// clang cannot be started.
    #[error("`{clang}` cannot be started: {source}; install clang, or set CLANG to one")]
    Start {
        /// The program.
        clang: String,
        /// The cause.
        source: io::Error,
    },
    /// clang refused the file.
    #[error("{}: `{clang}` does not compile it for the kernel:\n{messages}", path.display())]
    Refused {
        /// The user's file.
        path: PathBuf,
        /// The program.
        clang: String,
        /// Its messages.
        messages: String,
    },
    /// The folder of the compilation.
    #[error(transparent)]
    Workspace(#[from] ExternalError),
    /// A file of that folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Compiles an algorithm that [`vmcc_external::load`] has checked and registered.
///
/// # Errors
/// clang is missing or refuses it.
pub fn compile(source: &Source) -> Result<(), CompileError> {
    if objects::has(&source.entry.name) {
        return Ok(());
    }
    let path = || source.path.clone();
    let clang = clang::find().ok_or_else(|| CompileError::NoClang { path: path() })?;
    let workspace = Workspace::new(source)?;
    let kernel = workspace.path().join("kernel");
    let written = write_files(&kernel, SOURCES.iter().copied());
    written.map_err(|source| CompileError::File { path: kernel, source })?;
    let included = workspace.write("algorithm.c", &source.included())?;
    let build = Build { clang, source, workspace: &workspace, included };
    let program = build.object(clang::WRAPPER, "cc.o")?;
    let replay = build.object(clang::REPLAY, "replay.o")?;
    objects::add(Object {
        name: String::leak(source.entry.name.clone()),
        build: clang::fingerprint(&program),
        program: Vec::leak(program),
        replay: Vec::leak(replay),
    });
    Ok(())
}

struct Build<'a> {
    clang: String,
    source: &'a Source,
    workspace: &'a Workspace,
    included: PathBuf,
}

impl Build<'_> {
    fn object(&self, program: &str, name: &str) -> Result<Vec<u8>, CompileError> {
        let folder = self.workspace.path();
        let target = folder.join(name);
        let mut command = Command::new(&self.clang);
        command.args(clang::OPTIONS).args(clang::defines(&self.source.entry, &self.included));
        command.arg(format!("-ffile-prefix-map={}=.", folder.display())).env("LC_ALL", "C");
        command.arg("-iquote").arg(&self.source.folder);
        for include in ["kernel/cc", "kernel/shared", "include", "kernel"] {
            command.arg("-I").arg(folder.join(include));
        }
        command.arg(folder.join("kernel").join(program)).arg("-o").arg(&target);
        let output =
            command.output().map_err(|source| CompileError::Start { clang: self.clang.clone(), source })?;
        if !output.status.success() {
            return Err(CompileError::Refused {
                path: self.source.path.clone(),
                clang: self.clang.clone(),
                messages: shortened(&String::from_utf8_lossy(&output.stderr)),
            });
        }
        read(&target)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CompileError> {
    std::fs::read(path).map_err(|source| CompileError::File { path: path.to_owned(), source })
}
