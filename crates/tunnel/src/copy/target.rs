//! Where what arrives is put. The sender names nothing above what the receiver has chosen.

use super::message::{Item, Options, Reason, Refusal};
use super::part::{in_the_way, is_name_of_part, mode_of, time_of};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where each source goes.
pub(crate) struct Target {
    places: Vec<PathBuf>,
    pub(crate) options: Options,
    /// Folders, whose times and permissions are set when everything is in them.
    folders: Mutex<Vec<(PathBuf, Item)>>,
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
    /// As cp does it: into a folder that is there; else one source under the name itself.
    pub(crate) fn new(
        target: &Path,
        names: &[Option<OsString>],
        options: Options,
    ) -> Result<Target, Refusal> {
        let bad = |text: String| Refusal::new(Reason::BadTarget, text);
        if names.iter().flatten().any(|name| !is_plain(name)) {
            return Err(bad("the peer sent a name that is a path".to_owned()));
        }
        let target = if target.as_os_str().is_empty() { Path::new(".") } else { target };
        let folder = target.is_dir();
        if !folder && (names.len() > 1 || target.as_os_str().as_bytes().ends_with(b"/")) {
            return Err(bad(format!(
                "{}: is no folder, and several are to go there; make it first",
                target.display()
            )));
        }
        let place = |name: &Option<OsString>| match name {
            Some(name) if folder => target.join(name),
            _ => target.to_owned(),
        };
        let places: Vec<PathBuf> = names.iter().map(place).collect();
        let mut sorted: Vec<_> =
            places.iter().zip(names).filter(|(_, name)| name.is_some()).map(|(p, _)| p).collect();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|two| two[0] == two[1]) {
            return Err(bad(format!(
                "{}: two sources have this name; copy them one by one",
                twice[0].display()
            )));
        }
        Ok(Target { places, options, folders: Mutex::default() })
    }

    /// Where an item goes.
    pub(crate) fn place(&self, item: &Item) -> Result<PathBuf, Refusal> {
        let wrong = || Refusal::new(Reason::BadTarget, "the peer sent a name that is a path");
        let mut place = self.places.get(item.root).ok_or_else(wrong)?.clone();
        if !item.below.is_empty() && !self.options.recursive {
            return Err(wrong());
        }
        for name in &item.below {
            let name = OsStr::from_bytes(name);
            if !is_plain(name) {
                return Err(wrong());
            }
            place.push(name);
        }
        if place.file_name().is_some_and(is_name_of_part) {
            let text = format!(
                "{}: is what an interrupted copy left; finish that first, or remove it",
                place.display()
            );
            return Err(Refusal::new(Reason::BadTarget, text));
        }
        Ok(place)
    }

    /// Makes a folder, unless it is there.
    pub(crate) fn make_folder(&self, item: &Item) -> Result<(), Refusal> {
        let place = self.place(item)?;
        let keep = || {
            self.folders.lock().unwrap_or_else(PoisonError::into_inner).push((place.clone(), item.clone()))
        };
        if place.is_dir() {
            // An interrupted copy may have made it.
            if self.options.preserve {
                keep();
            }
            return Ok(());
        }
        if self.options.recursive {
            // Writable for as long as files come, and otherwise as it is to be: this may be interrupted.
            match DirBuilder::new().mode(item.mode & 0o777 | 0o700).create(&place) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return in_the_way(&place),
                Err(error) => return Err(Refusal::system(&place, &error)),
            }
            keep();
            return Ok(());
        }
        Err(Refusal::new(Reason::BadTarget, format!("{}: nobody asked for a folder", place.display())))
    }

    /// Everything has arrived: folders get what they are to have, the deepest first.
    pub(crate) fn finish(&self) -> Vec<Refusal> {
        let folders = std::mem::take(&mut *self.folders.lock().unwrap_or_else(PoisonError::into_inner));
        let set = |(place, item): (PathBuf, Item)| {
            let set = || {
                if self.options.preserve {
                    fs::File::open(&place)?.set_modified(time_of(item.modified))?;
                }
                fs::set_permissions(&place, Permissions::from_mode(mode_of(&item, self.options)))
            };
            set().err().map(|error| Refusal::system(&place, &error))
        };
        folders.into_iter().rev().filter_map(set).collect()
    }

    /// Whether a file of the same size is there already; an error if there is something that is not to be replaced.
    pub(crate) fn has_like(&self, place: &Path, size: u64) -> Result<bool, Refusal> {
        match fs::metadata(place) {
            Ok(metadata) if metadata.is_dir() => Err(Refusal::new(
                Reason::Exists,
                format!("{}: is a folder; a file is to go there", place.display()),
            )),
            Ok(metadata) if metadata.is_file() && metadata.len() == size => Ok(true),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Refusal::system(place, &error)),
            _ if self.options.force => Ok(false),
            _ => in_the_way(place).map(|()| false),
        }
    }
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
    fn a_sender_names_nothing_above_what_was_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let names = [Some("a".into()), None];
        let options = Options { recursive: true, ..Options::default() };
        let target = Target::new(folder.path(), &names, options).unwrap();
        assert_eq!(target.place(&item(0, &["b", "c"])).unwrap(), folder.path().join("a/b/c"));
        assert_eq!(target.place(&item(1, &["b"])).unwrap(), folder.path().join("b"));
        for below in [&[".."][..], &["b", "..", "..", "x"], &["/etc"], &["b/c"], &[""], &["."], &["a\0"]] {
            assert!(target.place(&item(0, below)).is_err(), "{below:?}");
        }
        assert!(target.place(&item(2, &[])).is_err());
        assert!(target.place(&item(0, &["b", ".x.vmcc-part"])).is_err(), "the name of `x` while it arrives");
        for name in ["..", "a/b", "/", ""] {
            assert!(Target::new(folder.path(), &[Some(name.into())], options).is_err(), "{name}");
        }
        let flat = Target::new(folder.path(), &names[..1], Options::default()).unwrap();
        assert!(flat.place(&item(0, &["b"])).is_err(), "nobody asked for folders");
    }

    #[test]
    fn sources_go_where_cp_puts_them() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let one = Target::new(&absent, &[Some("a".into())], Options::default()).unwrap();
        assert_eq!(one.place(&item(0, &[])).unwrap(), absent);
        let two = [Some("a".into()), Some("b".into())];
        assert!(Target::new(&absent, &two, Options::default()).is_err());
        assert!(Target::new(folder.path(), &[two[0].clone(), two[0].clone()], Options::default()).is_err());
        for (source, name) in
            [("x/y", Some("y")), ("x/", Some("x")), (".", None), ("x/..", None), ("x/.", None), ("/", None)]
        {
            assert_eq!(name_of(Path::new(source)).as_deref(), name.map(OsStr::new), "{source}");
        }
    }
}
