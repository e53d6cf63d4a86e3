//! Folder in which running programs are found.

use nix::unistd::geteuid;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Of root's programs.
const ROOT_DIR: &str = "/run/vmcc-quic";

/// This user's folder.
fn user_dir() -> PathBuf {
    let session = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    match (geteuid().as_raw(), session) {
        (0, _) => PathBuf::from(ROOT_DIR),
        (_, Some(session)) => PathBuf::from(session).join("vmcc-quic"),
        (user, None) => std::env::temp_dir().join(format!("vmcc-quic-{user}")),
    }
}

/// This user's folder, made if it is not there; none if somebody else could enter it.
pub(crate) fn create() -> Option<PathBuf> {
    let folder = user_dir();
    let _ = DirBuilder::new().mode(0o700).create(&folder);
    is_private(&folder).then_some(folder)
}

/// Returns true if it is this user's alone: in a world-writable folder somebody else might have made it before.
pub(super) fn is_private(folder: &Path) -> bool {
    owner(folder) == Some(geteuid().as_raw())
}

/// The only user who can make something in a folder; none of what is no folder itself, or is open to others.
pub(super) fn owner(folder: &Path) -> Option<u32> {
    let found = fs::symlink_metadata(folder).ok()?;
    (found.is_dir() && found.mode() & 0o077 == 0).then(|| found.uid())
}

/// Folders that may have programs' sockets, and whose they are: for root those of everybody.
pub(super) fn candidates() -> Vec<(PathBuf, u32)> {
    let ours = |owner: &u32| geteuid().is_root() || *owner == geteuid().as_raw();
    let owned = |folder: PathBuf| owner(&folder).filter(ours).map(|owner| (folder, owner));
    named().into_iter().filter_map(owned).collect()
}

fn named() -> Vec<PathBuf> {
    let mut all = vec![user_dir()];
    if geteuid().is_root() {
        let within =
            |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        all.extend(within("/run/user").map(|session| session.join("vmcc-quic")));
        let named = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmcc-quic-"))
        };
        all.extend(within("/tmp").filter(named));
    }
    all
}
