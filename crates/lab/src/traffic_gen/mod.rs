//! Traffic generator over the multipath QUIC transport: endless streams between two programs, with reports from both ends.
//!
//! Each end gets a [`TrafficJob`], and reports what it sees by an [`Event`] on each line of what it writes, at once: it may be
//! killed at any moment. What arrives is compared with what was sent.

mod by_name;
mod pattern;
mod receive;
mod send;

use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime;
use tokio::time::Instant;
use vmcc_apps::keys::KeysError;
use vmcc_cc::{MAX_PATHS, Params};
use vmcc_multipath::{AckPath, Coupling, Scheduler};
use vmcc_transport::{Config, ConnectionError, PathClose};
use vmcc_units::time::Span;

const ALPN: &[u8] = b"vmcc-load";

/// Job of an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TrafficJob {
    /// Take what comes, until it is killed.
    Receive {
        /// Time of the order, after 1970: reports count from it.
        since: Duration,
        /// Addresses at which it listens; none: every usable one.
        at: Vec<IpAddr>,
        /// The port there.
        port: u16,
        /// Of its connections.
        settings: Settings,
        /// Least interval between reports of arrivals.
        every: Duration,
    },
    /// Send without end.
    Send {
        /// Time of the order, after 1970: reports count from it.
        since: Duration,
        /// Ends of each route; the first one carries the handshake.
        address_pairs: Vec<(IpAddr, SocketAddr)>,
        /// Connections, each over all routes.
        connections: u32,
        /// Of its connections.
        settings: Settings,
        /// For so long.
        lasts: Duration,
        /// Paths are looked at that often.
        every: Duration,
    },
}

/// Settings of connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The congestion control, with its parameters.
    #[serde(with = "by_name")]
    pub params: Params,
    /// Congestion windows: one per path, or one for all.
    pub coupling: Coupling,
    /// Paths that stay open when the algorithm finds that they share a bottleneck.
    pub min_paths: u32,
    /// Packet scheduler.
    pub scheduler: Scheduler,
    /// Path of acknowledgments.
    pub ack_path: AckPath,
    /// Packets are ECN-capable.
    pub ecn: bool,
    /// Acknowledgments wait for company at most this long.
    pub max_ack_delay: Duration,
    /// Bytes that may come before they are read.
    pub receive_window: u64,
    /// Bytes that are kept until they are acknowledged.
    pub send_window: u64,
    /// Packets of the first window.
    pub initial_window_pkt: u32,
    /// Bytes of a UDP payload.
    pub datagram: u16,
}

/// Observation of an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// Start time of all others, after 1970.
    Begun(Duration),
    /// Its sockets are open.
    Listening,
    /// A connection's handshake is complete.
    Established {
        /// The connection's number.
        connection: u32,
    },
    /// A path as its sender sees it.
    Path(PathSample),
    /// A path has been given up.
    Closed {
        /// The connection's number.
        connection: u32,
        /// Its route.
        route: usize,
        /// Time.
        at: Duration,
        /// Reason.
        why: CloseReason,
    },
    /// Data that a receiver has got.
    Arrived(Arrival),
    /// A connection brought something else than was sent.
    Wrong {
        /// The connection's number.
        connection: u32,
        /// Within these bytes of its stream.
        bytes: (u64, u64),
    },
    /// A connection has ended before its time.
    Broken {
        /// The connection's number.
        connection: u32,
        /// Reason.
        reason: String,
    },
}

/// Reason of a path's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CloseReason {
    /// It shares a bottleneck with another, or there are enough without it.
    NotNeeded,
    /// It did not answer.
    Unanswered,
    /// The peer's reason.
    Other,
}

impl From<PathClose> for CloseReason {
    fn from(close: PathClose) -> CloseReason {
        match close {
            PathClose::NotNeeded => CloseReason::NotNeeded,
            PathClose::Unanswered => CloseReason::Unanswered,
            _ => CloseReason::Other,
        }
    }
}

/// A path at a moment; counts are of its whole life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathSample {
    /// The connection's number.
    pub connection: u32,
    /// Its route.
    pub route: usize,
    /// Time.
    pub at: Duration,
    /// Smoothed round trip; 0 before the first sample.
    pub srtt_us: u32,
    /// Congestion window.
    pub cwnd_pkt: u32,
    /// Bytes of streams that were acknowledged.
    pub acked_bytes: u64,
    /// Packets lost.
    pub lost_pkt: u64,
    /// Packets that arrived marked.
    pub marked_pkt: u64,
    /// Times that nothing was acknowledged for a probe timeout.
    pub timeouts: u64,
    /// Times that losses or marks reduced its window.
    pub reductions: u64,
}

/// Data of a connection that have arrived in order at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// The connection's number.
    pub connection: u32,
    /// Time.
    pub at: Duration,
    /// In all.
    pub bytes: u64,
    /// The longest time between two arrivals so far.
    pub stalled: Duration,
}

