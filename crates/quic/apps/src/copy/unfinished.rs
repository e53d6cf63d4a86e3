//! Marks in folders that a copy has made and not finished. `vmcc cp -r tree host:new` makes `new` if it is absent; without a mark the same
//! command after an interruption would find a folder, and make `new/tree`.

use super::message::{Reason, Refusal};
use super::partial::{ensure_absent, partial_path, rename_noreplace};
use aws_lc_rs::digest::{SHA256, digest};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// A name that no item of a copy may have, see [`super::partial::is_partial_name`].
const NAME: &str = ".vmcc-part";
/// Longer marks are not ours.
const MAX_MARK_BYTES: u64 = 1 << 10;

/// The text of a mark: which source on which host its folder is a copy of.
pub(super) fn origin(host: &[u8], source: &[u8]) -> String {
    let hash = digest(&SHA256, &[host, b"\0", source].concat());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// True if `folder` is an unfinished copy of this origin.
pub(super) fn is_of(folder: &Path, origin: &str) -> bool {
    let mark = vmcc_config::read_regular(&folder.join(NAME), MAX_MARK_BYTES);
    mark.is_ok_and(|mark| mark == line(origin).as_bytes())
}

fn line(origin: &str) -> String {
    format!("unfinished copy of {origin}\n")
}

/// Makes a folder that has a mark from its first moment on.
pub(super) fn make_folder(folder: &Path, mode: u32, origin: &str) -> Result<(), Refusal> {
    let staged = partial_path(folder);
    stage(folder, &staged, mode)?;
    let made = mark(&staged, origin).and_then(|()| rename_noreplace(&staged, folder));
    match made {
        Ok(()) => Ok(()),
        // The same command twice at a time.
        Err(_) if is_of(folder, origin) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => ensure_absent(folder),
        Err(error) => Err(Refusal::system(folder, &error)),
    }
}

/// A folder under a name that only copies use, perhaps left by an interrupted one.
fn stage(folder: &Path, staged: &Path, mode: u32) -> Result<(), Refusal> {
    let said = |error: io::Error| Refusal::system(folder, &error);
    let make = || DirBuilder::new().mode(mode).create(staged);
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(said),
    }
    let there = fs::symlink_metadata(staged).map_err(said)?;
    let own = there.uid() == nix::unistd::geteuid().as_raw();
    match there.file_type() {
        kind if kind.is_dir() && own => Ok(()),
        // The beginning of a file; a folder is to have its name now.
        kind if kind.is_file() && own => fs::remove_file(staged).and_then(|()| make()).map_err(said),
        _ => {
            let text = format!("{}: is not a file or folder of this user; remove it", staged.display());
            Err(Refusal::new(Reason::BadTarget, text))
        }
    }
}

fn mark(folder: &Path, origin: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    options.open(folder.join(NAME))?.write_all(line(origin).as_bytes())
}

/// Removes the mark, and leaves mode and time of the folder as they are.
pub(super) fn remove_mark(folder: &Path) -> io::Result<()> {
    let before = fs::metadata(folder)?;
    let mode = before.mode() & 0o7777;
    if mode & 0o300 != 0o300 {
        fs::set_permissions(folder, Permissions::from_mode(mode | 0o700))?;
    }
    fs::remove_file(folder.join(NAME))?;
    File::open(folder).and_then(|open| open.set_modified(before.modified()?))?;
    fs::set_permissions(folder, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_directory_is_created_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new");
        let origin = origin(b"host", b"/tree");
        // Left by copies that were killed: of a file, and of this folder.
        for left in ["file", "folder"] {
            match left {
                "file" => fs::write(partial_path(&new), b"part").unwrap(),
                _ => fs::create_dir(partial_path(&new)).unwrap(),
            }
            make_folder(&new, 0o755, &origin).unwrap();
            assert!(is_of(&new, &origin) && !is_of(&new, &self::origin(b"host", b"/other")), "{left}");
            // Beside another copy by the same command.
            make_folder(&new, 0o755, &origin).unwrap();
            fs::remove_dir_all(partial_path(&new)).unwrap();
            fs::set_permissions(&new, Permissions::from_mode(0o555)).unwrap();
            let modified = fs::metadata(&new).unwrap().modified().unwrap();
            remove_mark(&new).unwrap();
            assert!(!is_of(&new, &origin));
            let after = fs::metadata(&new).unwrap();
            assert_eq!((after.mode() & 0o777, after.modified().unwrap()), (0o555, modified), "{left}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{left}");
            fs::remove_dir(&new).unwrap();
        }
        fs::create_dir(&new).unwrap();
        assert_eq!(make_folder(&new, 0o755, &origin).unwrap_err().reason, Reason::Exists);
    }

    #[test]
    fn symlink_at_the_staging_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (new, other) = (folder.path().join("new"), folder.path().join("other"));
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, partial_path(&new)).unwrap();
        assert_eq!(make_folder(&new, 0o755, "x").unwrap_err().reason, Reason::BadTarget);
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }
}
