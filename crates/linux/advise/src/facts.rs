//! Facts that advice is made from. Rates and times are numbers in the unit of their name; what is not known is `None`.

use serde::Serialize;
use std::net::IpAddr;
use vmcc_system::mptcp::Fallbacks;

/// A host, its way to a peer, and an application.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Facts {
    /// Kernel, processors, TCP settings.
    pub host: Host,
    /// MPTCP's state and settings.
    pub mptcp: Mptcp,
    /// Network interfaces with addresses, without loopback, the lowest index first.
    pub nics: Vec<Nic>,
    /// Interface by which a connection that chooses no address leaves: TCP's path.
    pub first_nic: Option<String>,
    /// Each pair of an address here and one of the peer; none without a peer.
    pub paths: Vec<Path>,
    /// The peer, if one is given.
    pub peer: Option<Peer>,
    /// The application.
    pub application: Application,
}

impl Facts {
    /// Addresses of the peer; none without one.
    pub fn peer_addresses(&self) -> &[IpAddr] {
        self.peer.as_ref().map(|peer| peer.addresses.as_slice()).unwrap_or_default()
    }
}

/// Kernel, processors, TCP settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// Processors that this process may use.
    pub processors: Option<u32>,
    /// Runnable processes, mean of the last minute.
    pub load: Option<f64>,
    /// Cgroups that ran out of their processor quota, as far as they can be seen.
    pub throttled_cgroups: usize,
    /// Congestion control of new connections.
    pub congestion_control: Option<String>,
    /// `net.ipv4.tcp_notsent_lowat`.
    pub notsent_lowat_bytes: Option<u64>,
    /// Minimum, default and maximum of `net.ipv4.tcp_rmem`.
    pub tcp_rmem_bytes: Option<[u64; 3]>,
    /// Minimum, default and maximum of `net.ipv4.tcp_wmem`.
    pub tcp_wmem_bytes: Option<[u64; 3]>,
    /// Firewall rules of this host that name MPTCP or its TCP option; `None` where they cannot be read.
    pub firewall_rules: Option<Vec<String>>,
}

/// Support of MPTCP by the kernel of a network namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MptcpState {
    /// The kernel has none.
    #[default]
    Absent,
    /// `net.mptcp.enabled` is 0.
    Off,
    /// In use.
    On,
}

/// MPTCP's state and settings in a network namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Mptcp {
    /// Support.
    pub state: MptcpState,
    /// The kernel manages paths (`net.mptcp.pm_type` of 0), not user space.
    pub kernel_path_manager: bool,
    /// `net.mptcp.scheduler`.
    pub scheduler: Option<String>,
    /// Limits of the path manager.
    pub limits: Option<Limits>,
    /// Its endpoints; `None` where they cannot be read.
    pub endpoints: Option<Vec<Endpoint>>,
    /// Connections that fell back to TCP.
    pub fallbacks: Option<Fallbacks>,
}

/// Limits of a path manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Additional subflows per connection.
    pub subflows: u32,
    /// Addresses announced by the peer that are used.
    pub accept: u32,
}

/// Endpoint of a path manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Announced to the peer.
    pub signal: bool,
    /// Subflows are opened from it (`subflow`).
    pub subflow: bool,
    /// Pairs with announced addresses (`laminar`).
    pub laminar: bool,
    /// Used when no other subflow is left.
    pub backup: bool,
    /// Its subflows are bound to an interface.
    pub bound: bool,
}

/// Network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Operational: up, with a carrier.
    pub running: bool,
    /// Addresses that others can reach.
    pub addresses: Vec<IpAddr>,
    /// Rate of its link.
    pub rate_bps: Option<u64>,
    /// Interface that it is a part of (VLAN, macvlan, ipvlan): those of one share its rate.
    pub lower: Option<String>,
}

/// Pair of an address here and one of the peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Path {
    /// Interface that has the address.
    pub nic: String,
    /// Address here.
    pub local: IpAddr,
    /// Address of the peer.
    pub remote: IpAddr,
    /// Route of packets from one to the other.
    pub route: Route,
    /// Round-trip time: of a TCP handshake, or the least of running connections.
    pub rtt_us: Option<u64>,
    /// Share of packets that running connections sent again.
    pub retransmitted: Option<f64>,
}

/// Route by source address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Route {
    /// By the interface that has the address.
    Own {
        /// Next hop; `None`: on the link.
        gateway: Option<IpAddr>,
    },
    /// By the interface that has the address, but only for sockets that are bound to it: subflows of an endpoint with a device.
    Bound {
        /// Next hop; `None`: on the link.
        gateway: Option<IpAddr>,
    },
    /// By another interface.
    Other {
        /// Its name.
        nic: String,
        /// Next hop there.
        gateway: Option<IpAddr>,
    },
    /// Nowhere.
    None,
}

impl Route {
    /// By the interface that has the address, at least for sockets that are bound to it.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own { .. } | Self::Bound { .. })
    }
}

/// Peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Peer {
    /// As it was given.
    pub name: String,
    /// Its addresses, the first preferred.
    pub addresses: Vec<IpAddr>,
    /// TCP port that was probed.
    pub port: Option<u16>,
    /// Outcome of a connection to that port.
    pub probe: Option<Probe>,
    /// Running connections with it.
    pub connections: Connections,
}

/// Outcome of a connection that was opened as MPTCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Probe {
    /// None was established.
    Failed {
        /// Cause.
        error: String,
    },
    /// It became TCP.
    Tcp {
        /// A SYN with MPTCP's option was not answered and one without it was, or the kernel did not try for that reason.
        option_dropped: bool,
    },
    /// It is MPTCP.
    Mptcp {
        /// Subflows beyond the first.
        joined: u32,
        /// Addresses that the peer announced.
        announced: u32,
        /// Joins that this host sent; `None` where the kernel does not count them (before Linux 6.12).
        joins_sent: Option<u64>,
        /// Joins that were still unanswered at the end.
        joins_unanswered: u32,
    },
}

/// Counts of running connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// All.
    pub total: usize,
    /// MPTCP connections; `None`: only root can tell.
    pub mptcp: Option<usize>,
    /// Those that began as MPTCP and became TCP; only root can tell.
    pub fell_back: usize,
    /// MPTCP connections with several subflows.
    pub multipath: usize,
    /// Those with ECN.
    pub ecn: usize,
}

/// Kind of application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Transfers, each limited by the network or a disk.
    Bulk,
    /// Requests and responses on kept connections.
    RequestResponse,
}

/// Application.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Application {
    /// Kind.
    pub kind: Option<Kind>,
    /// Bytes of a transfer, or of a response.
    pub size_bytes: Option<u64>,
    /// Connections that carry data at the same time.
    pub concurrency: Option<u32>,
    /// Rate that the application offers by itself, such as a disk's.
    pub demand_bps: Option<u64>,
    /// Its server closes the listening socket of a data connection after `accept`, as FTP's do.
    pub closes_listener: bool,
    /// Bulk and small messages were seen beside each other.
    pub mixed: bool,
    /// Share of the time with data to send in which the peer's receive window was the limit.
    pub receive_window_limited: Option<f64>,
}
