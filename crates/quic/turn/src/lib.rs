//! A client of TURN servers (RFC 8656) without I/O: time, datagrams and the seed of randomness are arguments.
//!
//! A [`Session`] asks a server for one address there, over UDP, and has it carry datagrams between here and peers. It renews what would expire,
//! says why something was refused, and gives the address back at the end. Only long-term credentials are spoken (RFC 8489 section 9.2), which is
//! what servers ask for; only channels are sent in, whose header has four bytes.
//!
//! Why not `turn-client-proto`, which does more: its events do not say why an allocation was refused, an answer that the server has lost the
//! allocation is taken for a success, so that a relay that was started again is missed until the allocation's time is over, identifiers come
//! from the system's randomness, and it brings fourteen crates.

mod failure;
mod message;
mod session;

pub use failure::Failure;
pub use message::{binding_answered, binding_request};
pub use session::{HEADER, PeerState, Session, State};

use std::fmt;

/// The port of TURN servers (RFC 8656 section 4).
pub const PORT: u16 = 3478;

/// Identity for a server. The secret is never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    user: String,
    secret: String,
}

/// Longer names and secrets are none (RFC 8489 section 14.3).
const MAX_CREDENTIAL: usize = 508;

impl Credentials {
    /// Nothing if one of them is empty, too long, or has characters that are not to be seen.
    pub fn new(user: &str, secret: &str) -> Option<Credentials> {
        let usable =
            |text: &str| !text.is_empty() && text.len() <= MAX_CREDENTIAL && !text.contains(char::is_control);
        let credentials = Credentials { user: user.to_owned(), secret: secret.to_owned() };
        (usable(user) && usable(secret)).then_some(credentials)
    }

    /// The name.
    pub fn user(&self) -> &str {
        &self.user
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}
