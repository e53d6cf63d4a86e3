//! Checks that no other user could have written a file that is compiled and run.

use crate::error::ExternalError;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vmcc_config::ReadError;

const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Resolves a path; an error if another user owns or may write the file or folder, one above it, or a link on the way. A sticky folder may
/// be written: others cannot replace what is in it. Under sudo, the user who called it is none of the others.
pub(crate) fn check(path: &Path) -> Result<PathBuf, ExternalError> {
    let failed = |error| ExternalError::Read { path: path.to_owned(), source: ReadError::Io(error) };
    let trusted = trusted();
    let resolved = path.canonicalize().map_err(failed)?;
    let given = std::path::absolute(path).map_err(failed)?;
    for part in given.ancestors().chain(resolved.ancestors()) {
        let found = std::fs::symlink_metadata(part).map_err(failed)?;
        let safe = found.is_symlink() || found.is_dir() && found.mode() & STICKY != 0;
        let problem = if !trusted.contains(&found.uid()) {
            format!(
                "it belongs to user {}, who could change it; copy it to a folder of your own",
                found.uid()
            )
        } else if found.mode() & OTHERS_MAY_WRITE != 0 && !safe {
            format!("other users may write it (mode {:o}); `chmod go-w` it", found.mode() & 0o7777)
        } else {
            continue;
        };
        return Err(ExternalError::Untrusted { path: part.to_owned(), problem });
    }
    Ok(resolved)
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
    }
}
