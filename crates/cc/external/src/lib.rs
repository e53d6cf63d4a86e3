//! Algorithms of users' own C files: compiled by the system's C compiler, checked in a process of their own, loaded into this one.
//!
//! The file is what an algorithm of the registry is (`algorithms/include/cc.h`), and carries its registry entry in a comment. The
//! headers are embedded, so the program needs a C compiler and no source tree. A loaded algorithm is found by
//! [`vmcc_cc::Algorithm::by_name`] for the rest of the process.
//!
//! 1. [`Source::read`]: name, text and description; as root, refused if another user could have written it.
//! 2. Compilation in a private folder ([`Workspace`]), with traps at undefined behavior; the object must define all hooks, call nothing
//!    else, and have no variables.
//! 3. [`Checker`]: every hook alone, connections of 1 to 32 paths, the vectors beside the file.
//! 4. Compilation as the registry's algorithms are compiled; the shared object is loaded, its interface compared, its algorithm
//!    registered.

mod check;
mod compile;
mod error;
mod library;
mod object;
mod process;
mod source;
mod template;
mod trust;
mod workspace;

pub use check::{Checker, Passed, worker};
pub use compile::{check_included, shortened};
pub use error::{Class, ExternalError};
pub use process::{COMPILER_LIMITS, Limits, RunError, run};
pub use source::Source;
pub use template::create;
pub use workspace::{Workspace, write_files};

use compile::{Compiler, Purpose};
use std::path::{Path, PathBuf};
use vmcc_cc::Algorithm;
use vmcc_config::ReadError;

/// Bytes of a vector file, or of a header.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// An algorithm that was loaded from a user's file.
#[derive(Debug)]
pub struct External {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The file.
    pub source: Source,
    /// Headers (`.h`) in the folder of the file that it includes: name and content.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Extent of the check.
    pub passed: Passed,
    /// The compiler's warnings; empty without.
    pub warnings: String,
    library: PathBuf,
    /// Has the library until this is dropped.
    _workspace: Workspace,
}

impl External {
    /// The shared object, for other processes ([`load_compiled`]) as long as this is there.
    pub fn library(&self) -> &Path {
        &self.library
    }
}

/// True if an argument is the file of an algorithm rather than the name of one.
pub fn is_file(argument: &str) -> bool {
    argument.contains('/') || argument.ends_with(".c")
}

/// Compiles and checks a file, and registers its algorithm.
///
/// # Errors
/// The file is not a working algorithm, or this host cannot compile or load it.
pub fn load(file: &Path, checker: &Checker) -> Result<External, ExternalError> {
    let source = Source::read(file)?;
    source.check_name()?;
    let workspace = Workspace::new(&source)?;
    let unit = workspace.write("unit.c", &workspace::native_unit(&source))?;
    let compiler = Compiler::from_environment(checker.stop);
    let checked = compiler.object(&source, &workspace, &unit, Purpose::Check)?;
    object::check(&source, &checked.path, compiler.program())?;
    compiler.link(&source, &checked.path)?;
    copy_vectors(&source, &workspace)?;
    let passed = checker.run(&source, workspace.path())?;
    let used = compiler.object(&source, &workspace, &unit, Purpose::Use)?;
    let library = compiler.link(&source, &used.path)?;
    let headers = headers_beside(&source, &used.included)?;
    let algorithm = library::register(&source, &library)?;
    Ok(External {
        algorithm,
        source,
        headers,
        passed,
        warnings: used.warnings,
        library,
        _workspace: workspace,
    })
}

/// Registers the algorithm of a file whose shared object another process has made and checked ([`External::library`]).
///
/// # Errors
/// The object cannot be loaded, or is not of this interface.
pub fn load_compiled(file: &Path, library: &Path) -> Result<Algorithm, ExternalError> {
    trust::check_for_root(library)?;
    library::register(&Source::read(file)?, library)
}

/// Reads those of the included files that are headers beside the file.
fn headers_beside(source: &Source, included: &[PathBuf]) -> Result<Vec<(String, Vec<u8>)>, ExternalError> {
    let beside = |path: &&PathBuf| {
        path.parent() == Some(&*source.folder) && path.extension().is_some_and(|extension| extension == "h")
    };
    let mut headers = Vec::new();
    for path in included.iter().filter(beside) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let content = vmcc_config::read_regular(path, MAX_FILE_BYTES)
            .map_err(|source| ExternalError::Read { path: path.clone(), source })?;
        headers.push((name.to_owned(), content));
    }
    Ok(headers)
}

/// Copies the vectors beside the file, if there are any.
fn copy_vectors(source: &Source, workspace: &Workspace) -> Result<(), ExternalError> {
    let path = source.path.with_extension("csv");
    let failed = |source| ExternalError::Read { path: path.clone(), source };
    let bytes = match vmcc_config::read_regular(&path, MAX_FILE_BYTES) {
        Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(failed)?,
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| failed(ReadError::Io(std::io::Error::other("it is not UTF-8 text; give a CSV file"))))?;
    workspace.write(check::VECTORS, &text).map(drop)
}
