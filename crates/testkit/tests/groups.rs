//! Dependencies between the groups of crates (`crates/GROUP/NAME`): an operator's half and a researcher's half over a common base.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Each group and those that its crates may depend on, itself included. `linux` runs on hosts and needs nothing of `experiment`.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("base", &["base"]),
    ("cc", &["base", "cc"]),
    ("tcp", &["base", "cc", "tcp"]),
    ("quic", &["base", "cc", "quic"]),
    ("linux", &["base", "cc", "linux"]),
    ("experiment", &["base", "cc", "experiment"]),
    ("sim", &["base", "cc", "tcp", "quic", "experiment"]),
    ("lab", &["base", "cc", "quic", "linux", "experiment"]),
    ("cli", &["base", "cc", "quic", "linux", "experiment", "sim", "lab"]),
    ("testkit", &["base", "linux"]),
];

/// Sockets over real networks learn of addresses and routes from the kernel, on Linux. Programs run over either transport.
const EXCEPTIONS: [(&str, &str); 2] = [("vmcc-udp", "vmcc-netlink"), ("vmcc-apps", "vmcc-plmt")];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The manifests below `crates/`, by folder.
fn manifests() -> BTreeMap<PathBuf, Table> {
    let folders = |of: &Path| -> Vec<PathBuf> {
        fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let all = folders(&crates()).into_iter().flat_map(|folder| {
        let inner = folders(&folder);
        inner.into_iter().chain([folder])
    });
    all.filter_map(|folder| {
        let text = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        Some((folder.strip_prefix(crates()).unwrap().to_owned(), text.parse().unwrap()))
    })
    .collect()
}

fn group(folder: &Path) -> &str {
    folder.iter().next().unwrap().to_str().unwrap()
}

fn name(manifest: &Table) -> &str {
    manifest["package"]["name"].as_str().unwrap()
}

/// The dependencies of a crate that are crates of this workspace; not those of its tests.
fn dependencies(manifest: &Table) -> BTreeSet<&str> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = targets.filter_map(|target| target.get("dependencies")).chain(manifest.get("dependencies"));
    tables
        .filter_map(Value::as_table)
        .flat_map(Table::keys)
        .map(String::as_str)
        .filter(|name| name.starts_with("vmcc-"))
        .collect()
}

#[test]
fn groups_depend_in_one_direction() {
    let manifests = manifests();
    let groups: BTreeMap<&str, &str> =
        manifests.iter().map(|(folder, manifest)| (name(manifest), group(folder))).collect();
    let mut faults = Vec::new();
    for (folder, manifest) in &manifests {
        let (_, allowed) = ALLOWED.iter().find(|(name, _)| *name == group(folder)).expect("a known group");
        for dependency in dependencies(manifest) {
            let to = groups[dependency];
            if !allowed.contains(&to) && !EXCEPTIONS.contains(&(name(manifest), dependency)) {
                faults.push(format!("{} ({}) depends on {dependency} ({to})", name(manifest), group(folder)));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    // All manifests were found, and their dependencies with them.
    assert!(manifests.len() > 20);
    assert!(manifests.values().map(|manifest| dependencies(manifest).len()).sum::<usize>() > 50);
}
