//! Paths of arriving items. The sender names nothing above what the receiver has chosen.

use super::message::{Item, Options, Reason, Refusal};
use super::partial::{
    ensure_absent, is_partial_name, is_same_file, mode_of, process_umask, special_file, time_of,
};
use super::source::Source;
use super::unfinished;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Target path of each source.
pub(crate) struct Target {
    roots: Vec<Root>,
    pub(crate) options: Options,
    /// Folders, whose times and permissions are set when everything is in them.
    folders: Mutex<Vec<(PathBuf, Item)>>,
}

struct Root {
    path: PathBuf,
    /// Which source this is, see [`unfinished::origin`]. Absent with an older sender.
    origin: Option<String>,
    /// Its folder is made by this copy, or by an earlier one of the same source that was interrupted.
    made: AtomicBool,
}

/// The last name of a source, if it has one: `.` and `..` have none.
pub(crate) fn name_of(source: &Path) -> Option<OsString> {
    match source.components().next_back() {
        Some(Component::Normal(name)) if !source.as_os_str().as_bytes().ends_with(b"/.") => {
            Some(name.to_owned())
        }
        _ => None,
    }
}

fn is_plain(name: &OsStr) -> bool {
    let mut parts = Path::new(name).components();
    let plain = matches!(parts.next(), Some(Component::Normal(only)) if only == name);
    plain && parts.next().is_none() && !name.as_bytes().contains(&0)
}

