//! Compiling a user's own algorithm into the objects that the kernel loads.
//!
//! The wrapper, its headers and libbpf's are embedded; clang is the only thing needed. The objects stay for the rest of the process, as
//! those of the registry do, and [`crate::Loaded::load`] finds them.

use crate::clang;
use crate::objects::{self, Object};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use vmcc_external::{
    COMPILER_LIMITS, ExternalError, RunError, Source, Workspace, check_included, run, shortened, write_files,
};

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// File of the workspace that the wrapper includes: the user's.
const UNIT: &str = "algorithm.c";

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
    /// clang is another program.
    #[error(
        "{}: `{clang}` makes no object of it for the kernel ({source}); set CLANG to clang 14 or newer",
        path.display()
    )]
    NoObject {
        /// The user's file.
        path: PathBuf,
        /// The program.
        clang: String,
        /// The cause.
        source: io::Error,
    },
    /// The folder of the compilation, a header that another user could have written, or an interrupt.
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

/// Compiles an algorithm that [`vmcc_external::load`] has checked and registered. clang is killed when `stop` becomes true.
///
/// # Errors
/// clang is missing or refuses it.
pub fn compile(source: &Source, stop: &AtomicBool) -> Result<(), CompileError> {
    if !objects::has(&source.entry.name) {
        objects::add(build(source, stop)?);
    }
    Ok(())
}

fn build(source: &Source, stop: &AtomicBool) -> Result<Object, CompileError> {
    let clang = clang::find().ok_or_else(|| CompileError::NoClang { path: source.path.clone() })?;
    let workspace = Workspace::new(source)?;
    write_folder(workspace.path().join("kernel"), SOURCES)?;
    // The object has lines of the source, which clang takes from the file of that name where it runs. Neither they nor the name depend on
    // the folder of the user's file: the same text is the same build.
    let name = source.file_name();
    let lines = write_folder(workspace.path().join("lines"), &[(name.as_str(), source.text.as_str())])?;
    workspace.write(UNIT, &source.included_as(Path::new(&name)))?;
    let build = Build { clang, source, workspace: &workspace, lines, stop };
    let program = build.object(clang::WRAPPER, "cc")?;
    let replay = build.object(clang::REPLAY, "replay")?;
    Ok(Object {
        name: String::leak(source.entry.name.clone()),
        build: clang::fingerprint(&program),
        program: Vec::leak(program),
        replay: Vec::leak(replay),
    })
}

fn write_folder<'a>(path: PathBuf, files: &[(&'a str, &'a str)]) -> Result<PathBuf, CompileError> {
    match write_files(&path, files.iter().copied()) {
        Ok(()) => Ok(path),
        Err(source) => Err(CompileError::File { path, source }),
    }
}

struct Build<'a> {
    clang: String,
    source: &'a Source,
    workspace: &'a Workspace,
    lines: PathBuf,
    stop: &'a AtomicBool,
}

impl Build<'_> {
    fn object(&self, program: &str, stem: &str) -> Result<Vec<u8>, CompileError> {
        let folder = self.workspace.path();
        let (target, rule) = (folder.join(format!("{stem}.o")), folder.join(format!("{stem}.d")));
        let mut command = Command::new(self.program());
        command.current_dir(&self.lines).env("LC_ALL", "C");
        command.args(clang::OPTIONS).args(clang::defines(&self.source.entry, Path::new(UNIT)));
        // The last one that fits holds, also where the folder of temporary files is in that of the file.
        command.arg(unnamed(&self.source.folder)).arg(unnamed(folder));
        let includes =
            ["kernel/cc", "kernel/shared", "include", "kernel"].map(|include| folder.join(include));
        // A header beside the file hides none of vmcc's.
        for quoted in [folder].into_iter().chain(includes.iter().map(PathBuf::as_path)) {
            command.arg("-iquote").arg(quoted);
        }
        command.arg("-iquote").arg(&self.source.folder);
        for include in &includes {
            command.arg("-I").arg(include);
        }
        command.arg("-MD").arg("-MF").arg(&rule);
        command.arg(folder.join("kernel").join(program)).arg("-o").arg(&target);
        self.run(&mut command)?;
        let object = std::fs::read(&target).map_err(|source| CompileError::NoObject {
            path: self.source.path.clone(),
            clang: self.clang.clone(),
            source,
        })?;
        check_included(&rule)?;
        Ok(object)
    }

    /// clang, as it is found from any folder.
    fn program(&self) -> PathBuf {
        let given = PathBuf::from(&self.clang);
        if self.clang.contains('/') { std::path::absolute(&given).unwrap_or(given) } else { given }
    }

    fn run(&self, command: &mut Command) -> Result<(), CompileError> {
        let clang = || self.clang.clone();
        let refused =
            |messages| CompileError::Refused { path: self.source.path.clone(), clang: clang(), messages };
        let output = run(command, COMPILER_LIMITS, self.stop).map_err(|error| match error {
            RunError::System(source) => CompileError::Start { clang: clang(), source },
            RunError::Interrupted => ExternalError::Interrupted.into(),
            timeout => refused(timeout.to_string()),
        })?;
        if output.status.success() {
            Ok(())
        } else {
            Err(refused(shortened(&String::from_utf8_lossy(&output.stderr))))
        }
    }
}

/// Option that keeps the name of a folder out of the object.
fn unnamed(folder: &Path) -> OsString {
    let mut option = OsString::from("-ffile-prefix-map=");
    option.push(folder);
    option.push("=.");
    option
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn built(file: &Path) -> Result<u64, CompileError> {
        let source = Source::read(file).expect("an algorithm");
        build(&source, &AtomicBool::new(false)).map(|object| object.build)
    }

    #[test]
    fn build_depends_on_the_text_and_not_on_its_path() {
        let dir = tempfile::tempdir().expect("a folder");
        let other = dir.path().join("other");
        vmcc_external::create("spelt", dir.path()).expect("written");
        vmcc_external::create("spelt", &other).expect("written");
        let first = built(&dir.path().join("spelt.c")).expect("compiles");
        for path in ["./spelt.c", "other/../spelt.c", "other/spelt.c"] {
            assert_eq!(built(&dir.path().join(path)).expect("compiles"), first, "{path}");
        }
        let file = other.join("spelt.c");
        let text = fs::read_to_string(&file).expect("there").replace("congestions++", "congestions += 2");
        fs::write(&file, text).expect("written");
        assert_ne!(built(&file).expect("compiles"), first);
    }

    #[test]
    fn headers_beside_the_file_hide_none_of_vmcc_and_are_checked() {
        let dir = tempfile::tempdir().expect("a folder");
        vmcc_external::create("headed", dir.path()).expect("written");
        let file = dir.path().join("headed.c");
        for header in ["shared.h", "coupling.h", "mp_sk.h", "host.h"] {
            fs::write(dir.path().join(header), "#error not this one\n").expect("written");
        }
        let header = dir.path().join("own.h");
        fs::write(&header, "#define OWN 1\n").expect("written");
        let text = fs::read_to_string(&file).expect("there");
        let include = "#ifdef __bpf__\n#include \"own.h\"\n_Static_assert(OWN == 1, \"\");\n#endif\n";
        fs::write(&file, text + include).expect("written");
        built(&file).expect("compiles");
        if std::os::unix::fs::chown(&header, Some(4242), None).is_err() {
            eprintln!("skipped: only CAP_CHOWN can give files away");
            return;
        }
        let error = built(&file).expect_err("another user's").to_string();
        assert!(error.contains("own.h: it belongs to user 4242"), "{error}");
    }
}
