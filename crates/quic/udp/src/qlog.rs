//! Logs of connections as files: `FOLDER/ID_client.sqlog`, as draft-ietf-quic-qlog-main-schema names them.
//!
//! A thread writes, whole records only; connections never wait for it. What it does not get rid of in time is left out, and the file
//! says so. Of a client whose address is not validated yet, nothing reaches the disk: unauthenticated senders could fill it.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vmcc_transport::ConnectionId;
use vmcc_transport::qlog::{Sink, Sinks};

/// Bytes that are written at once, and what a connection buffers at most until they are.
const WRITE_CHUNK: usize = 32 << 10;
const MAX_BUFFERED: usize = 64 << 10;
/// The same for a peer whose address is not validated yet.
const MAX_BUFFERED_UNVALIDATED: usize = 16 << 10;
/// Bytes of all connections that wait for the disk.
const MAX_QUEUED: usize = 8 << 20;
/// Longest time for which events are buffered, if anything happens at all.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes of a file.
const MAX_BYTES: u64 = 1 << 30;
/// The end is waited for at most this long.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A folder for logs.
#[derive(Debug)]
pub struct Qlog {
    shared: Arc<Shared>,
    work: Mutex<Sender<Command>>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    /// Bytes that the thread has not written yet.
    waiting: AtomicUsize,
    /// The first fault.
    trouble: Mutex<Option<String>>,
}

enum Command {
    /// Whole records, for this file.
    Write {
        name: Arc<str>,
        text: String,
        last: bool,
    },
    Finish(Sender<()>),
}

impl Qlog {
    /// Logs into this folder, which is made if it is not there; files in it are its user's alone.
    ///
    /// # Errors
    /// No file can be made there.
    pub fn open(folder: &Path) -> io::Result<Arc<Qlog>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let trial = folder.join(format!(".vmcc-{}", std::process::id()));
        create(&trial)?;
        fs::remove_file(&trial)?;
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            waiting: AtomicUsize::new(0),
            trouble: Mutex::default(),
        });
        let (work, todo) = channel();
        let writer = Writer { shared: shared.clone(), files: HashMap::new() };
        thread::Builder::new().name("qlog".to_owned()).spawn(move || writer.run(&todo))?;
        Ok(Arc::new(Qlog { shared, work: Mutex::new(work) }))
    }

    /// Waits until what was logged is written, though not for ever. What was not logged, and why, if there is such.
    pub fn finish(&self) -> Option<String> {
        let (done, finished) = channel();
        let asked = self.sender().send(Command::Finish(done));
        if asked.is_err() || finished.recv_timeout(FLUSH_TIMEOUT).is_err() {
            self.shared.trouble(|| format!("{}: the disk takes nothing", self.shared.folder.display()));
        }
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn sender(&self) -> Sender<Command> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

impl Shared {
    fn trouble(&self, say: impl FnOnce() -> String) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(say);
    }
}

impl Sinks for Qlog {
    fn open(&self, id: &ConnectionId, client: bool) -> Option<Box<dyn Sink>> {
        let name = format!("{id:?}_{}.sqlog", if client { "client" } else { "server" });
        Some(Box::new(Log {
            shared: self.shared.clone(),
            work: self.sender(),
            name: name.into(),
            buffer: String::new(),
            since: Instant::now(),
            flushed: 0,
            validated: client,
        }))
    }

    fn wall_clock(&self) -> String {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(String::new(), rfc3339)
    }
}

