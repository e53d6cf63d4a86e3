//! State of this host, read at once.

use crate::connections::{Connection, Observer};
use crate::{Error, daemon};
use serde::Serialize;
use vmcc_bpf::{Lingering, Status};
use vmcc_system::cpu_steal::{self, CpuSteal};
use vmcc_system::diag::Subflow;
use vmcc_system::mptcp::{self, Fallbacks};

/// State of this host: algorithms, sockets, connections, ports and the agent.
#[derive(Debug, Serialize)]
pub struct HostStatus {
    /// The algorithms that are loaded, by whomever.
    pub algorithms: Vec<Status>,
    /// Algorithms that were taken down and are still in the kernel; not looked for by [`Observer::look`].
    pub lingering: Vec<Lingering>,
    /// The sockets of this network namespace that use them.
    pub sockets: Vec<Subflow>,
    /// The connections that these are the paths of.
    pub connections: Vec<Connection>,
    /// The ports of this network namespace that are served.
    pub ports: Vec<String>,
    /// Status document of the agent, if one runs.
    pub agent: Option<serde_json::Value>,
    /// Values that an ended agent left on record; none while one runs, and not looked for by [`Observer::look`].
    pub left: Vec<serde_json::Value>,
    /// Connections of this network namespace that were to be MPTCP and became TCP, where the kernel counts them.
    pub fallbacks: Option<Fallbacks>,
    /// For how long the kernel opens connections as TCP after it found that SYNs with MPTCP's option are dropped.
    pub blackhole_timeout_s: Option<u64>,
    /// Processor time that this machine did not get, and what that may have cost.
    pub taken: CpuSteal,
}

/// Reads the state of this host.
///
/// # Errors
/// The kernel or a running agent does not report its state.
pub fn status() -> Result<HostStatus, Error> {
    Observer::open()?.status()
}

impl Observer {
    /// Reads the state of this host.
    ///
    /// # Errors
    /// The kernel or a running agent does not report its state.
    pub fn status(&mut self) -> Result<HostStatus, Error> {
        let mut status = self.look(daemon::view)?;
        status.taken.throttled = cpu_steal::throttled();
        status.lingering = vmcc_bpf::lingering()?;
        status.left = daemon::left();
        Ok(status)
    }

    /// The same but for throttled cgroups, for who looks again and again and asks the agent in its own way.
    ///
    /// # Errors
    /// As [`Observer::status`], and those of `agent`.
    pub fn look(
        &mut self,
        agent: impl FnOnce() -> Result<Option<serde_json::Value>, Error>,
    ) -> Result<HostStatus, Error> {
        let algorithms = vmcc_bpf::list()?;
        let ports = vmcc_port::attached()?;
        let names: Vec<&str> = algorithms.iter().map(|algorithm| algorithm.kernel_name.as_str()).collect();
        let sockets = self.sockets(&names)?;
        let agent = agent()?;
        let connections = self.connections(&sockets, agent.as_ref());
        Ok(HostStatus {
            algorithms,
            lingering: Vec::new(),
            sockets,
            connections,
            ports,
            agent,
            left: Vec::new(),
            fallbacks: Fallbacks::read().ok(),
            blackhole_timeout_s: mptcp::blackhole_timeout_s(),
            taken: CpuSteal::now(),
        })
    }
}
