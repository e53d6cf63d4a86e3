//! One file that is read: opened once, and taken as it was at one moment, or refused.

use super::PIECE;
use super::message::{Item, Kind, Reason, Refusal};
use super::partial::{digest_of, hash, time_of};
use aws_lc_rs::digest::{Context, SHA256};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;
use vmcc_config::ReadError;

/// Another program's lease (a file server's) delays opening up to `/proc/sys/fs/lease-break-time`, 45 s by default.
const LEASE_TIMEOUT: Duration = Duration::from_secs(50);
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Resolution of a file system's timestamps: two kernel ticks; with whole seconds only, FAT's two seconds.
const FINE_RESOLUTION: Duration = Duration::from_millis(20);
const COARSE_RESOLUTION: Duration = Duration::from_secs(2);

/// The metadata that a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    len: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Version {
    fn of(metadata: &Metadata) -> Version {
        let nanos = |nanos: i64| u32::try_from(nanos).unwrap_or(0);
        Version {
            len: metadata.len(),
            modified: (metadata.mtime(), nanos(metadata.mtime_nsec())),
            changed: (metadata.ctime(), nanos(metadata.ctime_nsec())),
        }
    }

    /// True if a write after `at` may leave the same timestamps: the last change was within their resolution.
    fn is_recent(&self, at: SystemTime) -> bool {
        let coarse = self.modified.1 == 0 && self.changed.1 == 0;
        let resolution = if coarse { COARSE_RESOLUTION } else { FINE_RESOLUTION };
        time_of(self.changed).checked_add(resolution).is_none_or(|end| end > at)
    }
}

/// An open regular file. Renaming or removing its name, or giving the name to another file, changes nothing of what is read.
pub(super) struct Source {
    path: PathBuf,
    file: File,
    mode: u32,
    version: Version,
    opened: SystemTime,
    /// Hash of what was read; the file's offset is behind it.
    context: Context,
    left: u64,
}

