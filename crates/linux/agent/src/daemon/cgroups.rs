//! Finding cgroups.

use std::fs;
use std::io;
use std::path::Path;
use wildmatch::WildMatch;

/// The cgroups below `root` that a pattern fits, by their paths there. Only folders on its way are looked at.
pub(super) fn find(root: &Path, pattern: &str) -> io::Result<Vec<String>> {
    let mut found = vec![String::new()];
    for part in pattern.trim_matches('/').split('/') {
        let pattern = WildMatch::new(part);
        let mut inside = Vec::new();
        for above in &found {
            let names = folders(&root.join(above))?.into_iter().filter(|name| pattern.matches(name));
            inside.extend(names.map(|name| if above.is_empty() { name } else { format!("{above}/{name}") }));
        }
        found = inside;
    }
    found.sort();
    Ok(found)
}

/// One that has gone meanwhile has none.
fn folders(at: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(at) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        // What is not UTF-8 no file can name.
        if let (Ok(name), true) = (entry.file_name().into_string(), entry.file_type()?.is_dir()) {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_names_not_paths() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a/web-1/inner", "a/web-2", "a/db", "b/web-3"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        fs::write(root.path().join("a/web-file"), "").unwrap();
        let of = |pattern: &str| find(root.path(), pattern).unwrap();
        assert_eq!(of("a/web-*"), ["a/web-1", "a/web-2"]);
        assert_eq!(of("/a/web-1/"), ["a/web-1"]);
        assert_eq!(of("*/web-?"), ["a/web-1", "a/web-2", "b/web-3"]);
        assert_eq!(of("*"), ["a", "b"]);
        assert_eq!(of("a/*/inner"), ["a/web-1/inner"]);
        assert!(of("c/web-1").is_empty() && of("a/web-file/x").is_empty());
    }
}
