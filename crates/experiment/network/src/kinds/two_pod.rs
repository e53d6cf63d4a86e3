//! Two pods of servers with several NICs, each NIC to its own switch of the pod.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use super::{Ends, Kind, default_buffer, numbered, path_name, rate_times, times};
use crate::check::{self, Check, fault, require};
use crate::{
    Builder, Draw, HostId, LinkId, LinkSettings, Marking, Network, NodeId, PathId, PortId, Queue, RoutePair,
    Routes,
};

/// Servers `p0s0`, ... (pod 0) and `p1s0`, ... (pod 1), each with NICs to different switches of its pod
/// (`p0t0`, `p0t1`, ...), and core links between the pods' switches of the same number (`core0`, `core1`, ...).
///
/// The link of server `p0s1`'s NIC 0 is named `p0s1.0`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TwoPod {
    /// Servers in each pod.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 65536))]
    pub servers_per_pod: u32,
    /// NICs of each server, and so switches of each pod.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 64))]
    pub nics: u32,
    /// The rate of each NIC.
    pub rate: BitsPerSec,
    /// The one-way delay of each link.
    pub delay: Nanos,
    /// The buffer of each port.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// Marking rule of the switches' queues.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each switch port.
    #[serde(default)]
    pub queue: Queue,
    /// The rate of each core link. Absent: a pod's servers on it never compete (`rate` x `servers_per_pod`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_rate: Option<BitsPerSec>,
    /// A limit on what each NIC sends (the tenant's rate limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_limit: Option<BitsPerSec>,
    /// A limit on what all NICs of a server send together (as some clouds throttle).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_limit: Option<BitsPerSec>,
}

fn two() -> u32 {
    2
}

fn four() -> u32 {
    4
}

/// The ports of servers and switches.
struct Ports {
    down: PortId,
    nic: PortId,
    all_nics: Option<PortId>,
}

impl TwoPod {
    /// The settings of a switch's port at this rate.
    fn port(&self, rate: BitsPerSec) -> LinkSettings {
        LinkSettings::plain(rate, self.delay, self.buffer).with_queues(self.marking, &self.queue)
    }

    /// The servers of a pod (0 or 1).
    fn server_names(&self, pod: u32) -> Vec<String> {
        numbered(&format!("p{pod}s"), self.servers_per_pod)
    }

    /// Rate of a NIC.
    fn nic_rate(&self) -> BitsPerSec {
        self.nic_limit.unwrap_or(self.rate)
    }

    /// Rate of a server.
    fn server_rate(&self) -> BitsPerSec {
        let all = rate_times(self.nic_rate(), u64::from(self.nics));
        self.server_limit.map_or(all, |limit| limit.min(all))
    }

    fn core_rate(&self) -> BitsPerSec {
        self.core_rate.unwrap_or(rate_times(self.rate, u64::from(self.servers_per_pod)))
    }

    fn ports(&self, builder: &mut Builder, base_rtt: Nanos) -> Ports {
        // The server's own ports drop at their end; only switches mark.
        let plain = |rate, delay| LinkSettings::plain(rate, delay, self.buffer);
        Ports {
            down: builder.port(self.port(self.rate), base_rtt),
            nic: builder.port(plain(self.nic_rate(), self.delay), base_rtt),
            all_nics: self.server_limit.map(|rate| builder.port(plain(rate, Nanos::ZERO), base_rtt)),
        }
    }

    /// Sending and receiving links of one server's NICs, after its shared limit.
    fn server(&self, builder: &mut Builder, name: &str, switches: &[NodeId], ports: &Ports) -> Server {
        let host = builder.host(name, self.server_rate());
        let shared = ports.all_nics.map(|port| {
            let inner = builder.node(format!("{name}.nics"));
            (builder.link(host, inner, port), inner)
        });
        let out = shared.map_or(host, |(_, inner)| inner);
        let mut nics = Vec::new();
        for (nic, &switch) in switches.iter().enumerate() {
            let up = builder.link(out, switch, ports.nic);
            let down = builder.link(switch, host, ports.down);
            builder.cable(format!("{name}.{nic}"), [up, down]);
            builder.paths()[nic].links.extend([up, down]);
            nics.push((up, down));
        }
        Server { nics, limit: shared.map(|(link, _)| link) }
    }
}

