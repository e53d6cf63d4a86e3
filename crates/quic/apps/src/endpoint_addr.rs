//! Parsing of HOST:PORT and of listen addresses; errors name the remedy.

use nix::net::if_::if_nametoindex;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// For a name's addresses.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A host, by name or address, and a port of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointAddr {
    /// The name, or the address without brackets.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

/// Fault of a text that is no [`EndpointAddr`]; each has the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointAddrError {
    /// Nothing says where at that host.
    #[error("it names no port; write {0}:PORT, such as {0}:4433")]
    NoPort(String),
    /// An IPv6 address whose last group would be the port.
    #[error("an IPv6 address and its port need brackets; write [{0}]:PORT, such as [{0}]:4433")]
    NoBrackets(String),
    /// An IPv6 address that is valid on one link, and no link.
    #[error("a link-local address needs its interface; write [{0}%INTERFACE]:PORT, such as [{0}%eth0]:4433")]
    NoInterface(Ipv6Addr),
    /// The port is none.
    #[error("`{0}` is no port that can be connected to; those are 1 to 65535")]
    Port(String),
    /// Nothing is before the port.
    #[error("it names no host; write HOST:PORT, such as localhost{0}")]
    NoHost(String),
    /// It is something else.
    #[error("`{0}` is neither a name nor an address; write HOST:PORT, without a scheme, user or path")]
    Host(String),
}

/// A name has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host}: {reason}")]
pub struct ResolveError {
    /// The name.
    pub host: String,
    /// Fault.
    pub reason: String,
}

impl FromStr for EndpointAddr {
    type Err = EndpointAddrError;

    fn from_str(text: &str) -> Result<EndpointAddr, EndpointAddrError> {
        if let Ok(ip) = text.parse::<Ipv6Addr>() {
            return Err(EndpointAddrError::NoBrackets(ip.to_string()));
        }
        if text.contains("//") {
            return Err(EndpointAddrError::Host(text.to_owned()));
        }
        let port_after = text.rfind(']').map_or(0, |end| end + 1);
        let Some(colon) = text[port_after..].rfind(':').map(|at| at + port_after) else {
            return Err(EndpointAddrError::NoPort(text.to_owned()));
        };
        let (host, port) = (&text[..colon], &text[colon + 1..]);
        if host.is_empty() {
            return Err(EndpointAddrError::NoHost(text.to_owned()));
        }
        let host = strip_brackets(host).ok_or_else(|| EndpointAddrError::Host(host.to_owned()))?;
        if let Some(ip) = host.parse().ok().filter(Ipv6Addr::is_unicast_link_local) {
            return Err(EndpointAddrError::NoInterface(ip));
        }
        match port.parse() {
            // `parse` takes a sign.
            Ok(port) if port != 0 && text.as_bytes()[colon + 1].is_ascii_digit() => {
                Ok(EndpointAddr { host: host.to_owned(), port })
            }
            _ => Err(EndpointAddrError::Port(port.to_owned())),
        }
    }
}

/// A name, an IPv4 address, or what is in brackets, if that is an IPv6 address, perhaps with its interface.
fn strip_brackets(host: &str) -> Option<&str> {
    match host.strip_prefix('[') {
        Some(rest) => {
            let inner = rest.strip_suffix(']')?;
            let address = inner.split_once('%').map_or(inner, |(address, _)| address);
            address.parse::<Ipv6Addr>().is_ok().then_some(inner)
        }
        None => {
            let strange = |c: char| c.is_whitespace() || c.is_control() || "/@[]:?#%".contains(c);
            (!host.contains(strange)).then_some(host)
        }
    }
}

impl fmt::Display for EndpointAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl EndpointAddr {
    /// All its addresses, as there may be a path to each.
    ///
    /// # Errors
    /// The name has none, or nobody answers for it.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        let failed = |reason: String| ResolveError { host: self.host.clone(), reason };
        let found = timeout(RESOLVE_TIMEOUT, lookup_host((self.host.as_str(), self.port))).await;
        let found = found.map_err(|_| failed("nobody answers for this name".to_owned()))?;
        // The system's text begins with what was tried, which is said already.
        let reason = |error: std::io::Error| {
            let text = error.to_string();
            text.rsplit_once("address information: ").map_or(text.clone(), |(_, cause)| cause.to_owned())
        };
        Ok(found.map_err(|error| failed(reason(error)))?.collect())
    }
}

