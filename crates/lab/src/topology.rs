//! Parallel paths between two namespaces.
//!
//! ```text
//!  snd ── p0 ──┐  mid 0                          ┌── p0 ── rcv
//!              ├─ bridge l ── lt ═══ rt ── bridge r ─┤
//!  xsnd ─ p0 ──┘              shaped             └── p0 ── xrcv
//! ```
//!
//! Each path has a namespace of its own in the middle with two bridges, joined by a pair of ports that are
//! shaped in each direction: the path's bottleneck. `snd` and `rcv` have one port on every path, the competing
//! endpoints `xsnd` and `xrcv` on the paths where something competes. Every path is a subnet of its own, so a
//! subflow leaves by the port of its addresses without any routing rule. Nothing is made outside namespaces of
//! this run, so removing these removes everything.

use crate::spec::{FRAME_BYTES, LabSpec, Path, Role};
use crate::{Error, netns::Netns, registry::Record};
use std::io;
use std::net::Ipv4Addr;
use vmcc_netlink::{Links, PathManager, Qdiscs, QueueStats, Shaper, disable_segmentation_offload, os_code};
use vmcc_units::Nanos;

/// The shaped port towards the receiver, inside a path's namespace.
pub(crate) const BOTTLENECK_PORT: &str = "lt";
/// The shaped port towards the sender.
const RETURN_PORT: &str = "rt";

const PREFIX_LEN: u8 = 24;
/// What may leave a port back to back after an idle time: this much time at the port's rate. A shorter time
/// loses rate when the kernel's timer is late, a longer one lets bursts pass that the queue should see.
const BURST: Nanos = Nanos::from_micros(500);

/// An endpoint, with its last address byte on every path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Sender = 1,
    Receiver = 2,
    CompetingSender = 3,
    CompetingReceiver = 4,
}

/// The address of an endpoint on a path.
pub(crate) fn address(path: usize, end: End) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, u8::try_from(path).unwrap_or(u8::MAX), end as u8)
}

/// The path that an address belongs to.
pub(crate) fn path_of(address: Ipv4Addr) -> Option<usize> {
    let [10, 77, path, _] = address.octets() else { return None };
    Some(usize::from(path))
}

/// The namespaces of one run. Dropping it removes them.
#[derive(Debug)]
pub struct Topology {
    sender: Netns,
    receiver: Netns,
    competing: Option<(Netns, Netns)>,
    middles: Vec<Netns>,
}

impl Topology {
    /// Builds everything that `spec` asks for. On an error what was built is removed.
    pub(crate) fn build(spec: &LabSpec, record: &mut Record) -> Result<Self, Error> {
        let prefix = format!("vmcc-{}", record.run_id());
        let mut make = |name: &str| Netns::create(&format!("{prefix}-{name}"), record);
        let competes = spec.flows.iter().any(|flow| flow.role == Role::Competing);
        let mut topology = Self {
            sender: make("snd")?,
            receiver: make("rcv")?,
            competing: if competes { Some((make("xsnd")?, make("xrcv")?)) } else { None },
            middles: Vec::new(),
        };
        for index in 0..spec.paths.len() {
            topology.middles.push(make(&format!("mid{index}"))?);
        }
        for end in [&topology.sender, &topology.receiver].into_iter().chain(topology.competing_ends()) {
            set_up_stack(end, spec)?;
        }
        for (index, path) in spec.paths.iter().enumerate() {
            topology.add_path(spec, index, path)?;
        }
        let addresses: Vec<_> = (0..spec.paths.len()).map(|path| address(path, End::Receiver)).collect();
        announce(&topology.sender, Vec::new())?;
        announce(&topology.receiver, addresses)?;
        Ok(topology)
    }

    fn competing_ends(&self) -> impl Iterator<Item = &Netns> {
        self.competing.iter().flat_map(|(sender, receiver)| [sender, receiver])
    }

    /// Where the flows of `role` start and end.
    pub fn ends(&self, role: Role) -> (&Netns, &Netns) {
        match (role, &self.competing) {
            (Role::Competing, Some((sender, receiver))) => (sender, receiver),
            _ => (&self.sender, &self.receiver),
        }
    }

    /// The namespace with the shaped ports of a path.
    pub fn middle(&self, path: usize) -> &Netns {
        &self.middles[path]
    }

    /// Every namespace.
    pub fn namespaces(&self) -> impl Iterator<Item = &Netns> {
        [&self.sender, &self.receiver].into_iter().chain(self.competing_ends()).chain(&self.middles)
    }

