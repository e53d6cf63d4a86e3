//! Errors of streams: the peer's, and the application's.

/// Transport error codes that frames of streams can cause (RFC 9000 section 20.1).
pub mod code {
    /// The implementation gave up.
    pub const INTERNAL: u64 = 0x01;
    /// More data than a limit allows.
    pub const FLOW_CONTROL: u64 = 0x03;
    /// More streams than the limit.
    pub const STREAM_LIMIT: u64 = 0x04;
    /// A frame for a stream in the wrong state.
    pub const STREAM_STATE: u64 = 0x05;
    /// The final size of a stream changed.
    pub const FINAL_SIZE: u64 = 0x06;
}

/// Violation of the stream rules by the peer: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Violation {
    /// One of [`code`].
    pub code: u64,
    /// For people.
    pub reason: &'static str,
}

impl Violation {
    pub(crate) fn new(code: u64, reason: &'static str) -> Violation {
        Violation { code, reason }
    }
}

/// Error of using a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// There is no such stream, or it has ended.
    #[error("the stream is not open")]
    Unknown,
    /// The peer reset its half with this code.
    #[error("the peer reset the stream with code {0}")]
    Reset(u64),
    /// The peer reads no more, for this code.
    #[error("the peer stopped reading the stream with code {0}")]
    Stopped(u64),
    /// This end finished or reset its half before.
    #[error("the stream was finished before")]
    Finished,
}
