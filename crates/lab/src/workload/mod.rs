//! Traffic programs, one file per workload: how they are started and what they report.
//!
//! A workload is chosen by the flow ([`of`]); the run ([`crate::run`]) starts, watches and ends its programs without knowing
//! which they are.

mod answers;
mod arrived;
mod clients;
mod files;
mod ftp;
mod generator;
mod http_client;
mod in_process;
mod iperf3;
mod nfs;
mod nginx;
mod object_store;
mod objects;
mod persistent_client;
mod pgbench;
mod private_mount;
mod probes;
mod quic;
mod redis;
mod rsync;
mod verify;
mod wrk;

pub(crate) use answers::Answers;
pub use quic::quic_end;

use crate::process::{Ended, Program, is_installed};
use crate::registry::Record;
use crate::sampler::{QuicPathReport, Track};
use crate::spec::{Flow, Job, Transport};
use crate::{Error, Netns};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_scenario::model::{FileProgram, RequestProgram};

/// The programs that send. Replaceable, so that a particular build of iperf3 can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// `iperf3`, version 3.9 or newer.
    pub iperf3: String,
    /// `mptcpize`, which makes a program's TCP sockets MPTCP sockets.
    pub mptcpize: String,
    /// `curl`, version 7.75 or newer, which sends files.
    pub curl: String,
    /// `nginx` with its DAV module, which receives them.
    pub nginx: String,
    /// `memcached`, from which objects are fetched.
    pub memcached: String,
    /// Apache's web server, from which objects are fetched as well.
    pub apache: String,
    /// `ganesha.nfsd`, a file system in the network.
    pub ganesha: String,
    /// `nfs-cat`, which reads files of it.
    pub nfs_cat: String,
    /// `rsync`, at both ends.
    pub rsync: String,
    /// `ssh`, over which it sends files.
    pub ssh: String,
    /// `sshd`, by its path: it starts itself again.
    pub sshd: String,
    /// `lftp`, which puts a file.
    pub lftp: String,
    /// `pure-ftpd`, which receives it.
    pub pure_ftpd: String,
    /// `redis-server`.
    pub redis_server: String,
    /// `redis-benchmark`, version 7 or newer.
    pub redis_benchmark: String,
    /// `wrk`, which asks `nginx`.
    pub wrk: String,
    /// Folder with a folder for each version of PostgreSQL, as Debian has it.
    pub postgresql: String,
    /// Command that carries QUIC: the words before an order as [`quic_end`] takes it.
    pub quic: Vec<String>,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            iperf3: "iperf3".to_owned(),
            mptcpize: "mptcpize".to_owned(),
            curl: "curl".to_owned(),
            nginx: "nginx".to_owned(),
            memcached: "memcached".to_owned(),
            apache: "apache2".to_owned(),
            ganesha: "ganesha.nfsd".to_owned(),
            nfs_cat: "nfs-cat".to_owned(),
            rsync: "rsync".to_owned(),
            ssh: "ssh".to_owned(),
            sshd: "/usr/sbin/sshd".to_owned(),
            lftp: "lftp".to_owned(),
            pure_ftpd: "pure-ftpd".to_owned(),
            redis_server: "redis-server".to_owned(),
            redis_benchmark: "redis-benchmark".to_owned(),
            wrk: "wrk".to_owned(),
            postgresql: "/usr/lib/postgresql".to_owned(),
            quic: quic::own_program(),
        }
    }
}

/// The sending end of a flow, before its start.
pub(crate) struct ClientSetup<'a> {
    /// Its namespace.
    pub(crate) at: &'a Netns,
    /// Address and port of the listening end.
    pub(crate) to: (Ipv4Addr, u16),
    /// Time until the flow stops.
    pub(crate) lasts: Duration,
    /// [`Workload::data`], or a copy of it.
    pub(crate) data: Option<&'a Path>,
    /// Record of the run, for programs that are started.
    pub(crate) record: &'a mut Record,
}

/// The two ends of what a flow does, as programs.
pub(crate) trait Workload {
    /// Checks that everything it needs is installed.
    fn check(&self) -> Result<(), Error>;

    /// Programs whose versions belong to the results, each with the argument that prints it.
    fn versioned(&self) -> Vec<(String, &'static str)> {
        Vec::new()
    }

    /// Starts the side that listens, the receiving one but where data are fetched, and waits until it does, on `port`.
    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error>;

    /// The file that the sending side sends, if it sends one.
    fn data(&self, _server: &End) -> Option<PathBuf> {
        None
    }

