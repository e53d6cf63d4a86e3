//! The private folder in which an algorithm is compiled: headers, the unit around the user's file, and what the compiler makes.

use crate::error::ExternalError;
use crate::source::Source;
use crate::trust;
use std::fmt::Write;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use vmcc_registry::Registry;

include!(concat!(env!("OUT_DIR"), "/headers.rs"));

const REGISTRY: &str = include_str!("../../../../algorithms/registry.toml");
/// Hooks that every algorithm has.
const HOOKS: [&str; 5] = ["init", "on_ack", "on_congestion", "on_grow", "on_state"];

/// A folder that its owner alone can use. It is removed when this is dropped.
#[derive(Debug)]
pub struct Workspace {
    folder: TempDir,
}

impl Workspace {
    /// Makes the folder, in that of temporary files, and writes the headers into it.
    ///
    /// # Errors
    /// It cannot be written, or others could replace it.
    pub fn new(source: &Source) -> Result<Self, ExternalError> {
        let parent = trust::check(&std::env::temp_dir())?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ExternalError::Write { path, source }
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix("vmcc-algorithm-").permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir_in(&parent).map_err(failed(&parent))?;
        let workspace = Self { folder };
        let include = workspace.include();
        let written = write_files(&include, HEADERS.iter().copied())
            .and_then(|()| fs::write(include.join("cc_params.h"), parameters(source)));
        written.map_err(failed(&include))?;
        Ok(workspace)
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Folder of the headers.
    pub fn include(&self) -> PathBuf {
        self.path().join("include")
    }

    /// Writes a file into the folder and returns its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, ExternalError> {
        let path = self.path().join(name);
        match fs::write(&path, text) {
            Ok(()) => Ok(path),
            Err(source) => Err(ExternalError::Write { path, source }),
        }
    }
}

/// Writes files by their path below `folder`, with the folders that they need.
///
/// # Errors
/// The file system refuses.
pub fn write_files<'a>(folder: &Path, files: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// `cc_params.h` for the registry's algorithms, whose headers can be included, and the one of the file.
fn parameters(source: &Source) -> String {
    let mut registry = Registry::parse(REGISTRY).expect("the build has parsed it");
    registry.algorithms.push(source.entry.clone());
    registry.c_header()
}

/// Names of the functions that the file must define.
pub(crate) fn hooks(source: &Source) -> Vec<String> {
    let detect = source.entry.detects.then_some("detect");
    HOOKS.into_iter().chain(detect).map(|hook| format!("{}_{hook}", source.entry.name)).collect()
}

/// The C text that is compiled natively: the file between declarations of its hooks and the table of them. The compiler's messages have
/// the file's own lines.
pub(crate) fn native_unit(source: &Source) -> String {
    let mut unit = format!("#define CC_DETECTS {}\n#include \"cc.h\"\n", u8::from(source.entry.detects));
    for hook in hooks(source) {
        let arguments = if hook.ends_with("_detect") { "CC_DETECT_ARGS" } else { "CC_HOOK_ARGS" };
        writeln!(unit, "static void {hook}({arguments});").expect("writing to a string");
    }
    write!(
        unit,
        "{}#line 1 \"end of the file\"\n#include \"external.h\"\nCC_EXTERNAL({});\n",
        source.included(),
        source.entry.name
    )
    .expect("writing to a string");
    unit
}