/// An address where programs or clients may come in, or why it is none; for command lines.
///
/// # Errors
/// It is none; the text says what to write instead.
pub fn parse_listen_addr(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Some(address) = parse_scoped_addr(text) {
        return Ok(address);
    }
    let port = text.strip_prefix(':').unwrap_or(text);
    if port.parse::<u16>().is_ok() {
        return Err(format!(
            "it names no address; write 127.0.0.1:{port} for this host, 0.0.0.0:{port} or [::]:{port} for all"
        ));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        let ip = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        return Err(format!("it names no port; write {ip}:PORT, such as {ip}:4433"));
    }
    Err("it is listened at an address of this host, not a name; write ADDRESS:PORT, such as 127.0.0.1:4433"
        .to_owned())
}

/// Reads an IPv6 address with the name or number of its interface: `[fe80::1%eth0]:4433`.
fn parse_scoped_addr(text: &str) -> Option<SocketAddr> {
    let (inner, port) = text.strip_prefix('[')?.split_once("]:")?;
    let (ip, interface) = inner.split_once('%')?;
    let index = if_nametoindex(interface).ok().or_else(|| interface.parse().ok())?;
    Some(SocketAddrV6::new(ip.parse().ok()?, port.parse().ok()?, 0, index).into())
}

/// An address of a host, or why it is none; for command lines.
///
/// # Errors
/// It is none; the text says what to write instead.
pub fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| {
        "it is an IPv4 or IPv6 address that is wanted, not a name, interface or port; `ip address` lists a host's"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_addr_round_trips() {
        for (text, host, port) in [
            ("a:1", "a", 1),
            ("192.0.2.1:65535", "192.0.2.1", 65_535),
            ("[::1]:443", "::1", 443),
            ("[fe80::1%eth0]:9", "fe80::1%eth0", 9),
        ] {
            let place: EndpointAddr = text.parse().unwrap();
            assert_eq!((place.host.as_str(), place.port, place.to_string().as_str()), (host, port, text));
        }
    }

    #[test]
    fn parse_errors_name_the_remedy() {
        let said = |text: &str| text.parse::<EndpointAddr>().unwrap_err().to_string();
        assert_eq!(said("localhost"), "it names no port; write localhost:PORT, such as localhost:4433");
        assert!(
            said("[fe80::1]:4433").ends_with("write [fe80::1%INTERFACE]:PORT, such as [fe80::1%eth0]:4433")
        );
        assert_eq!(said("[::1]"), "it names no port; write [::1]:PORT, such as [::1]:4433");
        assert!(said("2001:db8::1").ends_with("write [2001:db8::1]:PORT, such as [2001:db8::1]:4433"));
        for port in ["0", "-1", "+1", "65536", "", "http", " 1"] {
            assert_eq!(said(&format!("a:{port}")), EndpointAddrError::Port(port.to_owned()).to_string());
        }
        assert_eq!(said(":4433"), "it names no host; write HOST:PORT, such as localhost:4433");
        for host in ["https://a:1", "me@a:1", "a b:1", "a/b:1", "[a]:1", "[::1:1", "a:b:1", "[]:1"] {
            assert!(said(host).contains("is neither a name nor an address"), "{host}: {}", said(host));
        }
    }

    #[test]
    fn listen_addr_is_parsed() {
        assert_eq!(parse_listen_addr("[::]:1").unwrap().to_string(), "[::]:1");
        let (name, index) =
            ["lo", "lo0"].iter().find_map(|name| Some((name, if_nametoindex(*name).ok()?))).unwrap();
        for text in [format!("[fe80::1%{name}]:1"), format!("[fe80::1%{index}]:1")] {
            let zone = match parse_listen_addr(&text).unwrap() {
                SocketAddr::V6(address) => address.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            assert_eq!(zone, index, "{text}");
        }
        assert!(parse_listen_addr("[fe80::1%absent]:1").is_err());
        for (wrong, remedy) in [
            ("4433", "write 127.0.0.1:4433 for"),
            (":4433", "0.0.0.0:4433 or [::]:4433"),
            ("10.0.0.1", "such as 10.0.0.1:4433"),
            ("::1", "such as [::1]:4433"),
            ("localhost:4433", "not a name"),
        ] {
            let said = parse_listen_addr(wrong).unwrap_err();
            assert!(said.contains(remedy), "{wrong}: {said}");
        }
    }
}
