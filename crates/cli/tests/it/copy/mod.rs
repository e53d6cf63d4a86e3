//! `vmcc cp` over addresses of the loopback; ssh is a script that starts the far end here.

mod interrupted;
mod moment;
mod round_trips;
mod scp;
mod world;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command as StdCommand, Stdio};
use std::thread::{sleep, spawn};
use std::time::Duration;
use world::{World, text};

#[test]
fn file_round_trips_over_several_paths() {
    let world = World::new();
    let (source, data) = world.write("data", 9 << 20);
    let (code, there) = world.cp(&[text(&source), &world.far("copy")]);
    assert_eq!((code, &there["files"], &there["bytes"]), (0, &1.into(), &data.len().into()), "{there}");
    let paths = there["paths"].as_array().unwrap();
    let used = paths.iter().filter(|path| path["sent_bytes"].as_u64() > Some(20_000)).count();
    assert!(used >= 2, "{there}");
    assert!(fs::read(world.path("far/copy")).unwrap() == data);
    let back = world.path("back");
    let (code, document) = world.cp(&[&world.far("copy"), text(&back)]);
    assert_eq!(code, 0, "{document}");
    assert!(fs::read(&back).unwrap() == data);
    // What is the same is not sent again; what differs is not touched unless that is wanted.
    let (code, again) = world.cp(&[text(&source), &world.far("copy")]);
    assert_eq!((code, &again["found_bytes"]), (0, &data.len().into()), "{again}");
    fs::write(&back, b"mine").unwrap();
    world.fails(&[&world.far("copy"), text(&back)], 2, &["back: exists", "--force"]);
    assert_eq!(fs::read(&back).unwrap(), b"mine");
    assert_eq!(world.cp(&["--force", &world.far("copy"), text(&back)]).0, 0);
    assert!(fs::read(&back).unwrap() == data);
    let left: Vec<_> =
        fs::read_dir(world.path("far")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["copy"], "no part is left");
}

#[test]
fn folder_is_copied_recursively() {
    let world = World::new();
    fs::create_dir_all(world.path("tree/a/b")).unwrap();
    fs::create_dir(world.path("tree/empty")).unwrap();
    for (name, len) in [("tree/none", 0), ("tree/a/one", 1), ("tree/a/b/some", 70_000)] {
        world.write(name, len);
    }
    fs::set_permissions(world.path("tree/a/one"), fs::Permissions::from_mode(0o500)).unwrap();
    let tree = world.path("tree");
    world.fails(&[text(&tree), &world.far("")], 2, &["tree", "--recursive"]);
    let (code, document) = world.cp(&["-rp", text(&tree), &world.far("")]);
    assert_eq!((code, &document["files"]), (0, &3.into()), "{document}");
    let far = world.path("far/tree");
    assert!(far.join("empty").is_dir());
    assert_eq!(fs::read(far.join("a/b/some")).unwrap(), fs::read(tree.join("a/b/some")).unwrap());
    let (one, same) = (tree.join("a/one").metadata().unwrap(), far.join("a/one").metadata().unwrap());
    assert_eq!(same.permissions().mode() & 0o7777, 0o500);
    assert_eq!(one.modified().unwrap(), same.modified().unwrap());
    let (code, document) = world.cp(&["-r", &world.far("tree/"), text(&world.path("again"))]);
    assert_eq!((code, &document["files"]), (0, &3.into()), "{document}");
    assert!(world.path("again/a/one").is_file());
}

#[test]
fn interrupted_copy_resumes() {
    let world = World::new();
    let (source, data) = world.write("data", 64 << 20);
    let (part, target) = (world.path("far/.copy.vmcc-part"), world.far("copy"));
    let child = world.begin(&source);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("error: interrupted") && said.lines().count() == 1,
        "the far end adds nothing: {said}"
    );
    assert!(!world.path("far/copy").exists());
    let (code, document) = world.cp(&[text(&source), &target]);
    assert_eq!(code, 0, "{document}");
    assert!(document["found_bytes"].as_u64() > Some(1 << 20), "{document}");
    assert!(fs::read(world.path("far/copy")).unwrap() == data);
    // What lies there and is not its beginning is not gone on with.
    fs::remove_file(world.path("far/copy")).unwrap();
    fs::write(&part, vec![7; 1 << 20]).unwrap();
    let (code, document) = world.cp(&[text(&source), &target]);
    assert_eq!((code, &document["found_bytes"]), (0, &0.into()), "{document}");
    assert!(fs::read(world.path("far/copy")).unwrap() == data && !part.exists());
}

