//! The same command after an interruption means the same.

use super::world::World;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A tree with a file that takes a while, and a folder that cannot be written to once it is complete.
fn tree(world: &World, place: &str) {
    let at = |name: &str| format!("{place}/{name}");
    fs::create_dir_all(world.path(&at("locked"))).unwrap();
    world.write(&at("big"), 64 << 20);
    world.write(&at("locked/small"), 9);
    fs::set_permissions(world.path(&at("locked")), fs::Permissions::from_mode(0o555)).unwrap();
}

/// Names of all files and folders below, with lengths and modes.
fn listing(folder: &Path) -> Vec<(String, u64, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (name, metadata) = (entry.file_name().into_string().unwrap(), entry.metadata().unwrap());
        let len = if metadata.is_file() { metadata.len() } else { 0 };
        found.push((name.clone(), len, metadata.permissions().mode()));
        if metadata.is_dir() {
            let below = listing(&entry.path()).into_iter();
            found.extend(below.map(|(inner, len, mode)| (format!("{name}/{inner}"), len, mode)));
        }
    }
    found.sort();
    found
}

/// Interrupts a copy of a tree to a name that is not there, and repeats it.
fn interrupt(signal: Signal, to_there: bool) {
    let world = World::new();
    let (from, to) = if to_there { ("tree", "far/new") } else { ("far/tree", "new") };
    tree(&world, from);
    let (far, near) = if to_there { (world.far("new"), "tree") } else { (world.far("tree"), "new") };
    let arguments = if to_there { ["-r", near, &far] } else { ["-r", &far, near] };
    let mut child = world.begin_args(&arguments, &format!("{to}/.big.vmcc-part"), || {
        fs::remove_dir_all(world.path(to)).unwrap();
    });
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    assert_ne!(child.wait().unwrap().code(), Some(0));
    assert!(world.path(to).join(".vmcc-part").exists(), "the folder is marked");

    // Another source is no repetition: it goes where cp would put it.
    fs::create_dir_all(world.path(&format!("{from}2"))).unwrap();
    let other = if to_there { "tree2".to_owned() } else { world.far("tree2") };
    let (code, document) = world.cp(&["-r", &other, arguments[2]]);
    assert_eq!(code, 0, "{document}");
    fs::remove_dir(world.path(&format!("{to}/tree2"))).expect("made inside");

    let (code, document) = world.cp(&arguments);
    assert_eq!((code, &document["files"]), (0, &2.into()), "{document}");
    assert!(document["found_bytes"].as_u64() > Some(1 << 20), "it goes on: {document}");
    assert_eq!(listing(&world.path(to)), listing(&world.path(from)), "no half files, no mark");
    let same =
        |name| fs::read(world.path(to).join(name)).unwrap() == fs::read(world.path(from).join(name)).unwrap();
    assert!(same("big") && same("locked/small"));

    // It came to its end: the folder is one like any, as for cp.
    let (code, document) = world.cp(&arguments);
    assert_eq!(code, 0, "{document}");
    assert_eq!(listing(&world.path(to).join("tree")), listing(&world.path(from)));
}

#[test]
fn upload_of_a_tree_resumes_after_ctrl_c() {
    interrupt(Signal::SIGINT, true);
}

#[test]
fn upload_of_a_tree_resumes_after_kill() {
    interrupt(Signal::SIGKILL, true);
}

#[test]
fn download_of_a_tree_resumes_after_ctrl_c() {
    interrupt(Signal::SIGINT, false);
}

#[test]
fn download_of_a_tree_resumes_after_kill() {
    interrupt(Signal::SIGKILL, false);
}

#[test]
fn tree_with_a_refused_file_resumes_once_the_cause_is_gone() {
    let world = World::new();
    fs::create_dir(world.path("tree")).unwrap();
    world.write("tree/x", 9);
    // The first time the file is something else by the time it is opened.
    let script = "shift; test -e once || { touch once; rm tree/x; mkfifo tree/x; }; exec sh -c \"$*\"";
    fs::write(world.path("ssh"), format!("#!/bin/sh\n{script}\n")).unwrap();
    world.fails(&["-r", "tree", &world.far("new")], 1, &["tree/x", "no file"]);
    fs::remove_file(world.path("tree/x")).unwrap();
    world.write("tree/x", 9);
    let (code, document) = world.cp(&["-r", "tree", &world.far("new")]);
    assert_eq!(code, 0, "{document}");
    assert_eq!(listing(&world.path("far/new")), listing(&world.path("tree")));
}