/// Error of an end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TrafficGenError {
    /// There is nothing to send on.
    #[error("there is no route to send on")]
    NoRoute,
    /// No certificate can be made.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The settings of TLS cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The library refuses a connection.
    #[error("TLS: {0}")]
    Connect(#[from] vmcc_transport::crypto::TlsError),
    /// There is no socket at an address.
    #[error("no socket at {address}: {source}")]
    Socket {
        /// The address.
        address: IpAddr,
        /// Cause.
        source: io::Error,
    },
    /// The handshake failed.
    #[error("connection {number} to {remote}: {source}")]
    Handshake {
        /// The connection's number.
        number: u32,
        /// The other end.
        remote: SocketAddr,
        /// Cause.
        source: ConnectionError,
    },
    /// Nobody answers.
    #[error("connection {number} to {remote}: no answer within {} s", .waited.as_secs())]
    NoAnswer {
        /// The connection's number.
        number: u32,
        /// The other end.
        remote: SocketAddr,
        /// Time waited.
        waited: Duration,
    },
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Does what is ordered, and tells of it.
///
/// # Errors
/// The job is impossible. One that starts and ends early is reported by a note.
pub(crate) fn run(job: &TrafficJob, out: impl Write + Send + 'static) -> Result<(), TrafficGenError> {
    match job {
        TrafficJob::Receive { since, at, port, settings, every } => {
            let reporter = Reporter::begin(*since, out)?;
            // As many as the sender wants.
            let config = Arc::new(settings.config(MAX_PATHS));
            block_on(receive::receive((at, *port), config, *every, reporter))?
        }
        TrafficJob::Send { since, address_pairs, connections, settings, lasts, every } => {
            let reporter = Reporter::begin(*since, out)?;
            let config = Arc::new(settings.config(address_pairs.len()));
            block_on(send::send(address_pairs, *connections, config, (*lasts, *every), reporter))?
        }
    }
}

impl Settings {
    fn config(&self, address_pairs: usize) -> Config {
        let span = |time: Duration| Span::from_us(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        Config {
            algorithm: self.params.algorithm(),
            params: self.params,
            coupling: self.coupling,
            min_paths: self.min_paths,
            scheduler: self.scheduler,
            ack_path: self.ack_path,
            max_paths: u32::try_from(address_pairs).unwrap_or(u32::MAX),
            max_ack_delay: span(self.max_ack_delay),
            stream_window: self.receive_window,
            connection_window: self.receive_window,
            send_window: self.send_window,
            max_datagram: 0,
            initial_window_pkt: self.initial_window_pkt,
            initial_mtu: self.datagram,
            max_mtu: self.datagram,
            ecn: self.ecn,
            // A virtual port's queue would take many as one, and labs count packets.
            max_segments: 1,
            ..vmcc_udp::config()
        }
    }
}

/// Runs `work` on this thread.
fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    Ok(runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}

/// Writes events, each at once.
#[derive(Clone)]
struct Reporter {
    out: Arc<Mutex<dyn Write + Send>>,
    /// Start of the program, and its delay after the order.
    begun: (Instant, Duration),
}

impl Reporter {
    fn begin(since: Duration, out: impl Write + Send + 'static) -> io::Result<Reporter> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let begun = (Instant::now(), wall.saturating_sub(since));
        let reporter = Reporter { out: Arc::new(Mutex::new(out)), begun };
        reporter.report(&[Event::Begun(since)])?;
        Ok(reporter)
    }

    /// Time since the order.
    fn now(&self) -> Duration {
        self.begun.0.elapsed() + self.begun.1
    }

    /// So long after the order.
    fn at(&self, time: Duration) -> Instant {
        self.begun.0 + time.saturating_sub(self.begun.1)
    }

    fn report(&self, events: &[Event]) -> io::Result<()> {
        let mut lines = Vec::new();
        for event in events {
            serde_json::to_writer(&mut lines, event)?;
            lines.push(b'\n');
        }
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&lines)?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::thread;
    use vmcc_cc::Algorithm;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn settings() -> Settings {
        Settings {
            params: Params::defaults(Algorithm::by_name("lia").unwrap()),
            coupling: Coupling::Separate,
            min_paths: 1,
            scheduler: Scheduler::PipeCwnd,
            ack_path: AckPath::Best,
            ecn: false,
            max_ack_delay: Duration::from_millis(25),
            receive_window: 1 << 20,
            send_window: 1 << 20,
            initial_window_pkt: 10,
            datagram: 1472,
        }
    }

    /// A port that is free at all of these addresses.
    fn free_port(at: &[IpAddr]) -> u16 {
        let bind = |port| at.iter().map(|&ip| UdpSocket::bind((ip, port))).collect::<io::Result<Vec<_>>>();
        let any = || UdpSocket::bind((at[0], 0)).unwrap().local_addr().unwrap().port();
        std::iter::repeat_with(any).take(100).find(|&port| bind(port).is_ok()).expect("a free port")
    }

    /// Output of a program.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn events(&self) -> Vec<Event> {
            let bytes = self.0.lock().unwrap().clone();
            let text = String::from_utf8(bytes).unwrap();
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        }
    }

    const EVERY: Duration = Duration::from_millis(5);

    fn wall() -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
    }

    /// Does a job in a thread that ends with this process, until its output has such an event.
    fn run_until(job: TrafficJob, done: impl Fn(&[Event]) -> bool) -> Written {
        let (written, begun) = (Written::default(), Instant::now());
        let out = written.clone();
        let running = thread::spawn(move || run(&job, out));
        while !done(&written.events()) {
            assert!(!running.is_finished(), "{:?}: {:?}", running.join(), written.events());
            assert!(begun.elapsed() < DEADLINE, "{:?}", written.events());
            thread::sleep(EVERY);
        }
        written
    }

    /// A receiver that listens at these addresses, and its port.
    fn receiver(at: Vec<IpAddr>) -> (Written, u16) {
        let port = free_port(&at);
        let job = TrafficJob::Receive { since: wall(), at, port, settings: settings(), every: EVERY };
        (run_until(job, |events| events.contains(&Event::Listening)), port)
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 1, last])
    }

    #[test]
    fn connection_sends_on_as_many_paths_as_algorithms_couple() {
        let (_, port) = receiver(vec![ip(5)]);
        let routes = u8::try_from(MAX_PATHS).unwrap();
        let pair = |route| (ip(100 + route), SocketAddr::new(ip(5), port));
        let job = TrafficJob::Send {
            since: wall(),
            address_pairs: (0..routes).map(pair).collect(),
            connections: 1,
            settings: settings(),
            lasts: Duration::from_secs(5),
            every: EVERY,
        };
        let acked = |events: &[Event], route| {
            events.iter().any(
                |event| matches!(event, Event::Path(path) if path.route == route && path.acked_bytes > 0),
            )
        };
        run_until(job, |events| (0..MAX_PATHS).all(|route| acked(events, route)));
    }

    #[test]
    fn sender_and_receiver_report_events() {
        let (receiver, port) = receiver(vec![ip(1), ip(2)]);
        let address_pairs = [3, 4].map(|last| (ip(last), SocketAddr::new(ip(last - 2), port))).to_vec();
        let (lasts, sender) = (Duration::from_millis(400), Written::default());
        let job = TrafficJob::Send {
            since: wall(),
            address_pairs,
            connections: 2,
            settings: settings(),
            lasts,
            every: EVERY,
        };
        run(&job, sender.clone()).unwrap();
        let sent = sender.events();
        for connection in [0, 1] {
            assert!(sent.contains(&Event::Established { connection }), "{sent:?}");
            for route in [0, 1] {
                let of_route = |event: &&Event| matches!(event, Event::Path(p) if (p.connection, p.route) == (connection, route));
                let Some(Event::Path(last)) = sent.iter().rfind(of_route) else { panic!("{sent:?}") };
                assert!(last.acked_bytes > 0 && last.cwnd_pkt > 0 && last.srtt_us > 0, "{last:?}");
            }
        }
        let got = receiver.events();
        assert!(!got.iter().any(|event| matches!(event, Event::Wrong { .. })), "{got:?}");
        for connection in [0, 1] {
            let of_it = |event: &Event| match event {
                Event::Arrived(arrival) if arrival.connection == connection => Some(*arrival),
                _ => None,
            };
            let arrivals: Vec<Arrival> = got.iter().filter_map(of_it).collect();
            assert!(arrivals.len() > 1 && arrivals.is_sorted_by(|a, b| (a.at, a.bytes) < (b.at, b.bytes)));
        }
    }

    #[test]
    fn invalid_settings_name_their_value() {
        let job = TrafficJob::Send {
            since: Duration::ZERO,
            address_pairs: vec![(IpAddr::from([192, 0, 2, 1]), SocketAddr::from(([127, 0, 0, 1], 9)))],
            connections: 1,
            settings: settings(),
            lasts: Duration::from_millis(1),
            every: Duration::from_millis(1),
        };
        let said = run(&job, io::sink()).unwrap_err().to_string();
        assert!(said.contains("no socket at 192.0.2.1"), "{said}");
        let order = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<TrafficJob>(&order).unwrap(), job);
        for (known, unknown) in [("\"lia\"", "\"liar\""), ("\"pipe-cwnd\"", "\"pipe\"")] {
            assert!(order.contains(known), "{order}");
            let error = serde_json::from_str::<TrafficJob>(&order.replace(known, unknown)).unwrap_err();
            assert!(error.to_string().contains(unknown.trim_matches('"')), "{error}");
        }
    }
}