#[test]
fn forced_copy_over_a_file_of_the_same_size_resumes() {
    let world = World::new();
    let (source, data) = world.write("data", 4 << 20);
    fs::write(world.path("far/copy"), vec![7; data.len()]).unwrap();
    fs::write(world.path("far/.copy.vmcc-part"), &data[..1 << 20]).unwrap();
    let (code, document) = world.cp(&["--force", text(&source), &world.far("copy")]);
    assert_eq!((code, &document["found_bytes"]), (0, &(1 << 20).into()), "{document}");
    assert!(fs::read(world.path("far/copy")).unwrap() == data);
}

#[test]
fn special_files_are_named_and_skipped() {
    let world = World::new();
    let (source, _) = world.write("data", 10);
    let source = text(&source);
    world.fails(&["nothing", &world.far("")], 2, &["nothing", "No such file", "begins in /"]);
    world.fails(&[&world.far("nothing"), source], 2, &["far/nothing", "No such file"]);
    world.fails(&[source, &world.far("no/folder/x")], 2, &["no/folder", "is not there"]);
    world.fails(&[source, source], 2, &["both on this host", "HOST:PATH"]);
    world.fails(&["a:x", "b:y"], 2, &["on this host"]);
    fs::create_dir(world.path("far/folder")).unwrap();
    fs::create_dir(world.path("far/folder/data")).unwrap();
    world.fails(&[source, &world.far("folder")], 2, &["far/folder/data", "is a folder"]);
}

#[test]
fn file_longer_than_its_reported_size_is_refused() {
    let world = World::new();
    world.fails(&["/proc/cpuinfo", &world.far("cpuinfo")], 1, &["cpuinfo", "than its size says"]);
    assert!(!world.path("far/cpuinfo").exists());
}

#[test]
fn invalid_remote_ends_are_reported() {
    let world = World::with_ssh("echo 'ssh: Could not resolve hostname' >&2; exit 255");
    let (source, _) = world.write("data", 10);
    world.fails(&[text(&source), "nowhere:x"], 2, &["nowhere", "code 255", "ssh nowhere true"]);
    // Somebody else answers at the address that the far end has told.
    let other = "shift; sh -c \"$*\" | sed -u 's/sha256:[0-9a-f]*/sha256:'$(printf '%064d' 7)'/'";
    let world = World::with_ssh(other);
    let (source, _) = world.write("data", 10);
    world.fails(&[text(&source), &world.far("x")], 3, &["not trusted", "sha256:"]);
    assert!(!world.path("far/x").exists());
    // The far end trusts somebody else.
    let other = "shift; sed -u 's/sha256:[0-9a-f]*/sha256:'$(printf '%064d' 7)'/' | sh -c \"$*\"";
    let world = World::with_ssh(other);
    let (source, _) = world.write("data", 10);
    world.fails(&[text(&source), &world.far("x")], 3, &["not trusted", "sha256:"]);
}

