//! The lab's own input: what to build and what to send, in plain types.

use crate::Error;
use vmcc_cc::Params;
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos, Threshold};

/// An Ethernet frame that carries a full packet: 1500 bytes and a header of 14.
pub(crate) const FRAME_BYTES: u64 = 1514;
/// One subnet per path, and at most 8 subflows per connection in the kernel.
const MAX_PATHS: usize = 8;
/// The lab is for one machine; beyond this the programs measure each other.
const MAX_CONNECTIONS: u32 = 100;

/// One run of the lab.
#[derive(Debug, Clone, PartialEq)]
pub struct LabSpec {
    /// Part of the name of everything the run makes; `None` chooses a free one.
    pub run_id: Option<String>,
    /// The paths between sender and receiver, disjoint.
    pub paths: Vec<Path>,
    /// What is sent.
    pub flows: Vec<Flow>,
    /// How long the run lasts.
    pub duration: Nanos,
    /// The first part of the run, left out of every figure except counters (drops, marks, retransmissions).
    pub warmup: Nanos,
    /// How often the kernel's sockets and queues are sampled.
    pub sample_interval: Nanos,
    /// The interval of the time series in the output.
    pub series_interval: Nanos,
    /// Largest receive buffer of a connection.
    pub receive_buffer: Option<Bytes>,
    /// Largest send buffer of a connection.
    pub send_buffer: Option<Bytes>,
}

/// A link with one shaped port in each direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// As results call it.
    pub name: String,
    /// Rate of Ethernet frames (14 bytes of header on each packet).
    pub rate: BitsPerSec,
    /// One-way propagation delay; needs the kernel's netem unless it is zero.
    pub delay: Nanos,
    /// What may wait in the port's queue. Bytes are bytes of Ethernet frames.
    pub buffer: Limit,
    /// Queue length above which ECN-capable packets are marked; `None`: never.
    pub marking: Option<Threshold>,
}

/// Whether a flow is what the run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its figures are the run's metrics.
    Measured,
    /// It has its own endpoints and shares the bottleneck queue of its path.
    Competing,
}

/// How a flow uses the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Single-path TCP over path number `path`.
    Tcp {
        /// Index into [`LabSpec::paths`].
        path: usize,
    },
    /// MPTCP over every path, the first subflow over path number `first`.
    Mptcp {
        /// Index into [`LabSpec::paths`].
        first: usize,
    },
}

/// A congestion control.
#[derive(Debug, Clone, PartialEq)]
pub enum Cc {
    /// One that the kernel has, by the kernel's name.
    Native(String),
    /// One of the registry with its parameters, loaded for the time of the run.
    Registry(Params),
}

/// Bulk data from sender to receiver, by `iperf3`.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Label in the results.
    pub label: String,
    /// Whether it is measured.
    pub role: Role,
    /// Its congestion control, at both ends.
    pub cc: Cc,
    /// Its paths.
    pub transport: Transport,
    /// Parallel connections.
    pub connections: u32,
    /// When it starts.
    pub start: Nanos,
    /// When it stops; whole seconds after `start` (iperf3 counts in seconds).
    pub stop: Nanos,
}

impl Cc {
    /// The name by which the kernel knows it.
    pub fn kernel_name(&self) -> String {
        match self {
            Self::Native(name) => name.clone(),
            Self::Registry(params) => params.algorithm().info().kernel_name.to_owned(),
        }
    }

    /// The name by which people know it.
    pub fn name(&self) -> &str {
        match self {
            Self::Native(name) => name,
            Self::Registry(params) => params.algorithm().name(),
        }
    }
}

impl Flow {
    /// The path of a single-path flow, or of the first subflow.
    pub(crate) fn first_path(&self) -> usize {
        match self.transport {
            Transport::Tcp { path } => path,
            Transport::Mptcp { first } => first,
        }
    }

    pub(crate) fn seconds(&self) -> u64 {
        (self.stop.get().saturating_sub(self.start.get())) / 1_000_000_000
    }
}

impl Path {
    /// The buffer in bytes of Ethernet frames.
    pub(crate) fn buffer_bytes(&self) -> Option<u64> {
        Some(self.buffer.bytes(Bytes::new(FRAME_BYTES))?.get())
    }
}

