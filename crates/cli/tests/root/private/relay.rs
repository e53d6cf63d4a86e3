//! `vmcc cp` by relays: real coturn, in a namespace of its own; on demand pion/turn as well.

use crate::nobody::{Files, Listening, NOBODY, document, far_end};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use vmcc_testkit::netns::{Namespace, join, run};

/// Bytes of what is copied.
const SIZE: u32 = 40_000_000;
const SECRET: &str = "a secret";
/// The program that pion/turn has as an example takes no others than such.
const PLAIN_SECRET: &str = "a_secret";
const STRANGE_RELAY: &str = "turn:stranger@10.9.5.1:3478";
const RELAY: &str = "turn:user@10.9.5.1:3478";

/// Two hosts and a relay around a router.
struct Net {
    here: Namespace,
    router: Namespace,
    there: Namespace,
    relay: Namespace,
    folder: TempDir,
}

impl Net {
    fn new() -> Net {
        let [here, router, there, relay] = ["h", "r", "t", "v"].map(Namespace::new);
        let net = Net { here, router, there, relay, folder: tempfile::tempdir().unwrap() };
        for (host, port, subnet) in
            [(&net.here, "p0", "10.9.1"), (&net.there, "q0", "10.9.3"), (&net.relay, "s0", "10.9.5")]
        {
            join(host, &net.router, port, subnet);
            run(&format!("ip -n {host} route add default via {subnet}.2"));
            let shaper = "root tbf rate 100mbit burst 64k latency 30ms";
            run(&format!("tc -n {host} qdisc add dev {port} {shaper}"));
            run(&format!("tc -n {} qdisc add dev {port} {shaper}", net.router));
        }
        net.router.sysctl("ipv4/ip_forward", "1");
        // pion/turn takes the system's ports, coturn these.
        net.relay.sysctl("ipv4/ip_local_port_range", "49152 65535");
        net
    }

    /// Drops packets between the hosts that bypass the relay, silently.
    fn cut_direct(&self) {
        for (from, to) in [("10.9.1", "10.9.3"), ("10.9.3", "10.9.1")] {
            run(&format!("ip -n {} rule add from {from}.0/24 to {to}.0/24 blackhole", self.router));
        }
    }

    fn turn_server(&self, program: Program, secret: &str) -> TurnServer {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.relay.0]);
        match program {
            Program::Coturn => {
                let options = "-n --lt-cred-mech -r realm --no-tls --no-dtls --no-cli --log-file stdout --pidfile /dev/null";
                command.arg(coturn()).args(options.split(' '));
                command.args(["-L", "10.9.5.1", "-E", "10.9.5.1", "-u", &format!("user:{secret}")]);
                command.args(["--userdb", &self.folder.path().join("users").display().to_string()]);
            }
            Program::Pion => {
                command.arg(pion().unwrap()).args(["-public-ip", "10.9.5.1"]);
                command.args(["-users", &format!("user={secret}")]);
            }
        }
        let server = TurnServer(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        assert!(self.relay.within(answers), "{program:?} does not run");
        server
    }

    /// True if the relay has no allocated address now, or within this number of looks, 50 ms apart.
    fn relays_nothing_within(&self, looks: u32) -> bool {
        let gone = || self.relay.run("ss --no-header --udp --all sport ge 49152").trim().is_empty();
        (0..looks).any(|look| {
            thread::sleep(Duration::from_millis(if look == 0 { 0 } else { 50 }));
            gone()
        })
    }

    fn bytes_by(&self, host: &Namespace, port: &str) -> u64 {
        host.run(&format!("cat /sys/class/net/{port}/statistics/rx_bytes")).trim().parse().unwrap()
    }
}

/// A TURN server that was not written here.
#[derive(Clone, Copy, Debug)]
enum Program {
    Coturn,
    Pion,
}

impl Program {
    /// Those that are there.
    fn all() -> Vec<Program> {
        std::iter::once(Program::Coturn).chain(pion().map(|_| Program::Pion)).collect()
    }

    fn secret(self) -> &'static str {
        match self {
            Program::Coturn => SECRET,
            Program::Pion => PLAIN_SECRET,
        }
    }
}

fn coturn() -> PathBuf {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr/bin/turnserver");
    if unpacked.exists() { unpacked } else { "turnserver".into() }
}