#[test]
fn copy_resumes_after_its_remote_end_was_killed() {
    let both = |kills: fn(&World, &mut Child)| {
        let world = World::with_ssh("shift; echo $$ >\"$0.pid\"; exec $*");
        let (source, data) = world.write("data", 64 << 20);
        kills(&world, &mut world.begin(&source));
        assert!(!world.path("far/copy").exists());
        let (code, document) = world.cp(&[text(&source), &world.far("copy")]);
        assert_eq!(code, 0, "{document}");
        assert!(document["found_bytes"].as_u64() > Some(1 << 20), "{document}");
        assert!(
            fs::read(world.path("far/copy")).unwrap() == data && !world.path("far/.copy.vmcc-part").exists()
        );
    };
    // The far end, which still holds the file when the same command comes, is waited for.
    let client = spawn(move || {
        both(|_, child| {
            child.kill().unwrap();
            child.wait().unwrap();
        });
    });
    both(|world, child| {
        let far = fs::read_to_string(world.path("ssh.pid")).unwrap();
        kill(Pid::from_raw(far.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let noticed = ["ssh has ended", "port unreachable"].iter().any(|words| said.contains(words));
        assert!(noticed, "not only the idle timeout: {said}");
    });
    client.join().unwrap();
}

/// The records of the only log in a folder whose name ends so.
fn log_of(folder: &Path, end: &str) -> Vec<Value> {
    let logs: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut own = logs.iter().filter(|log| text(log).ends_with(end));
    let log = own.next().unwrap_or_else(|| panic!("no {end} among {logs:?}"));
    assert_eq!(fs::metadata(log).unwrap().permissions().mode() & 0o777, 0o600);
    let all = fs::read_to_string(log).unwrap();
    let records = all.strip_prefix('\u{1e}').unwrap().split('\u{1e}');
    records.map(|record| serde_json::from_str(record.strip_suffix('\n').unwrap()).unwrap()).collect()
}

/// Path, kind and number of each packet of an event's name.
fn packets(log: &[Value], event: &str) -> BTreeSet<(u64, String, u64)> {
    let of = |record: &Value| {
        let header = &record["data"]["header"];
        let kind = header["packet_type"].as_str().unwrap().to_owned();
        (record["path_id"].as_u64().unwrap(), kind, header["packet_number"].as_u64().unwrap())
    };
    log.iter().filter(|record| record["name"] == event).map(of).collect()
}

/// Bytes of the streams that packets carried, each counted once.
fn streamed(log: &[Value], event: &str) -> u64 {
    let mut pieces = BTreeSet::new();
    for record in log.iter().filter(|record| record["name"] == event) {
        for frame in
            record["data"]["frames"].as_array().unwrap().iter().filter(|f| f["frame_type"] == "stream")
        {
            let number = |value: &Value| value.as_u64().unwrap();
            let len = number(&frame["raw"]["length"]);
            pieces.insert((number(&frame["stream_id"]), number(&frame["offset"]), len));
        }
    }
    let mut reached = (0, 0);
    pieces
        .into_iter()
        .map(|(stream, offset, len)| {
            let from = if reached.0 == stream { offset.max(reached.1) } else { offset };
            reached = (stream, from.max(offset + len));
            (offset + len).saturating_sub(from)
        })
        .sum()
}

#[test]
fn both_ends_log_the_same_packets() {
    let world = World::with_ssh("shift; QLOGDIR=$(dirname \"$0\")/far-logs exec sh -c \"$*\"");
    let (source, data) = world.write("data", 2 << 20);
    let logs = world.path("logs");
    let (code, document) = world.cp(&["--qlog", text(&logs), text(&source), &world.far("copy")]);
    assert_eq!(code, 0, "{document}");
    let (client, server) = (log_of(&logs, "_client.sqlog"), log_of(&world.path("far-logs"), "_server.sqlog"));
    for (log, point) in [(&client, "client"), (&server, "server")] {
        assert_eq!(log[0]["file_schema"], "urn:ietf:params:qlog:file:sequential");
        assert_eq!(log[0]["trace"]["vantage_point"]["type"], point);
        let has = |name: &str| log.iter().any(|record| record["name"] == name);
        for name in [
            "connection_started",
            "tuple_assigned",
            "recovery_metrics_updated",
            "congestion_state_updated",
            "connection_closed",
        ] {
            assert!(has(&format!("quic:{name}")), "{point}: {name}");
        }
        let times: Vec<_> = log[1..].iter().map(|record| record["time"].as_f64().unwrap()).collect();
        assert!(times.is_sorted());
    }
    assert_eq!(
        client[0]["trace"]["common_fields"]["group_id"],
        server[0]["trace"]["common_fields"]["group_id"]
    );
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (sent, received) = (packets(from, "quic:packet_sent"), packets(to, "quic:packet_received"));
        assert!(received.is_subset(&sent), "{:?}", received.difference(&sent).collect::<Vec<_>>());
        // What came last may not have been looked at before the end.
        assert!(received.len() * 10 > sent.len() * 8, "{} of {}", received.len(), sent.len());
    }
    let paths: BTreeSet<_> =
        packets(&client, "quic:packet_sent").into_iter().map(|(path, ..)| path).collect();
    assert!(paths.len() >= 2, "{paths:?}");
    assert!(streamed(&server, "quic:packet_received") >= data.len() as u64);
    assert_eq!(streamed(&server, "quic:packet_received"), streamed(&client, "quic:packet_sent"));

    // A log that cannot be written is said before anything begins; one that ends early fails nothing.
    world.fails(
        &["--qlog", text(&source), text(&source), &world.far("other")],
        3,
        &["no log can be written"],
    );
    assert!(!world.path("far/other").exists());
    // The variable is any QUIC program's.
    let world = World::with_ssh("shift; QLOGDIR=/dev/null exec sh -c \"$*\"");
    let (source, _) = world.write("data", 9);
    assert_eq!(world.cp(&[text(&source), &world.far("copy")]).0, 0);
}

#[test]
fn ctrl_c_ends_a_copy_that_waits_for_ssh() {
    let world = World::with_ssh("echo $$ >\"$0.pid.part\"; mv \"$0.pid.part\" \"$0.pid\"; exec sleep 1000");
    let (source, _) = world.write("data", 9);
    let mut command = StdCommand::new(env!("CARGO_BIN_EXE_vmcc"));
    let mut child = command
        .args(world.arguments(&[text(&source), "there:x"]))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ssh = world.path("ssh.pid");
    while !ssh.exists() {
        sleep(Duration::from_millis(5));
    }
    let ssh = Pid::from_raw(fs::read_to_string(ssh).unwrap().trim().parse().unwrap());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Not left behind, as a child of nobody.
    assert!(kill(ssh, None).is_err());
}

#[test]
fn long_names_are_copied_and_link_cycles_are_not_followed() {
    let world = World::new();
    let folder = world.path("tree");
    fs::create_dir(&folder).unwrap();
    // More than a message of the protocol had room for once, and as long as names can be.
    let names: Vec<_> = (0..300).map(|i| format!("{i:0>255}")).collect();
    names.iter().for_each(|name| fs::write(folder.join(name), name).unwrap());
    let sources: Vec<_> = names.iter().map(|name| text(&folder.join(name)).to_owned()).collect();
    let target = world.far("");
    let arguments: Vec<&str> = sources.iter().map(String::as_str).chain([&target[..]]).collect();
    let (code, document) = world.cp(&arguments);
    assert_eq!((code, &document["files"]), (0, &300.into()), "{document}");
    assert_eq!(fs::read_to_string(world.path("far").join(&names[299])).unwrap(), names[299]);

    let ring = world.path("ring");
    fs::create_dir(&ring).unwrap();
    fs::write(ring.join("file"), b"1").unwrap();
    ["a", "b"].iter().for_each(|name| std::os::unix::fs::symlink(".", ring.join(name)).unwrap());
    let (code, document) = world.cp(&["-r", text(&ring), &world.far("")]);
    assert_eq!((code, &document["files"]), (2, &1.into()), "{document}");
    assert_eq!(document["refused"].as_array().unwrap().len(), 2, "{document}");
}

/// Both ends know of each, and each is counted once.
#[test]
fn many_refused_files_are_counted_once() {
    let world = World::new();
    for folder in ["tree", "far/tree", "far/again", "got"] {
        fs::create_dir(world.path(folder)).unwrap();
    }
    fs::create_dir(world.path("got/tree")).unwrap();
    fs::create_dir(world.path("far/again/tree")).unwrap();
    for i in 0..250 {
        for (folder, len) in [("tree", 1), ("far/again/tree", 2), ("far/tree", 3), ("got/tree", 4)] {
            world.write(&format!("{folder}/{i}"), len);
        }
    }
    for (from, to) in [(&"tree".to_owned(), &world.far("again")), (&world.far("tree"), &"got".to_owned())] {
        let (code, document) = world.cp(&["-r", from, to]);
        let listed = document["refused"].as_array().unwrap().len() as u64;
        let more = document["refused_more"].as_u64().unwrap();
        assert_eq!((code, listed + more), (2, 250), "{from}: {listed} and {more} more");
    }
}