impl Target {
    /// As cp does it: into a folder that is there; else one source under the name itself, and so again if the folder that is there is an
    /// unfinished copy of that source.
    pub(crate) fn new(
        target: &Path,
        names: &[Option<OsString>],
        origins: &[String],
        options: Options,
    ) -> Result<Target, Refusal> {
        let bad = |text: String| Refusal::new(Reason::BadTarget, text);
        if names.iter().flatten().any(|name| !is_plain(name)) {
            return Err(bad("the peer sent a name that is a path".to_owned()));
        }
        let target = if target.as_os_str().is_empty() { Path::new(".") } else { target };
        let unfinished = |origin: &String| names.len() == 1 && unfinished::is_of(target, origin);
        let folder = target.is_dir() && !origins.first().is_some_and(unfinished);
        if !target.is_dir() && (names.len() > 1 || target.as_os_str().as_bytes().ends_with(b"/")) {
            return Err(bad(format!("{}: is no folder to copy into; make it first", target.display())));
        }
        let path = |name: &Option<OsString>| match name {
            Some(name) if folder => target.join(name),
            _ => target.to_owned(),
        };
        let paths: Vec<PathBuf> = names.iter().map(path).collect();
        let mut sorted: Vec<_> =
            paths.iter().zip(names).filter(|(_, name)| name.is_some()).map(|(p, _)| p).collect();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|two| two[0] == two[1]) {
            return Err(bad(format!(
                "{}: two sources have this name; copy them one by one",
                twice[0].display()
            )));
        }
        let root = |(at, path)| Root { path, origin: origins.get(at).cloned(), made: AtomicBool::new(false) };
        let roots = paths.into_iter().enumerate().map(root).collect();
        Ok(Target { roots, options, folders: Mutex::default() })
    }

    /// True if there is such a source.
    pub(crate) fn has_root(&self, root: usize) -> bool {
        root < self.roots.len()
    }

    fn root(&self, item: &Item) -> Result<&Root, Refusal> {
        self.roots.get(item.root).ok_or_else(wrong_name)
    }

    /// Path of an item.
    pub(crate) fn path_of(&self, item: &Item) -> Result<PathBuf, Refusal> {
        let mut path = self.root(item)?.path.clone();
        if !item.below.is_empty() && !self.options.recursive {
            return Err(wrong_name());
        }
        let mut is_part = path.file_name().is_some_and(is_partial_name);
        for name in &item.below {
            let name = OsStr::from_bytes(name);
            if !is_plain(name) {
                return Err(wrong_name());
            }
            is_part |= is_partial_name(name);
            path.push(name);
        }
        if is_part {
            let text = format!(
                "{}: is what an interrupted copy left; finish that first, or remove it",
                path.display()
            );
            return Err(Refusal::new(Reason::BadTarget, text));
        }
        Ok(path)
    }

    /// Makes a folder, unless it is there.
    pub(crate) fn make_folder(&self, item: &Item) -> Result<(), Refusal> {
        let (path, root) = (self.path_of(item)?, self.root(item)?);
        let origin = root.origin.as_ref().filter(|_| item.below.is_empty());
        // Writable for as long as files come.
        let mode = item.mode & 0o777 | 0o700;
        if path.is_dir() {
            if origin.is_some_and(|origin| unfinished::is_of(&path, origin)) {
                root.made.store(true, Ordering::Relaxed);
            }
            let made = root.made.load(Ordering::Relaxed);
            if made {
                // The interrupted copy may have come as far as to set it.
                let set = fs::set_permissions(&path, Permissions::from_mode(mode & !process_umask()));
                set.map_err(|error| Refusal::system(&path, &error))?;
            }
            if made || (self.options.preserve && !path.is_symlink()) {
                self.finish_later(path, item);
            }
            return Ok(());
        }
        if !self.options.recursive {
            let text = format!("{}: a folder was not requested", path.display());
            return Err(Refusal::new(Reason::BadTarget, text));
        }
        match origin {
            Some(origin) => {
                unfinished::make_folder(&path, mode, origin)?;
                root.made.store(true, Ordering::Relaxed);
            }
            None => match DirBuilder::new().mode(mode).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return ensure_absent(&path),
                Err(error) => return Err(Refusal::system(&path, &error)),
            },
        }
        self.finish_later(path, item);
        Ok(())
    }

    fn finish_later(&self, path: PathBuf, item: &Item) {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).push((path, item.clone()));
    }

    /// Everything has arrived: folders get what they are to have, the deepest first.
    pub(crate) fn finish(&self) -> Vec<Refusal> {
        let folders = std::mem::take(&mut *self.folders.lock().unwrap_or_else(PoisonError::into_inner));
        let set = |(path, item): (PathBuf, Item)| {
            let set = || {
                // Nobody may have put a link in its place.
                let flags = nix::libc::O_NOFOLLOW | nix::libc::O_DIRECTORY;
                let folder = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
                if self.options.preserve {
                    folder.set_modified(time_of(item.modified))?;
                }
                folder.set_permissions(Permissions::from_mode(mode_of(&item, self.options)))
            };
            set().err().map(|error| Refusal::system(&path, &error))
        };
        folders.into_iter().rev().filter_map(set).collect()
    }

    /// Both ends know that the copy came to its end: repeating the command is a new copy.
    pub(crate) fn release(&self) {
        for root in self.roots.iter().filter(|root| root.made.load(Ordering::Relaxed)) {
            // Where it cannot be removed, what is repeated goes on in this folder, which does no harm.
            let _ = unfinished::remove_mark(&root.path);
        }
    }

    /// A file of the same size that is there already; an error if there is something that is not to be replaced.
    pub(crate) fn like(&self, path: &Path, size: u64) -> Result<Option<Source>, Refusal> {
        match fs::metadata(path) {
            Ok(there) if !there.is_file() => return Err(special_file(path)),
            Ok(there) if there.len() == size => match Source::open(path) {
                Ok(source) if self.is_linked(path, &source)? => {}
                Ok(source) if source.size() == size => return Ok(Some(source)),
                // What cannot be read can be replaced.
                Err(refusal) if !self.options.force => return Err(refusal),
                _ => {}
            },
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Refusal::system(path, &error));
            }
            _ => {}
        }
        if self.options.force { Ok(None) } else { ensure_absent(path).map(|()| None) }
    }

    /// True if mode and time are to be set, and the name is a link: they never are through one.
    fn is_linked(&self, path: &Path, source: &Source) -> Result<bool, Refusal> {
        let same = || is_same_file(path, source.file()).map_err(|error| Refusal::system(path, &error));
        if !self.options.preserve || same()? {
            return Ok(false);
        }
        if self.options.force {
            return Ok(true);
        }
        let text = format!(
            "{}: is a link, through which --preserve sets nothing; add --force to replace it by the file",
            path.display()
        );
        Err(Refusal::new(Reason::Exists, text))
    }
}

