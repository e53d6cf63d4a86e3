//! Output of the stream table: events for the application, control frames that are due, ranges that were sent.

use crate::frame::Dir;
use std::ops::Range;

/// Change of a stream that the application waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer has opened a stream.
    Opened {
        /// The stream.
        stream: u64,
    },
    /// There are bytes to read, or the end, or a reset.
    Readable {
        /// The stream.
        stream: u64,
    },
    /// A stream that took less than was written has room again.
    Writable {
        /// The stream.
        stream: u64,
    },
    /// Everything that was written has arrived, and the end with it.
    Finished {
        /// The stream.
        stream: u64,
    },
    /// The peer reads no more.
    Stopped {
        /// The stream.
        stream: u64,
        /// The application's code.
        code: u64,
    },
    /// The peer allows more streams of a direction.
    Available {
        /// The direction.
        dir: Dir,
    },
}

/// A frame about streams that is made of their state when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// The limit of all streams.
    MaxData,
    /// The limit of one stream.
    MaxStreamData(u64),
    /// The number of streams of a direction.
    MaxStreams(Dir),
    /// The peer's limit of all streams holds data back.
    DataBlocked,
    /// A stream's sending half is given up.
    ResetStream(u64),
    /// A stream's receiving half is not read any more.
    StopSending(u64),
}

/// A range of a stream that a packet or record carries, for its acknowledgment or loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentRange {
    /// The stream.
    pub id: u64,
    /// Its bytes.
    pub range: Range<u64>,
    /// The end of the stream with it.
    pub fin: bool,
}
