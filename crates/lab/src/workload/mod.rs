//! What sends and receives, one file per workload: how its programs are started and what they report.
//!
//! A workload is chosen by the flow ([`of`]); the run ([`crate::run`]) starts, watches and ends its programs without knowing
//! which they are.

mod iperf3;

use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::spec::Flow;
use crate::{Error, Netns};
use std::net::Ipv4Addr;

/// Each flow has a port of its own, this one and up (iperf3's own default).
const FIRST_PORT: u16 = 5201;
/// The programs that send. Replaceable, so that a particular build of iperf3 can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// `iperf3`, version 3.9 or newer.
    pub iperf3: String,
    /// `mptcpize`, which makes a program's TCP sockets MPTCP sockets.
    pub mptcpize: String,
}

impl Default for Programs {
    fn default() -> Self {
        Self { iperf3: "iperf3".to_owned(), mptcpize: "mptcpize".to_owned() }
    }
}

/// The two ends of what a flow does, as programs.
pub(crate) trait Workload {
    /// Checks that everything it needs is installed.
    fn check(&self) -> Result<(), Error>;

    /// Starts the receiving side and waits until it listens on `port`.
    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<Program, Error>;

    /// Starts the sending side, which ends by itself when the flow does.
    fn send(&self, at: &Netns, to: (Ipv4Addr, u16), record: &mut Record) -> Result<Program, Error>;

    /// What the receiving side read, from what the sending side left.
    fn report(&self, sender: &Ended) -> Result<Report, ReportError>;
}

/// The workload of `flow`. Bulk data is all that flows carry so far.
pub(crate) fn of<'a>(flow: &'a Flow, programs: &'a Programs) -> Box<dyn Workload + 'a> {
    Box::new(iperf3::Iperf3 { flow, programs })
}

/// What a connection carries before its data.
pub(crate) const PREAMBLE_BYTES: u64 = iperf3::COOKIE_BYTES;

/// Why a program's report is worth nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("its JSON cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The sender's own words.
    #[error("{0}")]
    Said(String),
    #[error("the server says: {0}")]
    ServerSaid(String),
    #[error("the server's part is missing from its JSON")]
    NoServer,
    #[error("its JSON lists no connection")]
    NoConnection,
}

/// The server's port of a flow.
pub(crate) fn port_of(flow: usize) -> u16 {
    FIRST_PORT.saturating_add(u16::try_from(flow).unwrap_or(u16::MAX))
}

/// The flow that uses a server's port.
pub(crate) fn flow_of(port: u16) -> Option<usize> {
    port.checked_sub(FIRST_PORT).map(usize::from)
}

/// What a transfer's receiver read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    /// Each connection, with the local port of the sender.
    pub(crate) connections: Vec<Connection>,
}

/// One connection of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Connection {
    pub(crate) sender_port: u16,
    pub(crate) read: Vec<Interval>,
}

/// Bytes that the receiving program read from `start_s` to `end_s` after the transfer's start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    pub(crate) bytes: f64,
}

impl Connection {
    /// Bytes read within a window, taking the rate as constant within an interval.
    pub(crate) fn bytes_within(&self, from_s: f64, to_s: f64) -> f64 {
        self.read.iter().map(|interval| interval.bytes * interval.share_within(from_s, to_s)).sum()
    }
}

impl Interval {
    fn share_within(&self, from_s: f64, to_s: f64) -> f64 {
        let length = self.end_s - self.start_s;
        if length <= 0.0 {
            // An empty interval counts when it lies inside.
            return f64::from(u8::from((from_s..to_s).contains(&self.start_s)));
        }
        (self.end_s.min(to_s) - self.start_s.max(from_s)).max(0.0) / length
    }
}
