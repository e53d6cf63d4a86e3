//! The far end of a copy: `vmcc serve --once`, started through ssh.

use super::liveness::peer_lost;
use super::message::{
    ALPN, Done, Hello, Match, Offer, Options, Plan, Ready, Reason, Refusal, Request, VERSION, is_final,
};
use super::pattern::{expand, expand_home, home, is_pattern};
use super::progress::Progress;
use super::receive::{Receiver, receive_tree};
use super::send::{MAX_REFUSALS, send_tree};
use super::target::Target;
use super::tree::Tree;
use super::{CLOSE_TIMEOUT, CopyError, config};
use crate::keys::{Fingerprint, Identity};
use crate::run::{block_on, run_until, stop_requested};
use crate::session::accept::{Bounds, Server};
use crate::session::{Carrier, Connection};
use crate::status::server::StatusServer;
use crate::trust::Trust;
use crate::wire;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;
use vmcc_udp::{Qlog, Source, bind_device, sources};

/// Begins the line with the offer: login scripts may print others.
pub(super) const OFFER_PREFIX: &str = "vmcc-serve ";
/// Connections that wait to be accepted.
const TCP_BACKLOG: u32 = 128;
/// Handshakes and connections over UDP.
const BOUNDS: Bounds = Bounds { retry_above: 8, max_connections: 256 };
/// The client has this long to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Before a line from the other end is given up.
pub(super) const MAX_LINE: u64 = 64 << 10;

/// Serves one copy: reads who will come from `input`, writes where to come to `output`, and returns when the client is done.
///
/// # Errors
/// Nobody came, or nothing can be listened at.
pub fn serve_once(
    addresses: &[IpAddr],
    port: u16,
    mut input: impl BufRead + Send + 'static,
    mut output: impl Write,
    qlog: Option<Arc<Qlog>>,
    stop: &AtomicBool,
) -> Result<(), CopyError> {
    let mut line = String::new();
    (&mut input).take(MAX_LINE).read_line(&mut line)?;
    let hello: Hello = serde_json::from_str(&line).map_err(|_| CopyError::NoHello)?;
    if hello.version != VERSION {
        return Err(CopyError::Version { here: VERSION, there: hello.version });
    }
    let client: Fingerprint = hello.fingerprint.parse().map_err(|_| CopyError::NoHello)?;
    let identity = Identity::generate()?;
    let ssh_ended = watch(input);
    block_on(async {
        // An earlier version says nothing.
        let carrier = hello.carrier.parse().unwrap_or_default();
        let trust = Trust::Only(BTreeSet::from([client]));
        let mut server = Server::new(carrier, &identity, trust, ALPN, config(qlog), BOUNDS)?;
        let _status = StatusServer::open(&server.registry, "serve");
        let addresses = listen(&mut server, addresses, port)?;
        let offer = Offer {
            version: VERSION,
            fingerprint: identity.fingerprint().to_string(),
            addresses,
            carrier: carrier.name().to_owned(),
        };
        let offer = serde_json::to_string(&offer).map_err(io::Error::other)?;
        writeln!(output, "{OFFER_PREFIX}{offer}")?;
        output.flush()?;
        // The way to the client's ssh may be cut later: only before the connection its end is that of this program.
        let accept = timeout(CONNECT_TIMEOUT, server.accept());
        let connection = run_until(stop_requested(&ssh_ended), run_until(stop_requested(stop), accept)).await;
        let connection =
            connection.flatten().ok_or(CopyError::Interrupted)?.map_err(|_| CopyError::NobodyCame)?;
        // What the client's end was writing is not to stay locked until the idle timeout, if it was killed.
        let left = peer_lost(&connection, || ssh_ended.load(Ordering::SeqCst));
        let served =
            async { run_until(stop_requested(stop), serve(&connection)).await.ok_or(CopyError::Interrupted) };
        let served = run_until(left, served).await.unwrap_or(Err(CopyError::ClientGone));
        if served.is_err() {
            connection.close(1, "the far end was stopped");
        }
        // The stream may have ended before the reason has come.
        let _ = timeout(CLOSE_TIMEOUT, connection.closed()).await;
        let end = connection.end();
        let _ = timeout(CLOSE_TIMEOUT, server.registry.close(1, "the far end ends")).await;
        match (served?, end) {
            // Who ends it says why to its user, who reads this end's words, too.
            (Err(_), Some(end)) if end.by_peer => Ok(()),
            (served, _) => served.map_err(CopyError::from),
        }
    })?
}

