//! Errors of a user's own algorithm, each with its remedy.

use std::io;
use std::path::PathBuf;
use vmcc_cc::NameTaken;
use vmcc_config::ReadError;

/// Class of an error: the caller's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The file is wrong; it fails on every host.
    BadInput,
    /// The file may be right; this host lacks something.
    HostCannot,
    /// The user stopped it.
    Interrupted,
}

/// Error of compiling, checking or loading an algorithm. Nothing has been registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExternalError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: ReadError,
    },
    /// The file's name is not that of an algorithm.
    #[error(
        "{}: an algorithm's file is NAME.c, and NAME is made of a-z, 0-9 and _, starts with a letter, has at most 12 characters, and is not \
         cc nor begins with cc_, as names of the headers do; rename the file",
        path.display()
    )]
    FileName {
        /// The file.
        path: PathBuf,
    },
    /// A new algorithm cannot have that name.
    #[error(
        "`{name}` is no NAME of an algorithm: it is made of a-z, 0-9 and _, starts with a letter, has at most 12 characters, and is not cc \
         nor begins with cc_; give a folder after it"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The file does not describe its algorithm.
    #[error(
        "{}: there is no description; begin the file with a comment that opens with a line `/* vmcc` and holds the keys of a registry \
         entry:\n/* vmcc\n * title = \"...\"\n * source = \"...\"\n * coupled = true\n * needs_ecn = false\n */\n`vmcc algorithm new NAME` \
         writes a file that has one",
        path.display()
    )]
    NoDescription {
        /// The file.
        path: PathBuf,
    },
    /// The description is not a registry entry.
    #[error("{}: description: {problem}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// The problem, with its line.
        problem: String,
    },
    /// An algorithm has its name.
    #[error("{}: {source}", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
        /// The algorithm that has it.
        source: NameTaken,
    },
    /// Other users could have written what would be run.
    #[error("{}: {problem}", path.display())]
    Untrusted {
        /// The file or folder.
        path: PathBuf,
        /// The owner or mode, with the remedy.
        problem: String,
    },
    /// The folder of temporary files is missing, full or another user's.
    #[error("the folder of temporary files cannot be used: {source}; set TMPDIR to another folder")]
    TemporaryFolder {
        /// The cause.
        source: Box<ExternalError>,
    },
    /// There is no C compiler.
    #[error(
        "the C compiler `{program}` cannot be started ({source}); install one (Debian: `apt install gcc libc6-dev`), or set CC to one"
    )]
    NoCompiler {
        /// Program that was tried.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The compiler refused the file.
    #[error("{}: `{program}` does not compile it:\n{messages}", path.display())]
    Compile {
        /// The file.
        path: PathBuf,
        /// The compiler.
        program: String,
        /// Its messages.
        messages: String,
    },
    /// Hooks are missing.
    #[error(
        "{}: it does not define {}; an algorithm has the hooks init, on_ack, on_congestion, on_grow and on_state, each begun by \
         `CC_HOOK({name}, HOOK)` with the file's name; one with `detects = true` begins another by `CC_DETECT_HOOK({name})`",
        path.display(),
        hooks.join(", ")
    )]
    MissingHooks {
        /// The file.
        path: PathBuf,
        /// Name of the algorithm.
        name: String,
        /// Functions that are missing.
        hooks: Vec<String>,
    },
    /// It uses functions that are not in it.
    #[error(
        "{}: it uses {}, which the file does not define; an algorithm is freestanding C without libc and without floating point (the \
         kernel has neither): use integers and the helpers of common.h",
        path.display(),
        functions.join(", ")
    )]
    UndefinedFunctions {
        /// The file.
        path: PathBuf,
        /// Their names.
        functions: Vec<String>,
    },
    /// It has variables that outlive a call.
    #[error(
        "{}: {} can change and would be shared by all connections; keep the state of a path in `self->priv` (CC_STATE), and declare tables \
         const",
        path.display(),
        variables.join(", ")
    )]
    MutableGlobals {
        /// The file.
        path: PathBuf,
        /// Their names.
        variables: Vec<String>,
    },
    /// The compiler's output cannot be read.
    #[error("{}: the object that `{program}` made cannot be read: {problem}; set CC to gcc or clang", path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// The compiler.
        program: String,
        /// The problem.
        problem: String,
    },
    /// The shared object cannot be loaded.
    #[error(
        "{}: the compiled algorithm cannot be loaded: {problem}; if {} is mounted noexec, set TMPDIR to a folder that is not",
        path.display(),
        folder.display()
    )]
    Load {
        /// The file.
        path: PathBuf,
        /// Folder of the shared object.
        folder: PathBuf,
        /// The problem.
        problem: String,
    },
    /// It was compiled for another interface.
    #[error(
        "{}: it was compiled for another interface ({found}) than this vmcc's ({expected}); compile with the headers of this vmcc, and with \
         a CC that does not change the layout of structs",
        path.display()
    )]
    Interface {
        /// The file.
        path: PathBuf,
        /// Version and sizes of its structs.
        found: String,
        /// Those of this program.
        expected: String,
    },
    /// It broke a rule that holds for every algorithm.
    #[error("{}: {problem} (in the check of {stage})", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The part of the check.
        stage: String,
        /// The rule, or the crash.
        problem: String,
    },
    /// The check did not run.
    #[error("{}: the check cannot be run: {problem}", path.display())]
    Check {
        /// The file.
        path: PathBuf,
        /// The cause.
        problem: String,
    },
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
    /// A file that was to be written is there.
    #[error("{}: it exists; remove it, or give another NAME or folder", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl ExternalError {
    /// Class of the error.
    pub fn class(&self) -> Class {
        match self {
            Self::TemporaryFolder { .. }
            | Self::NoCompiler { .. }
            | Self::Object { .. }
            | Self::Load { .. }
            | Self::Check { .. }
            | Self::Write { .. } => Class::HostCannot,
            Self::Interrupted => Class::Interrupted,
            _ => Class::BadInput,
        }
    }
}
