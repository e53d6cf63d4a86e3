//! Relays as people name them, and the secrets that belong to them: never in a command line, where other users of the host would see them.

use crate::endpoint_addr::{EndpointAddr, EndpointAddrError, ResolveError};
use crate::keys;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vmcc_turn::Credentials;
use vmcc_udp::Relay;

/// The variable with the secret of relays that no line names.
const VARIABLE: &str = "VMCC_RELAY_SECRET";
/// The file beside the keys that is read where no other is named.
const FILE: &str = "relays";
const SCHEME: &str = "turn:";
/// A longer file is not one of secrets.
const MAX_BYTES: u64 = 64 << 10;

/// A relay's name: `turn:USER@HOST`, with `:PORT` where that is not the usual one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayName {
    user: String,
    server: EndpointAddr,
}

/// Fault of a relay's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayNameError {
    /// It is something else.
    #[error("it is no relay; write turn:USER@HOST or turn:USER@HOST:PORT")]
    Form,
    /// TURN over TLS or TCP.
    #[error("relays are reached over UDP; write turn:USER@HOST, without turns: and ?transport=")]
    Transport,
    /// A secret was written down with it.
    #[error(
        "a command line is no place for a secret; write turn:USER@HOST, and put the secret into a file or the variable {VARIABLE}"
    )]
    Secret,
    /// Its HOST:PORT is invalid.
    #[error(transparent)]
    Server(#[from] EndpointAddrError),
}

impl FromStr for RelayName {
    type Err = RelayNameError;

    fn from_str(text: &str) -> Result<RelayName, RelayNameError> {
        if text.starts_with("turns:") || text.contains('?') {
            return Err(RelayNameError::Transport);
        }
        let rest = text.strip_prefix(SCHEME).ok_or(RelayNameError::Form)?;
        // Users of servers with passwords for a time are TIME:NAME.
        let (user, host) = rest.rsplit_once('@').ok_or(RelayNameError::Form)?;
        let is_time = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if user.split_once(':').is_some_and(|(before, _)| !is_time(before)) {
            return Err(RelayNameError::Secret);
        }
        if user.is_empty() || user.contains(char::is_whitespace) {
            return Err(RelayNameError::Form);
        }
        let server = match host.parse() {
            Err(EndpointAddrError::NoPort(_)) => format!("{host}:{}", vmcc_turn::PORT).parse()?,
            server => server?,
        };
        Ok(RelayName { user: user.to_owned(), server })
    }
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}@{}", self.user, self.server)
    }
}

/// A relay that can be used: its name, and the secret.
#[derive(Clone, Debug)]
pub struct NamedRelay {
    name: RelayName,
    credentials: Credentials,
}

/// Error of setting up relays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelaysError {
    /// Nothing says its secret.
    #[error("{name}: there is no secret for it; put it into the variable {VARIABLE}, or a line `{name} SECRET` into {}", path.display())]
    NoSecret {
        /// The relay.
        name: RelayName,
        /// File in which it was looked for.
        path: PathBuf,
    },
    /// The secret is none.
    #[error("{0}: its secret is empty, longer than 508 bytes, or has control characters")]
    Unusable(RelayName),
    /// A file of secrets that is not.
    #[error("{}: others may read it (mode {mode:03o}); make it yours alone: chmod 600", path.display())]
    Public {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: vmcc_config::ReadError,
    },
    /// It is something else.
    #[error("{}, line {line}: it is no relay and its secret; write turn:USER@HOST:PORT SECRET", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
}

/// Finds the secret of each relay: in a file (without a name that beside the keys, if there is one), else in the variable.
///
/// # Errors
/// There is none for one of them, or the file cannot be used.
pub fn with_secrets(names: &[RelayName], file: Option<&Path>) -> Result<Vec<NamedRelay>, RelaysError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let usual = keys::folder().map_or_else(|_| PathBuf::from(FILE), |folder| folder.join(FILE));
    let path = file.unwrap_or(&usual);
    let known = match secrets(path) {
        // Nobody has named it.
        Err(RelaysError::Io { source: vmcc_config::ReadError::Io(error), .. })
            if file.is_none() && error.kind() == io::ErrorKind::NotFound =>
        {
            Vec::new()
        }
        known => known?,
    };
    let variable = std::env::var(VARIABLE).ok();
    let find = |name: &RelayName| {
        let line = known.iter().find(|(other, _)| other == name).map(|(_, secret)| secret);
        let secret = line
            .or(variable.as_ref())
            .ok_or_else(|| RelaysError::NoSecret { name: name.clone(), path: path.to_owned() })?;
        let credentials = Credentials::new(&name.user, secret.trim_end_matches('\n'));
        let credentials = credentials.ok_or_else(|| RelaysError::Unusable(name.clone()))?;
        Ok(NamedRelay { name: name.clone(), credentials })
    };
    names.iter().map(find).collect()
}

