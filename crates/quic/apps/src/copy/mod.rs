//! Files from host to host over every path between them: `vmcc cp`.
//!
//! The far end is started through ssh, which carries two lines: who will connect, and where to, with the certificate's SHA-256. Everything
//! else is one QUIC connection that knows both by that. A stream per file: what it is, how much of it is there (with its SHA-256), the
//! rest, the SHA-256 of the whole.

mod flow;
mod liveness;
mod message;
mod partial;
mod pattern;
mod progress;
mod receive;
mod remote;
mod send;
mod source;
mod ssh;
mod target;
mod tree;
mod unfinished;

pub use message::{Options, Reason, Refusal};
pub use progress::{Progress, Snapshot};
pub use remote::serve_once;
pub use ssh::{RemoteCommand, default_ssh};

use crate::endpoint_addr::ResolveError;
use crate::keys::{Identity, KeysError};
use crate::relays::{self, NamedRelay};
use crate::run::{block_on, run_until, stop_requested};
use crate::session::connect::{Client, ClientError};
use crate::session::{Carrier, ConnectError, Connection, PathUsage, SendStream};
use crate::status::server::StatusServer;
use crate::trust::Trust;
use crate::wire;
use message::{ALPN, Done, Match, Plan, Ready, Request, is_final};
use nix::sys::utsname::uname;
use receive::{Receiver, receive_tree};
use send::{MAX_REFUSALS, send_tree};
use ssh::Session;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use target::Target;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tree::Tree;
use vmcc_transport::Config;
use vmcc_udp::{FailedAttempt, Qlog};
use vmcc_units::time::Span;

/// Time limit for closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Paths are asked this often whether they live.
const KEEP_ALIVE: Span = Span::from_secs(2);

/// Bytes of a file that are read or written at a time, and how many such pieces wait between its disk and the connection.
const PIECE: usize = 256 << 10;
const PIECES: usize = 8;

/// Sources and target of a copy, with its settings.
#[derive(Clone, Debug)]
pub struct Job {
    /// Files and folders to copy.
    pub sources: Vec<PathBuf>,
    /// Target of the copy.
    pub target: PathBuf,
    /// The other host, as ssh is to know it, and which of both is there.
    pub host: String,
    /// This host sends.
    pub sending: bool,
    /// Command that starts the far end.
    pub remote: RemoteCommand,
    /// Addresses here to use; none: all.
    pub locals: Vec<IpAddr>,
    /// Relays to use while fewer than `most` paths work.
    pub relays: Vec<NamedRelay>,
    /// Number of paths above which no further relay is used.
    pub most: usize,
    /// Transport of the session.
    pub carrier: Carrier,
    /// The user's choices.
    pub options: Options,
    /// Log of the connection.
    pub qlog: Option<Arc<Qlog>>,
}

/// Outcome of a copy.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Files that could not be copied.
    pub refusals: Vec<Refusal>,
    /// More of that, not said one by one.
    pub more: u64,
    /// Paths at the end.
    pub paths: Vec<PathUsage>,
    /// Pairs of addresses that were no path.
    pub unused: Vec<FailedAttempt>,
    /// The far end speaks no multipath QUIC.
    pub single: bool,
}

impl Outcome {
    /// Number of refusals.
    pub fn not_copied(&self) -> u64 {
        self.more.saturating_add(self.refusals.len() as u64)
    }
}

