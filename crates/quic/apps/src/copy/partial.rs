//! A file while it arrives: beside its place, under a name of its own, so that there is never half a file under the right one.

use super::message::{Item, Options, Reason, Refusal};
use aws_lc_rs::digest::{Context, SHA256, digest};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const BUFFER: usize = 256 << 10;

/// The SHA-256 of this many bytes of a file from its beginning.
pub(crate) fn hash(file: &mut impl Read, len: u64) -> io::Result<Context> {
    let (mut context, mut buffer) = (Context::new(&SHA256), vec![0; BUFFER]);
    let mut from = file.take(len);
    loop {
        match from.read(&mut buffer)? {
            0 => break,
            some => context.update(&buffer[..some]),
        }
    }
    if from.limit() > 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(context)
}

/// The digest so far.
pub(crate) fn digest_of(context: &Context) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(context.clone().finish().as_ref());
    digest
}

/// A file that arrives.
pub(crate) struct PartialFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
    hash: Context,
    len: u64,
    /// Bytes that were there before.
    found: u64,
    /// The length that it had before.
    before: u64,
    done: bool,
}

/// The end of the names that files have while they arrive.
const SUFFIX: &str = ".vmcc-part";
/// Longer names have no room for what is added.
const MAX_NAME: usize = 240;

/// The name of a file while it arrives.
pub(crate) fn partial_path(target: &Path) -> PathBuf {
    let own = target.file_name().unwrap_or_default();
    let mut name = OsString::from(".");
    if own.len() <= MAX_NAME {
        name.push(own);
    } else {
        name.push(
            digest(&SHA256, own.as_bytes())
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>(),
        );
    }
    name.push(SUFFIX);
    target.with_file_name(name)
}

/// Returns true for a name of a file that is arriving: no other file may have it, or one would be taken for the other.
pub(crate) fn is_partial_name(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(SUFFIX.as_bytes())
}

/// True if an interrupted copy to `target` has left data.
pub(crate) fn is_begun(target: &Path) -> bool {
    fs::symlink_metadata(partial_path(target)).is_ok_and(|part| part.is_file() && part.len() > 0)
}

/// True if a name still leads to this open file, and not by a symbolic link.
pub(crate) fn is_same_file(path: &Path, file: &File) -> io::Result<bool> {
    let named = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named?,
    };
    let open = file.metadata()?;
    Ok((named.dev(), named.ino()) == (open.dev(), open.ino()))
}

/// Opens or creates the file under a part's name. Another user who may write in this folder does not choose where the bytes go: a symbolic link is
/// not followed, and a hard link is removed, so that the file keeps what it has under its other names.
fn open_partial(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(0o600);
    options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK);
    let file = match options.clone().create(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Ok(None);
    }
    if metadata.nlink() <= 1 {
        return Ok(Some(file));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => options.create_new(true).open(path).map(Some),
    }
}

