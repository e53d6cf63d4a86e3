//! The end of a copy that stores the files.

use super::message::{Answer, Done, Item, Kind, Reason, Refusal, Start, Stored};
use super::part::{Part, digest_of, hash, in_the_way};
use super::progress::Progress;
use super::send::name_of;
use super::target::Target;
use super::{PIECE, PIECES};
use crate::run::{blocking, unless};
use crate::wire;
use std::collections::BTreeSet;
use std::fs::File;
use std::future::{Future, ready};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use vmcc_udp::{Connection, RecvStream, SendStream, Stream};

/// Streams that are served at a time, whatever the sender opens.
const AT_ONCE: usize = 16;
/// Another copy of the same file is waited for so long: one that was orphaned, and heard nothing of it, ends before.
const PATIENCE: Duration = Duration::from_secs(40);
const AGAIN: Duration = Duration::from_millis(200);

/// What all streams of a copy share.
pub(super) struct Receiver {
    pub(super) target: Target,
    pub(super) progress: Arc<Progress>,
    pub(super) refusals: Mutex<Vec<Refusal>>,
    /// Of which sources something came.
    pub(super) begun: Mutex<BTreeSet<usize>>,
}

impl Receiver {
    pub(super) fn new(target: Target, progress: Arc<Progress>) -> Arc<Receiver> {
        Arc::new(Receiver { target, progress, refusals: Mutex::default(), begun: Mutex::default() })
    }

    fn refuse(&self, refusal: &Refusal) {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).push(refusal.clone());
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
            while under_way.len() >= AT_ONCE {
                under_way.join_next().await;
            }
            under_way.spawn(take(stream, receiver.clone()));
        }
        std::future::pending().await
    };
    let done = unless(accept, wire::read::<Done>(control)).await.ok_or(io::ErrorKind::NotConnected)??;
    // The sender has heard of every file by now.
    Ok((done, receiver.target.finish()))
}

/// Serves one stream; what goes wrong with it alone is told to the sender there.
async fn take(stream: Stream, receiver: Arc<Receiver>) {
    let (mut to, mut from) = stream.into_split();
    let Ok(item) = wire::read::<Item>(&mut from).await else { return };
    receiver.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(item.root);
    let told = match item.kind {
        Kind::Folder => folder(&mut to, &item, &receiver).await,
        Kind::File { size } => file(&mut to, &mut from, &item, size, &receiver).await,
    };
    // An error here is one of the connection, which whoever reads `control` hears of, too.
    if told.is_ok() && to.shutdown().await.is_ok() {
        let _ = to.arrived().await;
    }
}

async fn folder(to: &mut SendStream, item: &Item, receiver: &Receiver) -> io::Result<()> {
    let answer = match receiver.target.make_folder(item) {
        Ok(()) => Answer::Have { len: 0, sha256: [0; 32] },
        Err(refusal) => {
            receiver.refuse(&refusal);
            Answer::Refused(refusal)
        }
    };
    wire::write(to, &answer).await
}

/// What there is of a file.
enum Found {
    /// One of the same size, perhaps the same.
    Whole(PathBuf, [u8; 32]),
    Part(Box<Part>),
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
    let place = receiver.target.place(item).unwrap_or_default();
    let busy = async {
        receiver.progress.wait_for(&place);
        wire::write(to, &Answer::Wait).await
    };
    let found = match patiently(&place, find, busy).await? {
        Ok(found) => found,
        Err(refusal) => {
            receiver.refuse(&refusal);
            return wire::write(to, &Answer::Refused(refusal)).await;
        }
    };
    let (len, sha256) = match &found {
        Found::Whole(_, sha256) => (size, *sha256),
        Found::Part(part) => (part.len(), part.digest()),
    };
    wire::write(to, &Answer::Have { len, sha256 }).await?;
    let Start { offset } = wire::read(from).await?;
    if offset != 0 && offset != len {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the sender begins where nobody asked it to"));
    }
    receiver.progress.begin(&name_of(item));
    let stored = match begin(found, offset, size, receiver).await? {
        Ok(None) => {
            // Nothing but the hash follows, and there is nothing to compare it with.
            receiver.progress.found(size);
            Ok(())
        }
        Ok(Some(part)) => {
            receiver.progress.found(offset);
            store(from, part, item, size - offset, receiver).await?
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

/// What `attempt` gives as soon as no other copy writes the file, which `busy` tells the other end.
async fn patiently<T: Send + 'static>(
    place: &Path,
    attempt: impl Fn() -> Result<Option<T>, Refusal> + Clone + Send + 'static,
    busy: impl Future<Output = io::Result<()>>,
) -> io::Result<Result<T, Refusal>> {
    let (began, mut busy) = (Instant::now(), Some(busy));
    loop {
        match blocking(attempt.clone()).await?.transpose() {
            Some(done) => return Ok(done),
            None if began.elapsed() > PATIENCE => {
                let text =
                    format!("{}: another copy is still writing this file; wait for its end", place.display());
                return Ok(Err(Refusal::new(Reason::Exists, text)));
            }
            None => {}
        }
        if let Some(busy) = busy.take() {
            busy.await?;
        }
        sleep(AGAIN).await;
    }
}

/// What there is of a file; `None` while another copy writes it.
fn find(receiver: &Receiver, item: &Item, size: u64) -> Result<Option<Found>, Refusal> {
    let place = receiver.target.place(item)?;
    if receiver.target.has_like(&place, size)? {
        let said = |error: io::Error| Refusal::system(&place, &error);
        let context = hash(&mut File::open(&place).map_err(said)?, size).map_err(said)?;
        return Ok(Some(Found::Whole(place, digest_of(&context))));
    }
    Ok(Part::open(&place, size)?.map(|part| Found::Part(Box::new(part))))
}

/// What is to be written; nothing if it is there already.
async fn begin(
    found: Found,
    offset: u64,
    size: u64,
    receiver: &Receiver,
) -> io::Result<Result<Option<Box<Part>>, Refusal>> {
    match found {
        Found::Whole(..) if offset == size => Ok(Ok(None)),
        Found::Whole(place, _) => {
            let force = receiver.target.options.force;
            // The sender hears nothing of a wait: it is sending already.
            let replace = {
                let place = place.clone();
                move || replace(&place, size, force)
            };
            let part = patiently(&place, replace, ready(Ok(()))).await?;
            Ok(part.map(Some))
        }
        Found::Part(part) if offset == part.len() => Ok(Ok(Some(part))),
        Found::Part(mut part) => Ok(part.restart().map(|()| Some(part))),
    }
}

/// A new file for one that is there and another one; `None` while another copy writes it.
fn replace(place: &Path, size: u64, force: bool) -> Result<Option<Box<Part>>, Refusal> {
    if !force {
        in_the_way(place)?;
    }
    let Some(mut part) = Part::open(place, size)? else { return Ok(None) };
    part.restart()?;
    Ok(Some(Box::new(part)))
}

/// Writes what comes, checks it and gives it its name. An error of the stream is the outer one.
async fn store(
    from: &mut RecvStream,
    part: Box<Part>,
    item: &Item,
    mut left: u64,
    receiver: &Arc<Receiver>,
) -> io::Result<Result<(), Refusal>> {
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
    let (item, options) = (item.clone(), receiver.target.options);
    blocking(move || part.finish(sha256, &item, options)).await
}

fn write_pieces(mut part: Part, mut pieces: mpsc::Receiver<Vec<u8>>) -> Result<Part, Refusal> {
    while let Some(piece) = pieces.blocking_recv() {
        part.write(&piece)?;
    }
    Ok(part)
}
