//! The end of a copy that has the files.

use super::message::{Answer, Done, Item, Kind, Reason, Refusal, Start, Stored};
use super::part::{digest_of, hash};
use super::progress::Progress;
use super::tree::{Entry, Tree};
use super::{PIECE, PIECES};
use crate::run::blocking;
use crate::wire;
use aws_lc_rs::digest::Context;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use vmcc_udp::{Connection, RecvStream, SendStream};

/// Files under way at a time: many small ones do not wait a round trip each.
const AT_ONCE: usize = 8;
/// Refusals that are said one by one.
pub(super) const MOST_REFUSALS: usize = 100;

/// What was sent, and what was not.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) refusals: Vec<Refusal>,
}

impl Sent {
    /// For the other end, which may not hear of all.
    pub(super) fn done(&self) -> Done {
        let refusals: Vec<_> = self.refusals.iter().take(MOST_REFUSALS).cloned().collect();
        Done { more: (self.refusals.len() - refusals.len()) as u64, refusals }
    }
}

/// Sends all files of a tree, several at a time.
///
/// # Errors
/// The connection ended.
pub(super) async fn send_tree(
    connection: &Connection,
    tree: Tree,
    progress: &Arc<Progress>,
) -> io::Result<Sent> {
    let mut sent = Sent { refusals: tree.refusals };
    let mut under_way: JoinSet<io::Result<Option<Refusal>>> = JoinSet::new();
    for entry in tree.entries {
        // What is in a folder waits until there is the folder.
        if entry.item.kind == Kind::Folder {
            sent.refusals.extend(send(connection, entry, progress).await?);
            continue;
        }
        while under_way.len() >= AT_ONCE {
            take(under_way.join_next().await, &mut sent)?;
        }
        let (connection, progress) = (connection.clone(), progress.clone());
        under_way.spawn(async move { send(&connection, entry, &progress).await });
    }
    while let Some(done) = under_way.join_next().await {
        take(Some(done), &mut sent)?;
    }
    Ok(sent)
}

type Joined = Option<Result<io::Result<Option<Refusal>>, tokio::task::JoinError>>;

fn take(done: Joined, sent: &mut Sent) -> io::Result<()> {
    if let Some(done) = done {
        sent.refusals.extend(done.map_err(io::Error::other)??);
    }
    Ok(())
}

