//! Names, options and answers as those of scp, or, where they are not, as `vmcc cp --help` says.

use super::world::{World, text};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

/// World with a far end that has its home in `far` and starts there, as with ssh.
fn at_home() -> World {
    World::with_ssh(
        "if [ \"$1\" = -p ]; then echo \"$2\" >port; shift 2; fi; shift; cd far; HOME=$PWD exec sh -c \"$*\"",
    )
}

fn names(world: &World, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(world.path(folder)).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn tilde_is_the_home_on_the_remote_host() {
    let world = at_home();
    world.write("f", 9);
    fs::create_dir_all(world.path("far/sub")).unwrap();
    for (target, place) in [
        ("there:~", "far/f"),
        ("there:", "far/f"),
        ("there:~/sub/", "far/sub/f"),
        ("there:~/g", "far/g"),
        ("there:./~", "far/~"),
    ] {
        let (code, document) = world.cp(&["f", target]);
        assert_eq!(code, 0, "{target}: {document}");
        assert!(world.path(place).is_file(), "{target}");
    }
    for source in ["there:~", "there:~/", "there:", "there:."] {
        let _ = fs::remove_dir_all(world.path("got"));
        fs::create_dir(world.path("got")).unwrap();
        let (code, document) = world.cp(&["-r", source, "got"]);
        assert_eq!(code, 0, "{source}: {document}");
        assert_eq!(names(&world, "got"), ["f", "g", "sub", "~"], "{source}: no folder is called `~`");
    }
    let (code, document) = world.cp(&["there:~root/no-such-file-of-anybody", "got"]);
    assert_eq!(code, 2, "{document}");
    assert!(!document.to_string().contains("~root"), "a user's home is found: {document}");
}

#[test]
fn wildcards_match_names_on_the_remote_host() {
    let world = at_home();
    for name in ["far/a.txt", "far/b.txt", "far/.c.txt", "far/x[1]"] {
        world.write(name, 9);
    }
    fs::create_dir_all(world.path("far/deep/one")).unwrap();
    world.write("far/deep/one/d.log", 9);
    fs::create_dir(world.path("got")).unwrap();
    let (code, document) = world.cp(&["there:~/*.txt", "there:deep/*/?.log", "there:x[1]", "got"]);
    assert_eq!((code, &document["files"]), (0, &4.into()), "{document}");
    assert_eq!(names(&world, "got"), ["a.txt", "b.txt", "d.log", "x[1]"]);
    world.fails(&["there:*.none", "got"], 2, &["*.none", "No such file"]);
    world.fails(&["there:*.txt", "absent"], 2, &["absent", "no folder"]);
}

#[test]
fn uri_sets_the_ssh_port() {
    let world = at_home();
    world.write("f", 9);
    let (code, document) = world.cp(&["f", "scp://me@there:2222/g%20h"]);
    assert_eq!(code, 0, "{document}");
    assert_eq!(names(&world, "far"), ["g h"]);
    assert_eq!(fs::read_to_string(world.path("port")).unwrap(), "2222\n");
    world.fails(&["f", "scp://there:x/g"], 2, &["scp://there:x/g", "port"]);
}

#[test]
fn forced_copy_keeps_mode_and_replaces_links() {
    let world = World::new();
    let (source, data) = world.write("data", 9);
    fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["far/x", "far/other"] {
        fs::write(world.path(name), b"before").unwrap();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    symlink("other", world.path("far/link")).unwrap();
    for name in ["x", "link"] {
        let (code, document) = world.cp(&["--force", text(&source), &world.far(name)]);
        assert_eq!(code, 0, "{document}");
        assert_eq!(fs::read(world.path("far").join(name)).unwrap(), data);
    }
    let mode = |name: &str| fs::symlink_metadata(world.path(name)).unwrap().mode();
    assert_eq!(mode("far/x") & 0o777, 0o640);
    assert!(fs::symlink_metadata(world.path("far/link")).unwrap().is_file());
    assert_eq!(fs::read(world.path("far/other")).unwrap(), b"before", "not written through");
}

#[test]
fn preserve_sets_time_and_mode_of_existing_files() {
    let world = World::new();
    let (source, _) = world.write("data", 9);
    assert_eq!(world.cp(&[text(&source), &world.far("x")]).0, 0);
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(&source).unwrap().set_modified(past).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o4711)).unwrap();
    for (options, kept) in [("-q", false), ("-p", true)] {
        let (code, document) = world.cp(&[options, text(&source), &world.far("x")]);
        assert_eq!((code, &document["found_bytes"]), (0, &9.into()), "{document}");
        let copy = fs::metadata(world.path("far/x")).unwrap();
        assert_eq!(copy.modified().unwrap() == past, kept, "{options}");
        assert_eq!(copy.mode() & 0o7777 == 0o4711, kept, "{options}");
    }
}

#[test]
fn deep_folders_are_copied() {
    let world = World::new();
    let deep = "d/".repeat(300);
    fs::create_dir_all(world.path("tree").join(&deep)).unwrap();
    world.write(&format!("tree/{deep}f"), 9);
    let (code, document) = world.cp(&["-r", "tree", &world.far("")]);
    assert_eq!((code, &document["files"]), (0, &1.into()), "{document}");
    assert!(world.path("far/tree").join(&deep).join("f").is_file());
}

#[test]
fn missing_file_error_is_one_line() {
    let world = World::new();
    let arguments = world.arguments(&["nothing", &world.far("")]);
    let output = world.output(&arguments[1..]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("warning: not copied: nothing: No such file") && said.lines().count() == 1,
        "{said}"
    );
}
