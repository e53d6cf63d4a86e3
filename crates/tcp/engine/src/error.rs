//! Errors: of one carrier, of a join, of the session.

use vmcc_streams::Violation;

/// Reason of a carrier's end. The session goes on over the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// The connection was closed or reset.
    #[error("the connection ended: {0}")]
    Ended(String),
    /// The peer's bytes are no records.
    #[error(
        "the peer does not speak this protocol, or a middlebox changes its bytes; check address and port, or use TLS"
    )]
    Malformed,
    /// The peer's first record is wrong.
    #[error("the peer did not prove that it has the session's key; another server answered for this address")]
    WrongPeer,
    /// The peer refused the carrier.
    #[error("the peer refused the carrier: {0}")]
    Refused(Refusal),
    /// The greeting was not answered.
    #[error("the peer did not answer the greeting in time; check that it still runs")]
    GreetingTimeout,
    /// Nothing was acknowledged for too long while other carriers worked.
    #[error("the carrier is silent while others work; the path is probably cut")]
    Silent,
    /// The peer gave the carrier up.
    #[error("the peer gave the carrier up")]
    Abandoned,
    /// This end closed it.
    #[error("closed by this end")]
    Local,
}

/// Reason of a refused greeting, with its code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No session has this token.
    #[error("no such session; connect again")]
    UnknownSession,
    /// The MAC is wrong, or the number was used before.
    #[error("the join is not authentic; connect again")]
    NotAuthentic,
    /// The session has as many carriers as it may.
    #[error("too many carriers; close one first")]
    TooManyCarriers,
    /// The server takes no more sessions.
    #[error("the server is full; try again later")]
    ServerFull,
}

impl Refusal {
    const ALL: [Refusal; 4] =
        [Refusal::UnknownSession, Refusal::NotAuthentic, Refusal::TooManyCarriers, Refusal::ServerFull];

    pub(crate) fn code(self) -> u64 {
        self as u64
    }

    pub(crate) fn by_code(code: u64) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| refusal.code() == code)
    }
}

/// Reason of a refused [`Session::join`](crate::Session::join): the same that the peer is sent.
pub type JoinError = Refusal;

/// Reason of a session's end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// This end closed it.
    #[error("closed by this end")]
    LocallyClosed,
    /// The peer closed it.
    #[error("closed by the peer with code {code}{}", format_reason(reason))]
    PeerClosed {
        /// The application's code.
        code: u64,
        /// Its reason phrase.
        reason: String,
    },
    /// The peer broke a rule of streams.
    #[error("the peer broke the protocol: {0}")]
    Violation(Violation),
    /// The first carrier ended before the session began.
    #[error("no session was made: {0}")]
    NotConnected(CarrierError),
    /// No carrier was left for the session timeout.
    #[error("every carrier ended and none came back in time; check the network and that the peer still runs")]
    TimedOut,
    /// The peer has no such session any more.
    #[error("the peer has lost the session; connect again")]
    Lost,
}

fn format_reason(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
