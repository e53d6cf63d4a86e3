//! Settings of a session.

use vmcc_multipath::{MAX_PATHS, Scheduler};
use vmcc_streams::Limits;
use vmcc_units::time::Span;

/// Settings of a session; the defaults suit most.
#[derive(Clone, Debug)]
pub struct Config {
    /// Scheduler of records.
    pub scheduler: Scheduler,
    /// Carriers at a time, from 1 to [`MAX_PATHS`].
    pub max_carriers: usize,
    /// Receive window of a stream at first.
    pub first_stream_window: u64,
    /// Bytes of a stream that may arrive before they are read.
    pub stream_window: u64,
    /// Receive window of a stream whatever others hold.
    pub reserved_stream_window: u64,
    /// Bytes of all streams that may arrive before they are read.
    pub connection_window: u64,
    /// Bytes of a stream that are kept until they are acknowledged.
    pub send_window: u64,
    /// Bytes of all streams that are kept until they are acknowledged.
    pub connection_send_window: u64,
    /// Streams of both directions that the peer may have open.
    pub max_streams_bidi: u64,
    /// Streams of one direction that the peer may have open.
    pub max_streams_uni: u64,
    /// Bytes that may wait unsent in a carrier beyond its congestion window.
    pub unsent_limit: u64,
    /// Longest delay of an acknowledgment.
    pub max_ack_delay: Span,
    /// Floor of a carrier's retransmission timeout under its variance term.
    pub rto_min: Span,
    /// An idle carrier is probed at this interval; zero: never.
    pub keep_alive: Span,
    /// A carrier that does not answer its greeting for this long is closed.
    pub greeting_timeout: Span,
    /// A suspect carrier that does not answer for this long is closed.
    pub abort_timeout: Span,
    /// A session without a carrier ends after this long, and a carrier on which nothing is acknowledged for this long is closed even if
    /// it is the last.
    pub session_timeout: Span,
    /// Late records are sent again on a faster carrier that has nothing else to send.
    pub reinject_late: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            scheduler: Scheduler::LowestRtt,
            max_carriers: 8,
            first_stream_window: 8 << 20,
            stream_window: 8 << 20,
            reserved_stream_window: 8 << 20,
            connection_window: 16 << 20,
            send_window: 8 << 20,
            connection_send_window: 16 << 20,
            max_streams_bidi: 256,
            max_streams_uni: 256,
            unsent_limit: 64 << 10,
            max_ack_delay: Span::from_ms(10),
            rto_min: Span::from_ms(200),
            keep_alive: Span::from_secs(1),
            greeting_timeout: Span::from_secs(10),
            abort_timeout: Span::from_secs(10),
            session_timeout: Span::from_secs(60),
            reinject_late: true,
        }
    }
}

impl Config {
    /// Part of the unsent limit that a carrier's TCP may hold (`TCP_NOTSENT_LOWAT`). With a write on top it stays below that limit, so
    /// a carrier without room has bytes in user space and is woken by its socket.
    pub fn notsent_lowat(&self) -> u64 {
        self.unsent_limit / 4
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            first_stream_window: self.first_stream_window.min(self.stream_window),
            stream_window: self.stream_window,
            reserved_stream_window: self.reserved_stream_window.min(self.stream_window),
            connection_window: self.connection_window,
            max_streams_bidi: self.max_streams_bidi,
            max_streams_uni: self.max_streams_uni,
            send_window: self.send_window,
            connection_send_window: self.connection_send_window,
            unsent_window: self.send_window,
        }
    }

    pub(crate) fn max_carriers(&self) -> usize {
        self.max_carriers.clamp(1, MAX_PATHS)
    }
}
