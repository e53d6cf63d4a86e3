//! Failures of relays.

/// Refusal or silence of a server. Texts continue after the server's name, and have the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing comes from there.
    #[error(
        "it does not answer; check its address and port, that a TURN server runs there, and that UDP reaches it"
    )]
    Silent,
    /// 401 although signed, or a signature that is not its own.
    #[error("it does not accept the password of {0} (401); check user and password")]
    Credentials(String),
    /// 400 to a signed request. pion/turn answers so to a user or password that it does not know.
    #[error(
        "it calls the request bad (400), as some servers do if user or password are wrong; check both of {0}"
    )]
    BadRequest(String),
    /// 403.
    #[error("it relays nothing to {0} (403); its operator decides about that")]
    Forbidden(String),
    /// 437.
    #[error("it does not know this allocation any more (437), as after a restart; another one is requested")]
    Lost,
    /// 440.
    #[error("it has no addresses of that family (440); choose an address of the other one with --remote")]
    Family,
    /// 442.
    #[error("it relays no UDP (442); choose another relay")]
    Transport,
    /// 486.
    #[error(
        "{0} has as many allocations there as it allows (486); end others, or wait ten minutes for those of programs that were killed"
    )]
    Quota(String),
    /// 508.
    #[error("it has no address or port left (508); choose another relay, or try later")]
    Capacity,
    /// This end asks for no more.
    #[error("it is used for {0} peers already; choose some of their addresses with --remote")]
    Peers(usize),
    /// Any other code.
    #[error("it refuses: {1} ({0})")]
    Other(u16, String),
    /// Answers that make no sense.
    #[error("what it answers is not TURN; check its address and port")]
    Nonsense,
    /// An address that is this host's, or that another relay has given.
    #[error("it says that it has the address {0}, which it cannot have; choose another relay")]
    Taken(std::net::SocketAddr),
    /// It was to end.
    #[error("it is no longer used")]
    Closed,
}

/// Characters after which a server's reason is truncated.
const MAX_REASON: usize = 80;

impl Failure {
    /// Of an error's code and words, to a request of `user`'s about `peer`.
    pub(crate) fn of(code: u16, reason: &[u8], user: &str, peer: Option<std::net::SocketAddr>) -> Failure {
        match code {
            400 => Failure::BadRequest(user.to_owned()),
            401 => Failure::Credentials(user.to_owned()),
            403 => Failure::Forbidden(peer.map_or("anybody".to_owned(), |peer| peer.to_string())),
            437 => Failure::Lost,
            440 => Failure::Family,
            442 => Failure::Transport,
            486 => Failure::Quota(user.to_owned()),
            508 => Failure::Capacity,
            _ => {
                let reason = String::from_utf8_lossy(reason);
                let harmless = reason.chars().filter(|c| !c.is_control()).take(MAX_REASON);
                Failure::Other(code, harmless.collect())
            }
        }
    }
}
