//! A copy is one file at one moment, or it is refused.

use super::world::{World, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

/// A copy to there whose source is replaced when it has been listed, and not been opened.
fn replaced(commands: &str) -> World {
    let world = World::with_ssh(&format!("shift; rm data; {commands}; exec sh -c \"$*\""));
    world.write("data", 8);
    world.write("longer", 3_893);
    world
}

#[test]
fn source_replaced_between_list_and_open_is_copied_whole() {
    let world = replaced("mv longer data; chmod 0640 data");
    let (code, document) = world.cp(&["-p", "data", &world.far("copy")]);
    assert_eq!((code, &document["files"], &document["bytes"]), (0, &1.into(), &3_893.into()), "{document}");
    let copy = world.path("far/copy");
    assert!(fs::read(&copy).unwrap() == fs::read(world.path("data")).unwrap());
    let of = |path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.permissions(), metadata.modified().unwrap())
    };
    assert_eq!(of(copy), of(world.path("data")), "mode and time are those of the bytes");
}

#[test]
fn source_replaced_by_a_special_file_is_refused() {
    for commands in ["mkfifo data", "mkdir data", "ln -s /dev/zero data"] {
        let world = replaced(commands);
        world.fails(&["data", &world.far("copy")], 1, &["data", "no file", "copy it again"]);
        assert!(!world.path("far/copy").exists());
    }
    let world = replaced("true");
    world.fails(&["data", &world.far("copy")], 2, &["data", "No such file"]);
}

#[test]
fn source_modified_while_read_is_refused_unless_appended() {
    for torn in [true, false] {
        let world = World::new();
        let (source, data) = world.write("data", 64 << 20);
        let mut child = world.begin(&source);
        let pid = Pid::from_raw(child.id() as i32);
        kill(pid, Signal::SIGSTOP).unwrap();
        let mut file = OpenOptions::new().append(true).open(&source).unwrap();
        file.write_all(b"more").unwrap();
        if torn {
            let file = OpenOptions::new().write(true).open(&source).unwrap();
            file.write_all_at(b"new", 0).unwrap();
            file.write_all_at(b"new", data.len() as u64 - 3).unwrap();
        }
        kill(pid, Signal::SIGCONT).unwrap();
        let code = child.wait().unwrap().code();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let copy = fs::read(world.path("far/copy"));
        if torn {
            assert!(code == Some(1) && said.contains("was written to"), "{code:?}: {said}");
            assert!(copy.is_err(), "no torn copy");
        } else {
            assert!(code == Some(0) && copy.unwrap() == data, "{code:?}: {said}");
        }
    }
}

#[test]
fn special_file_as_target_is_refused() {
    let world = World::new();
    let (source, _) = world.write("data", 8);
    let fifo = world.path("far/fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    std::os::unix::fs::symlink("fifo", world.path("far/link")).unwrap();
    for (name, force) in [("fifo", true), ("fifo", false), ("link", true)] {
        let arguments = [text(&source), &world.far(name), if force { "--force" } else { "--quiet" }];
        world.fails(&arguments, 2, &[name, "FIFO"]);
    }
    assert!(!fs::metadata(&fifo).unwrap().is_file());
}