/// A moment since 1970, in UTC.
fn rfc3339(since: Duration) -> String {
    let (days, of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Eras of 400 years from March on, so that leap days come last.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// The log of a connection.
struct Log {
    shared: Arc<Shared>,
    work: Sender<Command>,
    name: Arc<str>,
    buffer: String,
    /// Arrival time of the first of `buffer`.
    since: Instant,
    /// Bytes that are written, or wait for it.
    flushed: u64,
    validated: bool,
}

impl Log {
    fn flush(&mut self, last: bool) {
        if self.validated && !(self.buffer.is_empty() && self.flushed == 0) {
            self.shared.waiting.fetch_add(self.buffer.len(), Ordering::Relaxed);
            self.flushed += self.buffer.len() as u64;
            let text = std::mem::take(&mut self.buffer);
            // Without the thread nothing is written any more, which `finish` says.
            let _ = self.work.send(Command::Write { name: self.name.clone(), text, last });
        }
    }
}

impl Sink for Log {
    fn record(&mut self, text: &str) -> bool {
        if self.flushed + (self.buffer.len() + text.len()) as u64 > MAX_BYTES {
            let limit = || format!("{}: ends at {MAX_BYTES} bytes, the most that one has", self.name);
            self.shared.trouble(limit);
            return false;
        }
        let most = if self.validated { MAX_BUFFERED } else { MAX_BUFFERED_UNVALIDATED };
        let taken = self.buffer.len() + text.len() <= most;
        if taken {
            if self.buffer.is_empty() {
                self.since = Instant::now();
            }
            self.buffer.push_str(text);
        }
        let due = self.buffer.len() >= WRITE_CHUNK || self.since.elapsed() >= FLUSH_INTERVAL;
        if due && self.shared.waiting.load(Ordering::Relaxed) < MAX_QUEUED {
            self.flush(false);
        }
        taken
    }

    fn established(&mut self) {
        self.validated = true;
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush(true);
    }
}

struct Writer {
    shared: Arc<Shared>,
    /// Each file; none if it can no longer be written.
    files: HashMap<Arc<str>, Option<LogFile>>,
}

/// Log file that was created; it is not kept open, because connections are many.
#[derive(Clone, Copy)]
struct LogFile {
    /// Device and inode: another file may have taken the name.
    file_id: (u64, u64),
    bytes: u64,
}

impl LogFile {
    fn make(path: &Path) -> io::Result<(File, LogFile)> {
        let file = create(path)?;
        let file_id = file_id(&file)?;
        Ok((file, LogFile { file_id, bytes: 0 }))
    }

    fn open(self, path: &Path) -> io::Result<(File, LogFile)> {
        let file = OpenOptions::new().append(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
        match file_id(&file)? == self.file_id {
            true => Ok((file, self)),
            false => Err(io::Error::other("another file has taken its place")),
        }
    }
}

fn file_id(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Writer {
    fn run(mut self, todo: &Receiver<Command>) {
        while let Ok(work) = todo.recv() {
            match work {
                Command::Write { name, text, last } => {
                    self.write(&name, &text);
                    if last {
                        self.files.remove(&name);
                    }
                    self.shared.waiting.fetch_sub(text.len(), Ordering::Relaxed);
                }
                // Who asked may have given up.
                Command::Finish(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, name: &Arc<str>, text: &str) {
        let path = self.shared.folder.join(&**name);
        let written = match self.files.get(name) {
            None => LogFile::make(&path),
            Some(Some(begun)) => begun.open(&path),
            Some(None) => return,
        };
        let written = written
            .and_then(|(file, begun)| Ok(LogFile { bytes: append(file, text, begun.bytes)?, ..begun }));
        let begun = written.map_err(|error| {
            self.shared.trouble(|| format!("{}: {error}; what follows is not in it", path.display()));
        });
        self.files.insert(name.clone(), begun.ok());
    }
}

/// Appends to a file of `len` bytes, all or nothing: a record is never left half. Its new length.
fn append(mut file: File, text: &str, len: u64) -> io::Result<u64> {
    file.write_all(text.as_bytes()).inspect_err(|_| {
        // Where even that fails, a reader of JSON text sequences leaves the last one out.
        let _ = file.set_len(len);
    })?;
    Ok(len + text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qlog_never_writes_to_a_file_that_replaced_the_log() {
        let folder = std::env::temp_dir().join(format!("vmcc-qlog-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (log, other) = (folder.join("log"), folder.join("other"));
        let told = |replace: &dyn Fn()| {
            let shared =
                Shared { folder: folder.clone(), waiting: AtomicUsize::new(0), trouble: Mutex::default() };
            let mut writer = Writer { shared: Arc::new(shared), files: HashMap::new() };
            fs::write(&other, "mine").unwrap();
            writer.write(&"log".into(), "one ");
            writer.write(&"log".into(), "two ");
            assert_eq!(fs::read(&log).unwrap(), b"one two ");
            fs::remove_file(&log).unwrap();
            replace();
            writer.write(&"log".into(), "three ");
            assert_eq!(fs::read(&other).unwrap(), b"mine");
            fs::remove_file(&log).unwrap();
            writer.shared.trouble.lock().unwrap().take()
        };
        assert!(told(&|| std::os::unix::fs::symlink(&other, &log).unwrap()).is_some());
        assert!(told(&|| fs::hard_link(&other, &log).unwrap()).unwrap().contains("another file"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn timestamps_are_rfc_3339() {
        let at = |secs, ms| rfc3339(Duration::from_secs(secs) + Duration::from_millis(ms));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 5), "2000-02-28T23:59:59.005Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_798_761_599, 999), "2026-12-31T23:59:59.999Z");
    }
}
