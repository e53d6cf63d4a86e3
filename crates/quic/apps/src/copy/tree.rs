//! Files and folders of a source.

use super::message::{Item, Kind, Options, Plan, Reason, Refusal};
use super::partial::is_partial_name;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::vec;

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

/// A folder whose content is being listed.
struct Level {
    path: PathBuf,
    /// Device and number.
    id: (u64, u64),
    names: vec::IntoIter<OsString>,
}

impl Tree {
    pub(crate) fn of(sources: &[PathBuf], options: Options) -> Tree {
        let mut tree = Tree::default();
        for (root, source) in sources.iter().enumerate() {
            tree.add(source, root, options);
        }
        tree
    }

    pub(crate) fn plan(&self) -> Plan {
        let size = |entry: &Entry| match entry.item.kind {
            Kind::File { size } => Some(size),
            Kind::Folder => None,
        };
        let sizes = self.entries.iter().filter_map(size);
        Plan { files: sizes.clone().count() as u64, bytes: sizes.sum(), roots: Vec::new() }
    }

    /// Lists a source. The depth is limited by the system's paths alone, and not by the stack.
    fn add(&mut self, source: &Path, root: usize, options: Options) {
        let (mut below, mut above) = (Vec::new(), BTreeSet::new());
        let visited = self.visit(source.to_owned(), root, &below, &mut above, options);
        let mut levels: Vec<Level> = self.level(visited).into_iter().collect();
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                above.remove(&level.id);
                levels.pop();
                below.pop();
                continue;
            };
            let path = level.path.join(&name);
            below.push(name.into_vec());
            let visited = self.visit(path, root, &below, &mut above, options);
            match self.level(visited) {
                Some(level) => levels.push(level),
                None => drop(below.pop()),
            }
        }
    }

    /// A folder to descend into; the cause of a refusal is kept.
    fn level(&mut self, visited: Result<Option<Level>, Refusal>) -> Option<Level> {
        visited.map_err(|refusal| self.refusals.push(refusal)).ok().flatten()
    }

    /// Adds the file at a path; its content, if it is a folder.
    ///
    /// Links are followed, as scp does: nothing that arrives can lead anywhere else.
    fn visit(
        &mut self,
        path: PathBuf,
        root: usize,
        below: &[Vec<u8>],
        above: &mut BTreeSet<(u64, u64)>,
        options: Options,
    ) -> Result<Option<Level>, Refusal> {
        let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => absent(&path, &error),
            _ if error.raw_os_error() == Some(nix::libc::ELOOP) => {
                let text = format!("{}: is a link that leads back to itself; remove it", path.display());
                Refusal::new(Reason::NoSource, text)
            }
            _ => Refusal::system(&path, &error),
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
            kind if kind.is_dir() => Kind::Folder,
            _ => return no("is neither a file nor a folder"),
        };
        let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        let modified = (metadata.mtime(), nanos);
        let item = Item { root, below: below.to_vec(), kind, mode: metadata.mode() & 0o7777, modified };
        self.entries.push(Entry { path: path.clone(), item });
        if kind != Kind::Folder {
            return Ok(None);
        }
        let names = fs::read_dir(&path).and_then(|inside| {
            inside.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
        });
        let mut names = names.map_err(|error| Refusal::system(&path, &error))?;
        // What interrupted copies have left is no part of the tree.
        names.retain(|name| !is_partial_name(name));
        names.sort();
        above.insert(id);
        Ok(Some(Level { path, id, names: names.into_iter() }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_left_out_and_self_links_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["file", ".file.vmcc-part", ".vmcc-part"] {
            fs::write(folder.path().join(name), b"1").unwrap();
        }
        std::os::unix::fs::symlink("self", folder.path().join("self")).unwrap();
        let options = Options { recursive: true, ..Options::default() };
        let tree = Tree::of(&[folder.path().to_owned()], options);
        assert_eq!(
            tree.entries.iter().map(|entry| &entry.item.below[..]).collect::<Vec<_>>(),
            [&[][..], &[b"file".to_vec()]]
        );
        let [refusal] = &tree.refusals[..] else { panic!("{:?}", tree.refusals) };
        assert_eq!(refusal.reason, Reason::NoSource);
        assert!(refusal.message.contains("leads back to itself"), "{refusal}");
    }

    #[test]
    fn depth_is_limited_by_path_max_only() {
        let folder = tempfile::tempdir().unwrap();
        let depth = (4095 - folder.path().as_os_str().len()) / 2 - 1;
        let mut deep = folder.path().to_owned();
        (0..depth).for_each(|_| deep.push("d"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(folder.path().join("last"), b"1").unwrap();
        let options = Options { recursive: true, ..Options::default() };
        let tree = Tree::of(&[folder.path().to_owned()], options);
        assert!(tree.refusals.is_empty());
        assert_eq!(tree.entries.len(), depth + 2);
        assert_eq!(tree.entries[depth].item.below.len(), depth);
        assert_eq!(tree.entries[depth + 1].item.below, [b"last"]);
    }
}
