//! The modules of a port use each other in one direction only.

use std::fs;
use std::path::Path;

/// From the bottom to the top, as the table of the module above.
const LAYERS: [&str; 18] = [
    "error",
    "wait",
    "frame",
    "folder",
    "plan",
    "device",
    "statistics",
    "record",
    "program",
    "backend",
    "swap",
    "redirect",
    "state",
    "attachment",
    "shared_rate",
    "recovery",
    "any_attachment",
    "marking",
];

fn height(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == module)
}

/// The modules that a source names behind a path to the module of the port.
fn used(source: &str) -> Vec<&str> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = code.flat_map(|line| {
        let starts = ["super::", "crate::port::"]
            .into_iter()
            .filter_map(|start| line.find(start).map(|at| at + start.len()));
        starts.map(|at| line[at..].split(';').next().unwrap_or_default()).collect::<Vec<_>>()
    });
    paths
        .flat_map(|path| path.trim_start_matches('{').split(['{', '}', ',', ' ']))
        .filter_map(|name| name.split("::").next())
        .filter(|name| height(name).is_some())
        .collect()
}

fn check(folder: &Path, own: usize) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files += check(&path, own);
            continue;
        }
        for name in used(&fs::read_to_string(&path).unwrap()) {
            assert!(height(name) <= Some(own), "{}: uses {name}, which is above it", path.display());
        }
        files += 1;
    }
    files
}

#[test]
fn no_module_uses_one_above_it() {
    let port = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/port");
    for (own, name) in LAYERS.iter().enumerate() {
        let (file, folder) = (port.join(format!("{name}.rs")), port.join(name));
        let mut files = 0;
        if file.exists() {
            for used in used(&fs::read_to_string(&file).unwrap()) {
                assert!(height(used) <= Some(own), "{name} uses {used}, which is above it");
            }
            files += 1;
        }
        if folder.exists() {
            files += check(&folder, own);
        }
        assert!(files > 0, "there is no module {name}");
    }
    assert_eq!(used("use super::{signed, swap};\nlet x = crate::port::recovery::y;"), ["swap", "recovery"]);
}
