//! Starting the far end through ssh, and what it says.

use super::CopyError;
use super::message::{Hello, Offer, VERSION};
use super::remote::{MAX_LINE, OFFER_PREFIX};
use crate::keys::Fingerprint;
use crate::session::Carrier;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_udp::{is_link_local, on_any_link};

/// For a name that ssh knows, and nobody else may (an alias in its settings).
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(300);
/// Interval at which a request to stop is checked.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// More addresses of a far end are not tried.
const MAX_ADDRESSES: usize = 32;
/// Time for ssh's last messages before it is ended.
const SSH_EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Command that starts the far end.
#[derive(Clone, Debug)]
pub struct RemoteCommand {
    /// The ssh command with its options, separated by spaces.
    pub ssh: String,
    /// The TCP port of ssh there; none: the one that ssh knows.
    pub ssh_port: Option<u16>,
    /// The program there.
    pub program: String,
    /// Its addresses to use; none: all that it has.
    pub addresses: Vec<IpAddr>,
    /// The port there; 0: any.
    pub port: u16,
}

/// The ssh command that is used where none is named.
pub fn default_ssh() -> String {
    std::env::var("VMCC_SSH").ok().filter(|ssh| !ssh.trim().is_empty()).unwrap_or_else(|| "ssh".to_owned())
}

/// Offer of the far end.
pub(super) struct FarEnd {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) fingerprint: Fingerprint,
    pub(super) carrier: Carrier,
}

/// The running far end; ended when dropped.
pub(super) struct Session(Child);