/// Sets a flag when nothing more can come from the client's ssh.
fn watch(mut input: impl BufRead + Send + 'static) -> Arc<AtomicBool> {
    let gone = Arc::new(AtomicBool::new(false));
    let flag = gone.clone();
    std::thread::spawn(move || {
        let mut byte = [0];
        while input.read(&mut byte).is_ok_and(|len| len > 0) {}
        flag.store(true, Ordering::SeqCst);
    });
    gone
}

/// A socket at each address, with the port that was asked for; else with the same where it is free.
fn listen(server: &mut Server, addresses: &[IpAddr], port: u16) -> Result<Vec<SocketAddr>, CopyError> {
    let own = sources()?;
    let wanted: Vec<Source> = match addresses {
        // The loopback serves copies within a host.
        [] => {
            let loopback = Source { ip: IpAddr::from([127, 0, 0, 1]), interface: String::new() };
            let by_ssh = ssh_link(std::env::var("SSH_CONNECTION").as_deref().unwrap_or_default());
            let by_ssh = by_ssh.filter(|source| !own.contains(source));
            own.into_iter().chain(by_ssh).chain([loopback]).collect()
        }
        some => some.iter().map(|&ip| Source::at(ip, &own)).collect(),
    };
    let (mut bound, mut listeners, mut last) = (Vec::<SocketAddr>::new(), Vec::new(), None);
    for source in wanted {
        let first = bound.first().map_or(port, SocketAddr::port);
        let bind = match listen_at(server, &source, first) {
            Err(_) if port == 0 => listen_at(server, &source, 0),
            bind => bind,
        };
        match bind {
            Ok((local, tcp)) => {
                bound.push(local);
                listeners.extend(tcp);
            }
            Err(error) => last = Some(CopyError::Listen { address: source.ip, source: error }),
        }
    }
    if !listeners.is_empty() {
        server.listen_tcp(listeners)?;
    }
    match last {
        Some(error) if bound.is_empty() => Err(error),
        _ => Ok(bound),
    }
}

/// The link-local address by which ssh came, from its `SSH_CONNECTION`: perhaps nothing else leads here from the client.
fn ssh_link(connection: &str) -> Option<Source> {
    let (ip, interface) = connection.split(' ').nth(2)?.split_once('%')?;
    Some(Source { ip: ip.parse().ok()?, interface: interface.to_owned() })
}

/// A socket for each transport, at one port.
fn listen_at(server: &Server, source: &Source, port: u16) -> io::Result<(SocketAddr, Option<TcpListener>)> {
    if server.carrier == Carrier::Udp {
        return server.endpoint.bind_source(source, port).map(|local| (local, None));
    }
    let at = source.socket_address(port);
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    bind_device(&socket, &source.interface);
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    let listener = socket.listen(TCP_BACKLOG)?;
    let local = listener.local_addr()?;
    if server.carrier == Carrier::Auto {
        server.endpoint.bind_source(source, local.port())?;
    }
    Ok((local, Some(listener)))
}

