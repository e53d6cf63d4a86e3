//! What a source consists of.

use super::message::{Item, Kind, Options, Plan, Reason, Refusal};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders within folders, at most.
const MOST_DEPTH: usize = 100;

/// The folders above one, by device and number.
type Above = Vec<(u64, u64)>;

/// A file or folder that is to be sent.
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) item: Item,
}

/// All that is to be sent, folders before what is in them, and what cannot be.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) entries: Vec<Entry>,
    pub(crate) refusals: Vec<Refusal>,
}

impl Tree {
    pub(crate) fn of(sources: &[PathBuf], options: Options) -> Tree {
        let mut tree = Tree::default();
        for (root, source) in sources.iter().enumerate() {
            tree.add(source, root, &mut Vec::new(), &mut Vec::new(), options);
        }
        tree
    }

    pub(crate) fn plan(&self) -> Plan {
        let size = |entry: &Entry| match entry.item.kind {
            Kind::File { size } => Some(size),
            Kind::Folder => None,
        };
        let sizes = self.entries.iter().filter_map(size);
        Plan { files: sizes.clone().count() as u64, bytes: sizes.sum() }
    }

    fn add(
        &mut self,
        path: &Path,
        root: usize,
        below: &mut Vec<Vec<u8>>,
        above: &mut Above,
        options: Options,
    ) {
        if let Err(refusal) = self.try_add(path, root, below, above, options) {
            self.refusals.push(refusal);
        }
    }

    /// Links are followed, as scp does: nothing that arrives can lead anywhere else.
    fn try_add(
        &mut self,
        path: &Path,
        root: usize,
        below: &mut Vec<Vec<u8>>,
        above: &mut Above,
        options: Options,
    ) -> Result<(), Refusal> {
        let said = |error: io::Error| Refusal::system(path, &error);
        let metadata = fs::metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => absent(path, &error),
            _ => said(error),
        })?;
        let no = |text: &str| Err(Refusal::new(Reason::NoSource, format!("{}: {text}", path.display())));
        let id = (metadata.dev(), metadata.ino());
        let kind = match metadata.file_type() {
            kind if kind.is_file() => Kind::File { size: metadata.len() },
            kind if kind.is_dir() && !options.recursive => {
                return no("is a folder; add --recursive to copy it");
            }
            kind if kind.is_dir() && above.contains(&id) => {
                return no("a link leads back to a folder above it");
            }
            kind if kind.is_dir() && below.len() >= MOST_DEPTH => return no("lies too deep"),
            kind if kind.is_dir() => Kind::Folder,
            _ => return no("is neither a file nor a folder"),
        };
        let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        let modified = (metadata.mtime(), nanos);
        let item = Item { root, below: below.clone(), kind, mode: metadata.mode() & 0o7777, modified };
        self.entries.push(Entry { path: path.to_owned(), item });
        if kind == Kind::Folder {
            let mut inside: Vec<_> =
                fs::read_dir(path).map_err(said)?.collect::<Result<_, _>>().map_err(said)?;
            inside.sort_by_key(fs::DirEntry::file_name);
            above.push(id);
            for entry in inside {
                below.push(entry.file_name().as_bytes().to_vec());
                self.add(&entry.path(), root, below, above, options);
                below.pop();
            }
            above.pop();
        }
        Ok(())
    }
}

/// A name with nothing, or a link to nothing, under it.
fn absent(path: &Path, error: &io::Error) -> Refusal {
    let begin = std::env::current_dir().ok().filter(|_| path.is_relative());
    let begin = begin.map_or(String::new(), |folder| format!(", which begins in {}", folder.display()));
    let text = if path.is_symlink() {
        format!("{}: is a link to what is not there ({error})", path.display())
    } else {
        format!("{}: {error}; check the name{begin}", path.display())
    };
    Refusal::new(Reason::NoSource, text)
}
