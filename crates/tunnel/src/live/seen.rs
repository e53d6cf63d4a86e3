//! The end of who looks.

use super::{Program, folder, namespace};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Programs that are looked at, and how long a look at one and at all may take.
const MOST_PROGRAMS: usize = 256;
const PATIENCE: Duration = Duration::from_millis(300);
const PATIENCE_IN_ALL: Duration = Duration::from_secs(1);
/// An answer is shorter.
const MOST_BYTES: usize = 8 << 20;
/// Names are; they come from other users' programs.
const MOST_NAME: usize = 32;

/// What this user's programs carry in this network namespace; for root, everybody's. One that does not answer is left out.
pub fn programs() -> Vec<Program> {
    let until = Instant::now() + PATIENCE_IN_ALL;
    let sockets = folder::all().into_iter().flat_map(|folder| sockets(&folder)).take(MOST_PROGRAMS);
    let here = namespace();
    let seen = sockets.filter_map(|socket| ask(&socket, until.min(Instant::now() + PATIENCE)).ok());
    seen.filter(|program| program.namespace == here && is_harmless(program)).collect()
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
}

/// Removes what programs that are gone have left in this user's folder.
pub(super) fn clear(folder: &Path) {
    for socket in sockets(folder) {
        let gone = dial(&socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if gone && folder::is_private(folder) {
            let _ = fs::remove_file(socket);
        }
    }
}

/// Connects, unless that would have to wait.
fn dial(path: &Path) -> io::Result<UnixStream> {
    let stream = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    let stream = UnixStream::from(stream);
    stream.set_nonblocking(true)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn ask(path: &Path, until: Instant) -> io::Result<Program> {
    let mut stream = dial(path)?;
    let (mut all, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || all.len() > MOST_BYTES {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Ok(serde_json::from_slice(&all)?),
            len => all.extend_from_slice(&part[..len]),
        }
    }
}

/// Whether its words can be shown to another user as they are.
fn is_harmless(program: &Program) -> bool {
    let word = |text: &str| text.len() <= MOST_NAME && text.chars().all(|c| c.is_ascii_graphic());
    let connections = &program.connections;
    let devices = connections.iter().flat_map(|one| &one.paths).filter_map(|path| path.device.as_deref());
    word(&program.name) && connections.iter().all(|one| word(&one.algorithm)) && devices.into_iter().all(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_gone_is_removed_and_what_lives_is_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let (gone, lives) = (folder.path().join("1.sock"), folder.path().join("2.sock"));
        drop(UnixListener::bind(&gone).unwrap());
        let listener = UnixListener::bind(&lives).unwrap();
        clear(folder.path());
        assert_eq!(sockets(folder.path()), std::slice::from_ref(&lives));
        // One that says nothing is not waited for, and what it says is not believed.
        assert!(ask(&lives, Instant::now() + Duration::from_millis(20)).is_err());
        drop(listener);
        assert!(ask(&lives, Instant::now() + PATIENCE).is_err());
    }

    #[test]
    fn words_of_others_command_no_terminal() {
        let program = |name: &str| Program {
            name: name.to_owned(),
            pid: 1,
            namespace: String::new(),
            connections: Vec::new(),
            more: 0,
        };
        assert!(is_harmless(&program("proxy")));
        assert!(!is_harmless(&program("\x1b[2J")) && !is_harmless(&program(&"x".repeat(33))));
    }
}
