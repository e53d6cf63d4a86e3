//! The folder of the records: root's alone, and what is opened there is a regular file of its own.
//!
//! Names are resolved from the opened folder, and no link is followed: another user who can write there, or once could,
//! makes vmcc neither wait for a FIFO nor read or overwrite another file.

use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: Mode = Mode::from_bits_truncate(0o600);

/// An opened folder that only root can change.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    fd: OwnedFd,
}

impl Folder {
    /// Opens the folder `parent/name`, which is made if it is not there.
    pub fn make(parent: &str, name: &str) -> Result<Self, (PathBuf, io::Error)> {
        let path = Path::new(parent).join(name);
        for folder in [Path::new(parent), &path] {
            match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err((folder.to_owned(), e)),
                _ => {}
            }
        }
        Self::open(parent, name)?
            .ok_or_else(|| (path.clone(), io::Error::other("it was removed just after it was made")))
    }

    /// The same if it is there.
    pub fn open(parent: &str, name: &str) -> Result<Option<Self>, (PathBuf, io::Error)> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let path = Path::new(parent).join(name);
        let mut fd = None;
        for (folder, may_be_sticky) in [(Path::new(parent), true), (path.as_path(), false)] {
            let opened = match nix::fcntl::open(folder, flags, Mode::empty()) {
                Err(nix::Error::ENOENT) => return Ok(None),
                opened => opened.map_err(io::Error::from).and_then(|fd| of_root_alone(fd, may_be_sticky)),
            };
            fd = Some(opened.map_err(|e| (folder.to_owned(), e))?);
        }
        Ok(fd.map(|fd| Self { path, fd }))
    }

    /// Path of a file, for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The names in it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        // By the descriptor: the path may be another folder's by now.
        let entries = std::fs::read_dir(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// Opens a file for reading; `None` if there is none, or something else than a file of ours.
    pub fn read(&self, name: &str) -> Option<File> {
        self.open_regular(name, OFlag::O_RDONLY).ok().flatten()
    }

    /// Opens a file, which is made if there is none. What is there and is no file of ours makes way.
    pub fn open_or_make(&self, name: &str) -> io::Result<File> {
        if let Some(file) = self.open_regular(name, OFlag::O_RDWR | OFlag::O_CREAT)? {
            return Ok(file);
        }
        self.remove(name)?;
        self.make_new(name)
    }

    /// Makes a file that is not there yet.
    pub fn make_new(&self, name: &str) -> io::Result<File> {
        let file = self.open_regular(name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?;
        file.ok_or_else(|| io::ErrorKind::AlreadyExists.into())
    }

    /// True if `file` is the one of this name.
    pub fn is(&self, name: &str, file: &File) -> io::Result<bool> {
        let ours = file.metadata()?.ino();
        Ok(fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|found| found.st_ino == ours))
    }

    /// Removes a file, or what else has its name; one that is not there is fine.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let removed = match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Err(nix::Error::EISDIR) => unlinkat(&self.fd, name, UnlinkatFlags::RemoveDir),
            other => other,
        };
        match removed {
            Err(nix::Error::ENOENT) | Ok(()) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Gives a file the name of another, in whose place it is then.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    /// `None` for what is no file of ours.
    fn open_regular(&self, name: &str, flags: OFlag) -> io::Result<Option<File>> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.fd, name, flags, FILE_MODE) {
            // A link; a folder; a FIFO or a socket that nobody serves.
            Err(nix::Error::ELOOP | nix::Error::EISDIR | nix::Error::ENXIO) => return Ok(None),
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        // One with a second name is somebody else's too.
        let ours = found.is_file() && found.nlink() <= 1 && found.uid() == nix::unistd::geteuid().as_raw();
        Ok(ours.then_some(file))
    }
}

/// In a sticky folder, as a tmpfs is by default, nobody else can rename or remove what is root's.
fn of_root_alone(fd: OwnedFd, may_be_sticky: bool) -> io::Result<OwnedFd> {
    let found = fstat(fd.as_fd())?;
    let ours = found.st_uid == nix::unistd::geteuid().as_raw();
    let sticky = may_be_sticky && found.st_mode & STICKY != 0;
    if ours && (sticky || found.st_mode & OTHERS_MAY_WRITE == 0) {
        return Ok(fd);
    }
    let why = format!(
        "others than root can write here (owner {}, mode {:o}); look at what is in it, then `chown 0:0` and `chmod 755` it",
        found.st_uid,
        found.st_mode & 0o7777
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::mkfifo;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("vmcc-folder-{}-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn parent(&self) -> &str {
            self.0.to_str().unwrap()
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn folder_opens_regular_files_only_and_follows_no_link() {
        let temporary = Temporary::new("kinds");
        let folder = Folder::make(temporary.parent(), "ports").unwrap();
        let at = |name: &str| temporary.0.join("ports").join(name);
        let other = temporary.0.join("other");
        fs::write(&other, "precious").unwrap();
        mkfifo(&at("fifo"), FILE_MODE).unwrap();
        symlink(&other, at("link")).unwrap();
        fs::hard_link(&other, at("second")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["fifo", "link", "second", "folder"] {
            assert!(folder.read(name).is_none(), "{name}");
            let mut file = folder.open_or_make(name).unwrap();
            file.write_all(b"ours").unwrap();
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "ours", "{name}");
            assert!(folder.is(name, &file).unwrap(), "{name}");
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert!(folder.read("none").is_none());
    }

    #[test]
    fn folder_writable_by_others_is_refused() {
        let temporary = Temporary::new("modes");
        Folder::make(temporary.parent(), "ports").unwrap();
        fs::set_permissions(temporary.0.join("ports"), fs::Permissions::from_mode(0o777)).unwrap();
        let (path, error) = Folder::open(temporary.parent(), "ports").err().unwrap();
        assert!(path.ends_with("ports") && error.to_string().contains("chmod 755"), "{error}");
        assert!(Folder::open(temporary.parent(), "none").unwrap().is_none());
        symlink("/tmp", temporary.0.join("link")).unwrap();
        assert!(Folder::open(temporary.parent(), "link").is_err());
    }
}
