//! Arguments of `vmcc proxy`, `vmcc keys` and `vmcc paths`.

use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use vmcc_apps::endpoint_addr::{EndpointAddr, parse_ip, parse_listen_addr};
use vmcc_apps::probe::Choice;
use vmcc_apps::proxy::Forward;
use vmcc_apps::relays::RelayName;

#[derive(Debug, Clone, Args)]
pub(crate) struct ProxyOptions {
    /// The server's side, HOST:PORT
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    pub(crate) server: Option<EndpointAddr>,

    /// Be the server's side, at this address; 0.0.0.0:PORT is every one of IPv4
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_addr)]
    pub(crate) listen: Option<SocketAddr>,

    /// Listen for SOCKS5 here [default: 127.0.0.1:1080, if nothing is forwarded]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_addr, conflicts_with = "listen")]
    pub(crate) socks: Option<SocketAddr>,

    /// What connects here leads there, as the server's side sees it: 127.0.0.1:5432=db:5432; may be given several times
    #[arg(long = "forward", value_name = "ADDRESS:PORT=HOST:PORT", conflicts_with = "listen")]
    pub(crate) forwards: Vec<Forward>,

    /// Trust this peer, too, besides those of `vmcc keys --trust`; may be given several times
    #[arg(long = "peer", value_name = "FINGERPRINT")]
    pub(crate) peers: Vec<String>,

    /// Leave from this address only; may be given several times [default: every usable one]
    #[arg(long = "local", value_name = "ADDRESS", value_parser = parse_ip, conflicts_with = "listen")]
    pub(crate) locals: Vec<IpAddr>,

    #[command(flatten)]
    pub(crate) relays: RelayOptions,

    /// Use relays as long as fewer than so many paths work
    #[arg(long, value_name = "K", default_value_t = Choice::default().most, value_parser = most)]
    pub(crate) most: usize,

    /// The folder of keys [default: the variable VMCC_KEYS, or ~/.config/vmcc]
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,

    /// Answer Prometheus here, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_addr)]
    pub(crate) metrics: Option<SocketAddr>,

    /// Write a log of each QUIC connection into this folder, as qlog has it [default: the variable QLOGDIR, or none]
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RelayOptions {
    /// A TURN server by which there may be a path, turn:USER@HOST[:PORT]; may be given several times
    #[arg(long = "relay", value_name = "RELAY")]
    pub(crate) relays: Vec<RelayName>,

    /// Lines of relays and their secrets: turn:USER@HOST:PORT SECRET [default: `relays` beside the keys, else the variable VMCC_RELAY_SECRET]
    #[arg(long, value_name = "FILE", requires = "relays")]
    pub(crate) relay_secrets: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct KeysOptions {
    /// Trust this peer from now on; may be given several times
    #[arg(long = "trust", value_name = "FINGERPRINT")]
    pub(crate) trust: Vec<String>,

    /// A word to remember it by
    #[arg(long, value_name = "TEXT", requires = "trust", default_value = "", hide_default_value = true)]
    pub(crate) comment: String,

    /// The folder of keys [default: the variable VMCC_KEYS, or ~/.config/vmcc]
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PathsOptions {
    /// A QUIC server, HOST:PORT, such as the server's side of `vmcc proxy`
    pub(crate) server: EndpointAddr,

    /// Probe from this address only; may be given several times [default: every usable one]
    #[arg(long = "local", value_name = "ADDRESS", value_parser = parse_ip)]
    pub(crate) locals: Vec<IpAddr>,

    #[command(flatten)]
    pub(crate) relays: RelayOptions,

    /// Probes for each pair of addresses
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) probes: u32,

    /// Choose at most so many ways to use together
    #[arg(long, value_name = "K", default_value_t = Choice::default().most, value_parser = most)]
    pub(crate) most: usize,

    /// Choose only ways that share at most 1 - BETA of their delay with each better one, 0 to 1
    #[arg(long, value_name = "BETA", default_value_t = Choice::default().beta, value_parser = share)]
    pub(crate) beta: f64,
}

pub(super) fn most(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|most| (1..=1000).contains(most)).ok_or_else(|| "give 1 to 1000".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "give 0 to 1".to_owned())
}
