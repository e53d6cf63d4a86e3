//! Observations of an engine in one run, from which figures are computed.
//!
//! Engines fill these types and nothing else. Each counter and sample is defined here, once, for all engines. A value that an
//! engine cannot observe is `None` or empty.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vmcc_network::Unloaded;

/// A moment: picoseconds after the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// From microseconds.
    pub fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// Whole microseconds.
    pub fn us(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Microseconds from `earlier` to here.
    pub fn us_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e6
    }

    /// Seconds from `earlier` to here; zero if it is later.
    pub fn secs_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 * 1e-12
    }
}

/// One run.
#[derive(Debug, Default)]
pub struct Observed {
    /// End of the warm-up, and end of the run.
    pub window: (Moment, Moment),
    /// Between the values of a time series, in picoseconds.
    pub interval_ps: u64,
    /// The entries of traffic, in the scenario's order.
    pub entries: Vec<Entry>,
    /// The paths, in the scenario's order.
    pub paths: Vec<Path>,
    /// Tiers of links, and single links where there are few.
    pub links: Vec<Links>,
    /// Connections, in the order of their numbers.
    pub connections: Vec<Connection>,
    /// Requests, by when they were answered; those that were not come last.
    pub responses: Vec<Response>,
    /// Requests that a program counted, instead of reporting each.
    pub answers: Vec<Answers>,
    /// Probes, those of one way in the order of time.
    pub probes: Vec<Probe>,
    /// Deliveries over time: parts of time without gap, cut at least at the window's ends and where competing traffic
    /// starts and stops.
    pub parts: Vec<Part>,
    /// True if parts are as fine as the series' interval.
    pub parts_per_interval: bool,
    /// Packets that queues and links dropped anywhere.
    pub dropped_pkt: Option<u64>,
    /// CPU seconds of the whole host within the window.
    pub cpu_s: Option<f64>,
    /// Energy that processors and memory of the whole host used within the window, if their counters were read.
    pub energy: Option<Energy>,
    /// Instructions that all processors of the host executed within the window, where they were counted.
    pub instructions: Option<f64>,
    /// RTT samples within the window of groups of connections, in nanoseconds: each that entered an estimator.
    pub rtts: Vec<Histogram<u64>>,
    /// Hosts that a virtual machine monitor takes off their CPUs.
    pub off: Vec<Off>,
}

/// Requests of an entry as its program reports them: a distribution over its whole run.
#[derive(Debug, Clone)]
pub struct Answers {
    /// Index of the entry.
    pub entry: usize,
    /// Answered requests.
    pub answered: u64,
    /// Duration of the program's requests, in seconds.
    pub secs: f64,
    /// Latencies, in nanoseconds; their number may differ, where the program corrects them.
    pub latencies_ns: Histogram<u64>,
    /// Requests that were not answered in time.
    pub unfinished: u64,
}

/// Joules of counters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Energy {
    /// All processor packages.
    pub package_j: f64,
    /// Their memory, where it has a counter.
    pub dram_j: Option<f64>,
}

/// Off times of a host in the whole run: it neither sent nor processed anything.
#[derive(Debug, Clone)]
pub struct Off {
    /// Its name.
    pub host: String,
    /// In all.
    pub total_us: f64,
    /// Each time; windows that overlap are one.
    pub lengths_ns: Histogram<u64>,
    /// Ends of its off times, each with the length in microseconds: the first [`Off::MAX_KEPT`].
    pub times: Vec<(Moment, f64)>,
    /// For how long it was stopped each time, in nanoseconds, where something else than the host itself knows.
    pub stopped_ns: Option<Histogram<u64>>,
    /// Packets that came when the receive ring was full.
    pub lost_pkt: Option<u64>,
}

impl Off {
    /// Times that are kept one by one.
    pub const MAX_KEPT: usize = 10_000;
}

/// One entry of traffic.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Its label.
    pub label: String,
    /// True if it is not what the run is about.
    pub competing: bool,
    /// Start time.
    pub start: Moment,
    /// Stop time, at the end of the run at the latest.
    pub stop: Moment,
    /// Datagram payload that arrived within the window.
    pub datagram_bytes: f64,
    /// True if it only probes the network: it delivers nothing to an application.
    pub probes: bool,
}

/// One path, and the port that stands for it.
#[derive(Debug, Clone, Default)]
pub struct Path {
    /// Its name.
    pub name: String,
    /// The port's rate, unless it changes during the run.
    pub rate_bps: Option<f64>,
    /// Bytes that the port sent within part of the window, and the length of that part in seconds.
    pub sent: Option<(f64, f64)>,
    /// Packets dropped on the path.
    pub dropped_pkt: Option<u64>,
    /// Packets that its queues marked; `None` where nothing counts them.
    pub marked_pkt: Option<u64>,
    /// Packets that could not be marked.
    pub not_ect_pkt: Option<u64>,
    /// Bytes that wait at the port.
    pub queue: Vec<(Moment, f64)>,
    /// The port's queues, where it has several.
    pub classes: Vec<Class>,
}

