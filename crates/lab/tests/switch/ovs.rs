//! Open vSwitch, run privately: its own database, sockets and logs, in the network namespace of the calling thread.

use super::compare::{MARKING, compare, compare_multipath};
use super::traffic::transfer;
use super::{Host, Namespace, config, multipath, own_name, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_port::Port;
use vmcc_port::PortConfig;

/// Datapath of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datapath {
    /// The kernel module.
    Kernel,
    /// The daemon itself, as with DPDK; its ports are packet sockets and taps.
    Userspace,
}

impl Datapath {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel datapath",
            Self::Userspace => "userspace datapath",
        }
    }
}

/// A running Open vSwitch with one bridge. Stopped and removed on drop.
pub struct Ovs {
    directory: PathBuf,
    bridge: String,
}

impl Ovs {
    pub fn start(datapath: Datapath) -> Self {
        let directory = Path::new("/run").join(own_name("ovs"));
        std::fs::create_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        let ovs = Self { directory, bridge: format!("ovs{}", std::process::id()) };
        if datapath == Datapath::Kernel {
            run("modprobe openvswitch");
        } else if !Path::new("/dev/net/tun").exists() {
            // Its bridge is a tap.
            run("modprobe tun");
        }
        // Open vSwitch counts processors only from ten seconds after boot on, and starts no handlers before.
        while uptime() < 11.0 {
            thread::sleep(Duration::from_millis(100));
        }
        let dir = ovs.directory.display().to_string();
        run(&format!("ovsdb-tool create {dir}/conf.db /usr/share/openvswitch/vswitch.ovsschema"));
        run(&format!(
            "ovsdb-server {dir}/conf.db --remote=punix:{dir}/db --unixctl={dir}/db.ctl --pidfile={dir}/db.pid --detach \
             --no-chdir --log-file={dir}/db.log -vconsole:off"
        ));
        ovs.vsctl("--no-wait init");
        ovs.start_switch();
        let kind = if datapath == Datapath::Kernel { "system" } else { "netdev" };
        ovs.vsctl(&format!("add-br {} -- set bridge {} datapath_type={kind}", ovs.bridge, ovs.bridge));
        ovs
    }

    fn start_switch(&self) {
        let dir = self.directory.display();
        run(&format!(
            "ovs-vswitchd unix:{dir}/db --unixctl={dir}/vs.ctl --pidfile={dir}/vs.pid --detach --no-chdir \
             --log-file={dir}/vs.log -vconsole:off"
        ));
    }

    fn vsctl(&self, words: &str) -> String {
        run(&format!("ovs-vsctl --timeout=20 --db=unix:{}/db {words}", self.directory.display()))
    }

    pub fn add_port(&self, port: &str) {
        self.vsctl(&format!("add-port {} {port}", self.bridge));
    }

    /// Two hosts on it.
    fn connect(&self, datapath: Datapath, host: impl Fn(Option<&Namespace>, u8) -> Host) -> [Host; 2] {
        let hosts = [host(None, 1), host(None, 2)];
        for host in &hosts {
            if datapath == Datapath::Userspace {
                // A switch in user space passes packets on as they come: nothing fills in a checksum left to a device.
                host.namespace.within(|| {
                    let devices = ["e0", "e1"].into_iter().take(host.ports().len());
                    devices.for_each(|device| vmcc_netlink::disable_checksum_offload(device).unwrap());
                });
            }
            for port in host.ports() {
                self.add_port(port);
                self.leave_queues_alone(port);
            }
        }
        hosts
    }

    /// Tells Open vSwitch that the port's queues are none of its business.
    pub fn leave_queues_alone(&self, port: &str) {
        self.vsctl(&format!("set port {port} qos=@q -- --id=@q create qos type=linux-noop"));
    }

    /// Changes that make Open vSwitch go through its ports.
    pub fn change_other_things(&self, port: &str) {
        let other = "othervs";
        self.vsctl(&format!("add-port {} {other} -- set interface {other} type=internal", self.bridge));
        self.vsctl(&format!("set interface {port} mtu_request=1400"));
        self.vsctl(&format!("set interface {port} mtu_request=1500"));
        self.vsctl(&format!("del-port {} {other}", self.bridge));
    }

    /// Restarts the daemon, as an upgrade does.
    pub fn restart(&self) {
        self.stop("vs.pid");
        self.start_switch();
        // Answers once it has gone through its ports.
        self.vsctl(&format!("set bridge {} other_config:restarted=1", self.bridge));
        self.vsctl(&format!("remove bridge {} other_config restarted", self.bridge));
    }

    fn stop(&self, pidfile: &str) {
        let Ok(pid) = std::fs::read_to_string(self.directory.join(pidfile)) else { return };
        let pid = pid.trim();
        let _ = Command::new("kill").arg(pid).output();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Path::new("/proc").join(pid).exists() {
            if Instant::now() > deadline {
                let _ = Command::new("kill").args(["-9", pid]).output();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        // While the switch runs: it takes the bridge's devices with it.
        let db = format!("--db=unix:{}/db", self.directory.display());
        let _ = Command::new("ovs-vsctl").args(["--timeout=20", &db, "del-br", &self.bridge]).output();
        self.stop("vs.pid");
        self.stop("db.pid");
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("/proc/uptime");
    text.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("seconds")
}

/// Marking against tail drop on one port of two. The port's queue stays whatever Open vSwitch does meanwhile.
pub fn compare_backends(datapath: Datapath, backends: &[&str]) {
    let ovs = Ovs::start(datapath);
    let hosts = ovs.connect(datapath, Host::new);
    let root = |port: &str| run(&format!("tc qdisc show dev {port}")).lines().next().map(str::to_owned);
    for backend in backends {
        let ports = attach(&hosts[1], &config(&format!("{MARKING}backend = '{backend}'\n")));
        let ours = root(&hosts[1].port);
        ovs.change_other_things(&hosts[1].port);
        ovs.restart();
        assert_eq!(root(&hosts[1].port), ours, "Open vSwitch left the queue alone");
        compare(&format!("Open vSwitch, {}", datapath.name()), ports, backend, || {
            transfer(&hosts[0], &hosts[1], 5201, "-t 3")
        });
    }
}

/// The same with MPTCP over two ports of this rate.
pub fn compare_backends_multipath(datapath: Datapath, rate: &str, backends: &[&str]) {
    let _vmcc = multipath::load();
    let ovs = Ovs::start(datapath);
    let hosts = ovs.connect(datapath, Host::with_two);
    multipath::prepare_pair(&hosts[0], &hosts[1]);
    multipath::warm_up(&hosts[0], &hosts[1]);
    for backend in backends {
        let ports = attach(&hosts[1], &multipath::config(rate, backend));
        compare_multipath(&format!("Open vSwitch, {}", datapath.name()), ports, backend, || {
            multipath::transfer(&hosts[0], &hosts[1], 5201, 3)
        });
    }
}

fn attach(host: &Host, config: &PortConfig) -> Vec<Port> {
    let attach = |port| Port::attach(port, config).unwrap_or_else(|e| panic!("{e}"));
    host.ports().into_iter().map(attach).collect()
}
