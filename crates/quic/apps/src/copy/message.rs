//! Messages between the two ends of a copy. Names and paths are bytes, as file systems have them.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};

pub(crate) const ALPN: &[u8] = b"vmcc-cp/1";
/// Of the two lines that travel through ssh.
pub(crate) const VERSION: u32 = 1;

/// From the client, through ssh: who will connect.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) fingerprint: String,
    /// Transport of the session; empty: UDP, as earlier versions have it.
    #[serde(default)]
    pub(crate) carrier: String,
}

/// From the far end, through ssh: where to connect to, and what it will show.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) version: u32,
    pub(crate) fingerprint: String,
    pub(crate) addresses: Vec<std::net::SocketAddr>,
    /// Transports at these addresses; empty: UDP.
    #[serde(default)]
    pub(crate) carrier: String,
}

/// The user's choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Folders with what is in them.
    pub recursive: bool,
    /// Files that exist are replaced.
    pub force: bool,
    /// Times of modification, and all bits of permission, are kept.
    pub preserve: bool,
}

/// The first message on the first stream, from the client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The server is to store these. `origins` tells sources apart, as [`super::unfinished`] does.
    Put {
        target: Vec<u8>,
        names: Vec<Option<Vec<u8>>>,
        options: Options,
        #[serde(default)]
        origins: Vec<String>,
    },
    /// The server is to send these; with `patterns` all that match.
    Get {
        sources: Vec<Vec<u8>>,
        options: Options,
        #[serde(default)]
        patterns: bool,
    },
}

/// From the receiver: whether it can begin.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ready {
    Yes,
    No(Refusal),
}

/// From the sender: what is to come.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// The items' roots, if patterns were requested.
    #[serde(default)]
    pub(crate) roots: Vec<Match>,
}

/// Something that a source names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Match {
    /// Which of the sources.
    pub(crate) source: usize,
    /// Its last name.
    pub(crate) name: Vec<u8>,
}

/// From the sender: nothing follows; what it could not send.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) more: u64,
}

/// True if repeating a copy with these refusals would change nothing.
pub(crate) fn is_final<'a>(mut refusals: impl Iterator<Item = &'a Refusal>, more: u64) -> bool {
    more == 0 && refusals.all(|refusal| refusal.reason == Reason::NoSource)
}

/// The first message on the stream of a file or folder, from the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    /// Which of the sources it belongs to.
    pub(crate) root: usize,
    /// Names from there down.
    pub(crate) below: Vec<Vec<u8>>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    /// Seconds and nanoseconds since 1970.
    pub(crate) modified: (i64, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Folder,
    File { size: u64 },
}

/// From the receiver: what it has of the file, by SHA-256, from its beginning on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Another copy is writing it, perhaps one whose client was killed a moment ago: another answer follows.
    Wait,
    Have {
        len: u64,
        sha256: [u8; 32],
    },
    Refused(Refusal),
}

/// From the sender: the bytes that follow begin here. Their end is followed by the SHA-256 of the whole file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) offset: u64,
}

/// From the receiver, at the end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Stored {
    Yes,
    No(Refusal),
}

/// Something that one end cannot do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Kind of the reason.
    pub reason: Reason,
    /// The object and the cause, for people.
    pub message: String,
}

/// Class of a refusal, from which the remedy follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// The source is not there, or not what was asked for.
    NoSource,
    /// A file is in the way.
    Exists,
    /// The target cannot be written like that.
    BadTarget,
    /// No right to read or write.
    Permission,
    /// No space, or no quota.
    Full,
    /// The received data differ from the sent ones, or changed meanwhile.
    Changed,
    /// Anything else that the system says.
    System,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names may have line feeds and commands for terminals in them, and come from somewhere else.
        self.message.chars().try_for_each(|c| match c {
            c if c.is_control() => write!(f, "{}", c.escape_default()),
            c => f.write_char(c),
        })
    }
}

impl Refusal {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Refusal {
        Refusal { reason, message: message.into() }
    }

    /// Refusal for an error of the system with a path.
    pub(crate) fn system(path: &std::path::Path, error: &std::io::Error) -> Refusal {
        use std::io::ErrorKind::{
            FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
        };
        let reason = match error.kind() {
            NotFound => Reason::NoSource,
            PermissionDenied | ReadOnlyFilesystem => Reason::Permission,
            StorageFull | QuotaExceeded => Reason::Full,
            _ => Reason::System,
        };
        let remedy = match error.kind() {
            FileTooLarge => "; raise the limit of file sizes (ulimit -f), or choose another file system",
            _ => "",
        };
        Refusal::new(reason, format!("{}: {error}{remedy}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_names_are_escaped() {
        let refusal = Refusal::new(Reason::System, "größe\n\u{1b}[2J: no\tspace");
        assert_eq!(refusal.to_string(), "größe\\n\\u{1b}[2J: no\\tspace");
    }
}
