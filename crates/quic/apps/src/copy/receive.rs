//! The end of a copy that stores the files.

use super::flow::Flow;
use super::message::{Done, Item, Kind, Options, Reason, Refusal, Reply, Start, Stored};
use super::partial::{PartialFile, ensure_absent, is_begun, preserve};
use super::progress::Progress;
use super::send::{MAX_REFUSALS, name_of};
use super::source::Source;
use super::target::Target;
use super::{PIECE, PIECES};
use crate::run::run_until;
use crate::session::{Connection, RecvStream, SendStream, Stream};
use crate::wire;
use std::collections::BTreeSet;
use std::future::{Future, ready};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};

/// Another copy of the same file is waited for so long: one that was orphaned, and heard nothing of it, ends before.
const LOCK_TIMEOUT: Duration = Duration::from_secs(40);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Files that could not be stored: as many as people read. A sender may cause any number.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    pub(super) list: Vec<Refusal>,
    /// More of them.
    pub(super) more: u64,
}

/// State shared by all streams of a copy.
pub(super) struct Receiver {
    pub(super) target: Target,
    pub(super) progress: Arc<Progress>,
    refusals: Mutex<Refusals>,
    /// Of which sources something came.
    pub(super) begun: Mutex<BTreeSet<usize>>,
    flow: Flow,
}

impl Receiver {
    pub(super) fn new(target: Target, progress: Arc<Progress>) -> Arc<Receiver> {
        let (refusals, begun) = (Mutex::default(), Mutex::default());
        Arc::new(Receiver { target, progress, refusals, begun, flow: Flow::new() })
    }

    /// Takes the refusals so far.
    pub(super) fn refusals(&self) -> Refusals {
        std::mem::take(&mut *self.refusals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn refuse(&self, refusal: &Refusal) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.list.len() < MAX_REFUSALS {
            refusals.list.push(refusal.clone());
        } else {
            refusals.more += 1;
        }
    }
}

/// Takes files until the sender says on `control` that nothing follows. Returns that, and what could not be done at the end.
///
/// # Errors
/// The connection ended before.
pub(super) async fn receive_tree(
    connection: &Connection,
    control: &mut RecvStream,
    receiver: &Arc<Receiver>,
) -> io::Result<(Done, Vec<Refusal>)> {
    let mut under_way: JoinSet<()> = JoinSet::new();
    // The streams themselves end with the connection, which is what `control` hears of.
    let accept = async {
        while let Ok(stream) = connection.accept_stream().await {
            while under_way.len() >= receiver.flow.requests() {
                under_way.join_next().await;
            }
            under_way.spawn(take(stream, receiver.clone()));
        }
        std::future::pending().await
    };
    let done =
        run_until(accept, wire::read_list::<Done>(control)).await.ok_or(io::ErrorKind::NotConnected)??;
    // The sender has heard of every file by now.
    Ok((done, receiver.target.finish()))
}

/// Serves one stream; errors of this stream alone are reported to the sender there.
async fn take(stream: Stream, receiver: Arc<Receiver>) {
    let (mut to, mut from) = stream.into_split();
    let Ok(item) = wire::read::<Item>(&mut from).await else { return };
    if receiver.target.has_root(item.root) {
        receiver.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(item.root);
    }
    let told = match item.kind {
        Kind::Folder => folder(&mut to, &item, &receiver).await,
        Kind::File { size } => file(&mut to, &mut from, &item, size, &receiver).await,
    };
    // An error here is one of the connection, which the reader of `control` gets, too.
    if told.is_ok() && to.shutdown().await.is_ok() {
        let _ = to.wait_acked().await;
    }
}

async fn folder(to: &mut SendStream, item: &Item, receiver: &Receiver) -> io::Result<()> {
    let answer = match receiver.target.make_folder(item) {
        Ok(()) => Reply::Have { len: 0, sha256: [0; 32] },
        Err(refusal) => {
            receiver.refuse(&refusal);
            Reply::Refused(refusal)
        }
    };
    wire::write(to, &answer).await
}

/// State of a file at its place.
enum Found {
    /// One of the same size, perhaps the same, and its hash.
    Whole(Box<Source>, [u8; 32]),
    /// Beginning of the file, left by an interrupted copy.
    Partial(Box<PartialFile>),
}

async fn file(
    to: &mut SendStream,
    from: &mut RecvStream,
    item: &Item,
    size: u64,
    receiver: &Arc<Receiver>,
) -> io::Result<()> {
    let find = {
        let (receiver, item) = (receiver.clone(), item.clone());
        move || find(&receiver, &item, size)
    };
    let place = receiver.target.path_of(item).unwrap_or_default();
    let busy = async {
        receiver.progress.wait_for(&place);
        wire::write(to, &Reply::Wait).await
    };
    let found = match retry_while_locked(&receiver.flow, &place, find, busy).await? {
        Ok(found) => found,
        Err(refusal) => {
            receiver.refuse(&refusal);
            return wire::write(to, &Reply::Refused(refusal)).await;
        }
    };
    let (len, sha256) = match &found {
        Found::Whole(_, sha256) => (size, *sha256),
        Found::Partial(part) => (part.len(), part.digest()),
    };
    wire::write(to, &Reply::Have { len, sha256 }).await?;
    let Start { offset } = wire::read(from).await?;
    if offset != 0 && offset != len {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the sender begins at an offset that was not requested",
        ));
    }
    let _buffer = receiver.flow.buffer(size - offset).await;
    receiver.progress.begin(&name_of(item));
    let stored = match begin(found, offset, item, receiver).await? {
        Ok(part) => {
            receiver.progress.found(offset);
            match part {
                Some(part) => store(from, part, item, size - offset, receiver).await?,
                // Only the hash follows, unless the sender's file has changed meanwhile.
                None => from.read_exact(&mut [0; 32]).await.map(|_| Ok(()))?,
            }
        }
        Err(refusal) => Err(refusal),
    };
    let answer = match stored {
        Ok(()) => {
            receiver.progress.file_done();
            Stored::Yes
        }
        Err(refusal) => {
            receiver.refuse(&refusal);
            Stored::No(refusal)
        }
    };
    wire::write(to, &answer).await
}

