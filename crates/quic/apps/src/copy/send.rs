//! The end of a copy that has the files.

use super::flow::Flow;
use super::message::{Done, Item, Kind, Refusal, Reply, Start, Stored};
use super::progress::Progress;
use super::source::Source;
use super::tree::{Entry, Tree};
use super::{PIECE, PIECES};
use crate::session::{Connection, RecvStream, SendStream};
use crate::wire;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};

/// Refusals that are said one by one.
pub(super) const MAX_REFUSALS: usize = 100;

/// Result of sending.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) refusals: Vec<Refusal>,
}

impl Sent {
    /// For the other end, which may not hear of all.
    pub(super) fn done(&self) -> Done {
        let refusals: Vec<_> = self.refusals.iter().take(MAX_REFUSALS).cloned().collect();
        Done { more: (self.refusals.len() - refusals.len()) as u64, refusals }
    }
}

/// State shared by all streams of a copy.
struct Sender {
    connection: Connection,
    progress: Arc<Progress>,
    flow: Flow,
}

/// Sends all files of a tree. Many requests are under way at a time, so that small files do not cost a round trip each; an item waits
/// only until there is the folder that it lies in.
///
/// # Errors
/// The connection ended.
pub(super) async fn send_tree(
    connection: &Connection,
    tree: Tree,
    progress: &Arc<Progress>,
) -> io::Result<Sent> {
    let sender =
        Arc::new(Sender { connection: connection.clone(), progress: progress.clone(), flow: Flow::new() });
    let mut sent = Sent { refusals: tree.refusals };
    let mut under_way: JoinSet<io::Result<Option<Refusal>>> = JoinSet::new();
    // Each closes once its folder was answered: the folders above the next item, outermost first.
    let mut above: Vec<watch::Receiver<()>> = Vec::new();
    for entry in tree.entries {
        while under_way.len() >= sender.flow.requests() {
            take(under_way.join_next().await, &mut sent)?;
        }
        above.truncate(entry.item.below.len());
        let parent = above.last().cloned();
        let (done, answered) = watch::channel(());
        if entry.item.kind == Kind::Folder {
            above.push(answered);
        }
        let sender = sender.clone();
        under_way.spawn(async move {
            if let Some(mut parent) = parent {
                // Never changes: this is the end of its task.
                let _ = parent.changed().await;
            }
            let sent = sender.send(entry).await;
            drop(done);
            sent
        });
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

impl Sender {
    async fn send(&self, entry: Entry) -> io::Result<Option<Refusal>> {
        match entry.item.kind {
            Kind::Folder => match self.ask(&entry.item).await?.0 {
                Have::Refused(refusal) => Ok(Some(refusal)),
                Have::Some { .. } => Ok(None),
            },
            Kind::File { .. } => self.send_file(entry).await,
        }
    }

    async fn send_file(&self, Entry { path, item }: Entry) -> io::Result<Option<Refusal>> {
        // Described and read through one file handle: what was listed may be another file by now.
        let source = match self.flow.on_disk(move || Source::open(&path)).await? {
            Ok(source) => source,
            Err(refusal) => return Ok(Some(refusal)),
        };
        let (have, mut to, mut from) = self.ask(&source.describe(item)).await?;
        let (len, sha256) = match have {
            Have::Some { len, sha256 } => (len, sha256),
            Have::Refused(refusal) => return Ok(Some(refusal)),
        };
        let resumed = self.flow.on_disk(move || {
            let mut source = source;
            source.resume(len, sha256).map(|offset| (source, offset))
        });
        let (source, offset) = match resumed.await? {
            Ok(resumed) => resumed,
            // The stream is reset, which tells the receiver.
            Err(refusal) => return Ok(Some(refusal)),
        };
        // As long as the other end may hold the bytes in memory.
        let _buffer = self.flow.buffer(source.left()).await;
        self.progress.begin(&source.path().display().to_string());
        self.progress.found(offset);
        wire::write(&mut to, &Start { offset }).await?;
        match self.send_bytes(&mut to, source).await {
            Err(Failed::Refused(refusal)) => Ok(Some(refusal)),
            // The receiver stops when it cannot go on, and says why.
            Err(Failed::Stream(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => self.stored(to, &mut from).await,
        }
    }

    /// Opens a stream for an item and reads what the receiver has of it.
    async fn ask(&self, item: &Item) -> io::Result<(Have, SendStream, RecvStream)> {
        let stream = self.connection.open_stream().await?;
        let (mut to, mut from) = stream.into_split();
        wire::write(&mut to, item).await?;
        loop {
            let have = match wire::read(&mut from).await? {
                Reply::Wait => {
                    let text = format!("{}, which another copy is writing: waiting", name_of(item));
                    self.progress.begin(&text);
                    continue;
                }
                Reply::Have { len, sha256 } => Have::Some { len, sha256 },
                Reply::Refused(refusal) => Have::Refused(refusal),
            };
            return Ok((have, to, from));
        }
    }

    async fn send_bytes(&self, to: &mut SendStream, source: Source) -> Result<(), Failed> {
        let sha256 = if source.left() <= PIECE as u64 {
            let read = self.flow.on_disk(move || source.read_rest()).await?;
            let (bytes, sha256) = read.map_err(Failed::Refused)?;
            self.write(to, &bytes).await?;
            Some(sha256)
        } else {
            let (pieces, mut read) = mpsc::channel(PIECES);
            let reading = spawn_blocking(move || source.read_into(&pieces));
            while let Some(piece) = read.recv().await {
                self.write(to, &piece).await?;
            }
            reading.await.map_err(io::Error::other)?.map_err(Failed::Refused)?
        };
        if let Some(sha256) = sha256 {
            to.write_all(&sha256).await?;
        }
        Ok(())
    }

    async fn write(&self, to: &mut SendStream, bytes: &[u8]) -> io::Result<()> {
        to.write_all(bytes).await?;
        self.progress.moved(bytes.len() as u64);
        Ok(())
    }

    async fn stored(&self, mut to: SendStream, from: &mut RecvStream) -> io::Result<Option<Refusal>> {
        // It may have stopped reading because it knows enough.
        let _ = to.shutdown().await;
        Ok(match wire::read(from).await? {
            Stored::Yes => {
                self.progress.file_done();
                None
            }
            Stored::No(refusal) => Some(refusal),
        })
    }
}

/// The receiver's last answer to an item.
enum Have {
    Some { len: u64, sha256: [u8; 32] },
    Refused(Refusal),
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

/// The name of an item, for people.
pub(super) fn name_of(item: &Item) -> String {
    item.below.last().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
}
