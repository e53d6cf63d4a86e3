//! Visibility of an agent and of connections: `vmcc status`, `vmcc events`, and access rights.

use crate::common;
use crate::kept::{self, Agent, until, within};
use crate::pair::{FILE, Pair};
use crate::prometheus::promtool;
use nix::libc;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

const SOCKET: &str = "/run/vmcc/agent.sock";
#[test]
fn root_status_lists_every_path_and_managed_resource() {
    let pair = Pair::new();
    let agent = Agent::start(&pair.here, &pair.file(FILE));
    let none = pair.status();
    assert_eq!(none["connections"], serde_json::json!([]), "{none}");
    assert_eq!(none["agent"]["pid"], agent.pid().as_raw(), "{none}");
    let kept: Vec<&str> =
        none["agent"]["values"].as_array().unwrap().iter().filter_map(|v| v["what"].as_str()).collect();
    assert_eq!(kept, ["mp_vmcc", "net/ipv4/tcp_congestion_control", "MPTCP limit accept"], "{none}");

    let _server = pair.server();
    let _client = pair.client(60);
    let carries = |path: &Value| path["bytes_acked"].as_u64() > Some(1_000_000);
    let both = |connection: &Value| {
        connection["paths"].as_array().is_some_and(|paths| paths.len() == 2 && paths.iter().all(carries))
    };
    until("a connection over both paths", || {
        pair.status()["connections"].as_array().unwrap().iter().any(both)
    });
    let status = pair.status();
    assert!(status["sockets"].as_array().unwrap().len() >= 2, "{status}");
    let connection = status["connections"].as_array().unwrap().iter().find(|c| both(c)).unwrap();
    assert_eq!(connection["algorithm"], "mp_vmcc");
    let sockets = pair.here.run("ss -Htn");
    for path in connection["paths"].as_array().unwrap() {
        let text = |key: &str| path[key].as_str().unwrap_or_default();
        let device = if text("local").starts_with("10.9.0.1:") { "p0" } else { "p1" };
        assert_eq!(text("device"), device, "{path}");
        // The kernel's own listing has it (`ss` writes the interface that a socket is bound to into the address).
        let port = text("local").rsplit(':').next().unwrap();
        assert!(sockets.contains(port) && sockets.contains(text("remote")), "{path}: {sockets}");
        assert!(path["cwnd_pkt"].as_u64() >= Some(2) && path["srtt_us"].as_u64() > Some(0), "{path}");
        assert_eq!(path["ecn_feedback"], "rfc3168", "{path}");
        for share in ["alpha", "ece_share"] {
            assert!(
                path[share].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)),
                "{share}: {path}"
            );
        }
    }
    let text = within(&pair.here, &["status"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(&format!("agent: process {} keeps", agent.pid())), "{text}");
    let token = format!("{:08x}", connection["token"].as_u64().unwrap());
    assert!(
        text.lines().any(|line| line.trim_start().starts_with(&token) && line.contains("Mbit/s")),
        "{text}"
    );
}

/// Asks in a thread of its own, which a user's number makes powerless.
fn ask(request: &'static [u8], user: u32) -> std::io::Result<String> {
    let asking = std::thread::spawn(move || {
        // SAFETY: takes numbers and no memory; the call itself, not the library's, is for this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
        let mut socket = UnixStream::connect(SOCKET)?;
        socket.write_all(request)?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    });
    asking.join().unwrap()
}

