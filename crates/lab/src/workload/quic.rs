//! Multipath QUIC of the user-space transport: a program of ours at each end, which gives up root's rights before it opens a socket.

use super::{
    ClientSetup, Connection, End, Interval, Programs, Report, ReportError, START_TIMEOUT, Workload,
    check_installed,
};
use crate::clock::micros;
use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::sampler::{Point, QuicPathReport};
use crate::spec::{Flow, Quic};
use crate::topology::{on_subnet, subnet_of};
use crate::traffic_gen::{self, Arrival, CloseReason, Event, PathSample, TrafficJob};
use crate::{Error, Netns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, geteuid, getppid, setgid, setgroups, setuid};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vmcc_metrics::observed::Closed;
use vmcc_netlink::Links;

/// Interval of an end's reports, as long as that between samples of the kernel's sockets.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);
/// The user and the group that have no rights.
const NOBODY_ID: u32 = 65_534;
const REMEDY: &str = "`vmcc doctor` says what is missing here";
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// This program; a user of the lab has it call [`quic_end`].
pub(super) fn own_program() -> Vec<String> {
    let program = std::env::current_exe().unwrap_or_default();
    vec![program.to_string_lossy().into_owned(), "internal".to_owned(), "quic-end".to_owned()]
}

/// Does what an order says, which is text, without root's rights, until that is done or this process is killed.
///
/// # Errors
/// The order cannot be read, or not be done.
pub fn quic_end(job: &str) -> Result<(), Error> {
    let failed = |cause: String| Error::ProgramFailed {
        program: "an end of QUIC".to_owned(),
        namespace: "its own".to_owned(),
        cause,
        remedy: "this command is for the kernel engine alone".to_owned(),
    };
    let job: TrafficJob = serde_json::from_str(job).map_err(|e| failed(format!("its order: {e}")))?;
    give_up_rights().map_err(|e| failed(format!("giving up root's rights: {e}")))?;
    traffic_gen::run(&job, io::stdout()).map_err(|e| failed(e.to_string()))
}

/// A change of user clears the death signal of the parent: set it again, and check whether the parent has exited already.
fn give_up_rights() -> nix::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let parent = getppid();
    setgroups(&[])?;
    setgid(Gid::from_raw(NOBODY_ID))?;
    setuid(Uid::from_raw(NOBODY_ID))?;
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() == parent { Ok(()) } else { Err(nix::errno::Errno::ESRCH) }
}

/// A flow's two ends.
pub(super) struct Ends<'a> {
    pub(super) flow: &'a Flow,
    pub(super) quic: &'a Quic,
    pub(super) programs: &'a Programs,
}

impl Workload for Ends<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(self.programs.quic.first().map_or("", String::as_str), REMEDY)
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let settings = self.quic.settings.clone();
        let job =
            TrafficJob::Receive { since: wall(), at: Vec::new(), port, settings, every: REPORT_INTERVAL };
        let mut server = self.start(at, record, &job)?;
        let begun = Instant::now();
        while begun.elapsed() < START_TIMEOUT {
            if events(&server.written()?)?.contains(&Event::Listening) {
                return Ok(End::Program(server));
            }
            if let Some(ended) = server.output()? {
                return Err(server.failed(format!("it ended before it listened ({})", ended.stderr), REMEDY));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err(server.failed(format!("it does not listen after {} s", START_TIMEOUT.as_secs()), REMEDY))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), record, .. } = setup;
        let own = at.run(|| Links::open()?.addresses());
        let own = own.map_err(|e| Error::kernel("listing the addresses of", at.name(), e))?;
        let local = |subnet: &usize| {
            own.iter()
                .map(|own| own.address)
                .find(|ip| matches!(ip, IpAddr::V4(ip) if subnet_of(*ip) == Some(*subnet)))
        };
        let pair = |subnet: &usize| {
            let remote = SocketAddr::from((on_subnet(to, *subnet), port));
            let local = local(subnet);
            local.map(|local| (local, remote)).ok_or_else(|| {
                Error::spec("traffic", format!("namespace {} has no address on subnet {subnet}", at.name()))
            })
        };
        let job = TrafficJob::Send {
            since: wall(),
            address_pairs: self.quic.subnets.iter().map(pair).collect::<Result<_, _>>()?,
            connections: self.flow.connections,
            settings: self.quic.settings.clone(),
            lasts: self.lasts(),
            every: REPORT_INTERVAL,
        };
        self.start(at, record, &job).map(End::Program)
    }

    fn report(&self, client: &Ended, server: &End) -> Result<Report, ReportError> {
        if !client.status.success() {
            return Err(ReportError::Transfer(client.stderr.clone()));
        }
        let server = server.program().ok_or(ReportError::NoServer)?;
        let received = server.written().map_err(|e| ReportError::ServerSaid(e.to_string()))?;
        self.read(&events_of(&client.stdout)?, &events_of(&received)?)
    }
}