/// The program that `VMCC_PION_TURN` names.
fn pion() -> Option<PathBuf> {
    let program = PathBuf::from(std::env::var_os("VMCC_PION_TURN")?);
    assert!(program.is_file(), "VMCC_PION_TURN: there is no file {}", program.display());
    Some(program)
}

/// True if a TURN server answers a STUN request within some seconds.
fn answers() -> bool {
    let socket = UdpSocket::bind("10.9.5.1:0").unwrap();
    socket.connect("10.9.5.1:3478").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let request = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat();
    let ask = |_| socket.send(&request).is_ok() && socket.recv(&mut [0; 1500]).is_ok();
    (0..200).any(|count| {
        thread::sleep(Duration::from_millis(if count == 0 { 0 } else { 20 }));
        ask(count)
    })
}

/// Ends by `kill -9`, as it does on drop.
struct TurnServer(Child);

impl Drop for TurnServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A copy that may use the relay, under way.
struct Copying {
    child: Child,
    far: Child,
}

impl Copying {
    fn start(files: &Files, net: &Net, secret: &str) -> Copying {
        let far = far_end(files, &net.there);
        let run_here = files.path("here/run");
        fs::create_dir_all(&run_here).unwrap();
        files.open("here/run");
        let variables = format!("XDG_RUNTIME_DIR={} VMCC_KEYS=/nonexistent", run_here.display());
        let within = format!("ip netns exec {} {NOBODY} env {variables}", net.here);
        let mut command = files.cp(&within, "there/copy");
        command.env("VMCC_RELAY_SECRET", secret).args(["--relay", RELAY]);
        Copying { child: command.spawn().unwrap(), far }
    }