    fn add_path(&self, spec: &LabSpec, index: usize, path: &Path) -> Result<(), Error> {
        let middle = &self.middles[index];
        let shared = spec.flows.iter().any(|f| f.role == Role::Competing && f.first_path() == index);
        let mut plugs =
            vec![("sl", &self.sender, "l", End::Sender), ("sr", &self.receiver, "r", End::Receiver)];
        if let (true, Some((sender, receiver))) = (shared, &self.competing) {
            plugs.push(("xl", sender, "l", End::CompetingSender));
            plugs.push(("xr", receiver, "r", End::CompetingReceiver));
        }
        middle.sysctl("net.ipv6.conf.all.disable_ipv6", "1").or_else(ignore_missing)?;
        in_namespace(middle, "making the bridges of", || {
            let mut links = Links::open()?;
            links.add_bridge("l")?;
            links.add_bridge("r")?;
            links.add_veth(BOTTLENECK_PORT, RETURN_PORT, None)
        })?;
        connect(middle, BOTTLENECK_PORT, "l")?;
        connect(middle, RETURN_PORT, "r")?;
        for bridge in ["l", "r"] {
            bring_up(middle, bridge, None)?;
        }
        for (port, end, bridge, role) in plugs {
            plug(middle, port, bridge, end, index, address(index, role))?;
            if !path.delay.is_zero() {
                delay(middle, port, path)?;
            }
        }
        for port in [BOTTLENECK_PORT, RETURN_PORT] {
            shape(middle, port, path)?;
        }
        Ok(())
    }

    /// Counters of a path's bottleneck queue.
    pub(crate) fn queue_reader(&self, path: usize) -> Result<QueueReader, Error> {
        let middle = self.middle(path);
        let port = middle.port_index(BOTTLENECK_PORT)?;
        let opened = middle.run(Qdiscs::open);
        let qdiscs = opened.map_err(|e| Error::kernel("reading the queues of", middle.name(), e))?;
        Ok(QueueReader { qdiscs, port })
    }
}

/// Reads the counters of one queue.
pub(crate) struct QueueReader {
    qdiscs: Qdiscs,
    port: u32,
}

impl QueueReader {
    pub(crate) fn read(&mut self) -> Result<QueueStats, Error> {
        self.qdiscs.stats(self.port).map_err(|e| Error::kernel("reading the counters of", "a shaped port", e))
    }
}

/// Settings of an endpoint's TCP. All are settings of the namespace.
fn set_up_stack(end: &Netns, spec: &LabSpec) -> Result<(), Error> {
    in_namespace(end, "bringing up loopback in", || Links::open()?.bring_up(1, None))?;
    end.sysctl("net.ipv6.conf.all.disable_ipv6", "1").or_else(ignore_missing)?;
    end.sysctl("net.mptcp.enabled", "1").map_err(|_| no_mptcp("net.mptcp.enabled cannot be set"))?;
    // What an earlier connection learned about a path would make the runs of a sweep depend on their order.
    end.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
    // Accept ECN when asked; whether to ask is the congestion control's business.
    end.sysctl("net.ipv4.tcp_ecn", "2")?;
    let minimum_and_default = "4096 131072";
    if let Some(bytes) = spec.receive_buffer {
        end.sysctl("net.ipv4.tcp_rmem", &format!("{minimum_and_default} {}", bytes.get()))?;
    }
    if let Some(bytes) = spec.send_buffer {
        end.sysctl("net.ipv4.tcp_wmem", &format!("4096 16384 {}", bytes.get()))?;
    }
    Ok(())
}