async fn send(
    connection: &Connection,
    entry: Entry,
    progress: &Arc<Progress>,
) -> io::Result<Option<Refusal>> {
    let stream = connection.open_stream().await.map_err(io::Error::other)?;
    let (mut to, mut from) = stream.into_split();
    wire::write(&mut to, &entry.item).await?;
    let (len, sha256) = loop {
        match wire::read(&mut from).await? {
            Answer::Wait => {
                progress.begin(&format!("{}, which another copy is writing: waiting", name_of(&entry.item)))
            }
            Answer::Have { len, sha256 } => break (len, sha256),
            Answer::Refused(refusal) => return Ok(Some(refusal)),
        }
    };
    let Kind::File { size } = entry.item.kind else { return Ok(None) };
    progress.begin(&entry.path.display().to_string());
    let path = entry.path;
    let opened = blocking({
        let path = path.clone();
        move || open(&path, len.min(size), sha256)
    });
    let (file, context, offset) = match opened.await? {
        Ok(opened) => opened,
        // The stream is reset, which tells the receiver.
        Err(refusal) => return Ok(Some(refusal)),
    };
    progress.found(offset);
    wire::write(&mut to, &Start { offset }).await?;
    let modified = file.metadata().and_then(|metadata| metadata.modified()).ok();
    let source = Source { path, file, context, left: size - offset, size, modified };
    let sent = send_bytes(&mut to, source, progress).await;
    match sent {
        Err(Failed::Refused(refusal)) => Ok(Some(refusal)),
        // The receiver stops when it cannot go on, and says why.
        Err(Failed::Stream(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => stored(to, &mut from, progress).await,
    }
}

async fn stored(
    mut to: SendStream,
    from: &mut RecvStream,
    progress: &Progress,
) -> io::Result<Option<Refusal>> {
    // It may have stopped reading because it knows enough.
    let _ = to.shutdown().await;
    Ok(match wire::read(from).await? {
        Stored::Yes => {
            progress.file_done();
            None
        }
        Stored::No(refusal) => Some(refusal),
    })
}

/// Opens a file where the receiver is to go on: after what it has, if that is the same.
fn open(path: &Path, len: u64, sha256: [u8; 32]) -> Result<(File, Context, u64), Refusal> {
    let said = |error: io::Error| Refusal::system(path, &error);
    let mut file = File::open(path).map_err(said)?;
    if len > 0 {
        match hash(&mut file, len) {
            Ok(context) if digest_of(&context) == sha256 => return Ok((file, context, len)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(said(error)),
        }
        file = File::open(path).map_err(said)?;
    }
    let context = hash(&mut file, 0).map_err(said)?;
    Ok((file, context, 0))
}

/// The rest of a file, and the hash of what was before.
struct Source {
    path: PathBuf,
    file: File,
    context: Context,
    left: u64,
    size: u64,
    modified: Option<SystemTime>,
}

impl Source {
    /// What was read is the file, or its beginning if it has grown: nobody wrote into it meanwhile, and it is not one that has another size
    /// than it says.
    fn is_as_it_was(&mut self) -> Result<(), Refusal> {
        let said = |error: io::Error| Refusal::system(&self.path, &error);
        let now = self.file.metadata().map_err(said)?;
        let rewritten = now.len() == self.size && now.modified().ok() != self.modified;
        let more = self.size == 0 && now.len() == 0 && self.file.read(&mut [0]).map_err(said)? > 0;
        let text = match (rewritten, more) {
            (_, true) => {
                "has more in it than its size says, as files of the kernel do; copy what `cat` makes of it"
            }
            (true, _) => "was written to while it was copied; copy it again",
            _ => return Ok(()),
        };
        Err(Refusal::new(Reason::Changed, format!("{}: {text}", self.path.display())))
    }
}

enum Failed {
    Refused(Refusal),
    Stream(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Stream(error)
    }
}

async fn send_bytes(to: &mut SendStream, source: Source, progress: &Progress) -> Result<(), Failed> {
    let (pieces, mut read) = mpsc::channel(PIECES);
    let reading = spawn_blocking(move || read_pieces(source, &pieces));
    while let Some(piece) = read.recv().await {
        let piece: Vec<u8> = piece;
        to.write_all(&piece).await?;
        progress.moved(piece.len() as u64);
    }
    let sha256 = reading.await.map_err(io::Error::other)?.map_err(Failed::Refused)?;
    to.write_all(&sha256).await?;
    Ok(())
}

/// Reads what is left of a file; its SHA-256 at the end.
fn read_pieces(mut source: Source, pieces: &mpsc::Sender<Vec<u8>>) -> Result<[u8; 32], Refusal> {
    while source.left > 0 {
        let mut piece = vec![0; PIECE.min(usize::try_from(source.left).unwrap_or(PIECE))];
        let len = match source.file.read(&mut piece) {
            Ok(0) => {
                let text = format!("{}: became shorter while it was copied", source.path.display());
                return Err(Refusal::new(Reason::Changed, text));
            }
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Refusal::system(&source.path, &error)),
        };
        piece.truncate(len);
        source.context.update(&piece);
        source.left -= len as u64;
        if pieces.blocking_send(piece).is_err() {
            break; // nobody sends any more
        }
    }
    source.is_as_it_was()?;
    Ok(digest_of(&source.context))
}

/// The name of an item, for people.
pub(super) fn name_of(item: &Item) -> String {
    item.below.last().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
}
