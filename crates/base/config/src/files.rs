//! Bounded reading of files that a user names, and the limit of open files.
//!
//! A path may lead to a device that never ends, a pipe without a writer, or a directory: reading is bounded, and opening never
//! blocks.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Interval at which a pipe is read for more.
const PIPE_POLL: Duration = Duration::from_millis(10);

/// Error of reading a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A directory.
    #[error("it is a directory; give a file in it")]
    Directory,
    /// A pipe without a writer.
    #[error("it is a pipe that nobody writes to; give a file, or start what writes to it first")]
    NoWriter,
    /// A pipe, device or socket where a file has to be.
    #[error("it is no regular file; put one there")]
    NotRegular,
    /// More than was to be read.
    #[error("it is longer than {limit_bytes} bytes, the most that is read; give a shorter file")]
    TooLong {
        /// The most that is read.
        limit_bytes: u64,
    },
}

/// Reads a file, pipe or device, at most `limit_bytes` of it.
///
/// # Errors
/// It cannot be opened or read, is longer, or is a pipe that nobody writes to.
pub fn read(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, ReadError> {
    let file = open(path)?;
    let is_pipe = file.metadata()?.file_type().is_fifo();
    let bytes = bounded(&file, limit_bytes)?;
    if is_pipe && bytes.is_empty() { Err(ReadError::NoWriter) } else { Ok(bytes) }
}

/// Reads a regular file, at most `limit_bytes` of it.
///
/// # Errors
/// It cannot be opened or read, is longer, or is no regular file.
pub fn read_regular(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, ReadError> {
    bounded(&open_regular(path)?, limit_bytes)
}

/// Opens a regular file to read it.
///
/// # Errors
/// It cannot be opened, or is something else.
pub fn open_regular(path: &Path) -> Result<File, ReadError> {
    let file = open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(ReadError::NotRegular) }
}

/// Lets this process have as many files open as the system allows it; the usual limit of 1024 is one for programs that use
/// `select`. Where that cannot be raised it stays. Returns the limit.
pub fn allow_open_files() -> u64 {
    let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    if setrlimit(Resource::RLIMIT_NOFILE, most, most).is_ok() { most } else { now }
}

/// A pipe is opened as it is: otherwise that would wait for a writer.
fn open(path: &Path) -> Result<File, ReadError> {
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_dir() { Err(ReadError::Directory) } else { Ok(file) }
}

/// Not by the file's length: a pipe or device has none, and a file may grow meanwhile.
fn bounded(file: &File, limit_bytes: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let mut rest = file.take(limit_bytes.saturating_add(1));
    loop {
        match rest.read_to_end(&mut bytes) {
            Ok(_) => break,
            // What was read so far is in `bytes`; a writer is there and has nothing yet.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::sleep(PIPE_POLL),
            Err(e) => return Err(e.into()),
        }
    }
    if bytes.len() as u64 > limit_bytes { Err(ReadError::TooLong { limit_bytes }) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::fs;
    use std::io::Write;

    #[test]
    fn read_enforces_the_size_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        assert!(matches!(read(&path, 4), Err(ReadError::TooLong { limit_bytes: 4 })));
        assert!(matches!(read(dir.path(), 4), Err(ReadError::Directory)));
    }

    #[test]
    fn endless_device_is_refused_at_the_size_limit() {
        let zero = Path::new("/dev/zero");
        assert!(matches!(read(zero, 1 << 20), Err(ReadError::TooLong { .. })));
        assert!(matches!(read_regular(zero, 1 << 20), Err(ReadError::NotRegular)));
    }

    #[test]
    fn read_of_a_pipe_ends_at_eof_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o600)).unwrap();
        assert!(matches!(read(&path, 9), Err(ReadError::NoWriter)));
        assert!(matches!(open_regular(&path), Err(ReadError::NotRegular)));
        // Opened for both, a pipe needs no reader.
        let mut writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        writer.write_all(b"ab").unwrap();
        let slow = thread::spawn(move || {
            thread::sleep(3 * PIPE_POLL);
            writer.write_all(b"c").unwrap();
        });
        assert_eq!(read(&path, 9).unwrap(), b"abc");
        slow.join().unwrap();
    }
}