fn wrong_name() -> Refusal {
    Refusal::new(Reason::BadTarget, "the peer sent a name that is a path")
}

#[cfg(test)]
mod tests {
    use super::super::message::Kind;
    use super::*;

    fn item(root: usize, below: &[&str]) -> Item {
        let below = below.iter().map(|name| name.as_bytes().to_vec()).collect();
        Item { root, below, kind: Kind::File { size: 1 }, mode: 0o644, modified: (0, 0) }
    }

    #[test]
    fn sender_cannot_escape_the_target() {
        let folder = tempfile::tempdir().unwrap();
        let names = [Some("a".into()), None];
        let options = Options { recursive: true, ..Options::default() };
        let target = Target::new(folder.path(), &names, &[], options).unwrap();
        assert_eq!(target.path_of(&item(0, &["b", "c"])).unwrap(), folder.path().join("a/b/c"));
        assert_eq!(target.path_of(&item(1, &["b"])).unwrap(), folder.path().join("b"));
        for below in [&[".."][..], &["b", "..", "..", "x"], &["/etc"], &["b/c"], &[""], &["."], &["a\0"]] {
            assert!(target.path_of(&item(0, below)).is_err(), "{below:?}");
        }
        assert!(target.path_of(&item(2, &[])).is_err());
        for below in [&["b", ".x.vmcc-part"][..], &[".x.vmcc-part", "b"]] {
            assert!(target.path_of(&item(0, below)).is_err(), "the name of `x` while it arrives: {below:?}");
        }
        for name in ["..", "a/b", "/", ""] {
            assert!(Target::new(folder.path(), &[Some(name.into())], &[], options).is_err(), "{name}");
        }
        let flat = Target::new(folder.path(), &names[..1], &[], Options::default()).unwrap();
        assert!(flat.path_of(&item(0, &["b"])).is_err(), "nobody asked for folders");
    }

    #[test]
    fn mode_is_never_set_through_links() {
        use std::os::unix::fs::{MetadataExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), b"1").unwrap();
        fs::create_dir(at("folder")).unwrap();
        let private = |name: &str, mode| fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        private("file", 0o600);
        private("folder", 0o700);
        symlink(at("file"), at("to-file")).unwrap();
        symlink(at("folder"), at("to-folder")).unwrap();
        let options = |force| Options { recursive: true, preserve: true, force };
        let target =
            |name: &str, force| Target::new(folder.path(), &[Some(name.into())], &[], options(force));
        let like = |name: &str, force| target(name, force).unwrap().like(&at(name), 1);
        assert!(like("file", false).unwrap().is_some());
        assert!(like("to-file", true).unwrap().is_none(), "the link is replaced");
        assert_eq!(like("to-file", false).err().unwrap().reason, Reason::Exists);
        let linked = target("to-folder", false).unwrap();
        let open = Item { kind: Kind::Folder, mode: 0o777, ..item(0, &[]) };
        linked.make_folder(&open).unwrap();
        assert!(linked.finish().is_empty());
        let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("file"), mode("folder")), (0o600, 0o700));
        // A link that takes the place of a folder while files arrive.
        let real = target("folder", false).unwrap();
        real.make_folder(&open).unwrap();
        fs::rename(at("folder"), at("moved")).unwrap();
        symlink(at("moved"), at("folder")).unwrap();
        assert_eq!(real.finish().len(), 1);
        assert_eq!(mode("moved"), 0o700);
    }

    #[test]
    fn targets_match_cp() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let one = Target::new(&absent, &[Some("a".into())], &[], Options::default()).unwrap();
        assert_eq!(one.path_of(&item(0, &[])).unwrap(), absent);
        let two = [Some("a".into()), Some("b".into())];
        assert!(Target::new(&absent, &two, &[], Options::default()).is_err());
        assert!(
            Target::new(folder.path(), &[two[0].clone(), two[0].clone()], &[], Options::default()).is_err()
        );
        for (source, name) in
            [("x/y", Some("y")), ("x/", Some("x")), (".", None), ("x/..", None), ("x/.", None), ("/", None)]
        {
            assert_eq!(name_of(Path::new(source)).as_deref(), name.map(OsStr::new), "{source}");
        }
    }
}
