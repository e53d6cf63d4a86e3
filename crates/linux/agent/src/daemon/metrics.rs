//! Figures for Prometheus.

use super::steal;
use crate::{Error, ports};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use vmcc_bpf::Status;
use vmcc_system::diag::{Diag, Subflow};
use vmcc_telemetry::Kind::{Counter, Gauge};
use vmcc_telemetry::{Figures, Histogram, Question, Server};

/// Counters of the agent itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentStats {
    pub(crate) values: u64,
    pub(crate) problems: u64,
    pub(crate) rounds: u64,
    pub(crate) paths_closed: u64,
    pub(crate) reloads_refused: u64,
    /// True if the last reload was refused: an older file is in force.
    pub(crate) file_refused: bool,
}

/// Answers until this is dropped.
pub(crate) struct Metrics {
    /// As the file has it.
    pub(crate) at: SocketAddr,
    own: Arc<Mutex<AgentStats>>,
    _server: Server,
}

impl Metrics {
    /// Listens in the network namespace of the calling thread.
    pub(crate) fn start(at: SocketAddr, off: Option<Histogram>) -> io::Result<Self> {
        let own = Arc::new(Mutex::new(AgentStats::default()));
        let known = Arc::clone(&own);
        let server = Server::start(at, move |question| {
            let own = known.lock().unwrap_or_else(PoisonError::into_inner).clone();
            text(&own, off.as_ref(), question).map_err(|error| error.to_string())
        })?;
        Ok(Self { at, own, _server: server })
    }

    pub(crate) fn set(&self, own: &AgentStats) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = own.clone();
    }
}

/// Everything.
fn text(own: &AgentStats, off: Option<&Histogram>, question: Question) -> Result<String, Error> {
    let algorithms = vmcc_bpf::list()?;
    let mut sockets = Diag::open()?.subflows()?;
    sockets.retain(|socket| !is_scraper_socket(socket, question));
    let mut figures = Figures::default();
    off.iter().for_each(|times| figures.histogram(times));
    steal::fill(&mut figures);
    of_agent(&mut figures, own);
    of_algorithms(&mut figures, &algorithms, &sockets);
    let figures = figures.text();
    figures
        .and_then(|text| {
            let ports = ports::list().map(|listed| listed.ports).unwrap_or_default();
            Ok(text + &vmcc_port::prometheus(&ports)?)
        })
        .map_err(|e| Error::Figures(e.to_string()))
}

/// True if the socket is either end of the scraping connection, which is not counted: the client may be on this host.
fn is_scraper_socket(socket: &Subflow, question: Question) -> bool {
    let [local, remote] =
        [socket.local, socket.remote].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
    let ends = (question.local, question.remote);
    (local, remote) == ends || (remote, local) == ends
}

fn of_agent(figures: &mut Figures, own: &AgentStats) {
    let refused = "1 if the file was not valid at the last reload: the previous one is in force.";
    for (name, kind, help, value) in [
        ("vmcc_agent_values", Gauge, "Values that the agent has set.", own.values),
        ("vmcc_agent_problems", Gauge, "Settings of the file that cannot be applied now.", own.problems),
        ("vmcc_agent_file_refused", Gauge, refused, u64::from(own.file_refused)),
        (
            "vmcc_agent_rounds_total",
            Counter,
            "Rounds in which the agent compared this host with the file.",
            own.rounds,
        ),
        ("vmcc_agent_paths_closed_total", Counter, "Paths that the guard closed.", own.paths_closed),
        (
            "vmcc_agent_reloads_refused_total",
            Counter,
            "Reloads refused because the file was not valid.",
            own.reloads_refused,
        ),
    ] {
        figures.one((name, kind, help), value as f64);
    }
}

/// Reads a value from the status of an algorithm; `None` if it is unknown.
type Figure = fn(&Status) -> Option<u64>;

const OF_ALGORITHMS: [(&str, vmcc_telemetry::Kind, &str, Figure); 5] = [
    (
        "vmcc_mptcp_connections",
        Gauge,
        "MPTCP connections whose paths are coupled, in all namespaces.",
        |found| found.connections.map(|count| count as u64),
    ),
    ("vmcc_uncoupled_paths_total", Counter, "Paths that found no room and ran uncoupled.", |found| {
        Some(found.shortage?.uncoupled)
    }),
    ("vmcc_paths_beyond_total", Counter, "Paths uncoupled because their connection had too many.", |found| {
        Some(found.shortage?.beyond)
    }),
    ("vmcc_close_requests_lost_total", Counter, "Requests to close a path that were dropped.", |found| {
        Some(found.shortage?.requests_lost)
    }),
    ("vmcc_without_ecn_total", Counter, "Connections left to Reno for lack of ECN.", |found| {
        Some(found.counters?.without_ecn)
    }),
];

/// Reductions, by what caused them.
const CAUSES: [(&str, Figure); 3] = [
    ("mark", |found| Some(found.counters?.after_mark)),
    ("loss", |found| Some(found.counters?.after_loss)),
    ("timeout", |found| Some(found.counters?.after_timeout)),
];

fn of_algorithms(figures: &mut Figures, all: &[Status], sockets: &[Subflow]) {
    for (name, kind, help, value) in OF_ALGORITHMS {
        let samples =
            all.iter().filter_map(|found| Some(([found.kernel_name.as_str()], value(found)? as f64)));
        figures.family((name, kind, help), ["algorithm"], samples);
    }
    let reductions = all.iter().flat_map(|found| {
        CAUSES
            .iter()
            .filter_map(|(cause, value)| Some(([found.kernel_name.as_str(), *cause], value(found)? as f64)))
    });
    let family = ("vmcc_reductions_total", Counter, "Reductions of a window, by what caused them.");
    figures.family(family, ["algorithm", "cause"], reductions);
    let count = |name: &str| sockets.iter().filter(|socket| socket.algorithm == name).count() as f64;
    let counted = all.iter().map(|found| ([found.kernel_name.as_str()], count(&found.kernel_name)));
    let help = "TCP sockets here, subflows among them, by congestion control.";
    figures.family(("vmcc_sockets", Gauge, help), ["algorithm"], counted);
}