impl LabSpec {
    /// Checks every value before anything is made.
    ///
    /// # Errors
    /// [`Error::Spec`] or [`Error::NotExpressible`], naming the key.
    pub fn check(&self) -> Result<(), Error> {
        if self.paths.is_empty() || self.paths.len() > MAX_PATHS {
            let problem = format!("{} paths; the kernel engine takes 1 to {MAX_PATHS}", self.paths.len());
            return Err(Error::spec("topology.paths", problem));
        }
        for path in &self.paths {
            path.check()?;
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
        self.flows.iter().try_for_each(|flow| self.check_flow(flow))
    }

    fn check_flow(&self, flow: &Flow) -> Result<(), Error> {
        let key = |key: &str| format!("traffic[{}].{key}", flow.label);
        if flow.first_path() >= self.paths.len() {
            let problem = format!("path number {} of {}", flow.first_path(), self.paths.len());
            return Err(Error::spec(key("path"), problem));
        }
        if flow.connections == 0 || flow.connections > MAX_CONNECTIONS {
            let problem =
                format!("{} connections; the kernel engine takes 1 to {MAX_CONNECTIONS}", flow.connections);
            return Err(Error::spec(key("connections"), problem));
        }
        if flow.stop <= flow.start || flow.stop > self.duration {
            let problem =
                format!("from {} to {} is not within the duration {}", flow.start, flow.stop, self.duration);
            return Err(Error::spec(key("stop"), problem));
        }
        if !(flow.stop.get() - flow.start.get()).is_multiple_of(1_000_000_000) {
            return Err(Error::NotExpressible {
                key: key("stop"),
                problem: format!("iperf3 sends for whole seconds, not from {} to {}", flow.start, flow.stop),
                remedy: "choose a duration of whole seconds, or use `--engine sim`".to_owned(),
            });
        }
        if flow.role == Role::Competing && !matches!(flow.transport, Transport::Tcp { .. }) {
            return Err(Error::NotExpressible {
                key: key("protocol"),
                problem: "competing traffic over MPTCP".to_owned(),
                remedy: "use protocol \"tcp\" for it, or `--engine sim`".to_owned(),
            });
        }
        Ok(())
    }
}

impl Path {
    fn check(&self) -> Result<(), Error> {
        let key = |key: &str| format!("topology.paths[{}].{key}", self.name);
        // Below, a full frame takes over 12 ms; above, one core cannot keep up and the figure would lie.
        if !(1_000_000..=10_000_000_000).contains(&self.rate.get()) {
            let problem = format!("{} is outside 1mbit to 10gbit, what the kernel engine shapes", self.rate);
            return Err(Error::spec(key("rate"), problem));
        }
        if self.delay > Nanos::from_secs(2) {
            return Err(Error::spec(key("delay"), format!("{} is more than 2s", self.delay)));
        }
        match self.buffer_bytes() {
            Some(bytes) if (FRAME_BYTES..=u64::from(u32::MAX / 2)).contains(&bytes) => Ok(()),
            _ => {
                Err(Error::spec(key("buffer"), format!("{} is not within one packet and 2 GB", self.buffer)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn good() -> LabSpec {
        let path = Path {
            name: "a".into(),
            rate: "100mbit".parse().unwrap(),
            delay: Nanos::ZERO,
            buffer: "150kB".parse().unwrap(),
            marking: None,
        };
        let flow = Flow {
            label: "bulk".into(),
            role: Role::Measured,
            cc: Cc::Native("reno".into()),
            transport: Transport::Mptcp { first: 0 },
            connections: 1,
            start: Nanos::ZERO,
            stop: Nanos::from_secs(4),
        };
        LabSpec {
            run_id: None,
            paths: vec![path],
            flows: vec![flow],
            duration: Nanos::from_secs(4),
            warmup: Nanos::from_secs(1),
            sample_interval: Nanos::from_millis(10),
            series_interval: Nanos::from_millis(100),
            receive_buffer: None,
            send_buffer: None,
        }
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
        refused(|s| s.paths[0].rate = BitsPerSec::ZERO, "topology.paths[a].rate");
        refused(|s| s.paths[0].delay = Nanos::from_secs(3), "topology.paths[a].delay");
        refused(|s| s.paths[0].buffer = "0pkt".parse().unwrap(), "topology.paths[a].buffer");
        refused(|s| s.warmup = s.duration, "warmup");
        refused(|s| s.sample_interval = Nanos::ZERO, "interval");
        refused(|s| s.flows.clear(), "traffic");
        refused(|s| s.flows[0].role = Role::Competing, "traffic");
        refused(|s| s.flows[0].transport = Transport::Tcp { path: 1 }, "traffic[bulk].path");
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
