//! Traffic of a run, and the events that change its course.

use super::datagrams::{Generating, Probing};
use crate::Error;
use crate::process::MAX_OUTPUT_BYTES;
use crate::traffic_gen::Settings;
use vmcc_cc::{Algorithm, Params};
use vmcc_network::Unloaded;
use vmcc_scenario::model::{FileProgram, ObjectProgram, RequestProgram};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

/// Bytes of a connection before its data: the cookie by which the server of iperf3 identifies the client.
pub(crate) const PREAMBLE_BYTES: u64 = 37;
/// Each flow has a port of its own, this one and up (iperf3's own default).
const FIRST_PORT: u16 = 5201;
/// The shortest time limit that curl has.
const MIN_DURATION: Nanos = Nanos::from_millis(1);
/// With the 16 bytes that iperf3 writes into each.
const MIN_DATAGRAM_SIZE: Bytes = Bytes::new(44);

/// memcached's largest, with its key.
const MAX_OBJECT_SIZE: Bytes = Bytes::new(1_000_000);
/// Below the limit of a program's output, which is kept whole and read at once.
const MAX_CHUNK_SIZE: Bytes = Bytes::new(MAX_OUTPUT_BYTES - 1);
/// Each is a process.
const MAX_CHUNKS: u32 = 256;
/// A value of a key or a page, which is made in memory.
const MAX_VALUE_SIZE: Bytes = Bytes::new(64_000_000);
/// Each is a thread of the lab's for as long as it lasts.
const MAX_PER_SECOND: f64 = 5_000.0;

/// Role of a flow in the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Its figures are the run's metrics.
    Measured,
    /// It has its own endpoints and shares the queues of its path.
    Competing,
}

/// Transport of a flow, and the subnets that it uses: the paths, or the vNICs of a virtual machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    /// Single-path TCP over one subnet.
    Tcp {
        /// The subnet.
        subnet: usize,
    },
    /// MPTCP over every subnet, the first subflow over subnet `first`.
    Mptcp {
        /// The subnet.
        first: usize,
    },
    /// Multipath QUIC of the user-space transport.
    Quic(Box<Quic>),
}

/// Connections of the user-space transport.
#[derive(Debug, Clone, PartialEq)]
pub struct Quic {
    /// The subnets that they have a path on; the first one carries the handshake.
    pub subnets: Vec<usize>,
    /// Their settings.
    pub settings: Settings,
}

/// A congestion control.
#[derive(Debug, Clone, PartialEq)]
pub enum Cc {
    /// One that the kernel has, by the kernel's name.
    Native(String),
    /// One of the registry with its parameters, loaded for the time of the run.
    Registry(Params),
    /// One of the registry that the program has itself: the kernel's is not asked.
    Own(Params),
}

impl Flow {
    /// Its algorithm, if that is not of the registry.
    pub(crate) fn external(&self) -> Option<Algorithm> {
        let (Cc::Registry(params) | Cc::Own(params)) = &self.cc else { return None };
        Some(params.algorithm()).filter(|algorithm| algorithm.build().is_some())
    }
}

