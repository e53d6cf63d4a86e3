//! Cgroups by path.

use crate::error::ConfigError;
use std::path::{Path, PathBuf};

/// Mount point of cgroup v2.
const ROOT: &str = "/sys/fs/cgroup";

/// The folder of the cgroup at `path`. A path that is not absolute starts at the root of the hierarchy
/// (`system.slice/db.service`). `key` names the setting in errors.
///
/// # Errors
/// There is no cgroup (v2) of this path.
pub fn cgroup_folder(path: &Path, key: &str) -> Result<PathBuf, ConfigError> {
    let full = Path::new(ROOT).join(path);
    let help = if path.is_absolute() && !path.starts_with(ROOT) {
        "leave the first `/` out: paths begin below /sys/fs/cgroup"
    } else {
        "`systemd-cgls` or `find /sys/fs/cgroup -type d` lists cgroups"
    };
    let wrong = |message: String| ConfigError::at(key, message).help(help);
    std::fs::metadata(&full).map_err(|e| wrong(format!("there is no cgroup `{}`: {e}", full.display())))?;
    // The file that every cgroup of version 2 has and no folder of version 1.
    if !full.join("cgroup.controllers").exists() {
        return Err(wrong(format!("`{}` is not a cgroup of version 2", full.display())));
    }
    Ok(full)
}