    /// Until a host has received this many bytes, or the copy is over.
    fn until(&mut self, net: &Net, host: &Namespace, port: &str, bytes: u64) {
        let begun = net.bytes_by(host, port);
        while net.bytes_by(host, port) < begun + bytes && self.child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(mut self, files: &Files, data: &[u8]) -> (Output, Value) {
        let output = self.child.wait_with_output().unwrap();
        let copied = document(&output);
        assert_eq!(output.status.code(), Some(0), "{copied} {}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read(files.path("there/copy")).unwrap() == data);
        assert!(self.far.wait().unwrap().success(), "the far end ends with its client");
        (output, copied)
    }
}

fn sent(copied: &Value, by_relay: bool) -> u64 {
    let paths = copied["paths"].as_array().unwrap().iter();
    paths
        .filter(|path| path["relay"].is_null() != by_relay)
        .map(|path| path["sent_bytes"].as_u64().unwrap())
        .sum()
}

#[test]
fn root_copy_continues_by_a_relay_and_releases_the_allocation() {
    for program in Program::all() {
        let (files, net) = (Files::new(), Net::new());
        let data = files.data(SIZE);
        let _server = net.turn_server(program, program.secret());
        let mut copying = Copying::start(&files, &net, program.secret());
        copying.until(&net, &net.relay, "s0", 500_000);
        net.cut_direct();
        let before = net.bytes_by(&net.relay, "s0");
        let (_, copied) = copying.end(&files, &data);
        let by_relay = net.bytes_by(&net.relay, "s0") - before;
        assert!(by_relay > 5_000_000, "it was cut before the end: {copied}");
        assert!(sent(&copied, true) > 5_000_000, "{copied}");
        assert!(net.relays_nothing_within(100), "it would be kept for ten minutes");
    }
}

/// Interrupted before there is a connection: nobody is at the other end.
#[test]
fn root_failed_copy_releases_the_relay_allocation() {
    for program in Program::all() {
        let (files, net) = (Files::new(), Net::new());
        files.data(SIZE / 40);
        net.cut_direct();
        let _server = net.turn_server(program, program.secret());
        // The far end lives, but what comes for it is swallowed.
        run(&format!("ip -n {} rule add from 10.9.5.0/24 to 10.9.3.0/24 blackhole", net.router));
        let Copying { child, mut far } = Copying::start(&files, &net, program.secret());
        assert!((0..2000).any(|_| !net.relays_nothing_within(1)), "it is never asked");
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(net.relays_nothing_within(100), "it is kept for ten minutes");
        let _ = far.wait();
    }
}

#[test]
fn root_copy_survives_its_relay_and_uses_the_next() {
    for program in Program::all() {
        let (files, net) = (Files::new(), Net::new());
        let data = files.data(SIZE / 2 * 3);
        let server = net.turn_server(program, program.secret());
        let mut copying = Copying::start(&files, &net, program.secret());
        copying.until(&net, &net.relay, "s0", 500_000);
        drop(server);
        copying.until(&net, &net.there, "q0", 2_000_000);
        assert!(copying.child.try_wait().unwrap().is_none(), "it was killed before the end");
        let _server = net.turn_server(program, program.secret());
        copying.until(&net, &net.relay, "s0", 300_000);
        let (_, copied) = copying.end(&files, &data);
        assert!(sent(&copied, false) > 2_000_000 && sent(&copied, true) > 200_000, "{copied}");
    }
}

#[test]
fn root_wrong_relay_password_is_reported_and_direct_paths_are_used() {
    for program in Program::all() {
        let (files, net) = (Files::new(), Net::new());
        let data = files.data(SIZE / 4);
        let _server = net.turn_server(program, "another");
        let (output, copied) = Copying::start(&files, &net, program.secret()).end(&files, &data);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = format!("by {RELAY} to 10.9.3.1:");
        let cause = match program {
            Program::Coturn => "does not accept the password of user (401)",
            Program::Pion => "if user or password are wrong; check both of user",
        };
        assert!(said.contains(&expected) && said.contains(cause), "{said}");
        assert!(!said.contains(program.secret()) && sent(&copied, true) == 0, "{said}");
    }
}

#[test]
fn root_relay_connects_without_a_direct_path() {
    for program in Program::all() {
        let (files, net) = (Files::new(), Net::new());
        let data = files.data(SIZE / 40);
        net.cut_direct();
        let _server = net.turn_server(program, program.secret());
        let (_, copied) = Copying::start(&files, &net, program.secret()).end(&files, &data);
        assert_eq!(copied["paths"].as_array().unwrap().len(), 1, "{copied}");
        assert!(sent(&copied, true) > u64::from(SIZE / 40), "{copied}");
    }
}

/// No other path lives that would tell that this one does not.
#[test]
fn root_copy_survives_a_restart_of_its_only_relay() {
    for program in Program::all() {
        let (files, net) = (Files::new(), Net::new());
        let data = files.data(SIZE / 2);
        net.cut_direct();
        let server = net.turn_server(program, program.secret());
        let mut copying = Copying::start(&files, &net, program.secret());
        copying.until(&net, &net.there, "q0", 2_000_000);
        drop(server);
        assert!(copying.child.try_wait().unwrap().is_none(), "it was killed before the end");
        let _server = net.turn_server(program, program.secret());
        copying.end(&files, &data);
    }
}

#[test]
fn root_paths_rates_relays_and_explains_unusable_ones() {
    let (files, net) = (Files::new(), Net::new());
    let vmcc = files.path("vmcc").display().to_string();
    let _server = Listening::new(&files, &net.there);
    let _relay = net.turn_server(Program::Coturn, SECRET);
    let secrets = files.path("here/secrets");
    fs::write(&secrets, format!("{RELAY} {SECRET}\n{STRANGE_RELAY} {SECRET}\n")).unwrap();
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&secrets, Some(65_534), None).unwrap();
    let relays = format!("--relay {RELAY} --relay {STRANGE_RELAY} --relay-secrets {}", secrets.display());
    let ask = format!("{NOBODY} {vmcc} --json paths 10.9.3.1:4433 --probes 3 --beta 0.1 {relays}");
    let routes: Value = serde_json::from_str(&net.here.run(&ask)).unwrap();
    let by = |relay: Value| routes.as_array().unwrap().iter().find(|route| route["relay"] == relay).unwrap();
    let hops = |route: &Value| {
        let hops = route["hops"].as_array().unwrap().iter();
        hops.map(|hop| hop["address"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(hops(by(Value::Null)), ["10.9.1.2", "10.9.3.1"], "{routes}");
    let relayed = by(RELAY.into());
    assert_eq!(hops(relayed), ["10.9.1.2", "10.9.5.1", "10.9.3.1"], "{routes}");
    assert!(relayed["score"].as_f64() > Some(0.0) && relayed["rtt_ms"].as_f64() > Some(0.0), "{routes}");
    let refused = by(STRANGE_RELAY.into());
    assert!(refused["verdict"].as_str().unwrap().contains("password of stranger (401)"), "{routes}");
    assert_eq!((&refused["path"], &refused["chosen"]), (&false.into(), &false.into()));
}
