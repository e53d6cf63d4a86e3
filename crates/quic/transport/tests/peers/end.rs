//! Interface of an end of the connection, ours or noq's.

use crate::network::Datagram;
use vmcc_transport::{Dir, Route};
use vmcc_units::time::Time;

/// State of a stream after it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Open,
    Whole,
    Reset,
    /// The stream is not known, because it was stopped or has ended.
    Unknown,
}

/// Reason of a connection's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    Locally,
    /// By the peer's application.
    ByPeer,
    /// Nothing came for the idle timeout.
    TimedOut,
    /// The peer knows the connection no more.
    StatelessReset,
    /// No path is left.
    NoPath,
    Error(String),
}

/// Error code of a connection that its application closes during the handshake (RFC 9000 section 20.1).
pub(crate) const APPLICATION_ERROR: u64 = 0x0c;
/// Error code of a connection without a path (RFC 9000 section 20.1).
pub(crate) const NO_VIABLE_PATH: u64 = 0x10;

pub(crate) trait End {
    fn receive(&mut self, now: Time, datagram: Datagram);
    fn timeout(&self) -> Option<Time>;
    fn handle_timeout(&mut self, now: Time);
    /// Everything that is to leave now: source and destination, ECN, bytes.
    fn transmit(&mut self, now: Time) -> Vec<Datagram>;
    /// Returns true once the handshake is complete.
    fn is_connected(&self) -> bool;
    fn closed(&self) -> Option<Closed>;
    /// Returns true if no state of the connection is left.
    fn is_gone(&mut self) -> bool;
    fn close(&mut self, now: Time);

    fn open_stream(&mut self, dir: Dir) -> Option<u64>;
    /// Streams that the peer has opened since the last call.
    fn accept(&mut self) -> Vec<u64>;
    /// Bytes that were taken.
    fn write(&mut self, stream: u64, data: &[u8]) -> usize;
    /// Returns false if the stream cannot be finished any more.
    fn finish(&mut self, stream: u64) -> bool;
    fn reset(&mut self, stream: u64) -> bool;
    fn stop(&mut self, stream: u64) -> bool;
    fn read(&mut self, stream: u64, out: &mut Vec<u8>) -> Ending;
    fn send_datagram(&mut self, now: Time, data: &[u8]);
    fn datagrams(&mut self) -> Vec<Vec<u8>>;

    fn update_keys(&mut self, now: Time);
    fn open_path(&mut self, now: Time, route: Route, backup: bool);
    /// Number of paths that `abandon_path` and `set_backup` index.
    fn paths(&mut self) -> usize;
    fn abandon_path(&mut self, now: Time, index: usize);
    fn set_backup(&mut self, index: usize, backup: bool);
}
