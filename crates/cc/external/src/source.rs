//! A user's C file: its name, text and description.

use crate::error::ExternalError;
use crate::trust;
use std::path::{Path, PathBuf};
use vmcc_cc::Algorithm;
use vmcc_config::ReadError;
use vmcc_registry::{Algorithm as Entry, RegistryError};

/// Bytes of a file; the longest algorithm of the registry has 10 kB.
const MAX_BYTES: u64 = 1 << 20;
/// Beginning of the names that the headers define.
const RESERVED: &str = "cc";
/// Beginning of kernel names: it tells vmcc's algorithms from Linux's.
const KERNEL_PREFIX: &str = "mp_";
/// First line of the comment that describes the algorithm.
const DESCRIPTION: &str = "/* vmcc";

/// A user's C file.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path, as the user gave it.
    pub path: PathBuf,
    /// Folder of the file, for headers beside it.
    pub folder: PathBuf,
    /// Its text.
    pub text: String,
    /// Its description: a registry entry.
    pub entry: Entry,
}

impl Source {
    /// Reads a file and its description. As root only if no other user could have written it.
    ///
    /// # Errors
    /// It is unreadable, too long, another user's, or does not describe an algorithm.
    pub fn read(path: &Path) -> Result<Self, ExternalError> {
        let failed = |source| ExternalError::Read { path: path.to_owned(), source };
        // A device that all may write needs another file, not another mode.
        let found = std::fs::metadata(path).map_err(|error| failed(ReadError::Io(error)))?;
        if !found.is_file() {
            return Err(failed(if found.is_dir() { ReadError::Directory } else { ReadError::NotRegular }));
        }
        let resolved = trust::check_for_root(path)?;
        let bytes = vmcc_config::read_regular(&resolved, MAX_BYTES).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            failed(ReadError::Io(std::io::Error::other("it is not UTF-8 text; give a C source file")))
        })?;
        let folder = resolved.parent().unwrap_or(&resolved).to_owned();
        Self::parse(path, &text).map(|source| Self { folder, ..source })
    }

    /// A file with this text.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ExternalError> {
        let name = name(path).ok_or_else(|| ExternalError::FileName { path: path.to_owned() })?;
        let entry = entry(path, &name, text)?;
        let folder = path.parent().unwrap_or(path).to_owned();
        Ok(Self { path: path.to_owned(), folder, text: text.to_owned(), entry })
    }

    /// Checks that no other algorithm has its name.
    pub(crate) fn check_name(&self) -> Result<(), ExternalError> {
        Algorithm::check_names(&self.entry)
            .map_err(|source| ExternalError::Taken { path: self.path.clone(), source })
    }

    /// Name of the file, without its folder.
    pub fn file_name(&self) -> String {
        format!("{}.c", self.entry.name)
    }

    /// Its text, for a file that includes it: messages have this file's name and lines.
    pub fn included_as(&self, name: &Path) -> String {
        let quoted = name.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        format!("#line 1 \"{quoted}\"\n{}\n", self.text)
    }
}

/// Name of the algorithm in a file; `None` if the file's name is none.
fn name(path: &Path) -> Option<String> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".c")?;
    // The compiler is given the path inside a line of C.
    let printable = path.to_str().is_some_and(|path| !path.chars().any(char::is_control));
    (is_name(stem) && printable).then(|| stem.to_owned())
}

/// True for a name that an algorithm can have. Hooks begin with it.
pub(crate) fn is_name(name: &str) -> bool {
    let reserved = name.strip_prefix(RESERVED).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    let fits = name.len() + KERNEL_PREFIX.len() <= vmcc_registry::MAX_KERNEL_NAME;
    vmcc_registry::is_identifier(name) && fits && !reserved
}

fn entry(path: &Path, name: &str, text: &str) -> Result<Entry, ExternalError> {
    let text = description(text).ok_or_else(|| ExternalError::NoDescription { path: path.to_owned() })?;
    let wrong = |problem: &str| ExternalError::Description {
        path: path.to_owned(),
        problem: problem.trim_end().to_owned(),
    };
    let entry = Entry::parse(name, &text).map_err(|error| match error {
        RegistryError::Syntax(error) => wrong(&error.to_string()),
        RegistryError::Entry { problem, .. } => wrong(&problem),
        other => wrong(&other.to_string()),
    })?;
    if !entry.kernel_name.starts_with(KERNEL_PREFIX) {
        let kernel = &entry.kernel_name;
        return Err(wrong(&format!(
            "kernel name `{kernel}` could be that of one of Linux's algorithms; begin it with {KERNEL_PREFIX}, or leave it out"
        )));
    }
    Ok(entry)
}

/// The TOML in the comment that describes the algorithm, on the lines where it is in the file.
fn description(text: &str) -> Option<String> {
    let start = text.lines().position(|line| line.trim() == DESCRIPTION)?;
    let mut toml = "\n".repeat(start + 1);
    for line in text.lines().skip(start + 1) {
        let line = line.trim_start();
        let (line, end) = match line.split_once("*/") {
            Some((before, _)) => (before, true),
            None => (line, false),
        };
        toml.push_str(line.strip_prefix('*').unwrap_or(line));
        toml.push('\n');
        if end {
            return Some(toml);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "/* SPDX */\n/* vmcc\n * title = \"t\"\n * source = \"s\"\n * coupled = true\n * needs_ecn = false\n */\n";

    fn problem(text: &str) -> String {
        entry(Path::new("a.c"), "a", text).expect_err("refused").to_string()
    }

    #[test]
    fn description_is_a_registry_entry_in_a_comment() {
        let entry = entry(Path::new("mylia.c"), "mylia", GOOD).expect("well-formed");
        assert_eq!((entry.kernel_name.as_str(), entry.title.as_str()), ("mp_mylia", "t"));
        assert!(entry.coupled && !entry.needs_ecn && entry.params.is_empty());
    }

    #[test]
    fn errors_of_a_description_name_the_line_of_the_file() {
        assert!(problem("int x;\n").contains("/* vmcc"));
        assert!(
            problem("/* vmcc\n * title = \"t\"\n").contains("no description"),
            "the comment does not end"
        );
        let unknown = problem(&GOOD.replace("coupled", "coupledd"));
        assert!(unknown.contains("line 5") && unknown.contains("coupledd"), "{unknown}");
        assert!(problem(&GOOD.replace("true", "maybe")).contains("line 5"));
        assert!(problem(&GOOD.replace(" * source = \"s\"\n", "")).contains("source"));
        let named = |kernel: &str| GOOD.replace(" * source", &format!(" * kernel = \"{kernel}\"\n * source"));
        assert!(problem(&named("bbr")).contains("begin it with mp_"));
        entry(Path::new("a.c"), "a", &named("mp_b")).expect("one of vmcc's");
    }

    #[test]
    fn files_are_named_after_their_algorithm() {
        for wrong in ["Mylia.c", "my-lia.c", "mylia.h", "1a.c", ".c", "a_name_too_long.c", "a\nb/x.c", ""] {
            assert_eq!(name(Path::new(wrong)), None, "{wrong}");
        }
        for reserved in ["cc.c", "cc_.c", "cc_dctcp.c"] {
            assert_eq!(name(Path::new(reserved)), None, "{reserved}");
        }
        assert_eq!(name(Path::new("cca.c")).as_deref(), Some("cca"));
        assert_eq!(name(Path::new("some where/mylia.c")).as_deref(), Some("mylia"));
    }
}
