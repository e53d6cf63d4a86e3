//! `vmcc proxy` with SOCKS5 clients that were not written here, over QUIC and over TCP carriers.

mod clients;
mod raw;
mod targets;

use crate::it::sides::{Side, TIMEOUT, Users};
use clients::{Client, peer, run, socksify};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use targets::{Closed, byte_by_byte, echo, half_closing, http, udp_echo};

const CARRIERS: [&str; 2] = ["udp", "tcp"];
/// Bytes of a transfer.
const BYTES: usize = 1 << 20;
/// Bytes of a datagram.
const DATAGRAM: usize = 1200;
/// Connections at once, and bytes of each.
const CONNECTIONS: (usize, usize) = (100, 20_000);
/// Seconds for which a connection says nothing: more than the proxy grants a program for its request.
const IDLE_SECONDS: &str = "11";
/// Name that no resolver knows (RFC 6761).
const UNKNOWN: &str = "no.such.host.invalid";
/// Longest name of a request. None that is valid is as long.
const LONGEST_NAME: usize = 255;

fn content(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Both sides of a proxy on this host.
struct Net {
    carrier: &'static str,
    users: Users,
    client: Side,
    _server: Side,
    /// SOCKS5's address, or that of something before it.
    socks: SocketAddr,
}

impl Net {
    fn new(carrier: &'static str) -> Net {
        let users = Users::acquainted();
        let side = ["--carrier", carrier, "--keys"];
        let mut server =
            Side::start(&[&["--listen", "127.0.0.1:0"], &side[..], &[&users.keys("server")]].concat());
        let at = server.address("listening for clients").to_string();
        let mut client = Side::start(
            &[&[&at[..], "--socks", "127.0.0.1:0"], &side[..], &[&users.keys("client")]].concat(),
        );
        let socks = client.address("listening for SOCKS5");
        Net { carrier, users, client, _server: server, socks }
    }

    /// Bytes that came to the client's side.
    fn received(&self) -> u64 {
        let programs = vmcc_apps::status::programs().0;
        let own = programs.iter().find(|program| program.pid == self.client.child.id()).unwrap();
        let connections = own.connections.iter();
        connections.flat_map(|connection| &connection.paths).map(|path| path.received_bytes).sum()
    }

    /// Fails unless a command succeeds; returns its output.
    fn succeeds(&self, case: &str, command: Command, input: &[u8]) -> Vec<u8> {
        let output = run(&command, input);
        assert!(output.status.success(), "{case} over {}: {}", self.carrier, said(&output));
        output.stdout
    }

    /// Fails unless a command fails with these words.
    fn fails(&self, case: &str, command: Command, words: &str) {
        let output = run(&command, b"");
        let said = said(&output);
        assert!(!output.status.success() && said.contains(words), "{case} over {}: {said}", self.carrier);
    }
}

fn said(output: &Output) -> String {
    let remedy = if output.status.code() == Some(127) { "run `make setup-test`" } else { "" };
    format!("{}: {}{remedy}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// Transfers to every host that a client can be given, and refusals, over each carrier.
fn works(client: Client) {
    let data = content(BYTES);
    let target = if client == Client::Curl { http() } else { echo() };
    let closed = Closed::new();
    for carrier in CARRIERS {
        let net = Net::new(carrier);
        for &host in client.hosts() {
            let case = format!("{client:?} to {host}");
            let back = net.succeeds(&case, client.pipe(&net, host, target), &data);
            assert!(back == data, "{case} over {carrier}: {} bytes came, or others", back.len());
        }
        let mut transfers = client.hosts().len();
        if client.is_python() {
            half_closes(client, &net, &data);
            transfers += 1;
        }
        // A client could also have gone there directly.
        assert!(
            net.received() >= (transfers * BYTES) as u64,
            "{client:?} over {carrier}: {}",
            net.received()
        );
        let host = client.hosts().iter().find(|host| host.contains('.')).unwrap();
        net.fails("a closed port", client.pipe(&net, host, closed.port()), client.refused());
        if let Some(words) = client.unreachable() {
            net.fails("an unknown name", client.pipe(&net, UNKNOWN, target), words);
        }
    }
}

/// The target ends its direction; the client sends after that.
fn half_closes(client: Client, net: &Net, data: &[u8]) {
    let (target, brought) = half_closing(data.to_vec());
    net.succeeds("a half-close", client.python("answer", net, client.hosts()[0], target, &[]), b"");
    assert!(brought.recv_timeout(TIMEOUT).unwrap() == data, "{client:?} over {}", net.carrier);
}

#[test]
fn pysocks_works_through_the_proxy() {
    works(Client::PySocks);
}

#[test]
fn python_socks_works_through_the_proxy() {
    works(Client::PythonSocks);
}

#[test]
fn proxychains_works_through_the_proxy() {
    works(Client::Proxychains);
}

#[test]
fn tsocks_works_through_the_proxy() {
    works(Client::Tsocks);
}

#[test]
fn dante_works_through_the_proxy() {
    works(Client::Dante);
}

#[test]
fn curl_works_through_the_proxy() {
    works(Client::Curl);
}

#[test]
fn netcat_works_through_the_proxy() {
    works(Client::Netcat);
}

/// A server of SSH, ended with the test.
struct SshServer(std::process::Child);

impl SshServer {
    /// One on the loopback, and its port.
    fn start() -> (SshServer, u16) {
        let mut command = peer(&["serve_ssh", "plain", "127.0.0.1", "0"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = SshServer(child);
        let port = line.trim().parse().expect("asyncssh listens; if it is missing, run `make setup-test`");
        (server, port)
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn openssh_works_through_netcat() {
    let (data, (_ssh, port)) = (content(BYTES), SshServer::start());
    for carrier in CARRIERS {
        let net = Net::new(carrier);
        let mut command = Command::new("ssh");
        command.args([
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
        ]);
        command.arg("-o").arg(format!("ProxyCommand=nc -X 5 -x {} %h %p", net.socks));
        command.args(["-p", &port.to_string(), "user@localhost", "cat"]);
        assert!(net.succeeds("ssh", command, &data) == data, "{carrier}");
        assert!(net.received() > BYTES as u64, "{carrier}: {}", net.received());
    }
}

#[test]
fn aiohttp_socks_has_100_connections_at_once() {
    let (target, (connections, len)) = (http(), CONNECTIONS);
    for carrier in CARRIERS {
        let net = Net::new(carrier);
        let (port, proxy, connections) =
            (target.to_string(), net.socks.port().to_string(), connections.to_string());
        let arguments = ["requests", "aiohttp-socks", "localhost", &port, "--proxy", &proxy];
        let command = peer(&[&arguments[..], &["--connections", &connections]].concat());
        net.succeeds("requests", command, &content(len));
        assert!(net.received() > (CONNECTIONS.0 * len) as u64, "{carrier}: {}", net.received());
    }
}

#[test]
fn pysocks_and_dante_send_datagrams_over_quic() {
    let (net, target) = (Net::new("udp"), udp_echo());
    for client in [Client::PySocks, Client::Dante] {
        for host in client.hosts() {
            let command = client.python("udp", &net, host, target, &[]);
            net.succeeds(&format!("{client:?} to {host}"), command, &content(DATAGRAM));
        }
    }
}

/// The refusals show also that these clients do not send directly.
#[test]
fn datagrams_over_tcp_are_refused_to_clients() {
    let (net, target) = (Net::new("tcp"), udp_echo());
    let command = |client: Client| client.python("udp", &net, "127.0.0.1", target, &[]);
    net.fails("PySocks", command(Client::PySocks), "0x07: Command not supported");
    net.fails("dante", command(Client::Dante), "Network is unreachable");
}

#[test]
fn clients_with_passwords_connect_if_they_also_offer_none() {
    let (net, target, data) = (Net::new("udp"), echo(), content(BYTES));
    let login = ["--user", "user:secret"];
    for client in [Client::PySocks, Client::PythonSocks] {
        let command = client.python("pipe", &net, "localhost", target, &login);
        assert!(net.succeeds("a login", command, &data) == data, "{client:?}");
    }
    let mut curl = Client::Curl.pipe(&net, "localhost", http());
    curl.args(["--proxy-user", "user:secret"]);
    assert!(net.succeeds("curl with a login", curl, &data) == data);
    let port = target.to_string();
    let alone = socksify(&net, "username", &peer(&["pipe", "plain", "localhost", &port]));
    net.fails("a login alone", alone, "ConnectionRefusedError");
}

#[test]
fn handshakes_in_single_bytes_are_understood() {
    let (target, data) = (echo(), content(BYTES >> 6));
    let mut net = Net::new("udp");
    net.socks.set_port(byte_by_byte(net.socks));
    for client in [Client::PySocks, Client::PythonSocks, Client::Dante, Client::Netcat] {
        for &host in client.hosts() {
            let back = net.succeeds("single bytes", client.pipe(&net, host, target), &data);
            assert!(back == data, "{client:?} to {host}");
        }
    }
}

#[test]
fn longest_names_are_looked_up() {
    let label = "a".repeat(63);
    let name = [&label[..]; 4].join(".");
    assert_eq!(name.len(), LONGEST_NAME);
    for carrier in CARRIERS {
        let net = Net::new(carrier);
        for client in [Client::PythonSocks, Client::Netcat] {
            net.fails("a long name", client.pipe(&net, &name, 80), client.unreachable().unwrap());
        }
    }
}

#[test]
fn idle_connections_outlive_the_time_for_requests() {
    let (target, data) = (echo(), content(BYTES));
    std::thread::scope(|scope| {
        for carrier in CARRIERS {
            let data = &data;
            scope.spawn(move || {
                let net = Net::new(carrier);
                let idle = ["--idle", IDLE_SECONDS];
                let command = Client::PySocks.python("pipe", &net, "localhost", target, &idle);
                assert!(net.succeeds("an idle connection", command, data) == *data, "{carrier}");
            });
        }
    });
}