impl Ends<'_> {
    fn lasts(&self) -> Duration {
        self.flow.stop.to_duration().saturating_sub(self.flow.start.to_duration())
    }

    fn start(&self, at: &Netns, record: &mut Record, job: &TrafficJob) -> Result<Program, Error> {
        let job = serde_json::to_string(job).map_err(|e| Error::spec("traffic", e.to_string()))?;
        let words: Vec<String> = self.programs.quic.iter().cloned().chain([job]).collect();
        Program::start(at, record, &words, REMEDY)
    }

    /// Reads the notes of sender and receiver; times count from the sender's order.
    fn read(&self, sent: &[Event], received: &[Event]) -> Result<Report, ReportError> {
        let since = |events: &[Event]| {
            let begun = events.iter().find_map(|event| match event {
                Event::Begun(since) => Some(*since),
                _ => None,
            });
            begun.ok_or_else(|| ReportError::Line(String::new()))
        };
        let (here, there) = (since(sent)?, since(received)?);
        // The receiver was there before.
        let earlier = here.saturating_sub(there);
        let mut arrivals: BTreeMap<u32, Vec<Arrival>> = BTreeMap::new();
        for event in received {
            match event {
                Event::Wrong { connection, bytes } => {
                    let place = format!("connection {connection}, from byte {} to {}", bytes.0, bytes.1);
                    return Err(ReportError::Transfer(format!("what arrived is not what was sent: {place}")));
                }
                Event::Arrived(arrival) if arrival.at >= earlier && arrival.at - earlier <= self.lasts() => {
                    let arrival = Arrival { at: arrival.at - earlier, ..*arrival };
                    arrivals.entry(arrival.connection).or_default().push(arrival);
                }
                _ => {}
            }
        }
        let mut report = Report::default();
        for event in sent {
            match event {
                Event::Established { connection } => {
                    let arrivals = arrivals.remove(connection).unwrap_or_default();
                    report.connections.push(self.connection(*connection, &arrivals));
                }
                Event::Broken { connection, reason } => {
                    report.warnings.push(format!("connection {connection} of it: {reason}"));
                }
                _ => {}
            }
        }
        report.paths = self.paths(sent);
        if report.connections.is_empty() { Err(ReportError::NoConnection) } else { Ok(report) }
    }

    fn connection(&self, number: u32, arrivals: &[Arrival]) -> Connection {
        let mut before = arrivals.first().map_or(Duration::ZERO, |first| first.at);
        let mut bytes = 0;
        let mut interval = |arrival: &Arrival| Interval {
            start_s: std::mem::replace(&mut before, arrival.at).as_secs_f64(),
            end_s: arrival.at.as_secs_f64(),
            bytes: (arrival.bytes - std::mem::replace(&mut bytes, arrival.bytes)) as f64,
        };
        let read = arrivals.iter().map(&mut interval).collect();
        // Of what came after the last note but before the next one nothing is known: it never stood longer than is said.
        let end = match arrivals.last() {
            Some(last) => last.stalled.max(self.lasts().saturating_sub(last.at + REPORT_INTERVAL)),
            None => self.lasts(),
        };
        Connection {
            port: name_of(number),
            began_s: 0.0,
            size: None,
            read,
            took_s: None,
            stalled_us: Some(u64::try_from(end.as_micros()).unwrap_or(u64::MAX)),
            fetched: Vec::new(),
        }
    }

    fn paths(&self, sent: &[Event]) -> Vec<QuicPathReport> {
        let mut paths: BTreeMap<(u32, usize), QuicPathReport> = BTreeMap::new();
        for event in sent {
            match event {
                Event::Path(seen) => {
                    let told = paths.entry((seen.connection, seen.route)).or_insert_with(|| QuicPathReport {
                        connection: name_of(seen.connection),
                        subnet: self.quic.subnets.get(seen.route).copied().unwrap_or(0),
                        ..QuicPathReport::default()
                    });
                    told.look(seen);
                }
                Event::Closed { connection, route, at, why } => {
                    if let Some(told) = paths.get_mut(&(*connection, *route)) {
                        told.closed = Some((micros(*at), reason(*why)));
                    }
                }
                _ => {}
            }
        }
        paths.into_values().collect()
    }
}

