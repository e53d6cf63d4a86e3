//! Arguments of `vmcc advise`.

use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::str::FromStr;
use vmcc_apps::endpoint_addr::{EndpointAddr, EndpointAddrError};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

/// Range of `--watch`.
const WATCH_RANGE: std::ops::RangeInclusive<Nanos> =
    Nanos::new(1_000_000_000)..=Nanos::new(3_600_000_000_000);

#[derive(Debug, Clone, Args)]
pub(crate) struct AdviseOptions {
    /// Peer, HOST or HOST:PORT. With a port, opens connections to it and sends one empty line
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) to: Option<Peer>,

    /// Kind of application [default: bulk with --size, else unknown]
    #[arg(long, value_enum)]
    pub(crate) application: Option<ApplicationChoice>,

    /// Size of a transfer or a response (40MB)
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<Bytes>,

    /// Connections that carry data at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) concurrency: Option<u32>,

    /// Rate that the application offers by itself, such as a disk's (2gbit)
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub(crate) demand: Option<BitsPerSec>,

    /// Rate of an interface, where its driver does not know it (eth0=1gbit); repeatable
    #[arg(long = "rate", value_name = "NIC=RATE", value_parser = nic_rate)]
    pub(crate) rates: Vec<(String, BitsPerSec)>,

    /// Watch running connections for this time (60s) to find kind, size and concurrency
    #[arg(long, value_name = "TIME", value_parser = watch_time)]
    pub(crate) watch: Option<Nanos>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApplicationChoice {
    /// Transfers
    Bulk,
    /// Requests and responses on kept connections
    RequestResponse,
}

/// Host with or without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self { host: address.to_string(), port: None });
        }
        let has_port = text.contains(':');
        // A name alone follows the rules of one with a port.
        let at = if has_port { text.parse() } else { format!("{text}:1").parse() };
        let EndpointAddr { host, port } = at.map_err(|error: EndpointAddrError| error.to_string())?;
        Ok(Self { host, port: has_port.then_some(port) })
    }
}

fn positive(text: &str) -> Result<BitsPerSec, String> {
    let rate: BitsPerSec = text.parse().map_err(|error| format!("{error}"))?;
    if rate.is_zero() { Err("a rate is above zero".to_owned()) } else { Ok(rate) }
}

fn nic_rate(text: &str) -> Result<(String, BitsPerSec), String> {
    let (nic, rate) = text.rsplit_once('=').ok_or("give NIC=RATE, such as eth0=1gbit")?;
    Ok((nic.to_owned(), positive(rate)?))
}

fn watch_time(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    let (least, most) = (WATCH_RANGE.start(), WATCH_RANGE.end());
    if WATCH_RANGE.contains(&time) { Ok(time) } else { Err(format!("it is not from {least} to {most}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_a_port_or_none() {
        let read = |text: &str| text.parse::<Peer>().map(|peer| (peer.host, peer.port));
        for (text, host, port) in [
            ("db", "db", None),
            ("db:5432", "db", Some(5432)),
            ("10.0.0.1", "10.0.0.1", None),
            ("10.0.0.1:80", "10.0.0.1", Some(80)),
            ("fd00::1", "fd00::1", None),
            ("[fd00::1]", "fd00::1", None),
            ("[fd00::1]:80", "fd00::1", Some(80)),
        ] {
            assert_eq!(read(text), Ok((host.to_owned(), port)), "{text}");
        }
        for text in ["", ":80", "db:", "db:0", "10.0.0.1:0", "db:65536", "a:b:80", "a b"] {
            read(text).expect_err(text);
        }
    }

    #[test]
    fn rates_and_times_are_in_range() {
        assert_eq!(nic_rate("eth0=1gbit"), Ok(("eth0".to_owned(), BitsPerSec::new(1_000_000_000))));
        for text in ["eth0", "eth0=", "eth0=0mbit", "eth0=1"] {
            nic_rate(text).expect_err(text);
        }
        watch_time("1s").unwrap();
        for text in ["0s", "999ms", "3601s", "60"] {
            watch_time(text).expect_err(text);
        }
    }
}
