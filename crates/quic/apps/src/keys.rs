//! Identity: a self-signed certificate. Peers know it by its SHA-256, so no authority is needed.

use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vmcc_config::ReadError;

const KEY: &str = "identity-key.der";
const CERTIFICATE: &str = "identity-cert.der";
const PEERS: &str = "peers";
const PREFIX: &str = "sha256:";
/// Bytes of a file of the folder; a list of peers is the longest.
const MAX_BYTES: u64 = 1 << 20;

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no fingerprint: it has the form sha256: and 64 hexadecimal digits, as `vmcc keys` prints it"
)]
pub struct FingerprintError(String);

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Fingerprint, FingerprintError> {
        let wrong = || FingerprintError(text.to_owned());
        let digits = text.strip_prefix(PREFIX).unwrap_or(text).as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Fingerprint(bytes))
    }
}

/// Fault of the folder of keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// There is nowhere to look.
    #[error("no folder for keys: neither VMCC_KEYS, XDG_CONFIG_HOME nor HOME is set; set VMCC_KEYS to one")]
    NoFolder,
    /// There are no keys yet.
    #[error("{}: there are no keys; make them with `vmcc keys`", .0.display())]
    None(PathBuf),
    /// The key is not that of the certificate.
    #[error("{}: {KEY} is not the key of {CERTIFICATE}; remove both, make new ones with `vmcc keys`, and have peers trust these", .0.display())]
    Mismatch(PathBuf),
    /// Others may read the key, or change the list of peers.
    #[error("{}: others may {may} it (mode {mode:03o}); make it yours alone: chmod 600", path.display())]
    Public {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// The verb for it.
        may: &'static str,
    },
    /// Another user may change it.
    #[error("{}: it belongs to another user (number {owner}), who may change it; make it yours: chown {}, or choose another folder with VMCC_KEYS", path.display(), nix::unistd::geteuid())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Others may replace the files of the folder.
    #[error("{}: others may change the files in it (mode {mode:03o}); make it yours alone: chmod 700", path.display())]
    PublicFolder {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}; check the owner and permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A line of the list of peers.
    #[error("{}, line {line}: {source}", path.display())]
    Peer {
        /// The list.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The text in its place.
        source: FingerprintError,
    },
    /// No key could be made.
    #[error("a key cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// Permissions that a file of the folder must not go beyond.
#[derive(Clone, Copy)]
enum Access {
    /// Nobody but its owner.
    Owner,
    /// Anybody may read it, and nobody but its owner write to it.
    OwnerWrites,
    Anybody,
}

/// Reads a file of the folder, if it is there.
fn read(path: &Path, access: Access) -> Result<Option<Vec<u8>>, KeysError> {
    let (others, may) = match access {
        Access::Owner => (0o077, "use"),
        Access::OwnerWrites => (0o022, "change"),
        Access::Anybody => (0, ""),
    };
    let failed = |source: ReadError| match source {
        ReadError::Io(source) => failed(path, source),
        other => failed(path, io::Error::other(other)),
    };
    let file = match vmcc_config::open_regular(path) {
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(|error| failed(error.into()))?;
    check_owner(path, &metadata)?;
    if let Some(folder) = path.parent() {
        check_folder(folder)?;
    }
    let mode = metadata.mode() & 0o777;
    if mode & others != 0 {
        return Err(KeysError::Public { path: path.to_owned(), mode, may });
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(error.into()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed(ReadError::TooLong { limit_bytes: MAX_BYTES }));
    }
    Ok(Some(bytes))
}

/// An error if a file or folder belongs to neither this user nor root.
fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), KeysError> {
    let owner = metadata.uid();
    if owner == 0 || owner == nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    Err(KeysError::Foreign { path: path.to_owned(), owner })
}

/// An error if others may replace files of a folder: it is theirs, or they may write to it. The sticky bit keeps files, not names to come.
fn check_folder(folder: &Path) -> Result<(), KeysError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let metadata = fs::metadata(folder).map_err(|error| failed(folder, error))?;
    check_owner(folder, &metadata)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(KeysError::PublicFolder { path: folder.to_owned(), mode: mode & 0o777 });
    }
    Ok(())
}

fn failed(path: &Path, source: io::Error) -> KeysError {
    KeysError::Io { path: path.to_owned(), source }
}

/// The folder of this user's keys: `VMCC_KEYS`, else `vmcc` in the folder of settings.
///
/// # Errors
/// No variable of the environment names one.
pub fn folder() -> Result<PathBuf, KeysError> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let settings = || set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    set("VMCC_KEYS").or_else(|| Some(settings()?.join("vmcc"))).ok_or(KeysError::NoFolder)
}