/// Task of each connection of a flow; it determines the programs.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// Data without end, by `iperf3`.
    Bulk {
        /// Rate at which the program writes, and the size of each write. `None`: as fast as possible.
        writes_at: Option<(BitsPerSec, Bytes)>,
    },
    /// A file of this size, by `curl` to `nginx`.
    Sized {
        /// The file's size.
        size: Bytes,
        /// Payload that the program sends per second. `None`: as much as possible.
        rate: Option<BitsPerSec>,
    },
    /// A file of this size by another program: rsync or FTP.
    Transfer {
        /// The program, which the sender starts.
        program: FileProgram,
        /// The file's size.
        size: Bytes,
        /// Payload that the program sends per second. `None`: as much as possible.
        rate: Option<BitsPerSec>,
    },
    /// Requests that the receiver sends and the sender answers, one at a time on each connection.
    Requests(Requests),
    /// Datagrams at random rates for random times.
    Generated(Generating),
    /// A file of this size that the receiver reads from the sender's file system: `nfs-cat` from `ganesha.nfsd`.
    Chunks {
        /// The file's size.
        size: Bytes,
    },
    /// Objects that the sender's server holds and the receiver fetches.
    Objects {
        /// The server.
        holder: ObjectProgram,
        /// True if they are fetched one after the other on the flow's connections, in turn; false if each has a connection of its own.
        kept: bool,
        /// Sizes of the objects, which are fetched with equal probability.
        sizes: Vec<Bytes>,
        /// Fetches per second on average, a Poisson process.
        per_second: f64,
        /// Which one.
        seed: u64,
        /// Time that a connection stays open after its transfer, so that its sockets' last counts are sampled.
        linger: Nanos,
    },
    /// UDP, by `iperf3`.
    Datagrams {
        /// Counting IP packets.
        rate: BitsPerSec,
        /// The size of an IP packet.
        packet: Bytes,
    },
    /// Requests that are answered at once, to see what packets meet.
    Probes(Probing),
}

/// Requests to a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Requests {
    /// The programs.
    pub program: RequestProgram,
    /// The size of what is read or written.
    pub size: Bytes,
    /// Requests in all. Programs that count time ignore it.
    pub count: u64,
    /// Share of the connections that read.
    pub reads: f64,
    /// Number of those.
    pub readers: u32,
}

/// Traffic that one pair of programs sends from one host to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Label in the results; several flows may share one.
    pub label: String,
    /// Role: measured or competing.
    pub role: Role,
    /// The sending host.
    pub from: usize,
    /// The receiving host.
    pub to: usize,
    /// Its congestion control, at both ends.
    pub cc: Cc,
    /// True if its connections ask for ECN. `None`: if the congestion control does.
    pub ecn: Option<bool>,
    /// Its paths.
    pub transport: Transport,
    /// Its service queue at every port; its packets carry [`dscp`] of it.
    pub class: u32,
    /// Parallel connections.
    pub connections: u32,
    /// Task of each connection.
    pub job: Job,
    /// Begins, at its start or later, when all flows of its label of the round before have arrived whole.
    pub round: u32,
    /// Start time.
    pub start: Nanos,
    /// Stop time; for traffic of iperf3, whole seconds after `start`.
    pub stop: Nanos,
    /// Timing of its transfers on the empty network.
    pub unloaded: Option<Unloaded>,
}

/// A vNIC that moves to another physical NIC while the run lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remap {
    /// Time of the move, after the run's start.
    pub at: Nanos,
    /// The virtual machine's host number.
    pub vm: usize,
    /// Its vNIC.
    pub vnic: usize,
    /// The NIC, and so the path, from then on.
    pub nic: usize,
}

/// A path that begins or ceases to take everything and deliver nothing, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Time of the change, after the run's start.
    pub at: Nanos,
    /// The path's number.
    pub path: usize,
    /// True if it carries packets from then on.
    pub up: bool,
}

/// A host whose programs have a quota of processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// From when on, after the run's start.
    pub at: Nanos,
    /// Until when; `None`: to the end.
    pub until: Option<Nanos>,
    /// The host's number.
    pub host: usize,
    /// CPU time of its programs in each period.
    pub quota: Nanos,
    /// The period.
    pub period: Nanos,
}

/// The DSCP that a class's packets carry: class selector k (RFC 2474), so that class 0 is ordinary traffic.
pub(crate) fn dscp(class: u32) -> u8 {
    u8::try_from(class.min(7) * 8).unwrap_or(0)
}

/// The server's port of a flow.
pub(crate) fn server_port(flow: usize) -> u16 {
    FIRST_PORT.saturating_add(u16::try_from(flow).unwrap_or(u16::MAX))
}