/// One of several queues of a port.
#[derive(Debug, Clone, Default)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Packets that it marked.
    pub marked_pkt: Option<u64>,
    /// Packets that it dropped.
    pub dropped_pkt: Option<u64>,
    /// Bytes that wait.
    pub queue: Vec<(Moment, f64)>,
    /// Backlog from which on it marks.
    pub threshold: Vec<(Moment, f64)>,
}

/// Links that results are reported for together: a tier of a multi-stage network, or a single link.
#[derive(Debug, Clone, Default)]
pub struct Links {
    /// Its name over time: `tier.<from>-<to>` or `link.<from>-<to>`.
    pub name: String,
    /// The tier's own name; `None` of a single link.
    pub tier: Option<String>,
    /// Number of links.
    pub count: usize,
    /// Rates of all together, unless rates change during the run.
    pub rate_bps: Option<f64>,
    /// One per interval, in order.
    pub samples: Vec<LinksSample>,
}

/// Counts of one interval, with the packets of all traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LinksSample {
    /// Start of the interval.
    pub from: Moment,
    /// End of the interval.
    pub to: Moment,
    /// Bytes that wait at its end at all ports.
    pub queue_bytes: u64,
    /// Bytes that wait at its end at the port with the longest queue.
    pub max_queue_bytes: u64,
    /// Bytes that all links sent.
    pub sent_bytes: u64,
    /// Bytes that the least and the most used link sent.
    pub sent_range_bytes: (u64, u64),
    /// Packets dropped.
    pub dropped_pkt: u64,
    /// Packets marked.
    pub marked_pkt: u64,
}

/// Workload of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Job {
    /// Sends as long as it may.
    #[default]
    Endless,
    /// Transfers this many bytes.
    Transfer(u64),
    /// Asks for something, again and again.
    Requests,
}

/// One connection.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// Index into [`Observed::entries`].
    pub entry: usize,
    /// Number of the sending host.
    pub sender: usize,
    /// Name of the sending host.
    pub from: Arc<str>,
    /// Name of the receiving host.
    pub to: Arc<str>,
    /// Its congestion control.
    pub cc: Arc<str>,
    /// Its workload.
    pub job: Job,
    /// Start time: that of its first SYN.
    pub start: Moment,
    /// Planned stop time.
    pub stop: Moment,
    /// Timing of its transfers on the empty network, where the engine knows its routes.
    pub unloaded: Option<Arc<Unloaded>>,
    /// True if its handshake completed.
    pub established: bool,
    /// Time at which the receiver had the last byte of a transfer.
    pub received: Option<Moment>,
    /// Payload that the receiving application got in order, in the whole run.
    pub delivered_bytes: u64,
    /// The same within the window.
    pub window_bytes: f64,
    /// The longest time in which nothing was delivered in order although the sender had data: from the first delivery to the
    /// connection's or the run's end; of one that never delivered, from its start. `None` of a sender that pauses by itself.
    pub stalled_us: Option<f64>,
    /// Payload that a subflow sent because another had not delivered it.
    pub reinjected_bytes: Option<u64>,
    /// Limits of its sending over its life, in the direction that carries its payload.
    pub limits: Option<LimitedTimes>,
    /// The most payload that waited at the receiver for earlier data.
    pub held_bytes: Option<u64>,
    /// Index into [`Observed::rtts`].
    pub rtts: Option<usize>,
    /// Its subflows, by path.
    pub subflows: Vec<Subflow>,
}

/// Time of a connection by what limited its sending, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LimitedTimes {
    /// Congestion window or pacing.
    pub congestion_us: f64,
    /// Receive window.
    pub receive_window_us: f64,
    /// Send buffer.
    pub send_buffer_us: f64,
    /// Application: nothing to send.
    pub application_us: f64,
}

impl LimitedTimes {
    /// Times of two senders together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            congestion_us: self.congestion_us + other.congestion_us,
            receive_window_us: self.receive_window_us + other.receive_window_us,
            send_buffer_us: self.send_buffer_us + other.send_buffer_us,
            application_us: self.application_us + other.application_us,
        }
    }

    /// All of it.
    pub fn total_us(&self) -> f64 {
        self.congestion_us + self.receive_window_us + self.send_buffer_us + self.application_us
    }
}

/// One subflow (of a single-path connection: the one), as long as it takes one path.
#[derive(Debug, Clone, Default)]
pub struct Subflow {
    /// Number within its connection: one that moves to another path keeps it.
    pub number: usize,
    /// Index into [`Observed::paths`].
    pub path: Option<usize>,
    /// True if it was established; if it was opened several times, the last time.
    pub established: bool,
    /// Reason of each close that was followed by another opening.
    pub earlier: Vec<Closed>,
    /// It continues one that was on another path before.
    pub continues: bool,
    /// Its end.
    pub end: End,
    /// Time at which the algorithm closed it, or it was given up; simulator only.
    pub closed_at: Option<Moment>,
    /// Counters over the whole run.
    pub counters: Counters,
    /// Times at which losses or marks reduced its window: the first ones, in order; simulator only.
    pub reductions: Vec<Moment>,
    /// Samples at equal intervals, in order.
    pub samples: Vec<Sample>,
}