/// The kernel allows any bytes but `/` and space.
#[test]
fn root_non_utf8_device_name_hides_no_device() {
    let pair = Pair::new();
    let name = OsStr::from_bytes(b"p\xff");
    let of_first = ["-n", &pair.here.0, "link", "set", "p1"];
    for change in [&[OsStr::new("down")][..], &[OsStr::new("name"), name]] {
        assert!(Command::new("ip").args(of_first).args(change).status().unwrap().success());
    }
    let up = ["-n", &pair.here.0, "link", "set", "up", "dev"];
    assert!(Command::new("ip").args(up).arg(name).status().unwrap().success());
    let endpoints = "endpoint = [{ nic = 'p*', flags = ['subflow'] }]";
    let _agent = Agent::start(
        &pair.here,
        &pair.file(&FILE.replace("accept = 2", &format!("accept = 2, {endpoints}"))),
    );
    // The interface that was just renamed is operational up to a second after it has a carrier.
    until("an endpoint on each interface", || kept::endpoints(&pair.here).matches("subflow").count() == 2);
    let _server = pair.server();
    let _client = pair.client(60);
    let devices = |status: &Value| {
        let connections = status["connections"].as_array().unwrap().iter();
        let paths = connections.flat_map(|c| c["paths"].as_array().unwrap().clone());
        paths.map(|path| path["device"].as_str().unwrap_or("none").to_owned()).collect::<BTreeSet<_>>()
    };
    until("both paths, each with its device", || {
        devices(&pair.status()) == ["p0", "p:"].map(str::to_owned).into()
    });
    // The server's sockets are of IPv6, with addresses of IPv4.
    let there = within(&pair.there, &["status", "--json"]).output().unwrap();
    let there: Value = serde_json::from_slice(&there.stdout).unwrap();
    assert!(there.to_string().contains("[::ffff:10.9.1.2]:5201"), "{there}");
    assert_eq!(devices(&there), ["p0", "p1"].map(str::to_owned).into(), "{there}");
}

#[test]
fn root_control_socket_serves_root_only_and_survives_any_request() {
    let pair = Pair::new();
    let mut agent = Agent::start(&pair.here, &pair.file("[host]\nnotsent_lowat = '4096B'"));
    let socket = fs::metadata(SOCKET).unwrap();
    assert_eq!((socket.permissions().mode() & 0o777, socket.uid()), (0o600, 0));
    let refused = ask(b"status\n", 65_534).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    // Even where the file's mode would allow it.
    fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(ask(b"status\n", 65_534).unwrap_or_default(), "");
    assert!(ask(b"nonsense\n", 0).unwrap().contains("`status` or `events`"));
    // Longer than any request, and without an end; what is left unread resets the connection.
    let _ = ask(&[b'x'; 100_000], 0);
    let silent: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(SOCKET).unwrap()).collect();
    assert!(ask(b"status\n", 0).unwrap().contains("tcp_notsent_lowat"));
    drop(silent);
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.ends(), Some(0));
    assert!(!std::path::Path::new(SOCKET).exists());
    assert_eq!(pair.status()["agent"], Value::Null);
}

#[test]
fn root_events_report_subflows_and_agent_actions() {
    let pair = Pair::new();
    let agent = Agent::start(&pair.here, &pair.file(FILE));
    let mut events = Agent::spawn(within(&pair.here, &["events", "--json"]));
    events.hears("following the agent and the subflows");
    pair.file(&format!("{FILE}notsent_lowat = '4096B'\n").replace("[host]\n", "[host]\nsysctl = {}\n"));
    agent.signal(Signal::SIGHUP);
    let set: Value = serde_json::from_str(&events.hears("\"set\"")).unwrap();
    assert_eq!((&set["what"], &set["to"]), (&"net/ipv4/tcp_notsent_lowat".into(), &"4096".into()), "{set}");
    assert!(set["time"].is_f64() && set["text"].as_str().unwrap().contains("-> 4096"), "{set}");

    let _server = pair.server();
    let mut client = pair.client(1);
    let joined: Value = serde_json::from_str(&events.hears("subflow-joined")).unwrap();
    assert!(joined["remote"].as_str().unwrap().starts_with("10.9.1.2:"), "{joined}");
    client.ends();
    drop(agent);
    events.hears("agent-ended");
    events.signal(Signal::SIGINT);
    assert_eq!(events.ends(), Some(130));
}

