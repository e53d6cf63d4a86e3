//! Per-socket state of the algorithms, read from outside while they run.

use crate::error::ControlError;
use crate::objects::{self, Log};
use crate::shared::states::{STATE_BEYOND, STATE_NO_ROOM, SocketState};
use libbpf_rs::ObjectBuilder;
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use vmcc_cc::{Algorithm, MAX_PATHS, Path};
use zerocopy::FromBytes;

/// A program that lists the states; clones share it.
#[derive(Debug, Clone)]
pub struct States(Arc<OwnedFd>);

/// State of an algorithm for one socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// As [`vmcc_system::diag::Subflow::cookie`]: zero for a socket that nobody has asked about before.
    pub cookie: [u8; 8],
    /// The algorithm.
    pub algorithm: Algorithm,
    /// State of the path.
    pub path: Path,
    /// Its place in a connection whose paths are coupled.
    pub member: Option<Member>,
    /// Reason that it is not coupled although its connection has several paths.
    pub uncoupled: Option<Uncoupled>,
}

/// Reason that a path runs uncoupled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncoupled {
    /// The table of connections, or its account's share of it, is full.
    NoRoom,
    /// Its connection has [`MAX_PATHS`] other paths.
    TooManyPaths,
}

impl Uncoupled {
    fn decode(raw: u32) -> Option<Self> {
        match raw {
            STATE_NO_ROOM => Some(Self::NoRoom),
            STATE_BEYOND => Some(Self::TooManyPaths),
            _ => None,
        }
    }
}

impl std::fmt::Display for Uncoupled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRoom => f.write_str("no room in the table of connections"),
            Self::TooManyPaths => write!(f, "more than {MAX_PATHS} subflows in this connection"),
        }
    }
}

/// A path's place in its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// By which the kernel's tables know the connection.
    pub(crate) connection: u64,
    /// From 0.
    pub slot: usize,
}

impl States {
    /// Loads the program.
    ///
    /// # Errors
    /// Not permitted, or the kernel has no iterator over TCP sockets (`iter/tcp`).
    pub fn open() -> Result<Self, ControlError> {
        let log = Log::start();
        Self::load().map_err(|e| failed(format!("{e}: {}", log.tail(6))))
    }

    fn load() -> libbpf_rs::Result<Self> {
        let object = ObjectBuilder::default().name("vmcc_states")?.open_memory(objects::STATES)?.load()?;
        let program = object.progs_mut().next().expect("the object has one");
        let link = program.attach()?;
        // The link keeps what it needs.
        Ok(Self(Arc::new(link.as_fd().try_clone_to_owned()?)))
    }

    /// The states of the sockets in the calling thread's network namespace; only those of this registry's algorithms.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(&self) -> Result<Vec<State>, ControlError> {
        let mut bytes = Vec::new();
        iterate(self.0.as_fd()).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(failed)?;
        let states = bytes.chunks_exact(size_of::<SocketState>());
        Ok(states.filter_map(|one| decode(&SocketState::read_from_bytes(one).ok()?)).collect())
    }
}

/// One listing of an iterator's link, as a file.
pub(crate) fn iterate(link: BorrowedFd<'_>) -> std::io::Result<File> {
    // SAFETY: the call takes a descriptor, which the caller keeps open, and no memory.
    let fd = unsafe { libbpf_rs::libbpf_sys::bpf_iter_create(link.as_raw_fd()) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn decode(raw: &SocketState) -> Option<State> {
    let name = raw.algorithm.split(|byte| *byte == 0).next()?;
    let algorithm = Algorithm::by_name(std::str::from_utf8(name).ok()?).ok()?;
    let slot = usize::try_from(raw.slot).ok().filter(|slot| *slot < MAX_PATHS)?;
    let member = (raw.group_key != 0).then_some(Member { connection: raw.group_key, slot });
    let uncoupled = Uncoupled::decode(raw.refused);
    Some(State { cookie: raw.cookie.to_ne_bytes(), algorithm, path: raw.path, member, uncoupled })
}

fn failed(cause: impl std::fmt::Display) -> ControlError {
    ControlError::kernel("list what algorithms keep of their sockets", cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_other_algorithms_are_left_out() {
        let named = |name: &str| SocketState {
            cookie: 7,
            algorithm: crate::shared::algorithm::name(name),
            path: Path { priv_words: [1 << 30, 0, 0, 0, 0, 0, 0], ..Path::default() },
            group_key: 9,
            slot: 3,
            refused: 0,
        };
        let state = decode(&named("mp_dctcp")).unwrap();
        assert_eq!((state.cookie, state.algorithm.name()), (7_u64.to_ne_bytes(), "dctcp"));
        assert_eq!(state.algorithm.alpha(&state.path), Some(1.0));
        assert_eq!(decode(&named("mp_reno")).unwrap().algorithm.alpha(&state.path), None);
        assert_eq!(decode(&named("mp_nobody")), None);
        assert_eq!(state.member, Some(Member { connection: 9, slot: 3 }));
        assert_eq!(decode(&SocketState { group_key: 0, ..named("mp_dctcp") }).unwrap().member, None);
        assert_eq!(decode(&SocketState { slot: MAX_PATHS as u32, ..named("mp_dctcp") }), None);
        assert_eq!(state.uncoupled, None);
        let beyond = SocketState { group_key: 0, slot: 0, refused: STATE_BEYOND, ..named("mp_dctcp") };
        let said = decode(&beyond).unwrap().uncoupled.map(|cause| cause.to_string());
        assert_eq!(said.as_deref(), Some("more than 32 subflows in this connection"));
    }
}