/// Error that ended a copy, wholly or in part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The ssh command cannot be run.
    #[error("{command}: cannot be started: {source}")]
    Ssh {
        /// The command.
        command: String,
        /// Cause.
        source: io::Error,
    },
    /// ssh ended without an offer.
    #[error("{host}: no `{program} serve` was started there{}", code.map_or(String::new(), |code| format!(" (ssh ended with code {code})")))]
    NoRemoteEnd {
        /// The host.
        host: String,
        /// Program that could not be started.
        program: String,
        /// Exit code of ssh.
        code: Option<i32>,
    },
    /// The other end is another version.
    #[error("vmcc here speaks version {here} of the copy's protocol, the other end version {there}")]
    Version {
        /// Ours.
        here: u32,
        /// Theirs.
        there: u32,
    },
    /// The far end knows no other carriers than UDP.
    #[error("the vmcc at the other end does not know --carrier {0}")]
    NoCarrier(&'static str),
    /// The first line is no client's.
    #[error(
        "`vmcc serve --once` is started by `vmcc cp` through ssh; what came on its standard input is nothing that `vmcc cp` says"
    )]
    NoHello,
    /// The client did not connect.
    #[error("no client connected within a minute; check that UDP (or TCP, with --carrier) reaches this host")]
    NobodyCame,
    /// The client is heard no more.
    #[error("`vmcc cp` and its ssh are gone; what arrived stays, and the same command goes on there")]
    ClientGone,
    /// No socket.
    #[error("{address}: cannot be listened at: {source}")]
    Listen {
        /// Address that could not be used.
        address: IpAddr,
        /// Cause.
        source: io::Error,
    },
    /// No connection came about.
    #[error(transparent)]
    Reach(#[from] ConnectError),
    /// The connection ended in the middle.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The receiver does not begin.
    #[error("{0}")]
    Refused(Refusal),
    /// The user wanted it.
    #[error("interrupted; the same command goes on where this stopped")]
    Interrupted,
    /// No key for this copy.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A relay's name has no address.
    #[error("relay {0}")]
    Relay(#[from] ResolveError),
    /// TLS refuses its settings.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<ClientError> for CopyError {
    fn from(error: ClientError) -> CopyError {
        match error {
            ClientError::Tls(error) => CopyError::Tls(error),
            ClientError::System(error) => CopyError::System(error),
        }
    }
}

/// Settings of the connection.
fn config(qlog: Option<Arc<Qlog>>) -> Config {
    Config { keep_alive: KEEP_ALIVE, qlog: qlog.map(|qlog| qlog as _), ..vmcc_udp::config() }
}

/// Copies, and says what came of it. `stop` ends it.
///
/// # Errors
/// It did not begin, or did not come to an end.
pub fn copy(job: &Job, progress: &Arc<Progress>, stop: &AtomicBool) -> Result<Outcome, CopyError> {
    check(job)?;
    let identity = Identity::generate()?;
    // What cannot be sent at all needs no connection.
    let tree = job.sending.then(|| Tree::of(&job.sources, job.options));
    if let Some(tree) = tree.as_ref().filter(|tree| tree.entries.is_empty()) {
        return Ok(Outcome { refusals: tree.refusals.clone(), ..Outcome::default() });
    }
    let started = ssh::start(&job.remote, &job.host, identity.fingerprint(), job.carrier, stop);
    // Ctrl-C ends ssh as well, which is no fault of it then.
    if stop.load(Ordering::SeqCst) {
        return Err(CopyError::Interrupted);
    }
    let (mut session, far) = started?;
    let answer = block_on(async {
        let trust = Trust::Only(BTreeSet::from([far.fingerprint]));
        let client = Client::new(far.carrier, &identity, trust, ALPN, config(job.qlog.clone()))?;
        let relays = run_until(stop_requested(stop), relays::resolve(&job.relays)).await;
        let relays = relays.ok_or(CopyError::Interrupted)??;
        let (name, locals) = ("vmcc".to_owned(), job.locals.clone());
        let target = vmcc_udp::Target { name, addresses: far.addresses, locals, relays, most: job.most };
        let _status = StatusServer::open(&client.registry, "cp");
        let result = connect_and_copy(&client, target, (job, tree), (progress, stop), &mut session).await;
        // Also where there is no connection relays may have given addresses, or be about to.
        let _ = timeout(CLOSE_TIMEOUT, client.registry.close(1, "done")).await;
        result
    })?;
    drop(session);
    answer
}

/// Connects and copies.
async fn connect_and_copy(
    client: &Client,
    target: vmcc_udp::Target,
    (job, tree): (&Job, Option<Tree>),
    (progress, stop): (&Arc<Progress>, &AtomicBool),
    session: &mut Session,
) -> Result<Outcome, CopyError> {
    let reach = client.connect(target, None, |_| {});
    let (connection, manager) =
        run_until(stop_requested(stop), reach).await.ok_or(CopyError::Interrupted)??;
    let work = async {
        match tree {
            Some(tree) => put(&connection, job, tree, progress).await,
            None => get(&connection, job, progress).await.map(|outcome| (outcome, None)),
        }
    };
    let work = async { work.await.map_err(|error| lost(&connection, error)) };
    let work = async {
        let done = run_until(liveness::peer_lost(&connection, || session.has_ended()), work).await;
        done.unwrap_or_else(|| {
            Err(CopyError::Lost("ssh has ended, and the far end answers on no path".to_owned()))
        })
    };
    let work =
        run_until(show_paths(&connection, progress), run_until(stop_requested(stop), work)).await.flatten();
    let result = work.unwrap_or(Err(CopyError::Interrupted));
    let (result, control) = match result {
        Ok((outcome, control)) => (Ok(outcome), control),
        Err(error) => (Err(error), None),
    };
    if let Some(mut control) = control {
        // Everything has arrived and can no longer be interrupted: notify the remote end.
        let told = async {
            control.shutdown().await?;
            control.wait_acked().await
        };
        let _ = timeout(CLOSE_TIMEOUT, told).await;
    }
    let result = result.map(|mut outcome| {
        outcome.paths = connection.paths();
        outcome.unused = manager.failed();
        outcome.single = !connection.is_multipath();
        outcome
    });
    connection.close(u64::from(result.is_err()), "done");
    result
}

fn check(job: &Job) -> Result<(), CopyError> {
    let wrong = |text: String| Err(CopyError::Usage(text));
    if job.host.is_empty() || job.host.starts_with('-') {
        return wrong(format!("`{}` is no host", job.host));
    }
    // They are words of a command line there.
    if job.remote.program.is_empty() || job.remote.program.chars().any(char::is_control) {
        return wrong("the program at the far end has no usable name".to_owned());
    }
    Ok(())
}

fn lost(connection: &Connection, error: CopyError) -> CopyError {
    match (error, connection.end()) {
        (CopyError::System(_), Some(end)) => CopyError::Lost(end.reason),
        (error, _) => error,
    }
}

/// Sends. Also returns the stream to end when the outcome is certain, if the far end waits for that.
async fn put(
    connection: &Connection,
    job: &Job,
    tree: Tree,
    progress: &Arc<Progress>,
) -> Result<(Outcome, Option<SendStream>), CopyError> {
    let (mut to, mut from) = connection.open_stream().await?.into_split();
    let plan = tree.plan();
    progress.plan(plan.files, plan.bytes);
    let names = job.sources.iter().map(|source| target::name_of(source).map(OsStringExt::into_vec)).collect();
    let target = job.target.as_os_str().as_bytes().to_vec();
    let origins = job.sources.iter().map(|source| local_origin(source)).collect();
    wire::write(&mut to, &Request::Put { target, names, options: job.options, origins }).await?;
    if let Ready::No(refusal) = wire::read(&mut from).await? {
        return Err(CopyError::Refused(refusal));
    }
    let sent = send_tree(connection, tree, progress).await?;
    wire::write(&mut to, &sent.done()).await?;
    let done: Done = wire::read_list(&mut from).await?;
    let refusals = sent.refusals.into_iter().chain(done.refusals).collect();
    // Files alone need no round trip more.
    Ok((Outcome { refusals, more: done.more, ..Outcome::default() }, job.options.recursive.then_some(to)))
}

/// Identity of a source of this host, independent of how it was named.
fn local_origin(source: &Path) -> String {
    let host = uname().map(|system| system.nodename().as_bytes().to_vec()).unwrap_or_default();
    let path = fs::canonicalize(source);
    unfinished::origin(&host, path.as_deref().unwrap_or(source).as_os_str().as_bytes())
}

async fn get(connection: &Connection, job: &Job, progress: &Arc<Progress>) -> Result<Outcome, CopyError> {
    let sources: Vec<_> = job.sources.iter().map(|source| source.as_os_str().as_bytes().to_vec()).collect();
    let patterns = sources.iter().any(|source| pattern::is_pattern(source));
    // What is here is looked at before anything is asked for, unless it takes the names that match.
    let all = || (0..job.sources.len()).map(|source| Match { source, name: Vec::new() }).collect();
    let known = if patterns { None } else { Some(target_of(job, all())?) };
    let (mut to, mut from) = connection.open_stream().await?.into_split();
    wire::write(&mut to, &Request::Get { sources, options: job.options, patterns }).await?;
    let plan: Plan = wire::read_list(&mut from).await?;
    progress.plan(plan.files, plan.bytes);
    let (target, roots) = match known {
        Some(known) => known,
        // An older far end knows no patterns.
        None if plan.roots.is_empty() => target_of(job, all())?,
        None => target_of(job, plan.roots)?,
    };
    let receiver = Receiver::new(target, progress.clone());
    let (done, left) = receive_tree(connection, &mut from, &receiver).await?;
    // What this end refused the other one says as well.
    let own = receiver.refusals();
    let count = |list: &[Refusal], more: u64| more.saturating_add(list.len() as u64);
    let refused = count(&done.refusals, done.more).max(count(&own.list, own.more));
    let refused = refused.saturating_add(left.len() as u64);
    let mut refusals = own.list;
    for refusal in done.refusals.into_iter().take(MAX_REFUSALS) {
        if !refusals.contains(&refusal) {
            refusals.push(refusal);
        }
    }
    refusals.extend(left);
    let more = refused.saturating_sub(refusals.len() as u64);
    refusals.extend(missing(job, plan.files, &roots, &receiver, refused));
    if is_final(refusals.iter(), more) {
        receiver.target.release();
    }
    Ok(Outcome { refusals, more, ..Outcome::default() })
}

/// Places of incoming items, and names of their roots: the sources, or the matches that the far end announced.
fn target_of(job: &Job, matches: Vec<Match>) -> Result<(Target, Vec<PathBuf>), CopyError> {
    let wrong = || Refusal::new(Reason::BadTarget, "the peer sent a name that was not asked for");
    let (mut names, mut origins, mut roots) = (Vec::new(), Vec::new(), Vec::new());
    for Match { source, name } in matches {
        let source = job.sources.get(source).ok_or_else(wrong).map_err(CopyError::Refused)?;
        let bytes = source.as_os_str().as_bytes();
        let is_pattern = !name.is_empty() && pattern::is_pattern(bytes);
        if is_pattern && !pattern::names(bytes, &name) {
            return Err(CopyError::Refused(wrong()));
        }
        origins.push(unfinished::origin(job.host.as_bytes(), &[bytes, b"\0", &name].concat()));
        let name = if is_pattern { Some(OsString::from_vec(name)) } else { pattern::name_of(source) };
        roots.push(name.as_ref().filter(|_| is_pattern).map_or_else(|| source.clone(), PathBuf::from));
        names.push(name);
    }
    let target = Target::new(&job.target, &names, &origins, job.options).map_err(CopyError::Refused)?;
    Ok((target, roots))
}

/// Refusal for files that the far end announced and did not send.
fn missing(job: &Job, planned: u64, roots: &[PathBuf], receiver: &Receiver, refused: u64) -> Option<Refusal> {
    let say = |text: String| Some(Refusal::new(Reason::Changed, format!("{text}; copy it again")));
    let files = receiver.progress.snapshot().files_done;
    if files.saturating_add(refused) < planned {
        return say(format!("{}: sent {files} of the {planned} files that it announced", job.host));
    }
    if refused > 0 {
        return None;
    }
    let begun = receiver.begun.lock().unwrap_or_else(PoisonError::into_inner);
    let absent = (0..roots.len()).find(|root| !begun.contains(root))?;
    say(format!("{}:{}: nothing of it came", job.host, roots[absent].display()))
}

/// Keeps what is shown of the paths up to date.
async fn show_paths(connection: &Connection, progress: &Progress) {
    loop {
        let paths = connection.paths();
        let open = paths.len();
        let silent = paths.iter().filter(|path| path.failed).count();
        let text = match silent {
            0 => format!("{open} path{}", if open == 1 { "" } else { "s" }),
            _ => format!("{open} paths, {silent} silent"),
        };
        progress.set_paths(text);
        sleep(Duration::from_millis(200)).await;
    }
}