/// The flow that uses a server's port.
pub(crate) fn flow_of(port: u16) -> Option<usize> {
    port.checked_sub(FIRST_PORT).map(usize::from)
}

impl Cc {
    /// The name by which the kernel knows it.
    pub fn kernel_name(&self) -> String {
        match self {
            Self::Native(name) => name.clone(),
            Self::Registry(params) => params.algorithm().info().kernel_name.to_owned(),
            // Of what else the programs' hosts do.
            Self::Own(_) => "reno".to_owned(),
        }
    }

    /// The name by which people know it.
    pub fn name(&self) -> &str {
        match self {
            Self::Native(name) => name,
            Self::Registry(params) | Self::Own(params) => params.algorithm().name(),
        }
    }
}

impl Job {
    /// True if it has no connections.
    pub(crate) fn is_datagrams(&self) -> bool {
        matches!(self, Self::Datagrams { .. } | Self::Generated(_))
    }

    /// True if the receiver connects and requests the data.
    pub(crate) fn is_fetched(&self) -> bool {
        matches!(self, Self::Objects { .. } | Self::Chunks { .. } | Self::Requests(_))
    }

    /// True if objects are fetched one after the other on connections that stay open.
    pub(crate) fn keeps_connections(&self) -> bool {
        matches!(self, Self::Objects { kept: true, .. } | Self::Requests(_))
    }

    /// True if each connection carries a file of a fixed size.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::Sized { .. } | Self::Chunks { .. } | Self::Transfer { .. })
    }

    /// True if it only sends probes.
    pub(crate) fn is_probes(&self) -> bool {
        matches!(self, Self::Probes(_))
    }
}

impl Requests {
    fn check(&self, seconds: u64, key: impl Fn(&str) -> String) -> Result<(), Error> {
        if self.program == RequestProgram::Redis && self.count == 0 {
            return Err(Error::spec(key("requests"), "redis-benchmark sends a number of requests; give it"));
        }
        if self.program != RequestProgram::Redis && self.reads < 1.0 {
            return Err(Error::not_expressible(
                key("reads"),
                "only redis-benchmark writes what it would read",
            ));
        }
        if self.program != RequestProgram::Redis && self.count > 0 {
            let problem = "wrk and pgbench send until `stop`, not a number of requests";
            return Err(Error::not_expressible(key("requests"), problem));
        }
        if self.program != RequestProgram::Redis && seconds == 0 {
            return Err(Error::not_expressible(key("stop"), "wrk and pgbench run for a second or more"));
        }
        if self.size > MAX_VALUE_SIZE {
            let problem = format!("{}; at most {MAX_VALUE_SIZE}", self.size);
            return Err(Error::not_expressible(key("response"), problem));
        }
        Ok(())
    }
}

