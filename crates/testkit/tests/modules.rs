//! Modules of every crate use their siblings in one direction: no rings.

mod graph;

use graph::{Ring, rings};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Source folders below `crates/`, each with the crate's folder.
fn sources() -> Vec<(String, PathBuf)> {
    let folders = |of: &Path| -> Vec<PathBuf> {
        fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let all = folders(&crates()).into_iter().flat_map(|folder| [folders(&folder), vec![folder]].concat());
    all.filter(|folder| folder.join("Cargo.toml").exists())
        .map(|folder| {
            let name = folder.strip_prefix(crates()).unwrap().to_str().unwrap().to_owned();
            (name, folder.join("src"))
        })
        .collect()
}

#[test]
fn modules_use_their_siblings_in_one_direction() {
    let sources = sources();
    assert!(sources.len() > 20, "all crates were found");
    let found: BTreeSet<(String, Ring)> = sources
        .iter()
        .flat_map(|(name, source)| {
            let of = move |(parent, ring): (String, Ring)| (format!("{name}{parent}"), ring);
            rings(source).into_iter().map(of)
        })
        .collect();
    assert!(found.is_empty(), "rings: {found:#?}");
}

#[test]
fn cycle_is_found_through_imports_paths_and_reexports() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a; mod b; mod c; mod d; pub use c::Shown; #[cfg(test)] mod tests;");
    write("a.rs", "use crate::{b::{self, X}, d}; #[cfg(test)] mod tests { use crate::c::Y; }");
    write("b/mod.rs", "mod inner; // crate::a::Z\nconst TEXT: &str = \"crate::a\";");
    write("b/inner.rs", "fn f() { println!(\"{}\", crate::Shown::new()) }");
    write("c.rs", "#[cfg(not(test))] use super::a as other;");
    write("d.rs", "#[cfg(test)] use super::a; fn f() { super::super::a() }");
    write("tests.rs", "use crate::{a, d};");
    let ring: Ring = ["a", "b", "c"].map(str::to_owned).into();
    assert_eq!(rings(folder.path()), [(String::new(), ring)]);
    write("c.rs", "");
    assert_eq!(rings(folder.path()), []);
}
