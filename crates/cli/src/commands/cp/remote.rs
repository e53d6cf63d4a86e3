//! Paths on another host, as scp writes them.

use crate::failure::Failure;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const SCHEME: &[u8] = b"scp://";

/// The other host, as ssh is to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// HOST or USER@HOST.
    pub(super) name: String,
    /// Port of ssh there, if one is given.
    pub(super) port: Option<u16>,
}

/// A path on another host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) host: Host,
    pub(super) path: PathBuf,
}

/// Parses HOST:PATH, where a colon comes before any slash, and scp://[USER@]HOST[:PORT][/PATH]. An IPv6 address is in brackets. Nothing if
/// the path is one of this host.
///
/// # Errors
/// A URI without a host, or with an impossible port.
pub(super) fn remote(path: &Path) -> Result<Option<Remote>, Failure> {
    let bytes = path.as_os_str().as_bytes();
    if let Some(rest) = bytes.strip_prefix(SCHEME) {
        let parsed = uri(rest).ok_or_else(|| {
            Failure::usage(format!("{}: is no scp://[USER@]HOST[:PORT]/PATH", path.display()))
                .help("name the host; a port is a number from 1 to 65535, an IPv6 address is in brackets")
        });
        return parsed.map(Some);
    }
    let Some(colon) = end_of_host(bytes).filter(|&at| bytes[at..].starts_with(b":")) else { return Ok(None) };
    let name = host_name(&bytes[..colon]);
    Ok(name.map(|name| Remote { host: Host { name, port: None }, path: path_of(&bytes[colon + 1..]) }))
}

/// End of the host's name: the first colon, or the position behind an address in brackets.
fn end_of_host(bytes: &[u8]) -> Option<usize> {
    let bracket = bytes.iter().position(|&b| b == b'[').filter(|&at| at == 0 || bytes[at - 1] == b'@');
    match bracket {
        Some(at) => Some(at + bytes[at..].iter().position(|&b| b == b']')? + 1),
        None => Some(bytes.iter().position(|&b| b == b':').unwrap_or(bytes.len())),
    }
}

fn host_name(bytes: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(bytes).ok().filter(|name| !name.is_empty() && !name.contains('/'))?;
    Some(name.replace(['[', ']'], ""))
}

/// Parses the part behind `scp://`. The path is relative to the home folder unless it begins with another slash.
fn uri(rest: &[u8]) -> Option<Remote> {
    let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    let (authority, path) = (&rest[..slash], rest.get(slash + 1..).unwrap_or_default());
    let end = end_of_host(authority)?;
    let port = match authority[end..].split_first() {
        None | Some((b':', [])) => None,
        Some((b':', digits)) => {
            Some(std::str::from_utf8(digits).ok()?.parse().ok().filter(|&port| port > 0)?)
        }
        Some(_) => return None,
    };
    let name = host_name(&authority[..end]).filter(|name| !name.ends_with('@'))?;
    Some(Remote { host: Host { name, port }, path: path_of(&percent_decoded(path)?) })
}

fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let (mut decoded, mut rest) = (Vec::new(), text);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        decoded
            .push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|&byte| byte != 0)?);
        rest = &rest[2..];
    }
    Some(decoded)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Host, port and path.
    fn of(text: &str) -> Option<(String, Option<u16>, String)> {
        let Remote { host, path } = remote(Path::new(text)).unwrap()?;
        Some((host.name, host.port, path.display().to_string()))
    }

    #[test]
    fn hosts_are_parsed_like_scp() {
        let some = |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned()));
        assert_eq!(of("a:b"), some("a", None, "b"));
        assert_eq!(of("me@a:/x:y"), some("me@a", None, "/x:y"));
        assert_eq!(of("a:"), some("a", None, ""));
        assert_eq!(of("[::1]:b"), some("::1", None, "b"));
        assert_eq!(of("me@[fe80::1%eth0]:b"), some("me@fe80::1%eth0", None, "b"));
        for local in ["a", "./a:b", "/a:b", ":b", "[::1]", "[::1", "[::1]x:y"] {
            assert_eq!(of(local), None, "{local}");
        }
    }

    #[test]
    fn uris_are_parsed_with_port_and_escapes() {
        let some = |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned()));
        assert_eq!(of("scp://a"), some("a", None, ""));
        assert_eq!(of("scp://a/"), some("a", None, ""));
        assert_eq!(of("scp://me@a:2222/x/y"), some("me@a", Some(2222), "x/y"));
        assert_eq!(of("scp://a:/x"), some("a", None, "x"));
        assert_eq!(of("scp://a//x%20y%3A"), some("a", None, "/x y:"));
        assert_eq!(of("scp://me@[fe80::1%eth0]:22/~/b"), some("me@fe80::1%eth0", Some(22), "~/b"));
        for wrong in [
            "scp://",
            "scp:///x",
            "scp://me@/x",
            "scp://a:0/x",
            "scp://a:65536/",
            "scp://a:b/",
            "scp://a/%",
            "scp://a/%0g",
            "scp://a/%00",
            "scp://[::1/x",
            "scp://[::1]x/",
        ] {
            assert!(remote(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