    /// Starts the other side, which ends by itself when the flow does.
    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error>;

    /// Report of the receiving side, from the output of the side that connected and the state of the other.
    fn report(&self, client: &Ended, server: &End) -> Result<Report, ReportError>;

    /// The same of an endless transfer whose listening side was told to end, from what that left.
    fn cut(&self, _server: &Ended) -> Result<Report, ReportError> {
        Err(ReportError::NoServer)
    }
}

/// One end of a flow.
pub(crate) enum End {
    Program(Program),
    /// A thread of ours.
    InProcess(in_process::InProcess),
    /// Program of a virtual machine.
    Elsewhere(Elsewhere),
}

/// A listening end in a virtual machine, which looks after it.
pub(crate) struct Elsewhere {
    /// The machine's host.
    pub(crate) host: String,
    /// Path at which the machine leaves a copy of what is read from it, if that is a file.
    pub(crate) held: PathBuf,
}

impl End {
    pub(crate) fn program(&self) -> Option<&Program> {
        match self {
            Self::Program(program) => Some(program),
            Self::InProcess(_) | Self::Elsewhere(_) => None,
        }
    }

    /// Exit status and output, if it has ended.
    pub(crate) fn output(&mut self) -> Result<Option<Ended>, Error> {
        match self {
            Self::Program(program) => program.output(),
            Self::InProcess(own) => Ok(own.output()),
            Self::Elsewhere(_) => Ok(None),
        }
    }

    /// Asks it to end, if it has not.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        match self {
            Self::Program(program) => program.end(),
            Self::InProcess(own) => {
                own.end();
                Ok(())
            }
            Self::Elsewhere(_) => Ok(()),
        }
    }

    /// An error about it.
    pub(crate) fn failed(&self, cause: impl Into<String>, remedy: &str) -> Error {
        match self {
            Self::Program(program) => program.failed(cause, remedy),
            Self::InProcess(own) => own.failed(cause, remedy),
            Self::Elsewhere(elsewhere) => Error::ProgramFailed {
                program: "what listens".to_owned(),
                namespace: format!("virtual machine {}", elsewhere.host),
                cause: cause.into(),
                remedy: remedy.to_owned(),
            },
        }
    }
}

/// The workload of `flow`.
pub(crate) fn of<'a>(flow: &'a Flow, programs: &'a Programs) -> Box<dyn Workload + 'a> {
    match &flow.job {
        Job::Bulk { .. } if let Some(settings) = flow.quic() => {
            Box::new(quic::Ends { flow, programs, quic: settings })
        }
        Job::Bulk { .. } | Job::Datagrams { .. } => Box::new(iperf3::Iperf3 { flow, programs }),
        Job::Sized { size, rate } => Box::new(files::Files { flow, programs, size: *size, rate: *rate }),
        Job::Transfer { program: FileProgram::Ftp, size, rate } => {
            Box::new(ftp::Ftp { flow, programs, size: *size, rate: *rate })
        }
        Job::Transfer { program, size, rate } => {
            let ssh = *program == FileProgram::RsyncSsh;
            Box::new(rsync::Rsync { flow, programs, size: *size, rate: *rate, ssh })
        }
        Job::Requests(requests) => match requests.program {
            RequestProgram::Redis => Box::new(redis::Redis { flow, programs, requests }),
            RequestProgram::Nginx => Box::new(wrk::Wrk { flow, programs, requests }),
            RequestProgram::Postgresql => Box::new(pgbench::Pgbench { flow, programs }),
        },
        Job::Generated(generating) => Box::new(generator::Generator { flow, generating }),
        Job::Chunks { size } => Box::new(nfs::Chunks { flow, programs, size: *size }),
        Job::Objects { holder, kept, sizes, per_second, seed, linger } => Box::new(objects::Objects {
            flow,
            programs,
            holder: *holder,
            kept: *kept,
            sizes,
            per_second: *per_second,
            seed: *seed,
            linger: *linger,
        }),
        Job::Probes(probing) => Box::new(probes::Probes { flow, probing }),
    }
}