/// A kernel without IPv6 has nothing to switch off.
fn ignore_missing(error: Error) -> Result<(), Error> {
    match &error {
        Error::Kernel { source, .. } if source.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

fn no_mptcp(cause: &str) -> Error {
    Error::KernelFeature {
        feature: "Multipath TCP".to_owned(),
        cause: cause.to_owned(),
        remedy: "use a kernel with CONFIG_MPTCP, or `--engine guest`".to_owned(),
    }
}

fn announce(end: &Netns, addresses: Vec<Ipv4Addr>) -> Result<(), Error> {
    let done = end.run(move || {
        let mut manager = PathManager::open()?;
        manager.set_limits(vmcc_netlink::MAX_LIMIT, vmcc_netlink::MAX_LIMIT)?;
        addresses.into_iter().try_for_each(|address| manager.signal(address))
    });
    done.map_err(|e| match os_code(&e) {
        Some(nix::libc::ENOENT) => no_mptcp("the path manager's netlink family is missing"),
        _ => Error::kernel("setting the MPTCP endpoints of", format!("namespace {}", end.name()), e),
    })
}

fn plug(
    middle: &Netns,
    port: &'static str,
    bridge: &str,
    end: &Netns,
    path: usize,
    address: Ipv4Addr,
) -> Result<(), Error> {
    let (name, fd) = (format!("p{path}"), end.raw_fd());
    let peer = name.clone();
    in_namespace(middle, "making a port in", move || Links::open()?.add_veth(port, &peer, Some(fd)))?;
    connect(middle, port, bridge)?;
    let index = end.port_index(&name)?;
    in_namespace(end, "giving an address to a port of", move || {
        disable_segmentation_offload(&name)?;
        let mut links = Links::open()?;
        links.add_address(index, address, PREFIX_LEN)?;
        links.bring_up(index, None)
    })
}

/// Makes `port` a port of `bridge` and switches it on.
fn connect(middle: &Netns, port: &'static str, bridge: &str) -> Result<(), Error> {
    in_namespace(middle, "switching off segmentation offload in", || disable_segmentation_offload(port))?;
    let bridge = middle.port_index(bridge)?;
    bring_up(middle, port, Some(bridge))
}

fn bring_up(middle: &Netns, port: &str, bridge: Option<u32>) -> Result<(), Error> {
    let index = middle.port_index(port)?;
    in_namespace(middle, "bringing up a port of", move || Links::open()?.bring_up(index, bridge))
}

fn shape(middle: &Netns, port: &str, path: &Path) -> Result<(), Error> {
    let index = middle.port_index(port)?;
    let shaper = shaper_of(path);
    let done = middle.run(move || Qdiscs::open()?.add_shaper(index, &shaper));
    done.map_err(|e| missing_queue(e, middle, "tbf", "the token bucket shaper (CONFIG_NET_SCH_TBF)"))
}

fn shaper_of(path: &Path) -> Shaper {
    let burst = path.rate.data_in(BURST).map_or(0, |bytes| bytes.get()).max(2 * FRAME_BYTES);
    let limit_pkt = match path.buffer {
        vmcc_units::Limit::Packets(count) => u32::try_from(count.get()).ok(),
        vmcc_units::Limit::Bytes(_) => None,
    };
    // Checked when the input was: fits 32 bits.
    let limit_bytes = path.buffer_bytes().and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(u32::MAX);
    Shaper {
        rate_bytes_per_s: path.rate.bytes_per_sec(),
        burst_bytes: u32::try_from(burst).unwrap_or(u32::MAX),
        limit_bytes,
        limit_pkt,
    }
}

/// Delays what leaves a path towards an endpoint: once in each direction, behind the bottleneck.
fn delay(middle: &Netns, port: &str, path: &Path) -> Result<(), Error> {
    let index = middle.port_index(port)?;
    let delay_us = u32::try_from(path.delay.get() / 1000).unwrap_or(u32::MAX);
    // Everything that can be on the wire at once, twice over, so that netem itself never drops.
    let in_flight = path.rate.data_in(path.delay).map_or(0, |bytes| bytes.get());
    let limit = u32::try_from(2 * in_flight / 64 + 1000).unwrap_or(u32::MAX);
    let done = middle.run(move || Qdiscs::open()?.add_delay(index, delay_us, limit));
    done.map_err(|e| missing_queue(e, middle, "netem", "path delay (netem, CONFIG_NET_SCH_NETEM)"))
}

fn missing_queue(error: io::Error, namespace: &Netns, kind: &str, feature: &str) -> Error {
    match os_code(&error) {
        Some(nix::libc::ENOENT) => Error::KernelFeature {
            feature: feature.to_owned(),
            cause: format!("it has no queueing discipline {kind}"),
            remedy: format!(
                "`modprobe sch_{kind}` if it is a module, else `--engine guest` or `--engine sim`"
            ),
        },
        _ => Error::kernel("adding a queue in", format!("namespace {}", namespace.name()), error),
    }
}

fn in_namespace<F>(namespace: &Netns, action: &'static str, job: F) -> Result<(), Error>
where
    F: FnOnce() -> io::Result<()> + Send + 'static,
{
    let done = namespace.run(job);
    done.map_err(|e| Error::kernel(action, format!("namespace {}", namespace.name()), e))
}