/// A certificate and its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    /// A secret that follows from the key, and does not tell it: the same as long as the key is.
    pub(crate) fn derived(&self, purpose: &[u8]) -> [u8; 32] {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, self.key.secret_pkcs8_der());
        let tag = aws_lc_rs::hmac::sign(&key, purpose);
        tag.as_ref().try_into().expect("32 bytes")
    }

    /// A new one.
    ///
    /// # Errors
    /// The library refuses.
    pub fn generate() -> Result<Identity, KeysError> {
        let made = rcgen::generate_simple_self_signed(vec!["vmcc".to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Identity { certificate: made.cert.der().clone(), key })
    }

    /// That of a folder.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn load(folder: &Path) -> Result<Identity, KeysError> {
        let read = |name: &str, access| {
            read(&folder.join(name), access)?.ok_or_else(|| KeysError::None(folder.to_owned()))
        };
        let (key, certificate) = (read(KEY, Access::Owner)?, read(CERTIFICATE, Access::Anybody)?);
        let identity = Identity { certificate: certificate.into(), key: key.into() };
        let key = any_supported_type(&identity.key()).ok();
        let whole = key.is_some_and(|key| CertifiedKey::new(identity.chain(), key).keys_match().is_ok());
        if whole { Ok(identity) } else { Err(KeysError::Mismatch(folder.to_owned())) }
    }

    /// That of a folder, made first if there is none; whether it was.
    ///
    /// # Errors
    /// It cannot be read or made.
    pub fn load_or_create(folder: &Path) -> Result<(Identity, bool), KeysError> {
        match Identity::load(folder) {
            Err(KeysError::None(_)) => {}
            other => return other.map(|identity| (identity, false)),
        }
        make_folder(folder)?;
        let _lock = lock(folder)?;
        // Another process may have made it meanwhile.
        match Identity::load(folder) {
            Err(KeysError::None(_)) => {}
            other => return other.map(|identity| (identity, false)),
        }
        let identity = Identity::generate()?;
        // The certificate comes last: with it the pair is whole.
        write_new(&folder.join(KEY), identity.key.secret_pkcs8_der())?;
        write_new(&folder.join(CERTIFICATE), &identity.certificate)?;
        Ok((identity, true))
    }

    /// Fingerprint by which peers know it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

fn make_folder(folder: &Path) -> Result<(), KeysError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder).map_err(|error| failed(folder, error))?;
    check_folder(folder)
}

/// One process at a time changes a folder of keys, as long as this is held.
fn lock(folder: &Path) -> Result<File, KeysError> {
    let path = folder.join(".lock");
    let open = || {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        file.lock().map(|()| file)
    };
    open().map_err(|error| failed(&path, error))
}

/// Writes a file that only its owner may read, whole or not at all.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), KeysError> {
    let part = path.with_extension("part");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().map_err(|error| failed(path, error))
}

