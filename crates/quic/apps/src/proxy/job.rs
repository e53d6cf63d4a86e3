//! Settings of the client side.

use crate::endpoint_addr::{EndpointAddr, parse_listen_addr};
use crate::keys::{Fingerprint, Identity};
use crate::relays::NamedRelay;
use crate::session::Carrier;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use vmcc_udp::Qlog;

/// A fixed forward: what comes in here leaves there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Address to which programs connect.
    pub listen: SocketAddr,
    /// Target of the forward, as the server's side sees it.
    pub to: EndpointAddr,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Forward, String> {
        let (listen, to) = text.split_once('=').ok_or(
            "it does not say where that leads; write ADDRESS:PORT=HOST:PORT, such as 127.0.0.1:5432=db:5432",
        )?;
        let listen = parse_listen_addr(listen).map_err(|error| format!("`{listen}`: {error}"))?;
        let to = to.parse().map_err(|error| format!("`{to}`: {error}"))?;
        Ok(Forward { listen, to })
    }
}

/// Settings of the client side.
pub struct ClientJob {
    /// The server's side.
    pub server: EndpointAddr,
    /// Fingerprints that the server may show.
    pub peers: BTreeSet<Fingerprint>,
    /// Certificate of this side.
    pub identity: Identity,
    /// Addresses here to use; none: all.
    pub locals: Vec<IpAddr>,
    /// Relays to use while fewer than `most` paths work.
    pub relays: Vec<NamedRelay>,
    /// Number of paths above which no further relay is used.
    pub most: usize,
    /// Address of SOCKS5.
    pub socks: Option<SocketAddr>,
    /// Fixed forwards.
    pub forwards: Vec<Forward>,
    /// Transport of the session.
    pub carrier: Carrier,
    /// HTTP proxy by which TCP carriers go.
    pub http_proxy: Option<EndpointAddr>,
    /// Log of connections.
    pub qlog: Option<Arc<Qlog>>,
    /// Address for Prometheus.
    pub metrics: Option<SocketAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_parsed() {
        let of = |text: &str| text.parse::<Forward>().map(|f| (f.listen.to_string(), f.to.to_string()));
        let some = |listen: &str, to: &str| Ok((listen.to_owned(), to.to_owned()));
        assert_eq!(of("127.0.0.1:1=db:5432"), some("127.0.0.1:1", "db:5432"));
        assert_eq!(of("[::1]:1=[2001:db8::1]:80"), some("[::1]:1", "[2001:db8::1]:80"));
        for wrong in
            ["", "1=2", "127.0.0.1:1=db", "127.0.0.1:1=:5", "db:1=db:2", "127.0.0.1:1=db:0", "127.0.0.1:1"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