impl Flow {
    /// Checks that its programs can do its job.
    pub(crate) fn check_job(&self) -> Result<(), Error> {
        let key = |key: &str| format!("traffic[{}].{key}", self.label);
        match &self.job {
            Job::Objects { sizes, .. } if sizes.iter().any(|size| *size > MAX_OBJECT_SIZE) => {
                Err(Error::not_expressible(
                    key("sizes"),
                    format!("what is fetched holds objects of at most {MAX_OBJECT_SIZE}"),
                ))
            }
            Job::Objects { per_second, .. } if !(0.0..=MAX_PER_SECOND).contains(per_second) => {
                Err(Error::not_expressible(
                    key("load"),
                    format!("{per_second:.0} fetches per second; at most {MAX_PER_SECOND} are possible"),
                ))
            }
            Job::Chunks { size } if *size > MAX_CHUNK_SIZE => Err(Error::not_expressible(
                key("size"),
                format!("{size}; what is read from the file system is at most {MAX_CHUNK_SIZE} each"),
            )),
            Job::Chunks { .. } if self.connections > MAX_CHUNKS => Err(Error::not_expressible(
                key("connections"),
                format!("{}; each is a program, at most {MAX_CHUNKS} of them", self.connections),
            )),
            Job::Transfer { program: FileProgram::Ftp, .. } if self.connections > 1 => {
                let problem = format!("{}; FTP carries one file per entry", self.connections);
                Err(Error::not_expressible(key("connections"), problem))
            }
            Job::Transfer { .. } if self.connections > MAX_CHUNKS => Err(Error::not_expressible(
                key("connections"),
                format!("{}; each is a program, at most {MAX_CHUNKS} of them", self.connections),
            )),
            Job::Requests(requests) => requests.check(self.seconds(), key),
            Job::Generated(generating) => generating.check(key),
            Job::Sized { size, .. } | Job::Chunks { size } | Job::Transfer { size, .. }
                if size.get() == 0 =>
            {
                Err(Error::spec(key("size"), "a file of no bytes"))
            }
            Job::Sized { .. } | Job::Chunks { .. } | Job::Transfer { .. }
                if self.stop.get().saturating_sub(self.start.get()) < MIN_DURATION.get() =>
            {
                Err(Error::spec(key("stop"), format!("files have {MIN_DURATION} or more to arrive in")))
            }
            Job::Datagrams { packet, .. } if *packet < MIN_DATAGRAM_SIZE => Err(Error::not_expressible(
                key("packet"),
                format!("iperf3 sends {MIN_DATAGRAM_SIZE} or more, not {packet}"),
            )),
            Job::Probes(probing) => probing.check(key),
            _ => Ok(()),
        }
    }

    /// The host whose program connects: the receiver's where data are fetched.
    pub(crate) fn client(&self) -> usize {
        if self.job.is_fetched() { self.to } else { self.from }
    }

    /// The host whose program listens.
    pub(crate) fn server(&self) -> usize {
        if self.job.is_fetched() { self.from } else { self.to }
    }

    /// Bytes that its sender has to hold: its files, or all objects that may be fetched.
    pub(super) fn kept_bytes(&self) -> u64 {
        match &self.job {
            Job::Objects { sizes, .. } => sizes.iter().map(|size| size.get()).fold(0, u64::saturating_add),
            _ => self.files_bytes(),
        }
    }

    /// Bytes of its files that arrive.
    pub(crate) fn files_bytes(&self) -> u64 {
        match &self.job {
            Job::Sized { size, .. } | Job::Chunks { size } | Job::Transfer { size, .. } => {
                size.get().saturating_mul(self.connections.into())
            }
            Job::Bulk { .. }
            | Job::Objects { .. }
            | Job::Datagrams { .. }
            | Job::Requests(_)
            | Job::Generated(_)
            | Job::Probes(_) => 0,
        }
    }

    /// The subnet of a single-path flow, or of the first subflow.
    pub(crate) fn first_subnet(&self) -> usize {
        match &self.transport {
            Transport::Tcp { subnet } => *subnet,
            Transport::Mptcp { first } => *first,
            Transport::Quic(quic) => quic.subnets.first().copied().unwrap_or(0),
        }
    }

    /// Its connections, if they are the user-space transport's.
    pub(crate) fn quic(&self) -> Option<&Quic> {
        match &self.transport {
            Transport::Quic(quic) => Some(quic),
            _ => None,
        }
    }

    /// True if iperf3 sends it, which sends for whole seconds.
    pub(crate) fn is_iperfs(&self) -> bool {
        matches!(self.job, Job::Bulk { .. } | Job::Datagrams { .. }) && self.quic().is_none()
    }

    /// True if a virtual machine that sends it starts it before the run. The run begins when it sends.
    pub(crate) fn begins_the_run(&self) -> bool {
        matches!(&self.job, Job::Bulk { .. }) && self.quic().is_none() && self.start.is_zero()
    }

    pub(crate) fn seconds(&self) -> u64 {
        (self.stop.get().saturating_sub(self.start.get())) / 1_000_000_000
    }
}
