//! Connection ids.

use std::fmt;

/// The longest (RFC 9000 section 17.2).
pub(crate) const MAX_LEN: usize = 20;

/// A connection id of 0 to 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    len: u8,
    bytes: [u8; MAX_LEN],
}

impl ConnectionId {
    /// The id of no bytes.
    pub(crate) const EMPTY: ConnectionId = ConnectionId { len: 0, bytes: [0; MAX_LEN] };

    /// An id of these bytes; none if there are more than 20.
    pub fn new(bytes: &[u8]) -> Option<ConnectionId> {
        let mut id = ConnectionId { len: u8::try_from(bytes.len()).ok()?, ..ConnectionId::EMPTY };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
