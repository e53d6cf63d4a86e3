//! Events of a connection for the application.

use crate::error::{ConnectionError, code};
use vmcc_streams::Dir;

/// Number of a path within its connection, as on the wire; never used again.
pub type PathId = u32;

/// Reason of a path's end (draft-ietf-quic-multipath-21 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathClose {
    /// It shares a bottleneck with another, or there are enough without it.
    NotNeeded,
    /// It did not answer, or was too bad.
    Unanswered,
    /// An application's reason.
    Application(u64),
}

impl PathClose {
    /// Meaning of a code of [`Event::PathClosed`].
    pub fn of(code: u64) -> PathClose {
        match code {
            code::PATH_RESOURCES => PathClose::NotNeeded,
            code::PATH_UNSTABLE => PathClose::Unanswered,
            other => PathClose::Application(other),
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete; streams can be used.
    Connected,
    /// The peer has opened a stream.
    StreamOpened {
        /// The stream.
        stream: u64,
    },
    /// There are bytes to read, or the end, or a reset.
    StreamReadable {
        /// The stream.
        stream: u64,
    },
    /// A stream that took less than was written has room again.
    StreamWritable {
        /// The stream.
        stream: u64,
    },
    /// Everything that was written has arrived, and the end with it.
    StreamFinished {
        /// The stream.
        stream: u64,
    },
    /// The peer reads no more.
    StreamStopped {
        /// The stream.
        stream: u64,
        /// The application's code.
        code: u64,
    },
    /// The peer allows more streams of a direction.
    StreamsAvailable {
        /// The direction.
        dir: Dir,
    },
    /// Datagrams can be read; not said again until all were.
    DatagramReceived,
    /// The peer allows more paths, or has given the connection ids that one needs.
    PathsAvailable,
    /// A path can carry data.
    PathOpened {
        /// The path.
        path: PathId,
    },
    /// A path is silent: what it carries is sent on others as well.
    PathSuspected {
        /// The path.
        path: PathId,
    },
    /// A path that was suspected answers again.
    PathRevived {
        /// The path.
        path: PathId,
    },
    /// A path is gone.
    PathClosed {
        /// The path.
        path: PathId,
        /// The code on the wire (draft-ietf-quic-multipath-21 section 6).
        code: u64,
    },
    /// The connection is over. Nothing follows.
    Closed(ConnectionError),
}

impl From<vmcc_streams::Event> for Event {
    fn from(event: vmcc_streams::Event) -> Event {
        use vmcc_streams::Event as Own;
        match event {
            Own::Opened { stream } => Event::StreamOpened { stream },
            Own::Readable { stream } => Event::StreamReadable { stream },
            Own::Writable { stream } => Event::StreamWritable { stream },
            Own::Finished { stream } => Event::StreamFinished { stream },
            Own::Stopped { stream, code } => Event::StreamStopped { stream, code },
            Own::Available { dir } => Event::StreamsAvailable { dir },
        }
    }
}
