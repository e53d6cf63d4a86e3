//! Checks that no other user could have written a file that is compiled and run.

use crate::error::ExternalError;
use nix::errno::Errno;
use std::ffi::OsString;
use std::fs::{Metadata, read_link, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vmcc_config::ReadError;

const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Links that are followed; Linux follows as many.
const MAX_LINKS: usize = 40;

/// Resolves a path; an error if another user owns or may write the file or folder, one above it, or a link or folder on the way. A sticky
/// folder may be written: others cannot replace what is in it. Under sudo, the user who called it is none of the others.
pub(crate) fn check(path: &Path) -> Result<PathBuf, ExternalError> {
    let failed = |error| ExternalError::Read { path: path.to_owned(), source: ReadError::Io(error) };
    let trusted = trusted();
    // Not there, or links in a circle: the system's own errors.
    path.canonicalize().map_err(failed)?;
    let mut rest = parts(&std::path::absolute(path).map_err(failed)?);
    let (mut place, mut links) = (PathBuf::new(), 0);
    while let Some(part) = rest.pop() {
        if part == ".." {
            place.pop();
            continue;
        }
        place.push(part);
        let found = symlink_metadata(&place).map_err(failed)?;
        if let Some(problem) = danger(&found, &trusted) {
            return Err(ExternalError::Untrusted { path: place, problem });
        }
        if found.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(failed(Errno::ELOOP.into()));
            }
            rest.extend(parts(&read_link(&place).map_err(failed)?));
            place.pop();
        }
    }
    Ok(place)
}

/// Components of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).filter(|part| part != ".").collect()
}

/// Reason why another user could change a file, folder or link.
fn danger(found: &Metadata, trusted: &[u32]) -> Option<String> {
    let safe = found.is_symlink() || found.is_dir() && found.mode() & STICKY != 0;
    if !trusted.contains(&found.uid()) {
        let user = found.uid();
        Some(format!("it belongs to user {user}, who could change it; copy it to a folder of your own"))
    } else if found.mode() & OTHERS_MAY_WRITE != 0 && !safe {
        Some(format!("other users may write it (mode {:o}); `chmod go-w` it", found.mode() & 0o7777))
    } else {
        None
    }
}

/// Resolves a path, with [`check`] if this process is root's: what root runs, no other user may have written.
pub(crate) fn check_for_root(path: &Path) -> Result<PathBuf, ExternalError> {
    if nix::unistd::geteuid().is_root() {
        return check(path);
    }
    path.canonicalize()
        .map_err(|error| ExternalError::Read { path: path.to_owned(), source: ReadError::Io(error) })
}

/// Users whose files may be run: root, this user, and who called sudo.
fn trusted() -> Vec<u32> {
    let own = nix::unistd::geteuid();
    let caller = || std::env::var("SUDO_UID").ok()?.parse().ok();
    let caller = own.is_root().then(caller).flatten();
    [0, own.as_raw()].into_iter().chain(caller).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_and_folders_that_others_may_write_are_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let inner = dir.path().join("inner");
        let file = inner.join("a.c");
        fs::create_dir(&inner).expect("made");
        fs::write(&file, "").expect("written");
        let mode =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
        let refused = || check(&file).expect_err("refused").to_string();
        mode(&inner, 0o755);
        mode(&file, 0o644);
        check(&file).expect("nobody else writes here");
        mode(&file, 0o664);
        assert!(refused().contains("a.c: other users may write it (mode 664)"), "{}", refused());
        mode(&file, 0o644);
        mode(&inner, 0o777);
        assert!(refused().contains("inner: other users may write it (mode 777)"), "{}", refused());
        mode(&inner, 0o1777);
        check(&file).expect("others cannot replace it");
        mode(&file, 0o1666);
        assert!(refused().contains("mode 1666"), "the sticky bit of a file means nothing");
    }

    #[test]
    fn paths_are_resolved_as_the_system_does() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, at(name)).expect("made");
        };
        fs::create_dir_all(at("a/b")).expect("made");
        fs::write(at("a/f.c"), "").expect("written");
        link("a/b", "to_b");
        link("to_b/../f.c", "relative");
        link(at("relative").to_str().expect("UTF-8"), "absolute");
        link("circle", "circle");
        for path in ["a/./f.c", "a/b/../f.c", "to_b/../f.c", "relative", "absolute", "a/b/../../absolute"] {
            let path = at(path);
            assert_eq!(check(&path).expect("one's own"), path.canonicalize().expect("there"));
        }
        for path in ["circle", "none", "to_b/f.c"] {
            assert!(check(&at(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn files_of_another_user_are_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("a.c");
        fs::write(&file, "").expect("written");
        check_for_root(&file).expect("one's own");
        if std::os::unix::fs::chown(&file, Some(4242), None).is_err() {
            eprintln!("skipped: only CAP_CHOWN can give files away");
            return;
        }
        let error = check_for_root(&file).expect_err("refused").to_string();
        assert!(error.contains("belongs to user 4242"), "{error}");
        // A link of theirs could lead elsewhere a moment later.
        let (own, link) = (dir.path().join("own.c"), dir.path().join("link.c"));
        fs::write(&own, "").expect("written");
        std::os::unix::fs::symlink(&own, &link).expect("made");
        assert_eq!(check_for_root(&link).expect("root's link"), own.canonicalize().expect("there"));
        std::os::unix::fs::lchown(&link, Some(4242), None).expect("root may");
        assert!(check_for_root(&link).expect_err("refused").to_string().contains("link.c: it belongs"));
        // So could one in the middle of a chain, whose ends are root's.
        let (theirs, chain) = (dir.path().join("theirs"), dir.path().join("chain.c"));
        fs::create_dir(&theirs).expect("made");
        std::os::unix::fs::symlink(&own, theirs.join("middle.c")).expect("made");
        std::os::unix::fs::symlink(theirs.join("middle.c"), &chain).expect("made");
        check_for_root(&chain).expect("root's links");
        std::os::unix::fs::chown(&theirs, Some(4242), None).expect("root may");
        assert!(check_for_root(&chain).expect_err("refused").to_string().contains("theirs: it belongs"));
    }
}