impl PartialFile {
    /// Opens what an interrupted copy to `target` has left, or restarts; `None` while another copy writes it.
    pub(crate) fn open(target: &Path, size: u64) -> Result<Option<PartialFile>, Refusal> {
        let path = partial_path(target);
        let said = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                let folder = target.parent().unwrap_or(Path::new("")).display();
                Refusal::new(
                    Reason::BadTarget,
                    format!("{}: the folder {folder} is not there", target.display()),
                )
            }
            _ => Refusal::system(target, &error),
        };
        let Some(mut file) = open_partial(&path).map_err(said)? else {
            let text = format!("{}: is not a file of this user; remove it", path.display());
            return Err(Refusal::new(Reason::BadTarget, text));
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Without locks two copies could write one file: what is stored is read again before it gets its name.
            Err(TryLockError::Error(error)) if is_unsupported(&error) => {}
            Err(TryLockError::Error(error)) => return Err(said(error)),
        }
        // Another copy may have finished it, and given it its name, before this one had the lock.
        if !is_same_file(&path, &file).map_err(said)? {
            return Ok(None);
        }
        let before = file.metadata().map_err(said)?.len();
        let len = before.min(size);
        let hash = hash(&mut file, len).map_err(said)?;
        let target_of = target.to_owned();
        let part = PartialFile { file, path, target: target_of, hash, len, found: len, before, done: false };
        reserve(&part.file, size).map_err(|error| Refusal::system(target, &error))?;
        Ok(Some(part))
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        digest_of(&self.hash)
    }

    /// Discards the existing data, which are not the beginning of the file.
    pub(crate) fn restart(&mut self) -> Result<(), Refusal> {
        (self.len, self.found, self.hash) = (0, 0, Context::new(&SHA256));
        self.file.seek(SeekFrom::Start(0)).map(drop).map_err(|error| Refusal::system(&self.target, &error))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let written = self.file.write_all(bytes);
        if let Err(error) = written {
            let refusal = Refusal::system(&self.target, &error);
            // A full disk is not to stay full because of what cannot be finished.
            if refusal.reason == Reason::Full {
                self.found = 0;
                self.len = 0;
            }
            return Err(refusal);
        }
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Everything is there: checks it and gives it its name.
    pub(crate) fn finish(mut self, sha256: [u8; 32], item: &Item, options: Options) -> Result<(), Refusal> {
        if self.digest() != sha256 {
            // Not the beginning of anything.
            (self.len, self.found) = (0, 0);
            let text = format!(
                "{}: what arrived is not what was sent (SHA-256); copy it again",
                self.target.display()
            );
            return Err(Refusal::new(Reason::Changed, text));
        }
        let store = || {
            self.file.set_len(self.len)?;
            if options.preserve {
                preserve(&self.file, item)?;
            } else {
                let mode = match existing_file(&self.target) {
                    Some(before) => keep_owner(&self.file, &before)?,
                    None => mode_of(item, options),
                };
                self.file.set_permissions(Permissions::from_mode(mode))?;
            }
            // A whole name over bytes that a power loss takes would be half a file.
            self.file.sync_data()
        };
        store().map_err(|error| Refusal::system(&self.target, &error))?;
        self.check_stored(sha256)?;
        if options.force {
            ensure_replaceable(&self.target)?;
        } else {
            ensure_absent(&self.target)?;
        }
        if !is_same_file(&self.path, &self.file).map_err(|error| Refusal::system(&self.target, &error))? {
            return Err(self.changed("the received data were replaced by another program"));
        }
        rename_into_place(&self.path, &self.target, options.force)?;
        self.done = true;
        Ok(())
    }
}

impl PartialFile {
    /// An error if the file does not have the bytes that arrived: programs of this user may write to it, too, and mapped pages change no
    /// timestamp until later. The bytes are in the page cache still.
    fn check_stored(&mut self, sha256: [u8; 32]) -> Result<(), Refusal> {
        let stored = self.file.seek(SeekFrom::Start(0)).and_then(|_| hash(&mut self.file, self.len));
        let same = match stored {
            Ok(stored) => digest_of(&stored) == sha256,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(Refusal::system(&self.target, &error)),
        };
        let same = same && self.file.metadata().is_ok_and(|now| now.len() == self.len);
        if same {
            return Ok(());
        }
        (self.len, self.found) = (0, 0);
        Err(self.changed("another program wrote to what arrived"))
    }

    fn changed(&self, cause: &str) -> Refusal {
        Refusal::new(Reason::Changed, format!("{}: {cause}; copy it again", self.target.display()))
    }
}

/// Returns true for the error of a file system without locks.
fn is_unsupported(error: &io::Error) -> bool {
    use nix::libc::{EINVAL, ENOLCK, ENOSYS, EOPNOTSUPP};
    error.raw_os_error().is_some_and(|code| [EINVAL, ENOLCK, ENOSYS, EOPNOTSUPP].contains(&code))
}

/// Gives a file the time and mode of the sender's.
pub(crate) fn preserve(file: &File, item: &Item) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(item.mode & 0o7777))?;
    file.set_modified(time_of(item.modified))
}

/// The file that is to be replaced, if there is one. A link is replaced itself, as rsync does: nothing that somebody else may have put there
/// chooses where bytes go.
fn existing_file(target: &Path) -> Option<Metadata> {
    fs::symlink_metadata(target).ok().filter(Metadata::is_file)
}