/// Whatever is asked for, and the answer.
fn http(pair: &Pair, request: &str) -> String {
    pair.here.within(|| {
        let mut socket = TcpStream::connect("127.0.0.1:9464").unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    })
}

#[test]
fn root_metrics_are_valid_and_follow_events() {
    let pair = Pair::new();
    let file = format!("{FILE}[port.p1]\nrate = '900mbit'\n[metrics]\n");
    let agent = Agent::start(&pair.here, &pair.file(&file));
    let get = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let ready = http(&pair, get);
    let _server = pair.server();
    let _client = pair.client(60);
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse::<f64>().unwrap()
    };
    // Not only from the next time on that something happens.
    assert_eq!(value(&ready, "vmcc_agent_values"), 4.0);
    // Two connections, one of which only controls, with two subflows each; the client itself is not counted.
    until("a client's subflows", || value(&http(&pair, get), "vmcc_sockets{algorithm=\"mp_vmcc\"}") == 4.0);
    let _kept_waiting = pair.here.within(|| TcpStream::connect("127.0.0.1:9464").unwrap());
    let answer = http(&pair, get);
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert_eq!((value(text, "vmcc_agent_values"), value(text, "vmcc_agent_problems")), (4.0, 0.0));
    assert_eq!(value(text, "vmcc_port_rate_bytes_per_second{port=\"p1\"}"), 112_500_000.0);
    assert_eq!(value(text, "vmcc_without_ecn_total{algorithm=\"mp_vmcc\"}"), 0.0);
    let alerts = fs::read_to_string(common::root().join("dist/vmcc-alerts.yml")).unwrap();
    let expressions = alerts.lines().filter(|line| line.contains("expr:"));
    let names = expressions.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let names: Vec<&str> = names.filter(|name| name.starts_with("vmcc_")).collect();
    assert!(
        names.len() >= 4 && names.iter().all(|name| text.contains(&format!("\n{name}"))),
        "{names:?}: {text}"
    );
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let of_times = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let (name, kind) = match of_times {
            Some(times) => (times, "histogram"),
            None if name.ends_with("_total") => (name, "counter"),
            None => (name, "gauge"),
        };
        assert!(name.starts_with("vmcc_") && text.contains(&format!("# TYPE {name} {kind}\n")), "{line}");
    }
    promtool(&["check", "metrics"], text);
    let there = format!("vmcc_tcp_timeouts_total{{netns=\"{}\"}}", pair.there.0);
    assert!(text.contains("vmcc_tcp_timeouts_total{netns=\"\"} ") && text.contains(&there), "{text}");
    assert!(!text.contains(&format!("netns=\"{}\"", pair.here.0)), "its own once: {text}");
    assert!(http(&pair, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(http(&pair, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    pair.file("[host]\nnotsent_lowatt = 1");
    agent.signal(Signal::SIGHUP);
    until("a file that is refused is counted", || {
        let text = http(&pair, get);
        let counted = value(&text, "vmcc_agent_reloads_refused_total");
        (counted, value(&text, "vmcc_agent_file_refused")) == (1.0, 1.0)
    });
    pair.file(&file);
    agent.signal(Signal::SIGHUP);
    until("one that is not is in force", || value(&http(&pair, get), "vmcc_agent_file_refused") == 0.0);

    // To its own clock a process that is stopped is a machine that is off.
    agent.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(400));
    agent.signal(Signal::SIGCONT);
    until("a time off that was noticed", || value(&http(&pair, get), "vmcc_host_off_seconds_sum") >= 0.35);
    let status = pair.status();
    assert!(status["agent"]["off"]["longest_seconds"].as_f64().unwrap() >= 0.35, "{status}");
    assert!(
        status["taken"]["timeouts"]["all"].is_u64() && status["taken"]["steal_seconds"].is_f64(),
        "{status}"
    );
    let said = within(&pair.here, &["status"]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("\nthis machine was off "), "{said:?}");
}
