//! Events of a session for its caller.

use crate::error::{CarrierError, SessionError};
use std::net::SocketAddr;
use vmcc_streams::Dir;

/// Number of a carrier within its session; never used again.
pub type CarrierId = u64;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The session exists at both ends; streams can be used and carriers can join.
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
    /// A carrier can carry data.
    CarrierOpened {
        /// The carrier.
        carrier: CarrierId,
    },
    /// A carrier is silent: its data are sent again on others.
    CarrierSuspected {
        /// The carrier.
        carrier: CarrierId,
    },
    /// A suspect carrier answers again.
    CarrierRevived {
        /// The carrier.
        carrier: CarrierId,
    },
    /// A carrier has ended. The caller aborts its connection (RST, never FIN).
    CarrierClosed {
        /// The carrier.
        carrier: CarrierId,
        /// The reason.
        reason: CarrierError,
    },
    /// The peer can also be reached here.
    AddressAdded(SocketAddr),
    /// The peer cannot be reached here any more.
    AddressRemoved(SocketAddr),
    /// The session is over. Nothing follows.
    Closed(SessionError),
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