/// Gives `file` the owner and group of the one that it replaces, as far as this user may, and returns the mode to give it: the other's, but
/// no rights of a group that it cannot be given, and no set-user-ID of other bytes.
fn keep_owner(file: &File, before: &Metadata) -> io::Result<u32> {
    let now = file.metadata()?;
    let wanted = (before.uid(), before.gid());
    if (now.uid(), now.gid()) != wanted && fchown(file, Some(wanted.0), Some(wanted.1)).is_err() {
        let _ = fchown(file, None, Some(wanted.1));
    }
    let group = if file.metadata()?.gid() == wanted.1 { 0o777 } else { 0o707 };
    Ok(before.mode() & group)
}

/// An error if what has this name is not to be replaced, whatever the user chose: a device, FIFO, socket or folder.
pub(crate) fn ensure_replaceable(target: &Path) -> Result<(), Refusal> {
    match fs::symlink_metadata(target) {
        Ok(there) if !there.is_file() && !there.is_symlink() => Err(special_file(target)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Refusal::system(target, &error)),
        _ => Ok(()),
    }
}

/// Something that is no file has the name of one.
pub(crate) fn special_file(target: &Path) -> Refusal {
    let kind = if target.is_dir() { "folder" } else { "device, FIFO or socket" };
    let text =
        format!("{}: is a {kind}, which no copy replaces; give the copy another name", target.display());
    Refusal::new(Reason::Exists, text)
}

/// Gives a file its name, which nobody else's may have got meanwhile unless that is to be replaced.
fn rename_into_place(part: &Path, target: &Path, replace: bool) -> Result<(), Refusal> {
    let named = if replace { fs::rename(part, target) } else { rename_noreplace(part, target) };
    named.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let text =
                format!("{}: another program has just created it; --force replaces it", target.display());
            Refusal::new(Reason::Exists, text)
        }
        _ => Refusal::system(target, &error),
    })
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn rename_noreplace(part: &Path, target: &Path) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    match renameat2(AT_FDCWD, part, AT_FDCWD, target, RenameFlags::RENAME_NOREPLACE) {
        // A file system, or a kernel, that cannot: it was looked just now that nothing is there.
        Err(Errno::EINVAL | Errno::ENOSYS) => fs::rename(part, target),
        named => named.map_err(io::Error::from),
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn rename_noreplace(part: &Path, target: &Path) -> io::Result<()> {
    fs::rename(part, target)
}

/// Keeps data that a later copy can continue, and nothing else.
impl Drop for PartialFile {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if !is_same_file(&self.path, &self.file).unwrap_or(false) {
            return;
        }
        if self.len == 0 && self.found == 0 {
            let _ = fs::remove_file(&self.path);
        } else {
            // Space that was reserved and not used is given back; where nothing came, what was there stays as it was.
            let len = if self.len == self.found { self.before } else { self.len };
            let _ = self.file.set_len(len);
        }
    }
}

