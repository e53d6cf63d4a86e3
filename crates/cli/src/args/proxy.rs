//! Arguments of `vmcc proxy`, `vmcc keys` and `vmcc paths`.

use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use vmcc_apps::endpoint_addr::{EndpointAddr, parse_ip, parse_listen_addr};
use vmcc_apps::probe::Choice;
use vmcc_apps::proxy::Forward;
use vmcc_apps::relays::RelayName;
use vmcc_apps::session::Carrier;

#[derive(Debug, Clone, Args)]
pub(crate) struct ProxyOptions {
    /// Server, HOST:PORT
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    pub(crate) server: Option<EndpointAddr>,

    /// Run the server, at this address; 0.0.0.0:PORT: every IPv4 address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_addr)]
    pub(crate) listen: Option<SocketAddr>,

    /// SOCKS5 listen address [default: 127.0.0.1:1080 without --forward]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_addr, conflicts_with = "listen")]
    pub(crate) socks: Option<SocketAddr>,

    /// Forward connections from a local address to a target, resolved by the server: 127.0.0.1:5432=db:5432; repeatable
    #[arg(long = "forward", value_name = "ADDRESS:PORT=HOST:PORT", conflicts_with = "listen")]
    pub(crate) forwards: Vec<Forward>,

    /// Trust this peer in addition to those of `vmcc keys --trust`; repeatable
    #[arg(long = "peer", value_name = "FINGERPRINT")]
    pub(crate) peers: Vec<String>,

    /// Transport: udp, tcp, or auto; a server with auto serves clients with any
    ///
    /// udp: multipath QUIC. tcp: several TCP connections, for networks that block UDP. auto: QUIC while UDP passes, TCP while it does not;
    /// connections go on when that changes. The server has to have the same, or auto.
    #[arg(long, value_name = "CARRIER", default_value = "udp", value_parser = Carrier::from_str)]
    pub(crate) carrier: Carrier,

    /// HTTP proxy that TCP connections to the server go by (CONNECT)
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "listen")]
    pub(crate) via_http_proxy: Option<EndpointAddr>,

    /// Source address; repeatable [default: every usable one]
    #[arg(long = "local", value_name = "ADDRESS", value_parser = parse_ip, conflicts_with = "listen")]
    pub(crate) locals: Vec<IpAddr>,

    #[command(flatten)]
    pub(crate) relays: RelayOptions,

    /// Use relays while fewer than this many direct paths work
    #[arg(long, value_name = "K", default_value_t = Choice::default().most, value_parser = most)]
    pub(crate) most: usize,

    /// Folder of keys [default: the variable VMCC_KEYS, or ~/.config/vmcc]
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,

    /// Address for Prometheus, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_addr)]
    pub(crate) metrics: Option<SocketAddr>,

    /// Write a qlog of each QUIC connection into this folder [default: the variable QLOGDIR, or none]
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RelayOptions {
    /// TURN server for relayed paths, turn:USER@HOST[:PORT]; repeatable
    #[arg(long = "relay", value_name = "RELAY")]
    pub(crate) relays: Vec<RelayName>,

    /// File of relays and their secrets, a line each: turn:USER@HOST:PORT SECRET [default: `relays` beside the keys, else the variable VMCC_RELAY_SECRET]
    #[arg(long, value_name = "FILE", requires = "relays")]
    pub(crate) relay_secrets: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct KeysOptions {
    /// Trust this peer permanently; repeatable
    #[arg(long = "trust", value_name = "FINGERPRINT")]
    pub(crate) trust: Vec<String>,

    /// Label of the trusted peer
    #[arg(long, value_name = "TEXT", requires = "trust", default_value = "", hide_default_value = true)]
    pub(crate) comment: String,

    /// Folder of keys [default: the variable VMCC_KEYS, or ~/.config/vmcc]
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PathsOptions {
    /// QUIC server, HOST:PORT, such as `vmcc proxy --listen`
    pub(crate) server: EndpointAddr,

    /// Source address of probes; repeatable [default: every usable one]
    #[arg(long = "local", value_name = "ADDRESS", value_parser = parse_ip)]
    pub(crate) locals: Vec<IpAddr>,

    #[command(flatten)]
    pub(crate) relays: RelayOptions,

    /// Probes for each pair of addresses
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) probes: u32,

    /// Select at most this many paths for joint use
    #[arg(long, value_name = "K", default_value_t = Choice::default().most, value_parser = most)]
    pub(crate) most: usize,

    /// Select only paths that share at most 1 - BETA of their delay with each better one, 0 to 1
    #[arg(long, value_name = "BETA", default_value_t = Choice::default().beta, value_parser = share)]
    pub(crate) beta: f64,
}

pub(super) fn most(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|most| (1..=1000).contains(most)).ok_or_else(|| "give 1 to 1000".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "give 0 to 1".to_owned())
}