impl Source {
    /// Opens a regular file. Never waits for the other end of a FIFO.
    pub(super) fn open(path: &Path) -> Result<Source, Refusal> {
        let file = open(path)?;
        let opened = SystemTime::now();
        let metadata = file.metadata().map_err(|error| Refusal::system(path, &error))?;
        let version = Version::of(&metadata);
        Ok(Source {
            path: path.to_owned(),
            file,
            mode: metadata.mode() & 0o7777,
            version,
            opened,
            context: Context::new(&SHA256),
            left: version.len,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn size(&self) -> u64 {
        self.version.len
    }

    /// Bytes not read yet.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// `item` with the size, mode and time of the open file, which may not be the one that was listed.
    pub(super) fn describe(&self, item: Item) -> Item {
        Item {
            kind: Kind::File { size: self.size() },
            mode: self.mode,
            modified: self.version.modified,
            ..item
        }
    }

    /// Goes behind the first `len` bytes if their hash is `sha256`, else to the beginning. Returns the offset.
    pub(super) fn resume(&mut self, len: u64, sha256: [u8; 32]) -> Result<u64, Refusal> {
        let len = len.min(self.size());
        match self.hash(len) {
            Ok(context) if digest_of(&context) == sha256 => {
                self.context = context;
                self.left = self.size() - len;
                return Ok(len);
            }
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(self.refusal(&error)),
            _ => {}
        }
        self.file.seek(SeekFrom::Start(0)).map_err(|error| self.refusal(&error))?;
        Ok(0)
    }

    /// Reads the next bytes, at most [`PIECE`].
    fn read_piece(&mut self) -> Result<Vec<u8>, Refusal> {
        let mut piece = vec![0; PIECE.min(usize::try_from(self.left).unwrap_or(PIECE))];
        let len = loop {
            match self.file.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|error| self.refusal(&error))?,
            }
        };
        if len == 0 && self.left > 0 {
            return Err(self.shorter());
        }
        piece.truncate(len);
        self.context.update(&piece);
        self.left -= len as u64;
        Ok(piece)
    }

    /// Reads all that is left, which has to fit into memory. Returns it, and the hash of the whole.
    pub(super) fn read_rest(mut self) -> Result<(Vec<u8>, [u8; 32]), Refusal> {
        let mut bytes = Vec::new();
        while self.left > 0 {
            bytes.append(&mut self.read_piece()?);
        }
        Ok((bytes, self.finish()?))
    }

    /// Reads all that is left into `pieces`. Returns the hash of the whole, or nothing if the receiver of `pieces` is gone.
    pub(super) fn read_into(mut self, pieces: &mpsc::Sender<Vec<u8>>) -> Result<Option<[u8; 32]>, Refusal> {
        while self.left > 0 {
            if pieces.blocking_send(self.read_piece()?).is_err() {
                return Ok(None);
            }
        }
        self.finish().map(Some)
    }

    /// Hash of the whole file.
    pub(super) fn digest(&mut self) -> Result<[u8; 32], Refusal> {
        self.context = self.hash(self.size()).map_err(|error| self.refusal(&error))?;
        self.left = 0;
        self.finish()
    }

    /// Hash of the file, if the bytes that were read are its content at one moment, or the first of a file that only grew. Where metadata
    /// cannot tell, the bytes are read again: two equal passes had no write between them.
    fn finish(&mut self) -> Result<[u8; 32], Refusal> {
        let digest = digest_of(&self.context);
        let metadata = self.file.metadata().map_err(|error| self.refusal(&error))?;
        let now = Version::of(&metadata);
        if now != self.version || self.version.is_recent(self.opened) {
            match self.hash(self.size()) {
                Ok(again) if digest_of(&again) == digest => {}
                Ok(_) => return Err(self.changed("was written to while it was copied; copy it again")),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(self.shorter()),
                Err(error) => return Err(self.refusal(&error)),
            }
        }
        let unsized_content = self.size() == 0
            && now.len == 0
            && self.file.read(&mut [0]).map_err(|error| self.refusal(&error))? > 0;
        if unsized_content {
            return Err(self.changed(
                "has more in it than its size says, as files of the kernel do; copy what `cat` makes of it",
            ));
        }
        Ok(digest)
    }

    fn hash(&mut self, len: u64) -> io::Result<Context> {
        self.file.seek(SeekFrom::Start(0))?;
        hash(&mut self.file, len)
    }

    fn refusal(&self, error: &io::Error) -> Refusal {
        Refusal::system(&self.path, error)
    }

    fn changed(&self, text: &str) -> Refusal {
        Refusal::new(Reason::Changed, format!("{}: {text}", self.path.display()))
    }

    fn shorter(&self) -> Refusal {
        self.changed("became shorter while it was copied; copy it again")
    }
}

fn open(path: &Path) -> Result<File, Refusal> {
    let began = Instant::now();
    loop {
        match vmcc_config::open_regular(path) {
            Ok(file) => return Ok(file),
            Err(ReadError::Io(error)) => {
                if error.kind() != io::ErrorKind::WouldBlock || began.elapsed() > LEASE_TIMEOUT {
                    return Err(Refusal::system(path, &error));
                }
                sleep(LEASE_POLL_INTERVAL);
            }
            Err(_) => {
                let text =
                    format!("{}: was replaced by something that is no file; copy it again", path.display());
                return Err(Refusal::new(Reason::Changed, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use tempfile::TempDir;

    /// Its name, and what happens to a file.
    type Case<'a> = (&'a str, &'a dyn Fn(&Path));

    const SIZE: u64 = 3 * PIECE as u64;

    /// A file last changed long enough ago that its timestamps tell every later write.
    fn settled(folder: &TempDir) -> PathBuf {
        let path = folder.path().join("x");
        fs::write(&path, vec![1; SIZE as usize]).unwrap();
        let at = |path: &Path| Version::of(&fs::metadata(path).unwrap()).is_recent(SystemTime::now());
        while at(&path) {
            sleep(Duration::from_millis(5));
        }
        path
    }

    /// Reads a file and runs `meanwhile` after its first piece.
    fn read_while(path: &Path, meanwhile: impl FnOnce(&Path)) -> Result<Vec<u8>, Refusal> {
        let mut source = Source::open(path)?;
        let mut bytes = source.read_piece()?;
        meanwhile(path);
        let (mut rest, _) = source.read_rest()?;
        bytes.append(&mut rest);
        Ok(bytes)
    }

    fn write_at(path: &Path, at: u64, bytes: &[u8]) {
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
    }

    #[test]
    fn torn_reads_are_refused() {
        let both_ends = |path: &Path| {
            write_at(path, 0, b"new");
            write_at(path, SIZE - 3, b"new");
        };
        let grown = |path: &Path| write_at(path, SIZE, b"more");
        let cases: [Case<'_>; 4] = [
            ("same size", &both_ends),
            ("grown", &|path| {
                both_ends(path);
                grown(path);
            }),
            ("same size and modification time", &|path| {
                let modified = fs::metadata(path).unwrap().modified().unwrap();
                both_ends(path);
                File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
            }),
            ("shrunk and grown", &|path| {
                fs::write(path, vec![2; SIZE as usize + 9]).unwrap();
            }),
        ];
        for (name, meanwhile) in cases {
            let folder = tempfile::tempdir().unwrap();
            let refusal = read_while(&settled(&folder), meanwhile).expect_err(name);
            assert!(refusal.message.contains("was written to"), "{name}: {refusal}");
            assert_eq!(refusal.reason, Reason::Changed);
        }
        let folder = tempfile::tempdir().unwrap();
        let cut = |path: &Path| File::options().write(true).open(path).unwrap().set_len(SIZE - 1).unwrap();
        let refusal = read_while(&settled(&folder), cut).unwrap_err();
        assert!(refusal.message.contains("became shorter"), "{refusal}");
    }

    #[test]
    fn write_within_one_clock_tick_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = settled(&folder);
        let mut source = Source::open(&path).unwrap();
        source.read_piece().unwrap();
        write_at(&path, 0, b"new");
        write_at(&path, SIZE - 3, b"new");
        // As if the file had been written to right before it was opened, on a clock that has not moved since.
        source.version = Version::of(&fs::metadata(&path).unwrap());
        source.opened = time_of(source.version.changed);
        assert_eq!(source.read_rest().unwrap_err().reason, Reason::Changed);
    }

    #[test]
    fn append_rename_and_unlink_are_no_change() {
        let cases: [Case<'_>; 4] = [
            ("appended to", &|path| {
                OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
            }),
            ("replaced", &|path| {
                let other = path.with_extension("new");
                fs::write(&other, b"another file").unwrap();
                fs::rename(other, path).unwrap();
            }),
            ("removed", &|path| fs::remove_file(path).unwrap()),
            ("linked", &|path| fs::hard_link(path, path.with_extension("link")).unwrap()),
        ];
        for (name, meanwhile) in cases {
            let folder = tempfile::tempdir().unwrap();
            let read = read_while(&settled(&folder), meanwhile).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(read == vec![1; SIZE as usize], "{name}");
        }
    }

    #[test]
    fn fifo_is_refused_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert_eq!(Source::open(&path).err().unwrap().reason, Reason::Changed);
    }

    #[test]
    fn resume_requires_equal_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, b"hello world").unwrap();
        let hello = digest_of(&hash(&mut &b"hello"[..], 5).unwrap());
        for (len, expected) in [(5, 5), (6, 0), (11, 0), (99, 0)] {
            let mut source = Source::open(&path).unwrap();
            assert_eq!(source.resume(len, hello).unwrap(), expected, "{len}");
            let (rest, sha256) = source.read_rest().unwrap();
            assert_eq!(rest, b"hello world"[expected as usize..]);
            assert_eq!(sha256, digest_of(&hash(&mut &b"hello world"[..], 11).unwrap()));
        }
    }
}