/// End of a subflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum End {
    /// Nobody saw it.
    #[default]
    Unseen,
    /// With its connection, or not within the run.
    WithConnection,
    /// Not at all: it went on, on another path.
    Moved,
    /// While its connection went on.
    Closed(Closed),
}

/// Reason for closing a subflow while its connection went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closed {
    /// The other end finished it.
    Peer,
    /// Its own host tore it down, as the guard does with a path that shares a bottleneck.
    Guard,
    /// An address was withdrawn.
    PathManager,
    /// Nobody answered any more.
    Timeout,
    /// The other end reset it, or the network did in its name.
    Reset,
}

/// Counters of a subflow in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data segments that it sent again.
    pub retransmits: Option<u64>,
    /// Retransmission timeouts.
    pub timeouts: Option<u64>,
    /// Recoveries and timeouts that turned out to be in vain and were taken back.
    pub undone: Option<u64>,
    /// Packets that arrived with congestion experienced.
    pub ce_marks: Option<u64>,
    /// Packets whose ACK echoed congestion.
    pub echoed_ce: Option<u64>,
}

/// Sample of a subflow's sender at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Moment,
    /// Smoothed round-trip time in 1/8 µs; 0 before the first.
    pub srtt_8us: u32,
    /// Congestion window.
    pub cwnd_pkt: u32,
    /// DCTCP's estimate of the marked fraction, where the algorithm has one.
    pub alpha: Option<f64>,
    /// Count that grows with acknowledgments; only its growth is used.
    pub acked: u64,
}

/// One request, answered or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Response {
    /// Index into [`Observed::connections`].
    pub connection: usize,
    /// Time of the request, or the time at which it began to wait for those before it on its connection.
    pub asked: Moment,
    /// Time at which the whole answer was there, if it was within the run.
    pub answered: Option<Moment>,
    /// The size of the answer.
    pub bytes: u64,
}

/// A request that was sent to see what packets meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Index into [`Observed::entries`].
    pub entry: usize,
    /// Index into [`Observed::paths`].
    pub path: Option<usize>,
    /// Send time.
    pub sent: Moment,
    /// Arrival time of its answer, if that was in time.
    pub answered: Option<Moment>,
    /// True if its answer reports that it arrived with congestion experienced; `None`: answers do not report it.
    pub marked: Option<bool>,
    /// True if the run lasted until its timeout. Of all other probes, the answered ones are known before the lost ones, which
    /// would bias the loss.
    pub due: bool,
}

/// Payload that got through within a part of time.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// From when.
    pub from: Moment,
    /// Until when.
    pub to: Moment,
    /// Per path: carried by subflows of measured connections, each byte once per subflow.
    pub paths: Vec<f64>,
    /// Per path: the same of competing connections.
    pub competing_paths: Vec<f64>,
    /// Per entry: in order at its applications.
    pub entries: Vec<f64>,
}

impl Observed {
    /// True if a moment is within the window.
    pub fn in_window(&self, at: Moment) -> bool {
        at >= self.window.0 && at <= self.window.1
    }

    /// The window in seconds.
    pub fn window_secs(&self) -> f64 {
        self.window.1.secs_since(self.window.0)
    }

    /// Seconds of the window in which an entry was active.
    pub fn active_secs(&self, entry: usize) -> f64 {
        let entry = &self.entries[entry];
        entry.stop.min(self.window.1).secs_since(entry.start.max(self.window.0))
    }
}

impl Subflow {
    /// True if it was ever established.
    pub fn was_established(&self) -> bool {
        self.established || !self.earlier.is_empty()
    }

    /// Number of times that it was opened.
    pub(crate) fn opened(&self) -> u64 {
        let lives = self.earlier.len() as u64 + u64::from(self.established);
        lives.saturating_sub(u64::from(self.continues))
    }

    /// Number of times that it was open and ended in a way that `which` accepts.
    pub(crate) fn ended(&self, which: fn(End) -> bool) -> Option<u64> {
        let earlier = self.earlier.iter().filter(|why| which(End::Closed(**why))).count() as u64;
        (self.end != End::Unseen).then(|| earlier + u64::from(self.established && which(self.end)))
    }
}

impl Connection {
    /// Time of a transfer of `bytes` on the empty network, in microseconds.
    pub(crate) fn ideal_us(&self, bytes: u64) -> Option<f64> {
        self.unloaded.as_ref().map(|unloaded| unloaded.transfer_us(bytes))
    }

    /// True if it sends as long as it may.
    pub fn endless(&self) -> bool {
        self.job == Job::Endless
    }
}
