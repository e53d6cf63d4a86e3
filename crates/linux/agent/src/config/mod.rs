//! Configuration of the agent: the desired state of a host, as a TOML text (docs/reference/agent.md).

mod check;
mod sysctl;
#[cfg(test)]
mod tests;

pub use sysctl::SysctlName;
pub(crate) use sysctl::normal;

use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::path::Path;
use vmcc_cc::{Algorithm, Params};
use vmcc_config::Diagnostic;
use vmcc_config::{MAX_BYTES, Source};
use vmcc_guard::Policy;
use vmcc_port::{FileError, PortConfig};
use vmcc_units::{Bytes, Nanos};

/// Default of [`Config::interval`].
const DEFAULT_INTERVAL: Nanos = Nanos::new(10_000_000_000);

/// Desired state of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Interval between reconciliations if nothing is announced.
    pub interval: std::time::Duration,
    /// The algorithms that are up.
    pub algorithms: Vec<Params>,
    /// The network namespace that the agent was started in.
    pub host: Settings,
    /// Others, by name; the first that fits counts.
    pub namespaces: Vec<NamespaceRule>,
    /// Cgroups, in whatever network namespace their processes are; the first that fits counts.
    pub cgroups: Vec<CgroupRule>,
    /// Ports of the agent's namespace that are served.
    pub ports: BTreeMap<String, PortConfig>,
    /// Policy of the guard for paths that an algorithm finds to share a bottleneck, and for others; `None`: no guard.
    pub guard: Option<Policy>,
    /// Address of the metrics server, if there is one.
    pub metrics: Option<SocketAddr>,
    /// Settings that have no effect, with the reason.
    pub unheeded: Vec<String>,
}

/// The text of a configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    agent: Agent,
    #[serde(default)]
    algorithm: BTreeMap<String, BTreeMap<String, Value>>,
    #[serde(default)]
    host: Settings,
    #[serde(default)]
    namespace: Vec<NamespaceRule>,
    #[serde(default)]
    cgroup: Vec<CgroupRule>,
    #[serde(default)]
    port: BTreeMap<String, PortConfig>,
    #[serde(default)]
    guard: Guard,
    metrics: Option<Metrics>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agent {
    #[serde(default = "default_interval")]
    interval: Nanos,
}

fn default_interval() -> Nanos {
    DEFAULT_INTERVAL
}

impl Default for Agent {
    fn default() -> Self {
        Self { interval: DEFAULT_INTERVAL }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Guard {
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    dry_run: bool,
    drain: Option<Nanos>,
    min_paths: Option<u32>,
    #[serde(default)]
    close_failed: bool,
    chi: Option<f64>,
    #[serde(default)]
    suppress_useless: bool,
    omega: Option<f64>,
    retry: Option<Nanos>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metrics {
    /// From other hosts only where an address says so.
    #[serde(default = "default_listen")]
    listen: SocketAddr,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 9464))
}

/// A parameter's value, or a sysctl's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a number or a text")]
enum Value {
    Whole(i64),
    Number(f64),
    Text(String),
}

/// Settings of one network namespace.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The congestion control of new connections, by its name in the kernel.
    pub congestion_control: Option<String>,
    /// True if running connections switch to it, too: those that use the previous default.
    #[serde(default)]
    pub live: bool,
    /// Limit of unsent bytes per subflow.
    pub notsent_lowat: Option<Bytes>,
    /// Further sysctls of the network.
    #[serde(default)]
    sysctl: BTreeMap<String, Value>,
    /// The MPTCP path manager.
    #[serde(default)]
    pub mptcp: Mptcp,
}

/// The settings of namespaces whose name fits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceRule {
    /// The name under /run/netns; `*` and `?` stand for any text and any character.
    pub name: String,
    /// The congestion control of new connections, by its name in the kernel.
    congestion_control: Option<String>,
    /// True if running connections switch to it, too: those that use the previous default.
    #[serde(default)]
    live: bool,
    /// Limit of unsent bytes per subflow.
    notsent_lowat: Option<Bytes>,
    #[serde(default)]
    sysctl: BTreeMap<String, Value>,
    #[serde(default)]
    mptcp: Mptcp,
}

