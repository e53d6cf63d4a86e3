//! Wildcards in paths of the far end: `*`, `?` and `[...]`, as scp has them, and `~` for a home folder.

use nix::libc;
use nix::unistd::{User, geteuid};
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest name that file systems have.
const MAX_NAME_BYTES: usize = 255;

/// True if a path has wildcards.
pub(super) fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// True if `name` equals the last component of `path`, or matches it.
pub(super) fn names(path: &[u8], name: &[u8]) -> bool {
    let last = path.split(|&byte| byte == b'/').rfind(|part| !part.is_empty()).unwrap_or_default();
    // Longer ones are no names of files, and cost `fnmatch` stack and time.
    last == name || (name.len() <= MAX_NAME_BYTES && matches(last, name))
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (Ok(pattern), Ok(name)) = (CString::new(pattern), CString::new(name)) else { return false };
    // SAFETY: both are strings that end with a zero and live until the call returns.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_PERIOD) == 0 }
}

/// The paths that match below `base`, sorted; what matches nothing is the name of a file itself.
pub(super) fn expand(base: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let literal = || base.join(OsStr::from_bytes(pattern));
    if !is_pattern(pattern) {
        return vec![literal()];
    }
    let begin = if pattern.starts_with(b"/") { Path::new("/") } else { base };
    let mut found = vec![begin.to_owned()];
    for part in pattern.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        found = if is_pattern(part) {
            found.iter().flat_map(|folder| inside(folder, part)).collect()
        } else {
            found.into_iter().map(|folder| folder.join(OsStr::from_bytes(part))).collect()
        };
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    if found.is_empty() { vec![literal()] } else { found }
}

fn inside(folder: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    // `read_dir("")` finds nothing.
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(listed).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name()).filter(|name| matches(pattern, name.as_bytes())).collect();
    names.sort();
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// Home folder that a leading `~` or `~USER` stands for, as in scp, and the rest of the path. Without one, or with an unknown user, the folder is
/// empty and the rest is the path.
pub(super) fn home(path: &[u8]) -> (PathBuf, Vec<u8>) {
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    let own = || std::env::var_os("HOME").map(PathBuf::from).or_else(|| folder_of(User::from_uid(geteuid())));
    let home = match path[..end].split_first() {
        Some((b'~', [])) => own(),
        Some((b'~', user)) => {
            std::str::from_utf8(user).ok().and_then(|user| folder_of(User::from_name(user)))
        }
        _ => None,
    };
    match home {
        Some(home) => {
            let rest = &path[end..];
            (home, rest[rest.iter().take_while(|&&byte| byte == b'/').count()..].to_vec())
        }
        None => (PathBuf::new(), path.to_vec()),
    }
}

fn folder_of(user: nix::Result<Option<User>>) -> Option<PathBuf> {
    user.ok().flatten().map(|user| user.dir)
}

/// A path of the far end without wildcards.
pub(super) fn expand_home(path: &[u8]) -> PathBuf {
    let (base, rest) = home(path);
    // Joining nothing would add a slash.
    if rest.is_empty() { base } else { base.join(OsString::from_vec(rest)) }
}

/// The last name of a path of the far end, which is what it is called here; a home folder has none, as `.`.
pub(super) fn name_of(path: &Path) -> Option<OsString> {
    let bytes = path.as_os_str().as_bytes();
    let only =
        bytes.iter().position(|&byte| byte == b'/').is_none_or(|at| bytes[at..].iter().all(|&b| b == b'/'));
    if bytes.starts_with(b"~") && only { None } else { super::target::name_of(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative(base: &Path, pattern: &str) -> Vec<String> {
        let found = expand(base, pattern.as_bytes());
        found.iter().map(|path| path.strip_prefix(base).unwrap().display().to_string()).collect()
    }

    #[test]
    fn wildcards_match_like_scp() {
        let folder = tempfile::tempdir().unwrap();
        // No pattern itself, whatever is in its name.
        let base = folder.path().join("[b]*");
        fs::create_dir_all(base.join("x/deep")).unwrap();
        for name in ["a1.txt", "a[1].txt", "b*c", ".hidden.txt", "x/1.log", "x/deep/2.log"] {
            fs::write(base.join(name), name).unwrap();
        }
        for (pattern, expected) in [
            ("*.txt", &["a1.txt", "a[1].txt"][..]),
            ("a[1].txt", &["a1.txt"]),
            ("a[[]1].txt", &["a[1].txt"]),
            (r"b\*c", &["b*c"]),
            (".*.txt", &[".hidden.txt"]),
            ("?/*.log", &["x/1.log"]),
            ("x/*/2.log", &["x/deep/2.log"]),
            ("*/none", &["*/none"]),
            ("none*", &["none*"]),
            ("a1.txt", &["a1.txt"]),
        ] {
            assert_eq!(relative(&base, pattern), expected, "{pattern}");
        }
        let absolute = format!("{}/x/*", folder.path().join("?b?[*]").display());
        assert_eq!(expand(Path::new(""), absolute.as_bytes()), [base.join("x/1.log"), base.join("x/deep")]);
    }

    #[test]
    fn only_matching_names_are_accepted() {
        for (path, name) in [("x/*.txt", "a.txt"), ("x/*.txt/", "a.txt"), ("a[1]", "a1"), ("a[1]", "a[1]")] {
            assert!(names(path.as_bytes(), name.as_bytes()), "{path} {name}");
        }
        for (path, name) in [("x/*.txt", ".bashrc"), ("*", ".ssh"), ("*.txt", "a.txt\0.sh"), ("a[1]", "a2")] {
            assert!(!names(path.as_bytes(), name.as_bytes()), "{path} {name}");
        }
    }

    #[test]
    fn home_directories_have_no_name() {
        let own = std::env::var_os("HOME").map(PathBuf::from).unwrap();
        let root = User::from_name("root").unwrap().unwrap().dir;
        for (path, place, name) in [
            ("~", own.clone(), None),
            ("~/", own.clone(), None),
            ("~//x", own.join("x"), Some("x")),
            ("~root", root.clone(), None),
            ("~root/x/y", root.join("x/y"), Some("y")),
            ("~nobody-has-this-name/x", "~nobody-has-this-name/x".into(), Some("x")),
            ("./~", "./~".into(), Some("~")),
            ("", "".into(), None),
            ("x/~", "x/~".into(), Some("~")),
        ] {
            assert_eq!(expand_home(path.as_bytes()), place, "{path}");
            assert_eq!(name_of(Path::new(path)).as_deref(), name.map(OsStr::new), "{path}");
        }
    }
}