/// Result of `attempt` once no other copy writes the file; `busy` tells the other end to wait.
async fn retry_while_locked<T: Send + 'static>(
    flow: &Flow,
    place: &Path,
    attempt: impl Fn() -> Result<Option<T>, Refusal> + Clone + Send + 'static,
    busy: impl Future<Output = io::Result<()>>,
) -> io::Result<Result<T, Refusal>> {
    let (began, mut busy) = (Instant::now(), Some(busy));
    loop {
        match flow.on_disk(attempt.clone()).await?.transpose() {
            Some(done) => return Ok(done),
            None if began.elapsed() > LOCK_TIMEOUT => {
                let text =
                    format!("{}: another copy is still writing this file; wait for its end", place.display());
                return Ok(Err(Refusal::new(Reason::Exists, text)));
            }
            None => {}
        }
        if let Some(busy) = busy.take() {
            busy.await?;
        }
        sleep(LOCK_RETRY_INTERVAL).await;
    }
}

/// Looks up a file at its place; `None` while another copy writes it.
fn find(receiver: &Receiver, item: &Item, size: u64) -> Result<Option<Found>, Refusal> {
    let place = receiver.target.path_of(item)?;
    let like = receiver.target.like(&place, size)?;
    // A copy that replaces the file was interrupted: it goes on.
    let continues = receiver.target.options.force && is_begun(&place);
    if let Some(mut like) = like.filter(|_| !continues) {
        let sha256 = like.digest()?;
        return Ok(Some(Found::Whole(Box::new(like), sha256)));
    }
    Ok(PartialFile::open(&place, size)?.map(|part| Found::Partial(Box::new(part))))
}

/// Prepares the part to write; nothing if the file is there already.
async fn begin(
    found: Found,
    offset: u64,
    item: &Item,
    receiver: &Receiver,
) -> io::Result<Result<Option<Box<PartialFile>>, Refusal>> {
    match found {
        Found::Whole(like, _) if offset == like.size() => {
            let options = receiver.target.options;
            let kept = if options.preserve { preserve(like.file(), item) } else { Ok(()) };
            Ok(kept.map(|()| None).map_err(|error| Refusal::system(like.path(), &error)))
        }
        Found::Whole(like, _) => {
            let force = receiver.target.options.force;
            let (place, size) = (like.path().to_owned(), like.size());
            drop(like);
            // The sender hears nothing of a wait: it is sending already.
            let replace = {
                let place = place.clone();
                move || replace(&place, size, force)
            };
            let part = retry_while_locked(&receiver.flow, &place, replace, ready(Ok(()))).await?;
            Ok(part.map(Some))
        }
        Found::Partial(part) if offset == part.len() => Ok(Ok(Some(part))),
        Found::Partial(mut part) => Ok(part.restart().map(|()| Some(part))),
    }
}

/// A new file for one that is there and another one; `None` while another copy writes it.
fn replace(place: &Path, size: u64, force: bool) -> Result<Option<Box<PartialFile>>, Refusal> {
    if !force {
        ensure_absent(place)?;
    }
    let Some(mut part) = PartialFile::open(place, size)? else { return Ok(None) };
    part.restart()?;
    Ok(Some(Box::new(part)))
}

/// Writes what comes, checks it and gives it its name. An error of the stream is the outer one.
async fn store(
    from: &mut RecvStream,
    part: Box<PartialFile>,
    item: &Item,
    mut left: u64,
    receiver: &Arc<Receiver>,
) -> io::Result<Result<(), Refusal>> {
    let (item, options) = (item.clone(), receiver.target.options);
    if left <= PIECE as u64 {
        let mut bytes = vec![0; left as usize];
        from.read_exact(&mut bytes).await?;
        let mut sha256 = [0; 32];
        from.read_exact(&mut sha256).await?;
        receiver.progress.moved(left);
        return receiver.flow.on_disk(move || write_small(*part, &bytes, sha256, &item, options)).await;
    }
    let (pieces, written) = mpsc::channel::<Vec<u8>>(PIECES);
    let writing = spawn_blocking(move || write_pieces(*part, written));
    while left > 0 {
        let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
        let len = from.read(&mut piece).await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        piece.truncate(len);
        left -= len as u64;
        receiver.progress.moved(len as u64);
        if pieces.send(piece).await.is_err() {
            break; // it cannot be written, and `writing` says why
        }
    }
    drop(pieces);
    let part = match writing.await.map_err(io::Error::other)? {
        Ok(part) => part,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut sha256 = [0; 32];
    from.read_exact(&mut sha256).await?;
    receiver.flow.on_disk(move || part.finish(sha256, &item, options)).await
}

fn write_small(
    mut part: PartialFile,
    bytes: &[u8],
    sha256: [u8; 32],
    item: &Item,
    options: Options,
) -> Result<(), Refusal> {
    part.write(bytes)?;
    part.finish(sha256, item, options)
}

fn write_pieces(mut part: PartialFile, mut pieces: mpsc::Receiver<Vec<u8>>) -> Result<PartialFile, Refusal> {
    while let Some(piece) = pieces.blocking_recv() {
        part.write(&piece)?;
    }
    Ok(part)
}