/// An error if there is something under this name.
pub(crate) fn ensure_absent(target: &Path) -> Result<(), Refusal> {
    match fs::symlink_metadata(target) {
        Ok(_) => Err(Refusal::new(
            Reason::Exists,
            format!("{}: exists, and is not the same; add --force to replace it", target.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Refusal::system(target, &error)),
    }
}

/// Bits of permission: what the sender's file has, without what this user's mask takes away; or all as they were.
pub(crate) fn mode_of(item: &Item, options: Options) -> u32 {
    if options.preserve { item.mode & 0o7777 } else { item.mode & 0o777 & !process_umask() }
}

/// This process's mask of permissions, which can only be read by setting it: once, before there is anything to create.
#[allow(clippy::useless_conversion, reason = "elsewhere it has 16 bits")]
pub(crate) fn process_umask() -> u32 {
    use nix::sys::stat::{Mode, umask};
    static MASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *MASK.get_or_init(|| {
        let mask = umask(Mode::from_bits_truncate(0o077));
        umask(mask);
        u32::from(mask.bits())
    })
}

pub(crate) fn time_of((seconds, nanos): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let at = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    at.and_then(|at| at.checked_add(Duration::from_nanos(nanos.into()))).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Space for the whole file, so that a full disk is known before the first byte; where the file system can.
#[cfg(target_os = "linux")]
fn reserve(file: &File, size: u64) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::fcntl::{FallocateFlags, fallocate};
    let len = i64::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    if len == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, len) {
        Err(error @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::message::Kind;

    fn item(size: u64) -> Item {
        Item { root: 0, below: Vec::new(), kind: Kind::File { size }, mode: 0o644, modified: (0, 0) }
    }

    fn sha256(bytes: &[u8]) -> [u8; 32] {
        digest(&SHA256, bytes).as_ref().try_into().unwrap()
    }

    #[test]
    fn only_the_verified_file_is_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x");
        let mut part = PartialFile::open(&target, 4).unwrap().unwrap();
        part.write(b"good").unwrap();
        assert!(PartialFile::open(&target, 4).unwrap().is_none(), "another copy is at it");
        fs::remove_file(&part.path).unwrap();
        fs::write(&part.path, b"evil").unwrap();
        let refusal = part.finish(sha256(b"good"), &item(4), Options::default()).unwrap_err();
        assert_eq!(refusal.reason, Reason::Changed);
        assert!(!target.exists());
    }

    #[test]
    fn bytes_written_by_others_are_not_given_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x");
        for others in [&b"evil"[..], b"go", b"good and more"] {
            let mut part = PartialFile::open(&target, 4).unwrap().unwrap();
            part.write(b"good").unwrap();
            fs::write(&part.path, others).unwrap();
            let stored = part.finish(sha256(b"good"), &item(4), Options::default());
            match others {
                // What is behind the end is cut off.
                b"good and more" => stored.unwrap(),
                _ => assert_eq!(stored.unwrap_err().reason, Reason::Changed),
            }
            assert_eq!(target.exists(), others == b"good and more");
            assert!(!partial_path(&target).exists(), "no copy goes on with it");
        }
        assert_eq!(fs::read(&target).unwrap(), b"good");
    }

    #[test]
    fn hard_links_are_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (target, precious) = (folder.path().join("x"), folder.path().join("precious"));
        fs::write(&precious, b"precious").unwrap();
        fs::hard_link(&precious, partial_path(&target)).unwrap();
        let mut part = PartialFile::open(&target, 4).unwrap().unwrap();
        assert_eq!(part.len(), 0);
        part.write(b"good").unwrap();
        part.finish(sha256(b"good"), &item(4), Options::default()).unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert_eq!(fs::read(&target).unwrap(), b"good");
        // Nor is it cut to size, or removed, where nothing comes.
        fs::hard_link(&precious, partial_path(&target)).unwrap();
        drop(PartialFile::open(&target, 4).unwrap().unwrap());
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert!(!partial_path(&target).exists());
    }

    #[test]
    fn replacing_keeps_mode_without_setuid() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x");
        let force = Options { force: true, ..Options::default() };
        let store = |options| {
            let mut part = PartialFile::open(&target, 4).unwrap().unwrap();
            part.write(b"good").unwrap();
            part.finish(sha256(b"good"), &item(4), options)
        };
        fs::write(&target, b"before").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o4640)).unwrap();
        store(force).unwrap();
        assert_eq!((fs::read(&target).unwrap(), mode(&target)), (b"good".to_vec(), 0o640));
        store(Options { preserve: true, ..force }).unwrap();
        assert_eq!(mode(&target), 0o644, "the sender's");
        fs::remove_file(&target).unwrap();
        nix::unistd::mkfifo(&target, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert_eq!(store(force).unwrap_err().reason, Reason::Exists);
        assert!(!fs::metadata(&target).unwrap().is_file());
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn partial_data_survives_a_smaller_request() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("n".repeat(255));
        let mut part = PartialFile::open(&target, 11).unwrap().unwrap();
        part.write(b"hello").unwrap();
        drop(part);
        let part = PartialFile::open(&target, 1).unwrap().unwrap();
        assert_eq!((part.len(), part.digest()), (1, sha256(b"h")));
        drop(part);
        let mut part = PartialFile::open(&target, 11).unwrap().unwrap();
        assert_eq!(part.len(), 5);
        part.write(b" world").unwrap();
        part.finish(sha256(b"hello world"), &item(11), Options::default()).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"hello world");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
