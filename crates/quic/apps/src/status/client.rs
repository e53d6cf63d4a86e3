//! Reader of the status sockets of running programs.

use super::{Program, dir, namespace};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt};
use nix::unistd::geteuid;
use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Programs that are looked at, all at once.
const MAX_PROGRAMS: usize = 256;
/// Of one user, in all its folders, so that others are seen as well.
const MAX_PROGRAMS_PER_USER: usize = 64;
/// Folders of one user.
const MAX_FOLDERS_PER_USER: usize = 4;
/// Files that are looked at in a folder.
const MAX_ENTRIES: usize = 1024;
const PROGRAM_TIMEOUT: Duration = Duration::from_millis(300);
/// An answer is shorter.
const MAX_BYTES: usize = 8 << 20;
/// Names are; they come from other users' programs.
const MAX_NAME: usize = 32;

/// Connections of this user's programs in this network namespace; for root, everybody's. Silent programs, and those of a user above a
/// bound, are left out; the second value counts them.
pub fn programs() -> (Vec<Program>, usize) {
    programs_in(dir::candidates())
}

fn programs_in(folders: Vec<(PathBuf, u32)>) -> (Vec<Program>, usize) {
    let (chosen, mut left_out) = choose(folders);
    let until = Instant::now() + PROGRAM_TIMEOUT;
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = |(socket, owner): &(PathBuf, u32)| query(socket, *owner, until);
        let threads: Vec<_> = chosen.iter().map(|one| scope.spawn(move || ask(one))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let here = namespace();
    let mut seen = Vec::new();
    for answer in answers {
        match answer {
            Ok(program) if program.namespace == here && is_printable(&program) => seen.push(program),
            // Blocked by a full queue, or silent.
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                left_out += 1
            }
            _ => {}
        }
    }
    (seen, left_out)
}

/// Sockets to ask, with their owners: this user's and root's first, and a bounded number of each. The second value counts others.
fn choose(mut folders: Vec<(PathBuf, u32)>) -> (Vec<(PathBuf, u32)>, usize) {
    let own = geteuid().as_raw();
    folders.sort_by_key(|(_, owner)| (*owner != own, *owner != 0));
    let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
    let (mut chosen, mut left_out) = (Vec::new(), 0);
    for (folder, owner) in folders {
        let (folders, programs) = counts.entry(owner).or_default();
        *folders += 1;
        if *folders > MAX_FOLDERS_PER_USER {
            left_out += 1;
            continue;
        }
        for socket in sockets(&folder) {
            if *programs >= MAX_PROGRAMS_PER_USER || chosen.len() >= MAX_PROGRAMS {
                left_out += 1;
                continue;
            }
            *programs += 1;
            chosen.push((socket, owner));
        }
    }
    (chosen, left_out)
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
    // Not what a symbolic link leads to: another user may have made it.
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let named = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
    sockets.map(|entry| entry.path()).filter(named).take(MAX_PROGRAMS_PER_USER).collect()
}

