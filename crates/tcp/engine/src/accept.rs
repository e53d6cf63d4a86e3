//! The server's side of a connection before it belongs to a session.

use crate::error::CarrierError;
use crate::record::Deframer;
use crate::wire::{Frame, Hello, Join};
use vmcc_streams::varint::Reader;

/// Bytes of a greeting at most: what an unknown peer can make this end keep.
pub(crate) const MAX_GREETING: usize = 256;

/// The first record of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// A new session: for [`Session::accept`](crate::Session::accept).
    Hello(Hello),
    /// A further carrier: for [`Session::join`](crate::Session::join) of the session with this token.
    Join(Join),
}

/// Reader of a connection's first record. Keeps at most 256 bytes of an unknown peer.
///
/// The caller bounds the number of connections in this state and their duration.
#[derive(Debug, Default)]
pub struct Acceptor {
    deframer: Deframer,
}

impl Acceptor {
    /// Takes bytes from the front of `input`. Once there is a greeting, the rest is for
    /// [`Session::handle_bytes`](crate::Session::handle_bytes).
    ///
    /// # Errors
    /// The peer does not speak this protocol.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Greeting>, CarrierError> {
        let mut scratch = Vec::new();
        let body = self.deframer.next(input, &mut scratch, MAX_GREETING);
        let Some(body) = body.map_err(|_| CarrierError::Malformed)? else { return Ok(None) };
        let mut reader = Reader::new(body);
        let greeting = match Frame::decode(&mut reader) {
            Ok(Frame::Hello(hello)) => Greeting::Hello(hello),
            Ok(Frame::Join(join)) => Greeting::Join(join),
            _ => return Err(CarrierError::Malformed),
        };
        if reader.is_empty() { Ok(Some(greeting)) } else { Err(CarrierError::Malformed) }
    }
}
