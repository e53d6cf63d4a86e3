//! Flow control limits of streams.

/// Limits that one end sets for the other, and for itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Receive window of a stream at first.
    pub first_stream_window: u64,
    /// Receive window of a stream at most.
    pub stream_window: u64,
    /// Receive window of a stream whatever others hold.
    pub reserved_stream_window: u64,
    /// Receive window of all streams.
    pub connection_window: u64,
    /// Streams of both directions that the peer may have open.
    pub max_streams_bidi: u64,
    /// Streams of one direction that the peer may have open.
    pub max_streams_uni: u64,
    /// Bytes of a stream that are kept until they are acknowledged.
    pub send_window: u64,
    /// Bytes of all streams that are.
    pub connection_send_window: u64,
    /// Bytes of a stream that are taken before they are sent: no more than `send_window`.
    pub unsent_window: u64,
}

impl Limits {
    /// The limit of every stream in transport parameters.
    pub fn initial_stream_limit(&self) -> u64 {
        self.first_stream_window.min(self.reserved_stream_window)
    }
}

/// Limits that the peer sets when a connection begins (RFC 9000 section 18.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLimits {
    /// Bytes of all streams.
    pub max_data: u64,
    /// Bytes of a stream of both directions that this end opens.
    pub bidi_remote: u64,
    /// Bytes of a stream of both directions that the peer opens.
    pub bidi_local: u64,
    /// Bytes of a stream of one direction.
    pub uni: u64,
    /// Streams of both directions.
    pub max_streams_bidi: u64,
    /// Streams of one direction.
    pub max_streams_uni: u64,
}