impl Session {
    /// Returns true if ssh has ended, and with it, unless only its own route was cut, the far end.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Lets it end by itself, but not forever; its exit code, if it had one.
    fn end(&mut self) -> Option<i32> {
        drop(self.0.stdin.take());
        let begin = Instant::now();
        while begin.elapsed() < SSH_EXIT_TIMEOUT {
            match self.0.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                ended => return ended.ok().flatten().and_then(|status| status.code()),
            }
        }
        let _ = self.0.kill();
        self.0.wait().ok().and_then(|status| status.code())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// The far end's offer, unless the user stops it while ssh asks for a password, or waits.
fn wait_for_offer(stdout: ChildStdout, stop: &AtomicBool) -> Result<Option<Offer>, CopyError> {
    let (send, receive) = channel();
    // It ends with ssh.
    thread::spawn(move || send.send(offer(BufReader::new(stdout))));
    loop {
        match receive.recv_timeout(STOP_POLL_INTERVAL) {
            Ok(offer) => return Ok(offer),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::SeqCst) => {
                return Err(CopyError::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Starts the far end at `host`, tells it who will come, and returns where to.
pub(super) fn start(
    remote: &RemoteCommand,
    host: &str,
    own: Fingerprint,
    carrier: Carrier,
    stop: &AtomicBool,
) -> Result<(Session, FarEnd), CopyError> {
    let names = look_up(host);
    let mut words = remote.ssh.split_whitespace();
    let program = words.next().ok_or_else(|| CopyError::Usage("the ssh command is empty".to_owned()))?;
    let mut command = Command::new(program);
    command.args(words);
    if let Some(port) = remote.ssh_port {
        command.arg("-p").arg(port.to_string());
    }
    command.arg(host).arg(command_there(remote));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|source| CopyError::Ssh { command: program.to_owned(), source })?;
    let mut session = Session(child);
    let hello = Hello { version: VERSION, fingerprint: own.to_string(), carrier: carrier.name().to_owned() };
    let line = serde_json::to_string(&hello).map_err(std::io::Error::other)?;
    if let Some(stdin) = &mut session.0.stdin {
        // Where that fails ssh has ended, which is seen next.
        let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
    }
    let stdout = session.0.stdout.take().expect("it was asked for");
    match wait_for_offer(stdout, stop)? {
        Some(mut offer) => {
            if offer.version != VERSION {
                return Err(CopyError::Version { here: VERSION, there: offer.version });
            }
            let fingerprint = offer.fingerprint.parse().map_err(|_| CopyError::NoHello)?;
            offer.addresses.truncate(MAX_ADDRESSES);
            let addresses = reachable(remote, &names, offer.addresses);
            let carrier = match (carrier, offer.carrier.parse()) {
                (wanted, Ok(offered)) if wanted == offered => wanted,
                // An earlier version.
                (Carrier::Udp | Carrier::Auto, _) => Carrier::Udp,
                (wanted, _) => return Err(CopyError::NoCarrier(wanted.name())),
            };
            Ok((session, FarEnd { addresses, fingerprint, carrier }))
        }
        None => {
            let code = session.end();
            Err(CopyError::NoRemoteEnd { host: host.to_owned(), program: remote.program.clone(), code })
        }
    }
}

fn command_there(remote: &RemoteCommand) -> String {
    let mut text = format!("{} serve --once", remote.program);
    if remote.port != 0 {
        text += &format!(" --port {}", remote.port);
    }
    for address in &remote.addresses {
        text += &format!(" --address {address}");
    }
    text
}

/// Login scripts may say something first, but not forever.
fn offer(from: impl BufRead) -> Option<Offer> {
    let lines = from.take(MAX_LINE).lines().map_while(Result::ok);
    lines.into_iter().find_map(|line| serde_json::from_str(line.strip_prefix(OFFER_PREFIX)?).ok())
}

/// Looks up what `host` is known as here, while ssh does the same.
fn look_up(host: &str) -> Receiver<Vec<SocketAddr>> {
    let (send, receive) = channel();
    let name = host.rsplit('@').next().unwrap_or(host).to_owned();
    thread::spawn(move || {
        let known = (name.as_str(), 0).to_socket_addrs();
        // Nobody waits any more if it took long.
        let _ = send.send(known.into_iter().flatten().collect());
    });
    receive
}

/// Candidate addresses of the far end: its own, and the one by which its host is known here, which may work where these do not (a
/// NAT that forwards the port).
fn reachable(
    remote: &RemoteCommand,
    names: &Receiver<Vec<SocketAddr>>,
    mut offered: Vec<SocketAddr>,
) -> Vec<SocketAddr> {
    let Some(port) = offered.first().map(SocketAddr::port) else { return offered };
    let mut named = names.recv_timeout(RESOLVE_TIMEOUT).unwrap_or_default();
    named.iter_mut().for_each(|address| address.set_port(port));
    if !remote.addresses.is_empty() {
        return on_links(offered, &named);
    }
    let own: Vec<_> = vmcc_udp::sources().unwrap_or_default().into_iter().map(|source| source.ip).collect();
    let is_loopback = |address: &SocketAddr| address.ip().is_loopback();
    let is_here = |address: &SocketAddr| is_loopback(address) || own.contains(&address.ip());
    let same_host = offered.iter().all(is_here);
    // Within this host the loopback leads there; elsewhere those of its loopback are not ours. Two hosts may have the same addresses in private
    // networks, so what the name leads to counts in any case.
    offered.retain(|address| is_loopback(address) == same_host);
    let mut addresses = on_links(offered, &named);
    for address in named {
        if !is_here(&address) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The addresses with links of this host where they are link-local: the link that the name says, else every one.
fn on_links(offered: Vec<SocketAddr>, named: &[SocketAddr]) -> Vec<SocketAddr> {
    let on_links = |address: SocketAddr| {
        let same = named.iter().filter(|named| is_link_local(named.ip()) && named.ip() == address.ip());
        match same.copied().collect::<Vec<_>>() {
            none if none.is_empty() => on_any_link(address).unwrap_or_default(),
            same => same,
        }
    };
    offered.into_iter().flat_map(on_links).take(MAX_ADDRESSES).collect()
}
