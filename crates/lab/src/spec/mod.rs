//! The lab's own input: what to build and what to send, in plain types.

mod datagrams;
mod flow;
mod layout;
mod link;
mod machines;
mod routed;

pub use datagrams::{Generating, Probing};
pub(crate) use datagrams::{NUMBER_BYTES, SUM_BYTES, UDP_HEADERS_BYTES};
pub use flow::{Cc, Cut, Flow, Job, Quic, Remap, Requests, Role, Throttle, Transport};
pub(crate) use flow::{PREAMBLE_BYTES, dscp, flow_of, server_port};
pub use layout::{Direction, Layout, Path, Sharing, VirtualHost};
pub(crate) use link::FRAME_BYTES;
pub use link::{Shape, Wire};
pub use machines::{Deschedule, Lengths, Machines};
pub use routed::{OfPaths, Routed, RoutedLink};

use crate::Error;
use vmcc_units::{Bytes, Nanos};

/// Subnets of a pair of hosts: the kernel has at most 8 subflows per connection.
const MAX_SUBNETS: usize = 8;
/// The lab is for one machine; beyond this the programs measure each other.
const MAX_CONNECTIONS: u32 = 100;
/// Files are compared with what was sent when all have arrived.
const MAX_FILES: Bytes = Bytes::new(1 << 30);
/// Programs at a time, for the same reason.
const MAX_FLOWS: usize = 64;

/// One run of the lab.
#[derive(Debug, Clone, PartialEq)]
pub struct LabSpec {
    /// Part of the name of everything the run makes; `None` chooses a free one.
    pub run_id: Option<String>,
    /// Network between the hosts.
    pub layout: Layout,
    /// The names of the hosts; flows refer to them by number.
    pub hosts: Vec<String>,
    /// The paths, disjoint.
    pub paths: Vec<Path>,
    /// Traffic.
    pub flows: Vec<Flow>,
    /// vNICs that move to another NIC during the run.
    pub remaps: Vec<Remap>,
    /// Paths that carry nothing for a while.
    pub cuts: Vec<Cut>,
    /// Hosts whose programs have a quota of processor time.
    pub throttles: Vec<Throttle>,
    /// Hosts that are virtual machines.
    pub machines: Machines,
    /// Duration of the run.
    pub duration: Nanos,
    /// The first part of the run, left out of every figure except counters (drops, marks, retransmissions).
    pub warmup: Nanos,
    /// Interval at which the kernel's sockets and queues are sampled.
    pub sample_interval: Nanos,
    /// The interval of the time series in the output.
    pub series_interval: Nanos,
    /// Largest receive buffer of a connection.
    pub receive_buffer: Option<Bytes>,
    /// Largest send buffer of a connection.
    pub send_buffer: Option<Bytes>,
    /// Most that a connection or subflow holds without having sent it.
    pub notsent_lowat: Option<Bytes>,
    /// Shortest retransmission timeout; 1 ms or more.
    pub min_rto: Option<Nanos>,
    /// Paths of a connection that stay open when an algorithm finds that they share a bottleneck.
    pub min_paths: u32,
}

impl LabSpec {
    /// The same with another course of what is random.
    pub(crate) fn with_seed(mut self, with: u64) -> Self {
        self.machines.seed = with;
        for flow in &mut self.flows {
            match &mut flow.job {
                Job::Objects { seed, .. }
                | Job::Probes(Probing { seed, .. })
                | Job::Generated(Generating { seed, .. }) => *seed = with,
                _ => {}
            }
        }
        self
    }

    /// True if packets wait at a port of a virtual switch, rather than only in the hosts.
    pub fn serves_ports(&self) -> bool {
        let hard =
            matches!(&self.layout, Layout::VirtualHost(host) if matches!(host.sharing, Sharing::Hard(_)));
        let routed = matches!(self.layout, Layout::Routed(_));
        hard || routed || self.paths.iter().any(|path| path.out.shape.is_some())
    }

    /// True if packets are delayed or lost on their path, which requires netem or the lab's user-space links.
    pub(crate) fn is_impaired(&self) -> bool {
        match &self.layout {
            Layout::ParallelPaths if self.userspace_links_impair() => false,
            Layout::ParallelPaths | Layout::VirtualHost(_) => {
                self.paths.iter().any(|path| path.out.wire.is_impaired() || path.back.wire.is_impaired())
            }
            Layout::Routed(routed) => routed.is_impaired(&self.flows),
        }
    }

    /// True if packets are reordered on their path, which only netem does.
    pub(crate) fn needs_netem(&self) -> bool {
        let jitters = |wire: &Wire| !wire.jitter.is_zero();
        match &self.layout {
            Layout::Routed(routed) => {
                routed.used(&self.flows).1.iter().any(|link| jitters(&routed.links[link.index()].wire))
            }
            _ => self.paths.iter().any(|path| jitters(&path.out.wire) || jitters(&path.back.wire)),
        }
    }