/// Versions of the programs of `flows`, by program: the first line that each prints.
pub(crate) fn versions<'a>(
    flows: impl Iterator<Item = &'a Flow>,
    programs: &Programs,
) -> Vec<(String, String)> {
    let all: BTreeSet<(String, &str)> = flows.flat_map(|flow| of(flow, programs).versioned()).collect();
    let version = |(program, argument): (String, &str)| {
        let said = Command::new(&program).arg(argument).stdin(Stdio::null()).output().ok()?;
        let text = if said.stdout.trim_ascii().is_empty() { said.stderr } else { said.stdout };
        let line = String::from_utf8_lossy(&text).lines().next()?.trim().to_owned();
        let name = Path::new(&program).file_name()?.to_string_lossy().into_owned();
        Some((format!("{name}_version"), line))
    };
    all.into_iter().filter_map(version).collect()
}

const INSTALL_MPTCPIZE: &str = "apt-get install -y mptcpize";
const LOOK_AT: &str = "run the same command by hand in a namespace, and look at `dmesg` if it is killed";
/// Timeout for a server to listen; it is polled every `START_POLL_INTERVAL`.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const START_POLL_INTERVAL: Duration = Duration::from_millis(10);

fn check_installed(program: &str, remedy: &str) -> Result<(), Error> {
    if is_installed(program) {
        return Ok(());
    }
    Err(Error::ProgramMissing { program: program.to_owned(), remedy: remedy.to_owned() })
}

/// Checks that what goes before a program is installed.
fn check_wrapper(flow: &Flow, programs: &Programs) -> Result<(), Error> {
    match flow.transport {
        Transport::Tcp { .. } | Transport::Quic(_) => Ok(()),
        Transport::Mptcp { .. } => check_installed(&programs.mptcpize, INSTALL_MPTCPIZE),
    }
}

/// Words before a program that make its TCP the flow's transport.
fn wrapper<'a>(flow: &Flow, programs: &'a Programs) -> Vec<&'a str> {
    match flow.transport {
        Transport::Tcp { .. } | Transport::Quic(_) => Vec::new(),
        Transport::Mptcp { .. } => vec![&programs.mptcpize, "run"],
    }
}

/// Waits until `server` listens on `port`; `said` finds its reason in what it left.
fn await_listening(
    mut server: Program,
    (at, port): (&Netns, u16),
    within: Duration,
    said: impl Fn(Ended) -> String,
) -> Result<Program, Error> {
    let begun = Instant::now();
    while begun.elapsed() < within {
        let listening = at.run(move || vmcc_netlink::is_listening(port));
        if listening.map_err(|e| Error::kernel("listing the sockets of", at.name(), e))? {
            return Ok(server);
        }
        if let Some(ended) = server.output()? {
            return Err(server.failed(format!("it ended before it listened ({})", said(ended)), LOOK_AT));
        }
        thread::sleep(START_POLL_INTERVAL);
    }
    Err(server.failed(format!("it does not listen on port {port} after {} s", within.as_secs()), LOOK_AT))
}

/// Reasons why a program's report is unusable.
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
    #[error("a line of its report cannot be read: {0:?}")]
    Line(String),
    #[error("a transfer failed: {0}")]
    Transfer(String),
    #[error("what arrived cannot be compared with what was sent: {0}")]
    Files(std::io::Error),
}

/// Report of a transfer's receiver.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Report {
    /// Each connection, with the local port of the sender.
    pub(crate) connections: Vec<Connection>,
    /// Each probe, in the order of time.
    pub(crate) requests: Vec<Request>,
    /// Requests, where the program counts them.
    pub(crate) answers: Option<Answers>,
    /// Each path, where the program has them and not the kernel.
    pub(crate) paths: Vec<QuicPathReport>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
}

/// A probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    /// Time of departure, in seconds after the flow's start.
    pub(crate) sent_s: f64,
    /// Time until its answer, in seconds; `None` if that was not in time.
    pub(crate) took_s: Option<f64>,
}

impl Report {
    /// Of connections that never began.
    pub(crate) fn of_none(count: u32) -> Self {
        let never = Connection {
            port: 0,
            began_s: 0.0,
            size: None,
            read: Vec::new(),
            took_s: None,
            stalled_us: None,
            fetched: Vec::new(),
        };
        Self { connections: vec![never; count as usize], ..Self::default() }
    }

