//! The system's C compiler.

use crate::error::ExternalError;
use crate::process::{self, COMPILER_LIMITS, RunError};
use crate::source::Source;
use crate::trust;
use crate::workspace::Workspace;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;

/// Lines of a compiler's messages that an error carries.
const MAX_MESSAGE_LINES: usize = 40;

/// Purpose of a shared object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For the checks: traps at undefined behavior, cannot use floating-point registers.
    Check,
    /// For use: compiled as the registry's algorithms are.
    Use,
}

/// Compilers that are tried in this order unless `CC` names one.
const COMPILERS: [&str; 3] = ["cc", "gcc", "clang"];

/// `CC` and its arguments, or the first compiler that runs.
pub(crate) struct Compiler {
    words: Vec<String>,
    stop: &'static AtomicBool,
}

/// An object file, the compiler's warnings, and the files that were included.
pub(crate) struct Object {
    pub(crate) path: PathBuf,
    pub(crate) warnings: String,
    pub(crate) included: Vec<PathBuf>,
}

impl Compiler {
    /// It is killed when `stop` becomes true.
    pub(crate) fn from_environment(stop: &'static AtomicBool) -> Self {
        let named = std::env::var("CC").unwrap_or_default();
        let words: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
        if !words.is_empty() {
            return Self { words, stop };
        }
        let runs = |name: &&str| {
            let mut version = Command::new(name);
            version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        };
        let found = COMPILERS.into_iter().find(runs).unwrap_or(COMPILERS[0]);
        Self { words: vec![found.to_owned()], stop }
    }

    pub(crate) fn program(&self) -> &str {
        &self.words[0]
    }

    /// Compiles a unit of the workspace. No header that the file includes may be another user's.
    pub(crate) fn object(
        &self,
        source: &Source,
        workspace: &Workspace,
        unit: &Path,
        purpose: Purpose,
    ) -> Result<Object, ExternalError> {
        let stem = match purpose {
            Purpose::Check => "check",
            Purpose::Use => "use",
        };
        let path = workspace.path().join(stem).with_extension("o");
        let dependencies = workspace.path().join(stem).with_extension("d");
        let mut command = self.command();
        command.args(["-std=c11", "-Wall", "-Wextra", "-Wno-unused-function", "-ffreestanding", "-fPIC"]);
        command.args(["-fvisibility=hidden", "-fno-stack-protector"]);
        match purpose {
            Purpose::Check => {
                command.args(["-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]);
                if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
                    command.arg("-mgeneral-regs-only");
                }
            }
            Purpose::Use => drop(command.arg("-O2")),
        }
        // A header beside the file hides none of vmcc's.
        command.arg("-iquote").arg(workspace.include()).arg("-iquote").arg(&source.folder);
        command.arg("-I").arg(workspace.include());
        command.arg("-MD").arg("-MF").arg(&dependencies).arg("-c").arg(unit).arg("-o").arg(&path);
        let warnings = self.run(&mut command, source)?;
        // A program that is no compiler succeeds as well.
        path.metadata().map_err(|error| ExternalError::Object {
            path: source.path.clone(),
            program: self.program().to_owned(),
            problem: error.to_string(),
        })?;
        let included = check_included(&dependencies)?;
        Ok(Object { path, warnings, included })
    }

    /// Links an object into a shared one.
    pub(crate) fn link(&self, source: &Source, object: &Path) -> Result<PathBuf, ExternalError> {
        let library = object.with_extension("so");
        let mut command = self.command();
        if cfg!(target_os = "macos") {
            command.args(["-dynamiclib", "-undefined", "dynamic_lookup"]);
        } else {
            // Constants with addresses, which the dynamic linker fills in, cannot be written afterwards.
            command.args(["-shared", "-nostdlib", "-Wl,-z,relro"]);
        }
        command.arg(object).arg("-o").arg(&library);
        self.run(&mut command, source)?;
        Ok(library)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        // Messages in English, as documented.
        command.args(&self.words[1..]).env("LC_ALL", "C");
        command
    }

    /// Runs it; returns its warnings.
    fn run(&self, command: &mut Command, source: &Source) -> Result<String, ExternalError> {
        let program = || self.program().to_owned();
        let refused =
            |messages| ExternalError::Compile { path: source.path.clone(), program: program(), messages };
        let done = process::run(command, COMPILER_LIMITS, self.stop).map_err(|error| match error {
            RunError::System(source) => ExternalError::NoCompiler { program: program(), source },
            RunError::Interrupted => ExternalError::Interrupted,
            RunError::Timeout { .. } => refused(error.to_string()),
        });
        let Output { status, stderr, .. } = done?;
        let messages = shortened(&String::from_utf8_lossy(&stderr));
        if status.success() {
            Ok(messages)
        } else {
            Err(refused(if messages.is_empty() { format!("{status}") } else { messages }))
        }
    }
}

/// Messages without trailing space, at most [`MAX_MESSAGE_LINES`] lines.
pub fn shortened(messages: &str) -> String {
    let lines: Vec<&str> = messages.trim_end().lines().collect();
    let mut text = lines[..lines.len().min(MAX_MESSAGE_LINES)].join("\n");
    if lines.len() > MAX_MESSAGE_LINES {
        text.push_str(&format!("\n... and {} more lines", lines.len() - MAX_MESSAGE_LINES));
    }
    text
}

/// Resolves the files that a compiler has included, which the rule that it wrote (`-MD`) lists.
///
/// # Errors
/// The rule cannot be read. For root: another user could have written one of the files.
pub fn check_included(rule: &Path) -> Result<Vec<PathBuf>, ExternalError> {
    let bytes =
        std::fs::read(rule).map_err(|source| ExternalError::Write { path: rule.to_owned(), source })?;
    prerequisites(&bytes).iter().map(|file| trust::check_for_root(file)).collect()
}

/// Prerequisites of a rule of make.
fn prerequisites(rule: &[u8]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut words: Vec<Vec<u8>> = vec![Vec::new()];
    let mut bytes = rule.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = byte == b'\\' && bytes.peek().is_some_and(|next| b" #\\\n".contains(next));
        match (byte, bytes.peek().copied()) {
            (_, Some(b'\n')) if escaped => {
                bytes.next();
                words.push(Vec::new());
            }
            (_, Some(next)) if escaped => {
                bytes.next();
                words.last_mut().expect("never empty").push(next);
            }
            (b'$', Some(b'$')) => {
                bytes.next();
                words.last_mut().expect("never empty").push(b'$');
            }
            (b' ' | b'\n', _) => words.push(Vec::new()),
            _ => words.last_mut().expect("never empty").push(byte),
        }
    }
    let files = words.into_iter().filter(|word| !word.is_empty());
    // The first is the target, with its colon.
    files.skip(1).map(|word| PathBuf::from(OsStr::from_bytes(&word))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prerequisites_of_a_rule_are_unescaped() {
        let found = prerequisites(b"/t/a.o: /t/a.c \\\n my\\ dir/x.h a$$b.h c\\#d.h\n");
        assert_eq!(found, ["/t/a.c", "my dir/x.h", "a$b.h", "c#d.h"].map(PathBuf::from));
    }

    #[test]
    fn long_messages_are_shortened() {
        let text = shortened(&"error\n".repeat(100));
        assert_eq!(text.lines().count(), MAX_MESSAGE_LINES + 1);
        assert!(text.ends_with("60 more lines"), "{text}");
    }
}
