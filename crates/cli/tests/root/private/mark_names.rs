//! Ports that go by another name, ports that go away while they are served, and hosts whose `/run` takes no record.

use crate::killed::disturbed_before;
use std::fs::File;
use std::process::{Command, Stdio};

/// A network namespace of its own with a pair of ports, `p0` and `p1`.
struct Place(String);

impl Place {
    fn new(what: &str) -> Self {
        let place = Self(format!("vmcc-{what}-{}", std::process::id()));
        run(&["netns", "add", &place.0]);
        place.add_ports();
        place
    }

    fn add_ports(&self) {
        run(&["-n", &self.0, "link", "add", "p0", "type", "veth", "peer", "name", "p1"]);
        run(&["-n", &self.0, "link", "set", "p0", "up"]);
        run(&["-n", &self.0, "link", "set", "p1", "up"]);
    }

    fn vmcc(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.0)).arg(env!("CARGO_BIN_EXE_vmcc")).args(arguments);
        command.stdout(Stdio::null());
        command
    }

    fn done(&self, arguments: &[&str]) {
        let output = self.vmcc(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn run(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

#[test]
fn root_port_is_found_by_its_alternative_names() {
    let place = Place::new("names");
    let long = "a-name-that-is-longer-than-fifteen-characters";
    run(&["-n", &place.0, "link", "property", "add", "dev", "p0", "altname", long, "altname", "uplink"]);
    place.done(&["mark", long, "--rate", "10mbit"]);
    place.done(&["mark", "uplink", "--rate", "20mbit"]);
    let stats = place.vmcc(&["mark", "uplink", "--stats", "--json"]).stdout(Stdio::piped()).output().unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(stats["port"], "p0", "{stats}");
    place.done(&["unmark", long]);
}

#[test]
fn root_deleted_port_is_named_in_the_error() {
    let place = Place::new("gone");
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut failed = 0;
    for n in (0..).step_by(5) {
        let mut mark = place.vmcc(&["mark", "p0", "--rate", "10mbit"]);
        mark.stderr(File::create(log.path()).unwrap());
        let (call, code) = disturbed_before(mark, n, || run(&["-n", &place.0, "link", "del", "p0"]));
        let Some(call) = call else { break };
        let said = std::fs::read_to_string(log.path()).unwrap();
        let at = format!("gone before call {n} ({call}), exit code {code}: {said}");
        assert!(!said.contains("modprobe") && !said.contains("doctor"), "{at}");
        if code != 0 {
            failed += 1;
            assert!(said.contains("went away") || said.contains("there is no port `p0`"), "{at}");
        }
        place.done(&["unmark", "--all"]);
        place.add_ports();
    }
    assert!(failed > 3, "{failed}");
}

/// Runs a script in network and mount namespaces of its own, with a port `p0`; `$0` is the program.
fn alone(script: &str) -> (Option<i32>, String) {
    let ports = "ip link add p0 type veth peer name p1 && ip link set p0 up && ip link set p1 up";
    let script = format!("{ports} && {script}");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_vmcc")]);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|s| String::from_utf8_lossy(&s).into_owned()).concat();
    (output.status.code(), said)
}

#[test]
fn root_port_is_unchanged_if_its_record_cannot_be_written() {
    let full = "mount -t tmpfs -o size=4k none /run && head -c 4096 /dev/zero >/run/full";
    let read_only = "mount -t tmpfs -o ro none /run";
    for (run, remedy) in
        [(full, "make room on that file system"), (read_only, "mount that file system writable")]
    {
        let after = "s=$?; tc qdisc show dev p0; find /run -path '*/ports/*'; exit $s";
        let (code, said) = alone(&format!("{run} && {{ \"$0\" mark p0 --rate 10mbit; {after}; }}"));
        assert_eq!(code, Some(3), "{run}: {said}");
        assert!(said.contains(remedy) && !said.contains("doctor"), "{run}: {said}");
        let record = said.lines().any(|line| line.starts_with("/run/vmcc/ports/"));
        assert!(said.contains("qdisc noqueue") && !record, "{run}: {said}");
    }
}

#[test]
fn root_obstacle_at_the_record_folder_is_named() {
    let run = "mount -t tmpfs none /run && mkdir -m 755 /run/vmcc";
    let no_folder = ("touch /run/vmcc/ports", "`ls -la /run/vmcc/ports`");
    let no_record = (
        "c=$(python3 -c 'import socket, struct; print(*struct.unpack(\"Q\", socket.socket().getsockopt(1, 71, 8)))') && \
         n=$(stat -Lc %i /proc/self/ns/net)-$c-$(ip -o link show p0 | cut -d: -f1).json && \
         mkdir -p -m 755 /run/vmcc/ports/$n/precious",
        ".json`",
    );
    let everything: &[&str] = &["mark p0 --rate 10mbit", "unmark p0", "mark --list", "status", "clean"];
    for ((place, says), commands) in [(no_folder, everything), (no_record, &everything[..2])] {
        for command in commands {
            let (code, said) = alone(&format!(
                "{run} && {place} && {{ \"$0\" {command}; s=$?; tc qdisc show dev p0; exit $s; }}"
            ));
            assert_eq!(code, Some(3), "{place}, {command}: {said}");
            assert!(
                said.contains("help: `ls -la /run/vmcc/ports") && said.contains(says),
                "{place}, {command}: {said}"
            );
            assert!(!said.contains("doctor") && said.contains("qdisc noqueue"), "{place}, {command}: {said}");
        }
    }
}

#[test]
fn root_port_is_released_when_run_is_full() {
    let (code, said) = alone(
        "mount -t tmpfs -o size=64k none /run && \"$0\" mark p0 --rate 10mbit && \
         { head -c 65536 /dev/zero >/run/full; \"$0\" unmark p0; s=$?; tc qdisc show dev p0; exit $s; }",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("qdisc noqueue"), "{said}");
}