impl NamespaceRule {
    /// Settings of each matching namespace.
    pub fn settings(&self) -> Settings {
        Settings {
            congestion_control: self.congestion_control.clone(),
            live: self.live,
            notsent_lowat: self.notsent_lowat,
            sysctl: self.sysctl.clone(),
            mptcp: self.mptcp.clone(),
        }
    }
}

/// Settings of the connections of cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupRule {
    /// Below where cgroup2 is mounted; `*` and `?` as above, but for the `/`.
    pub path: String,
    /// The congestion control of new connections, by its name in the kernel.
    pub congestion_control: Option<String>,
    /// TCP sockets of its programs become MPTCP sockets.
    #[serde(default)]
    pub upgrade: bool,
}

/// The MPTCP path manager of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mptcp {
    /// Additional subflows that a connection may have.
    pub subflows: Option<u32>,
    /// Addresses announced by the other end that a connection may use.
    pub accept: Option<u32>,
    /// The addresses that are used.
    #[serde(default, rename = "endpoint")]
    pub endpoints: Vec<EndpointRule>,
}

/// Which addresses are endpoints, and what for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointRule {
    /// The interfaces whose addresses these are; `*` and `?` as above.
    pub nic: String,
    /// Flags of the endpoints.
    pub flags: Vec<EndpointFlag>,
    /// Which addresses.
    #[serde(default)]
    pub family: Family,
    /// TCP port that is announced with the address; the kernel listens at it.
    pub port: Option<NonZeroU16>,
    /// The endpoint's number; without one the lowest that is free.
    pub id: Option<NonZeroU8>,
}

/// Flag of an MPTCP endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointFlag {
    /// Announced to the other end.
    Signal,
    /// Subflows are opened from it.
    Subflow,
    /// Carries data only when no other subflow is left.
    Backup,
    /// Subflows are opened from it to every address of the other end.
    Fullmesh,
    /// A subflow is opened from it to one announced address of the other end, each endpoint to another one.
    Laminar,
}

/// Kinds of addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Both.
    #[default]
    Any,
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
}

impl Settings {
    /// Tests for settings that ask for several paths per connection.
    pub fn wants_several_paths(&self) -> bool {
        let coupled = |name: &String| Algorithm::by_name(name).is_ok_and(|one| one.info().coupled);
        self.mptcp != Mptcp::default() || self.congestion_control.as_ref().is_some_and(coupled)
    }

    /// The sysctls to be set, each once, as files below /proc/sys and as the kernel prints their values.
    pub fn sysctls(&self) -> BTreeMap<SysctlName, String> {
        let given = self.sysctl.iter().filter_map(|(name, value)| {
            let text = match value {
                Value::Whole(number) => number.to_string(),
                Value::Number(number) => number.to_string(),
                Value::Text(text) => sysctl::normal(text),
            };
            Some((SysctlName::parse(name).ok()?, text))
        });
        let mut all: BTreeMap<SysctlName, String> = given.collect();
        if let Some(name) = &self.congestion_control {
            all.insert(SysctlName::congestion_control(), name.clone());
        }
        if let Some(bytes) = self.notsent_lowat {
            all.insert(SysctlName::notsent_lowat(), bytes.get().to_string());
        }
        all
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or it is no configuration of the agent.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let text = FileError::text(path, vmcc_config::read_regular(path, MAX_BYTES as u64))?;
        Self::parse(&path.display().to_string(), &text).map_err(FileError::Invalid)
    }

    /// Reads a text; `name` stands for the file in messages.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn parse(name: &str, text: &str) -> Result<Self, Box<Diagnostic>> {
        let source = Source::parse(name, text)?;
        let text: Text = source.decode()?;
        check::text(&text).map_err(|wrong| Box::new(wrong.locate(&source)))
    }
}
