//! The end of a copy that stores the files.

use super::message::{Answer, Done, Item, Kind, Refusal, Start, Stored};
use super::part::{Part, digest_of, hash, in_the_way};
use super::progress::Progress;
use super::send::name_of;
use super::target::Target;
use super::{PIECE, PIECES};
use crate::run::{blocking, unless};
use crate::wire;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use vmcc_udp::{Connection, RecvStream, SendStream, Stream};

/// Streams that are served at a time, whatever the sender opens.
const AT_ONCE: usize = 16;

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
    let found = blocking({
        let (receiver, item) = (receiver.clone(), item.clone());
        move || find(&receiver, &item, size)
    });
    let found = match found.await? {
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
    let stored = match begin(found, offset, size, receiver) {
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

fn find(receiver: &Receiver, item: &Item, size: u64) -> Result<Found, Refusal> {
    let place = receiver.target.place(item)?;
    if receiver.target.has_like(&place, size)? {
        let said = |error: io::Error| Refusal::system(&place, &error);
        let context = hash(&mut File::open(&place).map_err(said)?, size).map_err(said)?;
        return Ok(Found::Whole(place, digest_of(&context)));
    }
    Part::open(&place, size).map(|part| Found::Part(Box::new(part)))
}

/// What is to be written; nothing if it is there already.
fn begin(found: Found, offset: u64, size: u64, receiver: &Receiver) -> Result<Option<Box<Part>>, Refusal> {
    match found {
        Found::Whole(..) if offset == size => Ok(None),
        Found::Whole(place, _) => {
            if !receiver.target.options.force {
                in_the_way(&place)?;
            }
            let mut part = Part::open(&place, size)?;
            part.restart()?;
            Ok(Some(Box::new(part)))
        }
        Found::Part(part) if offset == part.len() => Ok(Some(part)),
        Found::Part(mut part) => {
            part.restart()?;
            Ok(Some(part))
        }
    }
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