    /// Gives each connection that transferred something, and whose port its program did not say, the sockets of one that nobody else has:
    /// connections of one flow are alike.
    pub(crate) fn complete_ports<'a>(&mut self, tracks: impl Iterator<Item = &'a Track> + Clone) {
        // Subflows of one connection have its token.
        let of = |track: &Track| track.token.ok_or(track.port);
        let ports: BTreeSet<u16> = self.connections.iter().map(|connection| connection.port).collect();
        let mut taken: BTreeSet<Result<u32, u16>> =
            tracks.clone().filter(|track| ports.contains(&track.port)).map(of).collect();
        let nameless = self.connections.iter_mut().filter(|one| one.port == 0 && one.took_s.is_some());
        for connection in nameless {
            let Some(track) = tracks.clone().find(|track| !taken.contains(&of(track))) else { return };
            taken.insert(of(track));
            connection.port = track.port;
        }
    }

    /// True if every transfer has arrived whole.
    pub(crate) fn is_complete(&self) -> bool {
        self.connections.iter().all(|connection| connection.took_s.is_some())
    }

    /// The same of one that ended so long after the run's start, counting from that.
    pub(crate) fn ending(mut self, at: Duration) -> Self {
        let intervals = || self.connections.iter().flat_map(|connection| &connection.read);
        let before_s = intervals().map(|interval| interval.end_s).fold(0.0, f64::max) - at.as_secs_f64();
        for interval in self.connections.iter_mut().flat_map(|connection| &mut connection.read) {
            interval.start_s -= before_s;
            interval.end_s -= before_s;
        }
        self
    }
}

/// One connection of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Connection {
    /// The port of the end that connected, which is the sender but where data are fetched; 0: it never did.
    pub(crate) port: u16,
    /// Start, in seconds after the flow's start.
    pub(crate) began_s: f64,
    /// Bytes to carry, if they differ from connection to connection.
    pub(crate) size: Option<u64>,
    pub(crate) read: Vec<Interval>,
    /// Duration of a transfer that completed, in seconds.
    pub(crate) took_s: Option<f64>,
    /// The longest time in which nothing arrived, where the program tells.
    pub(crate) stalled_us: Option<u64>,
    /// Objects that were fetched on it or waited to be, if it stays open.
    pub(crate) fetched: Vec<Fetched>,
}

/// An object that was fetched on a connection that stays open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fetched {
    pub(crate) bytes: u64,
    /// Time at which it was wanted, in seconds after the start of the connection.
    pub(crate) wanted_s: f64,
    /// Time from then until it was there, in seconds; `None` if it never was.
    pub(crate) took_s: Option<f64>,
}

/// Bytes that the receiving program read from `start_s` to `end_s` after the transfer's start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    pub(crate) bytes: f64,
}

impl Connection {
    /// One transfer, of which only its end tells how it went: its bytes came evenly, or none did.
    pub(crate) fn transfer(port: u16, began_s: f64, took_s: Option<f64>, bytes: u64) -> Self {
        let read = took_s.map(|end_s| Interval { start_s: 0.0, end_s, bytes: bytes as f64 });
        let read = read.into_iter().collect();
        Self { port, began_s, size: None, read, took_s, stalled_us: None, fetched: Vec::new() }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_without_a_reported_port_gets_a_remaining_socket() {
        let connection =
            |port, took_s| Connection { port, took_s, ..Report::of_none(1).connections.remove(0) };
        let track = |port, token| {
            let mut track = Track::default();
            (track.port, track.token) = (port, token);
            track
        };
        // The second connection's subflows are 20 and 21; 30 fell back to TCP.
        let tracks =
            [track(10, Some(1)), track(11, Some(1)), track(20, Some(2)), track(21, Some(2)), track(30, None)];
        let all = [
            connection(0, Some(1.0)),
            connection(10, Some(1.0)),
            connection(0, None),
            connection(0, Some(1.0)),
        ];
        let mut report = Report { connections: all.to_vec(), ..Report::default() };
        report.complete_ports(tracks.iter());
        assert_eq!(report.connections.iter().map(|one| one.port).collect::<Vec<_>>(), [20, 10, 0, 30]);
    }

    #[test]
    fn bytes_read_before_the_run_are_excluded() {
        let interval = |start_s| Interval { start_s, end_s: start_s + 1.0, bytes: 1_000.0 };
        let connection = Connection {
            port: 1,
            began_s: 0.0,
            size: None,
            read: [0.0, 1.0, 2.0].map(interval).to_vec(),
            took_s: None,
            stalled_us: None,
            fetched: Vec::new(),
        };
        let report = Report { connections: vec![connection], ..Report::default() };
        let report = report.ending(Duration::from_millis(1_500));
        let connection = &report.connections[0];
        assert_eq!(connection.bytes_within(0.0, 1.0), 1_000.0);
        assert_eq!(connection.bytes_within(0.0, f64::MAX), 1_500.0, "half of the second and the third");
    }
}
