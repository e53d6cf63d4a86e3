//! The private folder in which an algorithm is compiled: headers, the unit around the user's file, and what the compiler makes.

use crate::error::ExternalError;
use crate::source::Source;
use crate::trust;
use std::fmt::Write;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use vmcc_registry::Registry;

include!(concat!(env!("OUT_DIR"), "/headers.rs"));

const REGISTRY: &str = include_str!("../../../../algorithms/registry.toml");
/// Beginning of the folder's name.
const PREFIX: &str = "vmcc-algorithm-";
/// File that is locked as long as the folder's process lives.
const LOCK: &str = "lock";
/// Age below which a folder without a lock may be about to get one.
const MIN_ABANDONED_AGE: Duration = Duration::from_secs(60);
/// Hooks that every algorithm has.
const HOOKS: [&str; 5] = ["init", "on_ack", "on_congestion", "on_grow", "on_state"];

/// A folder that its owner alone can use. It is removed when this is dropped, or, of a process that was killed, when the next one is
/// made.
#[derive(Debug)]
pub struct Workspace {
    folder: TempDir,
    _lock: File,
}

impl Workspace {
    /// Makes the folder, in that of temporary files, and writes the headers into it.
    ///
    /// # Errors
    /// It cannot be written, or others could replace it.
    pub fn new(source: &Source) -> Result<Self, ExternalError> {
        Self::make(source).map_err(|error| ExternalError::TemporaryFolder { source: Box::new(error) })
    }

    fn make(source: &Source) -> Result<Self, ExternalError> {
        let parent = trust::check(&std::env::temp_dir())?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ExternalError::Write { path, source }
        };
        remove_abandoned(&parent);
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir_in(&parent).map_err(failed(&parent))?;
        let lock = folder.path().join(LOCK);
        let locked = File::create_new(&lock).and_then(|file| file.lock().map(|()| file));
        let workspace = Self { folder, _lock: locked.map_err(failed(&lock))? };
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

/// Removes the folders of this user's processes that were killed.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_abandoned(&entry.path()).unwrap_or(false) {
            // What stays is found by the next.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(folder: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(folder)?;
    let own = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw();
    let old = found.modified()?.elapsed().is_ok_and(|age| age > MIN_ABANDONED_AGE);
    Ok(own && old && File::open(folder.join(LOCK))?.try_lock().is_ok())
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
        source.included_as(&source.path),
        source.entry.name
    )
    .expect("writing to a string");
    unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn folders_of_killed_processes_are_removed() {
        let parent = tempfile::tempdir().expect("a folder");
        let make = |name: &str, age: Duration| {
            let folder = parent.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&folder).expect("made");
            let lock = File::create(folder.join(LOCK)).expect("made");
            let opened = File::open(&folder).expect("there");
            opened.set_modified(SystemTime::now() - age).expect("changed");
            (folder, lock)
        };
        let old = 2 * MIN_ABANDONED_AGE;
        let (killed, unlocked) = make("killed", old);
        drop(unlocked);
        let (alive, locked) = make("alive", old);
        locked.lock().expect("nobody has it");
        let (new, _lock) = make("new", Duration::ZERO);
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&alive, &link).expect("made");
        remove_abandoned(parent.path());
        assert!(!killed.exists() && alive.exists() && new.exists() && link.exists());
        drop(locked);
        remove_abandoned(parent.path());
        assert!(!alive.exists() && new.exists());
    }
}