impl QuicPathReport {
    fn look(&mut self, seen: &PathSample) {
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let t_us = micros(seen.at);
        if seen.reductions > self.reduced {
            self.reduced = seen.reductions;
            self.reductions.push(t_us);
        }
        self.timeouts = number(seen.timeouts);
        self.points.push(Point {
            t_us,
            srtt_us: seen.srtt_us,
            cwnd_pkt: seen.cwnd_pkt,
            alpha: None,
            bytes_acked: seen.acked_bytes,
            retransmits: number(seen.lost_pkt),
            echoed_ce: number(seen.marked_pkt),
        });
    }
}

fn reason(why: CloseReason) -> Closed {
    match why {
        CloseReason::NotNeeded => Closed::Guard,
        CloseReason::Unanswered => Closed::Timeout,
        CloseReason::Other => Closed::Peer,
    }
}

/// Number of a connection in place of a socket's port; zero stands for none.
fn name_of(connection: u32) -> u16 {
    u16::try_from(connection).unwrap_or(u16::MAX - 1) + 1
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn events(written: &[u8]) -> Result<Vec<Event>, Error> {
    events_of(written).map_err(|e| Error::spec("traffic", e.to_string()))
}

/// Whole lines; the last one may be under way.
fn events_of(written: &[u8]) -> Result<Vec<Event>, ReportError> {
    let whole = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = String::from_utf8_lossy(&written[..whole]);
    let event = |line: &str| serde_json::from_str(line).map_err(|_| ReportError::Line(line.to_owned()));
    text.lines().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::tests::of_text;

    const ESTABLISHED: Event = Event::Established { connection: 0 };

    fn read(sent: &[Event], received: &[Event]) -> Result<Report, ReportError> {
        let spec = of_text(
            "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n\
             [[traffic]]\nkind='bulk'\nprotocol='quic'\n",
        );
        let (spec, programs) = (spec.unwrap(), Programs::default());
        let flow = &spec.flows[0];
        Ends { flow, quic: flow.quic().unwrap(), programs: &programs }.read(sent, received)
    }

    fn begun(ms: u64) -> Event {
        Event::Begun(Duration::from_millis(ms))
    }

    fn arrived(ms: u64, bytes: u64, stalled_ms: u64) -> Event {
        let [at, stalled] = [ms, stalled_ms].map(Duration::from_millis);
        Event::Arrived(Arrival { connection: 0, at, bytes, stalled })
    }

    #[test]
    fn arrived_bytes_count_from_the_start_order() {
        // The receiver was there a second before; the flow lasts four.
        let events = [
            begun(9_000),
            arrived(2_000, 1_000, 0),
            arrived(3_000, 5_000, 700),
            arrived(6_000, 9_000, 3_000),
        ];
        let report = read(&[begun(10_000), ESTABLISHED], &events).unwrap();
        let [connection] = &report.connections[..] else { panic!("{report:?}") };
        assert_eq!(connection.bytes_within(0.0, 4.0), 5_000.0, "not what came after the end");
        assert_eq!(connection.bytes_within(1.5, 4.0), 2_000.0);
        assert_eq!(connection.stalled_us, Some(1_990_000), "from the last arrival to the end");
        let none = read(&[begun(10_000), ESTABLISHED], &[begun(9_000)]).unwrap();
        assert_eq!(none.connections[0].stalled_us, Some(4_000_000), "all of the time");
    }

    #[test]
    fn path_keeps_its_last_report() {
        let path = |ms: u64, reductions| {
            let at = Duration::from_millis(ms);
            Event::Path(PathSample {
                route: 1,
                at,
                acked_bytes: ms,
                lost_pkt: ms / 10,
                reductions,
                ..PathSample::default()
            })
        };
        let closed = Event::Closed {
            connection: 0,
            route: 1,
            at: Duration::from_millis(40),
            why: CloseReason::NotNeeded,
        };
        let sent = [begun(0), ESTABLISHED, path(10, 0), path(20, 1), path(30, 1), closed];
        let report = read(&sent, &[begun(0)]).unwrap();
        let [told] = &report.paths[..] else { panic!("{report:?}") };
        assert_eq!((told.connection, told.subnet), (report.connections[0].port, 1));
        assert_eq!(told.points.iter().map(|point| point.retransmits).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((&told.reductions[..], told.closed), (&[20_000][..], Some((40_000, Closed::Guard))));
    }

    #[test]
    fn corrupted_bytes_give_no_figures() {
        let wrong = [begun(0), Event::Wrong { connection: 0, bytes: (10, 20) }];
        let error = read(&[begun(0), ESTABLISHED], &wrong).unwrap_err().to_string();
        assert!(error.contains("from byte 10 to 20"), "{error}");
        assert!(read(&[begun(0)], &[begun(0)]).is_err(), "nobody connected");
        assert!(read(&[], &[begun(0)]).is_err());
        assert!(events_of(b"{\"begun\":").unwrap().is_empty(), "a line under way");
        assert!(events_of(b"no line\n").is_err());
    }
}