/// Does what the client asks for on its first stream.
async fn serve(connection: &Connection) -> io::Result<()> {
    let stream = connection.accept_stream().await?;
    let (mut to, mut from) = stream.into_split();
    let progress = Arc::new(Progress::default());
    match wire::read_list(&mut from).await? {
        Request::Put { target, names, options, origins } => {
            let names: Vec<_> = names.into_iter().map(|name| name.map(OsString::from_vec)).collect();
            let target = match Target::new(&expand_home(&target), &names, &origins, options) {
                Ok(target) => target,
                Err(refusal) => {
                    wire::write(&mut to, &Ready::No(refusal)).await?;
                    to.shutdown().await?;
                    connection.closed().await;
                    return Ok(());
                }
            };
            wire::write(&mut to, &Ready::Yes).await?;
            let receiver = Receiver::new(target, progress);
            let (done, left) = receive_tree(connection, &mut from, &receiver).await?;
            let own = receiver.refusals();
            let all = own.list.iter().chain(&done.refusals).chain(&left);
            let is_final = is_final(all, done.more.saturating_add(own.more));
            let more = left.len().saturating_sub(MAX_REFUSALS) as u64;
            let refusals = left.into_iter().take(MAX_REFUSALS).collect();
            wire::write(&mut to, &Done { refusals, more }).await?;
            to.shutdown().await?;
            // The client ends its side when it has read that.
            if from.read(&mut [0]).await? == 0 && is_final {
                receiver.target.release();
            }
        }
        Request::Get { sources, options, patterns } => {
            let (tree, roots) =
                tokio::task::spawn_blocking(move || list(&sources, options, patterns)).await?;
            wire::write(&mut to, &Plan { roots, ..tree.plan() }).await?;
            let sent = send_tree(connection, tree, &progress).await?;
            wire::write(&mut to, &sent.done()).await?;
            to.shutdown().await?;
        }
    }
    connection.closed().await;
    Ok(())
}

/// All that the sources name, and, if they are patterns, which names these are.
fn list(sources: &[Vec<u8>], options: Options, patterns: bool) -> (Tree, Vec<Match>) {
    let (mut paths, mut roots) = (Vec::new(), Vec::new());
    for (source, path) in sources.iter().enumerate() {
        let (base, rest) = home(path);
        if !patterns || !is_pattern(&rest) {
            paths.push(expand_home(path));
            roots.push(Match { source, name: Vec::new() });
            continue;
        }
        for found in expand(&base, &rest) {
            let name = found.file_name().unwrap_or_default().as_bytes().to_vec();
            roots.push(Match { source, name });
            paths.push(found);
        }
    }
    // `host:` is the folder that ssh starts in.
    paths.iter_mut().filter(|path| path.as_os_str().is_empty()).for_each(|path| path.push("."));
    if patterns && !wire::fits_list(&Plan { files: u64::MAX, bytes: u64::MAX, roots: roots.clone() }) {
        return (Tree { refusals: vec![too_many(sources, &roots)], ..Tree::default() }, Vec::new());
    }
    (Tree::of(&paths, options), if patterns { roots } else { Vec::new() })
}

/// Refusal of patterns that match more names than a list holds; it names the one that matches most.
fn too_many(sources: &[Vec<u8>], roots: &[Match]) -> Refusal {
    let matches = |source: usize| roots.iter().filter(|root| root.source == source).count();
    let most = (0..sources.len()).max_by_key(|&source| matches(source)).unwrap_or_default();
    let pattern = sources.get(most).map(|source| String::from_utf8_lossy(source)).unwrap_or_default();
    let text = format!(
        "{pattern}: {} names match, more than one copy takes (a list of 8 MiB); copy the folder with --recursive, or by narrower patterns",
        matches(most)
    );
    Refusal::new(Reason::NoSource, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn pattern_with_too_many_matches_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        // Hard links of long names: 10,000 of them make a list of more than 8 MiB.
        let (first, long) = (folder.path().join("0.txt"), "n".repeat(240));
        fs::write(&first, b"1").unwrap();
        for i in 0..10_000 {
            fs::hard_link(&first, folder.path().join(format!("{long}{i}.txt"))).unwrap();
        }
        let sources = ["*.txt", "0.*"].map(|pattern| folder.path().join(pattern));
        let sources = sources.map(|path| path.into_os_string().into_vec());
        let (tree, roots) = list(&sources, Options::default(), true);
        assert!(tree.entries.is_empty() && roots.is_empty());
        let [refusal] = &tree.refusals[..] else { panic!("{:?}", tree.refusals) };
        for word in ["*.txt: 10001 names match", "8 MiB", "--recursive"] {
            assert!(refusal.message.contains(word), "{refusal}");
        }
        let (tree, roots) = list(&sources[1..], Options::default(), true);
        assert_eq!((tree.entries.len(), roots.len()), (1, 1));
    }
}