/// A list of peers; empty if there is none.
fn text_of(path: &Path) -> Result<String, KeysError> {
    let bytes = read(path, Access::OwnerWrites)?.unwrap_or_default();
    String::from_utf8(bytes).map_err(|error| failed(path, io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// The peers that a folder's list trusts; none if there is no list.
///
/// # Errors
/// The list cannot be read, or a line of it.
pub fn peers(folder: &Path) -> Result<BTreeSet<Fingerprint>, KeysError> {
    let path = folder.join(PEERS);
    let text = text_of(&path)?;
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let peer = |(line, text): (usize, &str)| {
        let first = text.split_whitespace().next().unwrap_or_default();
        first.parse().map_err(|source| KeysError::Peer { path: path.clone(), line, source })
    };
    lines.map(peer).collect()
}

/// Adds a peer to the folder's list, with a word to remember it by; whether it was not there.
///
/// # Errors
/// The list cannot be read or written.
pub fn trust(folder: &Path, peer: Fingerprint, comment: &str) -> Result<bool, KeysError> {
    if peers(folder)?.contains(&peer) {
        return Ok(false);
    }
    make_folder(folder)?;
    let _lock = lock(folder)?;
    let path = folder.join(PEERS);
    let comment: String = comment.chars().filter(|c| !c.is_control()).collect();
    let mut text = text_of(&path)?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text += format!("{peer} {comment}").trim_end();
    text.push('\n');
    write_new(&path, text.as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_created_once_with_mode_600() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("vmcc");
        assert!(matches!(Identity::load(&inner), Err(KeysError::None(_))));
        let (first, made) = Identity::load_or_create(&inner).unwrap();
        let (second, again) = Identity::load_or_create(&inner).unwrap();
        assert!(made && !again);
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_ne!(first.fingerprint(), Identity::generate().unwrap().fingerprint());
        assert_eq!(fs::metadata(inner.join(KEY)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn unsafe_permissions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (identity, _) = Identity::load_or_create(folder.path()).unwrap();
        trust(folder.path(), identity.fingerprint(), "").unwrap();
        let mode = |name: &str, mode| {
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for open in [0o640, 0o604, 0o620, 0o602, 0o666] {
            mode(KEY, open);
            let error = Identity::load_or_create(folder.path()).err().unwrap();
            assert!(matches!(error, KeysError::Public { mode, .. } if mode == open), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        mode(KEY, 0o400);
        assert!(Identity::load(folder.path()).is_ok());
        for (open, refused) in [(0o644, false), (0o664, true), (0o646, true), (0o600, false)] {
            mode(PEERS, open);
            assert_eq!(peers(folder.path()).is_err(), refused, "{open:o}");
            assert_eq!(trust(folder.path(), identity.fingerprint(), "").is_err(), refused, "{open:o}");
        }
        // A pipe is not waited for.
        fs::remove_file(folder.path().join(PEERS)).unwrap();
        let pipe = nix::sys::stat::Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(&folder.path().join(PEERS), pipe).unwrap();
        assert!(peers(folder.path()).is_err());
    }

    #[test]
    fn folder_that_others_may_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (identity, _) = Identity::load_or_create(folder.path()).unwrap();
        trust(folder.path(), identity.fingerprint(), "").unwrap();
        for (mode, refused) in [(0o777, true), (0o1777, true), (0o720, true), (0o702, true), (0o755, false)] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let load = Identity::load(folder.path()).err();
            let listed = peers(folder.path()).err();
            for error in [load, listed] {
                assert_eq!(error.is_some(), refused, "{mode:o}");
                assert!(error.is_none_or(|error| error.to_string().contains("chmod 700")), "{mode:o}");
            }
            fs::remove_file(folder.path().join(PEERS)).unwrap();
            assert_eq!(trust(folder.path(), identity.fingerprint(), "").is_err(), refused, "{mode:o}");
            fs::write(folder.path().join(PEERS), format!("{}\n", identity.fingerprint())).unwrap();
        }
    }

    /// Only a process with CAP_CHOWN can give files away.
    #[test]
    fn files_of_another_user_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        if std::os::unix::fs::chown(folder.path(), Some(65_534), None).is_err() {
            return;
        }
        std::os::unix::fs::chown(folder.path(), Some(nix::unistd::geteuid().as_raw()), None).unwrap();
        let (identity, _) = Identity::load_or_create(folder.path()).unwrap();
        trust(folder.path(), identity.fingerprint(), "").unwrap();
        let give = |path: &Path, user| std::os::unix::fs::chown(path, Some(user), None).unwrap();
        for name in [KEY, CERTIFICATE, PEERS, ""] {
            let path = folder.path().join(name);
            give(&path, 65_534);
            let error = Identity::load(folder.path()).err().or_else(|| peers(folder.path()).err());
            let error = error.unwrap_or_else(|| panic!("{name} of another user is accepted"));
            assert!(matches!(error, KeysError::Foreign { owner: 65_534, .. }), "{error}");
            assert!(error.to_string().contains("chown"), "{error}");
            give(&path, 0);
        }
        assert!(Identity::load(folder.path()).is_ok() && peers(folder.path()).is_ok());
    }

    #[test]
    fn concurrent_creation_yields_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let made = || Identity::load_or_create(folder.path()).unwrap();
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(made)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all.iter().filter(|(_, made)| *made).count(), 1);
        assert!(all.iter().all(|(identity, _)| identity.fingerprint() == all[0].0.fingerprint()));
        fs::write(folder.path().join(KEY), Identity::generate().unwrap().key.secret_pkcs8_der()).unwrap();
        assert!(matches!(Identity::load(folder.path()), Err(KeysError::Mismatch(_))));
    }

    #[test]
    fn peers_are_stored_and_invalid_lines_named() {
        let folder = tempfile::tempdir().unwrap();
        let peer = Identity::generate().unwrap().fingerprint();
        assert!(peers(folder.path()).unwrap().is_empty());
        assert!(trust(folder.path(), peer, "of a friend\n").unwrap());
        assert!(!trust(folder.path(), peer, "again").unwrap());
        assert_eq!(peers(folder.path()).unwrap(), BTreeSet::from([peer]));
        fs::write(folder.path().join(PEERS), format!("# mine\n\n{peer}\nsha256:12\n")).unwrap();
        let error = peers(folder.path()).unwrap_err().to_string();
        fs::write(folder.path().join(PEERS), format!("{peer}")).unwrap();
        let other = Identity::generate().unwrap().fingerprint();
        assert!(trust(folder.path(), other, "").unwrap());
        assert_eq!(peers(folder.path()).unwrap(), BTreeSet::from([peer, other]), "the last line had no end");
        assert!(error.contains("line 4") && error.contains("sha256:12"), "{error}");
        assert_eq!(peer.to_string().parse(), Ok(peer));
    }
}
