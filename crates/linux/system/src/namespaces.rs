//! Network namespaces: the process's own, those with a name, those of processes.
//!
//! One that cannot be opened may still exist; only one that the kernel does not find is gone. Otherwise a lack of descriptors would
//! make an agent forget what it has set there.

use crate::KernelError;
use crate::netns;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmcc_config::ReadError;

/// Folder of the names that `ip netns` gives.
pub const NAMED: &str = "/run/netns";
const OWN: &str = "/proc/thread-self/ns/net";
/// Age from which a name without a namespace counts as a leftover.
const MAX_UNMOUNTED_AGE: Duration = Duration::from_secs(5);

/// The calling thread's namespace.
///
/// # Errors
/// It cannot be opened.
pub fn own() -> Result<OwnedFd, KernelError> {
    netns::open(Path::new(OWN))
}

/// Names of namespaces, sorted.
///
/// # Errors
/// The folder cannot be read.
pub fn names() -> io::Result<Vec<String>> {
    let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    let mut names: Vec<String> = entries(NAMED)?.into_iter().filter_map(name).collect();
    names.sort();
    Ok(names)
}

/// The namespace of a name; `None` if the name is there before it is, or is that of something else.
///
/// # Errors
/// It cannot be opened, and may exist.
pub fn named(name: &str) -> io::Result<Option<OwnedFd>> {
    open(&Path::new(NAMED).join(name))
}

/// True if a namespace is about to get a name: the file exists and is new, but is no namespace yet.
pub fn coming() -> bool {
    let new = |path: &Path| {
        let made = fs::metadata(path).and_then(|m| m.modified()).ok();
        made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age < MAX_UNMOUNTED_AGE)
    };
    entries(NAMED).unwrap_or_default().iter().any(|path| new(path) && matches!(open(path), Ok(None)))
}

/// Calls `each` with those of these cookies that are still there, of which it holds one open at a time.
///
/// # Errors
/// Something has run out, so that there may be more than was found.
pub fn find(wanted: &BTreeSet<u64>, each: &mut dyn FnMut(u64, BorrowedFd<'_>)) -> io::Result<()> {
    let processes = entries("/proc")?.into_iter().map(|process| process.join("ns/net"));
    let all = [PathBuf::from(OWN)].into_iter().chain(entries(NAMED)?).chain(processes);
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    for path in all {
        if found.len() == wanted.len() {
            break;
        }
        let inode = fs::metadata(&path).map(|m| m.ino());
        if !inode.is_ok_and(|inode| seen.insert(inode)) {
            continue;
        }
        if let Some((cookie, fd)) = unless_short(look(&path))?.flatten()
            && wanted.contains(&cookie)
            && found.insert(cookie)
        {
            each(cookie, fd.as_fd());
        }
    }
    Ok(())
}

/// The namespace of a file, and its cookie.
fn look(path: &Path) -> io::Result<Option<(u64, OwnedFd)>> {
    let Some(fd) = open(path)? else { return Ok(None) };
    let cookie = netns::within(fd.as_fd(), netns::cookie).map_err(io::Error::other)??;
    Ok(Some((cookie, fd)))
}

/// `None` for what is not for us to see, such as the namespaces of another container's processes; an error if something
/// has run out.
fn unless_short<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Err(error) if crate::remedy(&error).is_none() => Ok(None),
        looked => looked.map(Some),
    }
}

fn entries(folder: &str) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// `None` for what is no namespace (yet). What is no regular file is not waited for.
fn open(path: &Path) -> io::Result<Option<OwnedFd>> {
    let file = match vmcc_config::open_regular(path) {
        Ok(file) => file,
        Err(ReadError::Io(error)) if !is_gone(&error) => return Err(error),
        Err(_) => return Ok(None),
    };
    let filesystem = nix::sys::statfs::fstatfs(&file)?.filesystem_type();
    Ok((filesystem == nix::sys::statfs::NSFS_MAGIC).then(|| file.into()))
}

/// True if the error means that nothing exists which could be a namespace.
fn is_gone(error: &io::Error) -> bool {
    use nix::libc::{ENODEV, ENOENT, ENOTDIR, ENXIO, ESRCH};
    error.raw_os_error().is_some_and(|code| [ENODEV, ENOENT, ENOTDIR, ENXIO, ESRCH].contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::symlink;
    use std::sync::mpsc::channel;

    #[test]
    fn named_pipe_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let (send, opened) = channel();
        std::thread::spawn(move || send.send(open(&pipe).map(|fd| fd.is_none())));
        let opened = opened.recv_timeout(Duration::from_secs(60)).expect("it waits for a writer");
        assert!(opened.unwrap(), "a pipe is no namespace");
    }

    #[test]
    fn namespace_that_cannot_be_opened_is_not_gone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("coming"), "").unwrap();
        symlink(at("loop"), at("loop")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["coming", "none", "folder", "coming/below"] {
            assert!(open(&at(name)).unwrap().is_none(), "{name}");
        }
        assert!(open(Path::new(OWN)).unwrap().is_some());
        open(&at("loop")).expect_err("it may lead to a namespace");
        assert!(entries(at("none").to_str().unwrap()).unwrap().is_empty());
        entries(at("coming").to_str().unwrap()).expect_err("no folder");
    }

    #[test]
    fn lack_of_descriptors_is_an_error() {
        for code in [nix::libc::EMFILE, nix::libc::ENFILE, nix::libc::ENOMEM] {
            let short = || Err::<(), _>(io::Error::from_raw_os_error(code));
            unless_short(short()).expect_err("what was not looked at may be what is looked for");
            let deep = short().map_err(|error| io::Error::other(KernelError::new("enter it", error)));
            unless_short(deep).expect_err("also where our own error is around it");
        }
        let others = Err::<(), _>(io::Error::from_raw_os_error(nix::libc::EACCES));
        assert_eq!(unless_short(others).unwrap(), None);
        assert_eq!(unless_short(Ok(1)).unwrap(), Some(1));
    }
}
