//! SOCKS5 clients that were not written here, as commands that send standard input to a target, end that direction, and write the answer to
//! standard output.

use super::Net;
use crate::common::python;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;

/// Longest run of a client, which may have to wait for a processor.
const TIMEOUT_SECONDS: &str = "120";

const PEER: &str = include_str!("peer.py");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    PySocks,
    PythonSocks,
    Proxychains,
    Tsocks,
    Dante,
    Curl,
    Netcat,
}

/// The peer with these arguments.
pub(super) fn peer(arguments: &[&str]) -> Command {
    let mut command = Command::new(python());
    command.args(["-c", PEER]).args(arguments);
    command
}

impl Client {
    /// Hosts that it can be given.
    pub(super) fn hosts(self) -> &'static [&'static str] {
        match self {
            // It knows IPv4 alone and does not redirect 127.0.0.0/8; to Linux this is the loopback as well.
            Client::Tsocks => &["0.0.0.0"],
            // Addresses of IPv6 are none to its `getaddrinfo`.
            Client::Dante => &["localhost", "127.0.0.1"],
            _ => &["localhost", "127.0.0.1", "::1"],
        }
    }

    /// Words of its error for reply 5.
    pub(super) fn refused(self) -> &'static str {
        match self {
            Client::PySocks => "0x05: Connection refused",
            Client::PythonSocks => "Connection refused by destination host",
            Client::Proxychains | Client::Tsocks | Client::Dante => "ConnectionRefusedError",
            Client::Curl => "(5)",
            Client::Netcat => "SOCKSv5 error: Connection refused",
        }
    }

    /// Words of its error for reply 4 to a name; `None`: it resolves names itself.
    pub(super) fn unreachable(self) -> Option<&'static str> {
        match self {
            Client::PySocks => Some("0x04: Host unreachable"),
            Client::PythonSocks => Some("Host unreachable"),
            // Every refusal is this one to it.
            Client::Proxychains => Some("ConnectionRefusedError"),
            Client::Tsocks => None,
            Client::Dante => Some("No route to host"),
            Client::Curl => Some("(4)"),
            Client::Netcat => Some("SOCKSv5 error: Host unreachable"),
        }
    }

    /// True if it runs the peer.
    pub(super) fn is_python(self) -> bool {
        !matches!(self, Client::Curl | Client::Netcat)
    }

    /// Runs the peer's `case` by it.
    pub(super) fn python(self, case: &str, net: &Net, host: &str, port: u16, options: &[&str]) -> Command {
        let name = match self {
            Client::PySocks => "pysocks",
            Client::PythonSocks => "python-socks",
            _ => "plain",
        };
        let (port, proxy) = (port.to_string(), net.socks.port().to_string());
        let command = peer(&[&[case, name, host, &port, "--proxy", &proxy], options].concat());
        match self {
            Client::Proxychains => {
                let mut by = Command::new("proxychains4");
                by.args(["-q", "-f"]).arg(net.file("proxychains.conf", &proxychains(net)));
                after(by, &command)
            }
            Client::Tsocks => {
                let mut by = Command::new("tsocks");
                by.env("TSOCKS_CONF_FILE", net.file("tsocks.conf", &tsocks(net)));
                after(by, &command)
            }
            Client::Dante => socksify(net, "none", &command),
            _ => command,
        }
    }

    /// Sends standard input to there and writes what comes; curl by an HTTP request.
    pub(super) fn pipe(self, net: &Net, host: &str, port: u16) -> Command {
        match self {
            Client::Curl => {
                let mut command = Command::new("curl");
                // Without the user's settings, and with the proxy for the loopback as well.
                command.args(["-q", "-sS", "--noproxy", "", "--socks5-hostname", &net.socks.to_string()]);
                command.args(["-H", "Expect:", "--data-binary", "@-"]);
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                command.arg(format!("http://{host}:{port}/"));
                command
            }
            Client::Netcat => {
                let mut command = Command::new("nc");
                command.args(["-N", "-X", "5", "-x", &net.socks.to_string(), host, &port.to_string()]);
                command
            }
            _ => self.python("pipe", net, host, port, &[]),
        }
    }
}

/// A command by another one.
fn after(mut by: Command, command: &Command) -> Command {
    by.arg(command.get_program()).args(command.get_args());
    by.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    by
}

/// A command by dante's client with this authentication.
pub(super) fn socksify(net: &Net, method: &str, command: &Command) -> Command {
    let mut by = Command::new("socksify");
    by.env("SOCKS_CONF", net.file("dante.conf", &dante(net, method)));
    // It would connect to networks of this host directly.
    by.env("SOCKS_AUTOADD_LANROUTES", "no");
    // What a login of that method needs.
    by.envs([("SOCKS_USERNAME", "user"), ("SOCKS_PASSWORD", "secret")]);
    after(by, command)
}

fn proxychains(net: &Net) -> String {
    let port = net.socks.port();
    format!("strict_chain\nproxy_dns\n[ProxyList]\nsocks5 127.0.0.1 {port}\n")
}

fn tsocks(net: &Net) -> String {
    let port = net.socks.port();
    format!("server = 127.0.0.1\nserver_type = 5\nserver_port = {port}\n")
}

fn dante(net: &Net, method: &str) -> String {
    let port = net.socks.port();
    let route = |to| {
        format!(
            "route {{\nfrom: 0.0.0.0/0 to: {to} via: 127.0.0.1 port = {port}\nproxyprotocol: socks_v5\n\
             protocol: tcp udp\nmethod: {method}\n}}\n"
        )
    };
    format!("logoutput: stderr\nresolveprotocol: fake\n{}{}", route("0.0.0.0/0"), route("."))
}

/// Runs a command with `input` as its standard input.
pub(super) fn run(command: &Command, input: &[u8]) -> Output {
    let mut bounded = Command::new("timeout");
    bounded.arg(TIMEOUT_SECONDS);
    let mut command = after(bounded, command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // One that fails reads nothing.
        scope.spawn(move || stdin.write_all(input).ok());
        child.wait_with_output().unwrap()
    })
}

impl Net {
    /// A file of a program's settings.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.users.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}