    /// The path of each subnet of a flow at the start; see [`Layout::paths_between`].
    pub(crate) fn paths_of(&self, flow: &Flow) -> Vec<usize> {
        self.layout.paths_between(flow.from, flow.to, self.paths.len())
    }

    /// Checks every value before anything is made.
    ///
    /// # Errors
    /// [`Error::Spec`] or [`Error::NotExpressible`], naming the key.
    pub fn check(&self) -> Result<(), Error> {
        for (count, key) in self.layout.counts(self.paths.len()) {
            if count == 0 || count > MAX_SUBNETS {
                return Err(Error::not_expressible(
                    key,
                    format!("{count} of them; it takes 1 to {MAX_SUBNETS}"),
                ));
            }
        }
        match &self.layout {
            Layout::ParallelPaths => self.check_paths(|path, key| format!("topology.paths[{path}].{key}"))?,
            Layout::VirtualHost(host) => {
                self.check_paths(|_, key| format!("topology.path_{key}"))?;
                host.check(self)?;
            }
            Layout::Routed(routed) => routed.check(&self.flows)?,
        }
        if self.duration.get() == 0 || self.warmup >= self.duration {
            let problem = format!("warmup {} leaves nothing of {} to measure", self.warmup, self.duration);
            return Err(Error::spec("warmup", problem));
        }
        if self.sample_interval < Nanos::from_millis(1) || self.sample_interval > self.duration {
            return Err(Error::spec(
                "interval",
                format!("{} is not within 1ms and the duration", self.sample_interval),
            ));
        }
        if !self.flows.iter().any(|flow| flow.role == Role::Measured) {
            return Err(Error::spec(
                "traffic",
                "nothing to measure; give at least one flow that is not competing",
            ));
        }
        if self.flows.len() > MAX_FLOWS {
            let problem = format!("{} programs send; the kernel engine takes {MAX_FLOWS}", self.flows.len());
            return Err(Error::spec("traffic", problem));
        }
        self.flows.iter().try_for_each(|flow| self.check_flow(flow).and_then(|()| flow.check_job()))?;
        self.check_machines()?;
        self.check_changes()?;
        let files = self.flows.iter().map(Flow::files_bytes).fold(0, u64::saturating_add);
        if files > MAX_FILES.get() {
            let problem = format!(
                "files of {} in all; the kernel engine keeps what arrives in memory, at most {MAX_FILES}",
                Bytes::new(files)
            );
            return Err(Error::spec("traffic", problem));
        }
        Ok(())
    }

    /// Checks that the network and the transports support the events.
    fn check_changes(&self) -> Result<(), Error> {
        if !self.cuts.is_empty() && !matches!(self.layout, Layout::ParallelPaths) {
            let problem = "a link that fails in a network other than \"parallel-paths\"";
            return Err(Error::not_expressible("event.link", problem));
        }
        if !self.remaps.is_empty() && self.flows.iter().any(|flow| flow.quic().is_some()) {
            return Err(Error::not_expressible("event.remap", "a vNIC that moves under QUIC"));
        }
        Ok(())
    }

    /// `key` says where the language has a setting of a path.
    fn check_paths(&self, key: impl Fn(&str, &str) -> String) -> Result<(), Error> {
        let refused = |path: &Path, (setting, problem): (&str, String)| {
            Error::not_expressible(key(&path.name, setting), problem)
        };
        self.paths.iter().try_for_each(|path| path.check().map_err(|e| refused(path, e)))
    }