fn secrets(path: &Path) -> Result<Vec<(RelayName, String)>, RelaysError> {
    let failed = |source: vmcc_config::ReadError| RelaysError::Io { path: path.to_owned(), source };
    let file = vmcc_config::open_regular(path).map_err(failed)?;
    let mode = file.metadata().map_err(|error| failed(error.into()))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(RelaysError::Public { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| failed(error.into()))?;
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(line, text): (usize, &str)| {
        let wrong = || RelaysError::Line { path: path.to_owned(), line };
        let (name, secret) = text.split_once(char::is_whitespace).ok_or_else(wrong)?;
        Ok((name.parse().map_err(|_| wrong())?, secret.trim().to_owned()))
    };
    lines.map(read).collect()
}

/// Addresses of relays: one of each family.
pub(crate) async fn resolve(relays: &[NamedRelay]) -> Result<Vec<Relay>, ResolveError> {
    let mut found = Vec::new();
    for NamedRelay { name, credentials } in relays {
        let addresses = name.server.resolve().await?;
        for v6 in [false, true] {
            let first = addresses.iter().find(|address| address.is_ipv6() == v6);
            found.extend(first.map(|&address| Relay { address, credentials: credentials.clone() }));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn name(text: &str) -> RelayName {
        text.parse().unwrap()
    }

    #[test]
    fn relay_name_round_trips() {
        for (text, shown) in [
            ("turn:me@a", "turn:me@a:3478"),
            ("turn:me@a:1", "turn:me@a:1"),
            ("turn:1700000000:me@[2001:db8::1]", "turn:1700000000:me@[2001:db8::1]:3478"),
            ("turn:me@example.org@a", "turn:me@example.org@a:3478"),
        ] {
            assert_eq!(name(text).to_string(), shown);
        }
        let wrong = |text: &str| text.parse::<RelayName>().unwrap_err();
        for text in ["", "a", "me@a", "turn:a", "turn:@a", "turn:me @a"] {
            assert_eq!(wrong(text), RelayNameError::Form, "{text}");
        }
        assert_eq!(wrong("turn:me:secret@a"), RelayNameError::Secret);
        assert_eq!(wrong("turns:me@a"), RelayNameError::Transport);
        assert!(matches!(wrong("turn:me@a:0"), RelayNameError::Server(_)));
    }

    #[test]
    fn secrets_file_must_be_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("relays");
        fs::write(&path, "# of the office\n\nturn:me@a  a secret\nturn:you@a:3478 other\n").unwrap();
        let ask = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|text| name(text)).collect();
            with_secrets(&names, Some(&path))
        };
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(matches!(ask(&["turn:me@a"]), Err(RelaysError::Public { mode: 0o640, .. })));
        mode(0o600);
        let found = ask(&["turn:me@a:3478", "turn:you@a"]).unwrap();
        let expected = |user, secret| Credentials::new(user, secret).unwrap();
        assert_eq!(found[0].credentials, expected("me", "a secret"));
        assert_eq!(found[1].credentials, expected("you", "other"));
        assert!(matches!(ask(&["turn:them@a"]), Err(RelaysError::NoSecret { .. })));
        fs::write(&path, "turn:me@a\n").unwrap();
        assert!(matches!(ask(&["turn:me@a"]), Err(RelaysError::Line { line: 1, .. })));
        fs::remove_file(&path).unwrap();
        assert!(matches!(ask(&["turn:me@a"]), Err(RelaysError::Io { .. })));
        assert!(ask(&[]).unwrap().is_empty(), "it is not looked for");
    }
}
