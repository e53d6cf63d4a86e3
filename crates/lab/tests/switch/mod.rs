//! Helpers of the tests of virtual-switch ports: a switch in a namespace, hosts on its ports, real traffic, and the comparison of marking
//! with tail drop on one port.
#![allow(dead_code, unreachable_pub, reason = "each program uses its part")]

pub mod accecn;
pub mod compare;
pub mod conformance;
pub mod mixed;
pub mod multipath;
pub mod ovs;
pub mod podman;
pub mod traffic;
pub mod vm;

pub use vmcc_testkit::netns::{Namespace, Server, own_name, run};

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use vmcc_port::{Port, PortConfig, PortError};

/// A host (or container) on a port of a switch: a namespace with one interface `e0`, 10.79.0.N.
pub struct Host {
    pub namespace: Namespace,
    /// The port's name on the switch's side.
    pub port: String,
    pub address: String,
    /// A second interface, on a port of its own.
    pub second: Option<Vnic>,
}

/// Number of ports made outside of a switch's namespace.
static PORTS: AtomicU32 = AtomicU32::new(0);

/// An interface of a host.
#[derive(Debug, Clone)]
pub struct Vnic {
    /// The port's name on the switch's side.
    pub port: String,
    pub address: String,
}

impl Host {
    /// Connects a new host to the namespace of a switch; `None`: that of this process. The port is not yet part of a
    /// switch.
    pub fn new(switch: Option<&Namespace>, number: u8) -> Self {
        let namespace = Namespace::new("h");
        // Interfaces have 15 characters; without a namespace of its own the port needs a name of its own.
        // It is never used again: the one of a namespace that is gone is still there for a moment.
        let port = if switch.is_some() {
            format!("p{number}")
        } else {
            format!("vs{}p{}", std::process::id(), PORTS.fetch_add(1, Ordering::Relaxed))
        };
        let place = switch.map_or_else(|| "ip".to_owned(), |s| format!("ip -n {}", s.0));
        run(&format!("{place} link add {port} type veth peer name e0 netns {}", namespace.0));
        run(&format!("{place} link set {port} up"));
        let address = format!("10.79.0.{number}");
        run(&format!("ip -n {} addr add {address}/24 dev e0", namespace.0));
        run(&format!("ip -n {} link set e0 up", namespace.0));
        settle(&namespace, "e0");
        Self { namespace, port, address, second: None }
    }

    /// As [`Host::new`], with a second interface `e1`, 10.79.1.N.
    pub fn with_two(switch: Option<&Namespace>, number: u8) -> Self {
        let mut host = Self::new(switch, number);
        let port = format!("{}b", host.port);
        let place = switch.map_or_else(|| "ip".to_owned(), |s| format!("ip -n {}", s.0));
        let name = &host.namespace.0;
        run(&format!("{place} link add {port} type veth peer name e1 netns {name}"));
        run(&format!("{place} link set {port} up"));
        let address = format!("10.79.1.{number}");
        run(&format!("ip -n {name} addr add {address}/24 dev e1"));
        run(&format!("ip -n {name} link set e1 up"));
        settle(&host.namespace, "e1");
        host.second = Some(Vnic { port, address });
        host
    }

    /// Its ports' names on the switch's side.
    pub fn ports(&self) -> Vec<&str> {
        std::iter::once(self.port.as_str()).chain(self.second.iter().map(|vnic| vnic.port.as_str())).collect()
    }

    /// TCP segments that this host sent and `to` did not get, once what is on its way has arrived.
    pub fn segments_lost_to(&self, to: &Host) -> u64 {
        let mut lost = 0;
        for _ in 0..100 {
            let got = to.tcp_counter("InSegs");
            lost = (self.tcp_counter("OutSegs") + self.tcp_counter("RetransSegs")).saturating_sub(got);
            if lost == 0 {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        lost
    }

    fn tcp_counter(&self, name: &str) -> u64 {
        let text = self.namespace.within(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let names = lines.next().expect("names").split(' ');
        let mut values = names.zip(lines.next().expect("values").split(' '));
        values
            .find(|(found, _)| *found == name)
            .and_then(|(_, value)| value.parse().ok())
            .expect("the counter")
    }
}

/// ECN Reno, and packets of the wire's size, as from a NIC without offloads.
fn settle(namespace: &Namespace, device: &str) {
    namespace.within(|| {
        vmcc_netlink::disable_segmentation_offload(device).unwrap();
        std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").unwrap();
        std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1").unwrap();
    });
}

/// A Linux bridge in a namespace of its own, with hosts on its ports.
pub struct Bridge {
    pub namespace: Namespace,
    pub hosts: Vec<Host>,
}

impl Bridge {
    pub fn new(hosts: u8) -> Self {
        Self::of(hosts, Host::new)
    }

    /// Hosts with two interfaces, each on a port of its own.
    pub fn with_two(hosts: u8) -> Self {
        Self::of(hosts, Host::with_two)
    }

    fn of(hosts: u8, host: impl Fn(Option<&Namespace>, u8) -> Host) -> Self {
        let namespace = Namespace::new("s");
        run(&format!("ip -n {} link add br0 type bridge", namespace.0));
        run(&format!("ip -n {} link set br0 up", namespace.0));
        let hosts: Vec<Host> = (1..=hosts).map(|number| host(Some(&namespace), number)).collect();
        for port in hosts.iter().flat_map(Host::ports) {
            run(&format!("ip -n {} link set {port} master br0", namespace.0));
        }
        Self { namespace, hosts }
    }

    pub fn attach(&self, host: usize, text: &str) -> Port {
        self.try_attach(host, text).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Every port of a host.
    pub fn attach_all(&self, host: usize, config: &PortConfig) -> Vec<Port> {
        let attach = |port| Port::attach_in(&self.namespace.file(), port, config);
        let ports = self.hosts[host].ports();
        ports.into_iter().map(|port| attach(port).unwrap_or_else(|e| panic!("{e}"))).collect()
    }

    pub fn try_attach(&self, host: usize, text: &str) -> Result<Port, PortError> {
        Port::attach_in(&self.namespace.file(), &self.hosts[host].port, &config(text))
    }

    /// Output of `tc qdisc show` for a host's port.
    pub fn queues(&self, host: usize) -> String {
        run(&format!("tc -n {} qdisc show dev {}", self.namespace.0, self.hosts[host].port))
    }
}

/// As [`vmcc_testkit::port::config`].
pub fn config(text: &str) -> PortConfig {
    vmcc_testkit::port::config(text)
}