    fn check_flow(&self, flow: &Flow) -> Result<(), Error> {
        let key = |key: &str| format!("traffic[{}].{key}", flow.label);
        self.layout.check_direction(flow, self.hosts.len(), &key("to"))?;
        let subnets = self.paths_of(flow).len();
        if flow.first_subnet() >= subnets {
            return Err(Error::spec(
                key("path"),
                format!("subnet number {} of {subnets}", flow.first_subnet()),
            ));
        }
        if flow.quic().is_some_and(|quic| {
            quic.subnets.is_empty() || quic.subnets.iter().any(|subnet| *subnet >= subnets)
        }) {
            return Err(Error::spec(key("path"), format!("a subnet beyond {subnets}, or none")));
        }
        if flow.connections == 0 || flow.connections > MAX_CONNECTIONS {
            let problem =
                format!("{} connections; the kernel engine takes 1 to {MAX_CONNECTIONS}", flow.connections);
            let given = if flow.job.keeps_connections() { "kept_connections" } else { "connections" };
            return Err(Error::spec(key(given), problem));
        }
        if flow.stop <= flow.start || flow.stop > self.duration {
            let problem =
                format!("from {} to {} is not within the duration {}", flow.start, flow.stop, self.duration);
            return Err(Error::spec(key("stop"), problem));
        }
        let by_seconds = flow.is_iperfs();
        if by_seconds && !(flow.stop.get() - flow.start.get()).is_multiple_of(1_000_000_000) {
            return Err(Error::NotExpressible {
                key: key("stop"),
                problem: format!("iperf3 sends for whole seconds, not from {} to {}", flow.start, flow.stop),
                remedy: "choose a duration of whole seconds, or use `--engine sim`".to_owned(),
            });
        }
        if flow.role == Role::Competing && matches!(flow.transport, Transport::Mptcp { .. }) {
            return Err(Error::NotExpressible {
                key: key("protocol"),
                problem: "competing traffic over MPTCP".to_owned(),
                remedy: "use protocol \"tcp\" for it, or `--engine sim`".to_owned(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use vmcc_multipath::MIN_PATHS;
    use vmcc_units::BitsPerSec;

    fn good() -> LabSpec {
        let shape = Shape {
            rate: "100mbit".parse().unwrap(),
            buffer: "150kB".parse().unwrap(),
            marking: vmcc_scenario::model::Marking::None,
            queue: vmcc_scenario::model::Queue::default(),
        };
        let path = Path::alike("a", Direction { shape: Some(shape), wire: Wire::default() });
        let flow = Flow {
            label: "bulk".into(),
            role: Role::Measured,
            from: 0,
            to: 1,
            cc: Cc::Native("reno".into()),
            ecn: None,
            transport: Transport::Mptcp { first: 0 },
            class: 0,
            connections: 1,
            job: Job::Bulk { writes_at: None },
            round: 0,
            start: Nanos::ZERO,
            stop: Nanos::from_secs(4),
            unloaded: None,
        };
        LabSpec {
            run_id: None,
            layout: Layout::ParallelPaths,
            hosts: vec!["client".into(), "server".into()],
            paths: vec![path],
            flows: vec![flow],
            remaps: Vec::new(),
            cuts: Vec::new(),
            throttles: Vec::new(),
            machines: Machines::default(),
            duration: Nanos::from_secs(4),
            warmup: Nanos::from_secs(1),
            sample_interval: Nanos::from_millis(10),
            series_interval: Nanos::from_millis(100),
            receive_buffer: None,
            send_buffer: None,
            notsent_lowat: None,
            min_rto: None,
            min_paths: MIN_PATHS,
        }
    }

    fn shape(spec: &mut LabSpec) -> &mut Shape {
        spec.paths[0].out.shape.as_mut().unwrap()
    }

    fn refused(change: impl FnOnce(&mut LabSpec), key: &str) {
        let mut spec = good();
        change(&mut spec);
        let error = spec.check().expect_err(key);
        assert_eq!(error.kind(), ErrorKind::BadInput);
        assert!(error.to_string().starts_with(key), "{error}");
    }

    #[test]
    fn bad_values_are_refused_by_key() {
        good().check().unwrap();
        refused(|s| s.paths.clear(), "topology.paths");
        refused(|s| shape(s).rate = BitsPerSec::ZERO, "topology.paths[a].rate");
        refused(|s| s.paths[0].back.wire.delay = Nanos::from_secs(3), "topology.paths[a].delay");
        refused(|s| shape(s).buffer = "0pkt".parse().unwrap(), "topology.paths[a].buffer");
        refused(|s| s.warmup = s.duration, "warmup");
        refused(|s| s.sample_interval = Nanos::ZERO, "interval");
        refused(|s| s.flows.clear(), "traffic");
        refused(|s| s.flows[0].role = Role::Competing, "traffic");
        refused(|s| s.flows[0].transport = Transport::Tcp { subnet: 1 }, "traffic[bulk].path");
        refused(|s| s.flows[0].to = 0, "traffic[bulk].to");
        refused(|s| s.flows[0].to = 2, "traffic[bulk].to");
        refused(|s| s.flows[0].connections = 0, "traffic[bulk].connections");
        refused(|s| s.flows[0].stop = Nanos::from_secs(5), "traffic[bulk].stop");
        refused(|s| s.flows[0].stop = Nanos::from_millis(1500), "traffic[bulk].stop");
    }

    #[test]
    fn competing_mptcp_is_refused() {
        let mut spec = good();
        let competing = Flow { role: Role::Competing, label: "x".into(), ..spec.flows[0].clone() };
        spec.flows.push(competing);
        assert!(spec.check().unwrap_err().to_string().starts_with("traffic[x].protocol"));
    }
}