impl Kind for TwoPod {
    fn ends(&self) -> Ends {
        Ends::two_sides(self.server_names(0), self.server_names(1))
    }

    fn paths(&self) -> Vec<String> {
        (0..self.nics as usize).map(path_name).collect()
    }

    fn queues(&self) -> Vec<&Queue> {
        vec![&self.queue]
    }

    fn check(&self, mtu: Bytes) -> Check {
        check::count(self.servers_per_pod, "servers_per_pod")?;
        require((1..=64).contains(&self.nics), "topology.nics", "from 1 to 64 NICs are possible")?;
        self.port(self.rate).check(mtu, "topology")?;
        for (limit, key) in [
            (self.core_rate, "core_rate"),
            (self.nic_limit, "nic_limit"),
            (self.server_limit, "server_limit"),
        ] {
            if let Some(rate) = limit {
                check::rate(rate, &format!("topology.{key}"))?;
            }
        }
        if self.core_rate.is_none() {
            let core = self.rate.checked_mul(u64::from(self.servers_per_pod));
            let core = core.ok_or_else(|| fault("topology.rate", "the core's rate overflows 64 bits"))?;
            check::rate(core, "topology.core_rate")?;
        }
        let useful = self.nic_limit.is_none_or(|limit| limit <= self.rate);
        require(useful, "topology.nic_limit", "a limit above the NIC's own rate limits nothing")
    }

    fn network(&self) -> Network {
        let base_rtt = times(self.delay, 6);
        let mut builder = Builder::new(base_rtt);
        let core_port = builder.port(self.port(self.core_rate()), base_rtt);
        let ports = self.ports(&mut builder, base_rtt);
        let (mut cores, mut switches) = (Vec::new(), [Vec::new(), Vec::new()]);
        for nic in 0..self.nics {
            let ends = (builder.node(format!("p0t{nic}")), builder.node(format!("p1t{nic}")));
            let core = builder.duplex(ends, core_port);
            builder.cable(format!("core{nic}"), [core.0, core.1]);
            builder.path(path_name(nic as usize), core.0, vec![core.0, core.1]);
            cores.push(core);
            switches[0].push(ends.0);
            switches[1].push(ends.1);
        }
        let mut servers = Vec::new();
        for pod in 0..2 {
            for name in self.server_names(pod) {
                servers.push(self.server(&mut builder, &name, &switches[pod as usize], &ports));
            }
        }
        builder.finish(Pods { servers, cores })
    }
}

/// Sending and receiving links of a server's NICs, and the link of its shared limit.
#[derive(Debug)]
struct Server {
    nics: Vec<(LinkId, LinkId)>,
    limit: Option<LinkId>,
}

/// The servers of both pods, and per NIC number the core link there and back.
#[derive(Debug)]
struct Pods {
    servers: Vec<Server>,
    cores: Vec<(LinkId, LinkId)>,
}

impl Pods {
    fn one(&self, from: usize, to: usize, nic: usize) -> Vec<LinkId> {
        let half = self.servers.len() / 2;
        let core = match (from < half, to < half) {
            (true, false) => Some(self.cores[nic].0),
            (false, true) => Some(self.cores[nic].1),
            _ => None,
        };
        let (from, to) = (&self.servers[from], &self.servers[to]);
        [from.limit, Some(from.nics[nic].0), core, Some(to.nics[nic].1)].into_iter().flatten().collect()
    }
}

impl Routes for Pods {
    fn between(&self, from: HostId, to: HostId, _count: usize, _draw: Draw<'_>) -> Vec<RoutePair> {
        let (from, to) = (from.index(), to.index());
        let pair = |nic: u32| RoutePair {
            path: Some(PathId(nic)),
            forward: self.one(from, to, nic as usize),
            reverse: self.one(to, from, nic as usize),
        };
        (0..).take(self.cores.len()).map(pair).collect()
    }
}