/// Removes what programs that are gone have left in this user's folder.
pub(super) fn remove_stale(folder: &Path) {
    for socket in sockets(folder) {
        let gone =
            connect_nonblocking(&socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if gone && dir::is_private(folder) {
            let _ = fs::remove_file(socket);
        }
    }
}

/// Connects, unless that would have to wait.
fn connect_nonblocking(path: &Path) -> io::Result<UnixStream> {
    let stream = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    let stream = UnixStream::from(stream);
    stream.set_nonblocking(true)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// State of a program that belongs to the owner.
fn query(path: &Path, owner: u32, until: Instant) -> io::Result<Program> {
    let mut stream = connect_nonblocking(path)?;
    let (user, pid) = peer_credentials(&stream)?;
    if user != owner {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let (mut all, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || all.len() > MAX_BYTES {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => {
                // Who it is says the kernel.
                let said: Program = serde_json::from_slice(&all)?;
                return Ok(Program { pid, ..said });
            }
            len => all.extend_from_slice(&part[..len]),
        }
    }
}

/// Its user and number.
#[cfg(target_os = "linux")]
fn peer_credentials(stream: &UnixStream) -> io::Result<(u32, u32)> {
    let peer = getsockopt(stream, sockopt::PeerCredentials)?;
    Ok((peer.uid(), peer.pid().unsigned_abs()))
}

/// Its user and number.
#[cfg(target_os = "macos")]
fn peer_credentials(stream: &UnixStream) -> io::Result<(u32, u32)> {
    let (user, _) = nix::unistd::getpeereid(stream)?;
    Ok((user.as_raw(), getsockopt(stream, sockopt::LocalPeerPid)?.unsigned_abs()))
}

/// Returns true if its texts can be shown to another user as they are.
fn is_printable(program: &Program) -> bool {
    let word = |text: &str| text.len() <= MAX_NAME && text.chars().all(|c| c.is_ascii_graphic());
    let connections = &program.connections;
    let devices = connections.iter().flat_map(|one| &one.paths).filter_map(|path| path.device.as_deref());
    word(&program.name) && connections.iter().all(|one| word(&one.algorithm)) && devices.into_iter().all(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn stale_sockets_are_removed_and_live_ones_kept() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let (gone, lives) = (folder.path().join("1.sock"), folder.path().join("2.sock"));
        drop(UnixListener::bind(&gone).unwrap());
        let listener = UnixListener::bind(&lives).unwrap();
        remove_stale(folder.path());
        assert_eq!(sockets(folder.path()), std::slice::from_ref(&lives));
        // A silent program is not waited for, and its answer is not trusted.
        assert!(query(&lives, geteuid().as_raw(), Instant::now() + Duration::from_millis(20)).is_err());
        drop(listener);
        assert!(query(&lives, geteuid().as_raw(), Instant::now() + PROGRAM_TIMEOUT).is_err());
    }

    #[test]
    fn socket_of_another_user_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let said = r#"{"name":"proxy","pid":1,"namespace":"","connections":[],"more":0}"#;
        let answers = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let _ = stream.unwrap().write_all(said.as_bytes());
            }
        });
        let me = geteuid().as_raw();
        let late = || Instant::now() + 10 * PROGRAM_TIMEOUT;
        assert_eq!(query(&path, me + 1, late()).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(query(&path, me, late()).unwrap().pid, std::process::id(), "whatever it says");
        answers.join().unwrap();
        // A link to a socket is none, nor is a folder that others may write to one's own.
        std::os::unix::fs::symlink(&path, folder.path().join("2.sock")).unwrap();
        assert_eq!(sockets(folder.path()), [path]);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(dir::owner(folder.path()), None);
    }

    #[test]
    fn silent_programs_of_one_user_hide_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let me = geteuid().as_raw();
        let (mut folders, mut silent) = (Vec::new(), Vec::new());
        for i in 0..12 {
            let inside = folder.path().join(i.to_string());
            fs::create_dir(&inside).unwrap();
            silent.extend((0..20).map(|k| UnixListener::bind(inside.join(format!("{k}.sock"))).unwrap()));
            folders.push((inside, me + 1));
        }
        let live = folder.path().join("live");
        fs::create_dir(&live).unwrap();
        let listener = UnixListener::bind(live.join("1.sock")).unwrap();
        folders.push((live, me));
        let said = serde_json::to_vec(&Program {
            name: "proxy".to_owned(),
            pid: 1,
            namespace: namespace(),
            connections: Vec::new(),
            more: 0,
        });
        let said = said.unwrap();
        let answers = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&said).unwrap());
        let (chosen, left_out) = choose(folders.clone());
        assert_eq!((chosen.len(), left_out), (1 + MAX_PROGRAMS_PER_USER, 4 * 20 - MAX_PROGRAMS_PER_USER + 8));
        // The kernel names the listener's user: silent sockets of a test are this user's.
        folders.iter_mut().for_each(|(_, owner)| *owner = me);
        folders.rotate_right(1);
        let (programs, left_out) = programs_in(folders);
        assert_eq!(programs.iter().map(|program| &program.name[..]).collect::<Vec<_>>(), ["proxy"]);
        assert!(left_out > MAX_PROGRAMS_PER_USER, "{left_out}");
        answers.join().unwrap();
    }

    #[test]
    fn control_characters_are_rejected() {
        let program = |name: &str| Program {
            name: name.to_owned(),
            pid: 1,
            namespace: String::new(),
            connections: Vec::new(),
            more: 0,
        };
        assert!(is_printable(&program("proxy")));
        assert!(!is_printable(&program("\x1b[2J")) && !is_printable(&program(&"x".repeat(33))));
    }
}
