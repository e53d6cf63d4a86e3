//! Containers of podman on bridges of its own (CNI or netavark), without a registry: their root file system is one
//! busybox. The networks are the runtime's; iperf3 is the host's, run in a container's network namespace.

use super::{Host, Namespace, Vnic, own_name, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Network backend of podman.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Plugins of the container network interface, podman's way until version 4.
    Cni,
    /// podman's own, from version 4 on.
    Netavark,
}

/// podman's name of each of its networks; a container's first interface is in the first.
const NETWORKS: [&str; 2] = ["vmcc0", "vmcc1"];

/// Containers and what podman knows of them; removed on drop.
pub struct Podman {
    directory: PathBuf,
    containers: Vec<String>,
}

impl Podman {
    /// For a thread whose mounts and network are its own.
    pub fn new(network: Network) -> Self {
        let directory = Path::new("/tmp").join(own_name("pod"));
        for part in
            ["net", "root/bin", "root/proc", "root/sys", "root/dev", "root/etc", "root/tmp", "root/run"]
        {
            fs::create_dir_all(directory.join(part)).unwrap_or_else(|e| panic!("{part}: {e}"));
        }
        fs::copy("/bin/busybox", directory.join("root/bin/busybox")).expect("busybox-static");
        symlink("busybox", directory.join("root/bin/sleep")).expect("a link");
        let podman = Self { directory, containers: Vec::new() };
        // Where both are installed podman would choose by what it finds.
        let name = if network == Network::Cni { "cni" } else { "netavark" };
        let settings = format!("[network]\nnetwork_backend = \"{name}\"\n");
        fs::write(podman.directory.join("containers.conf"), settings).expect("a file");
        for (number, name) in NETWORKS.into_iter().enumerate() {
            let subnet = format!("10.80.{number}.0/24");
            match network {
                Network::Cni => podman.write_plugins(name, number, &subnet),
                Network::Netavark => {
                    let make = format!("network create --disable-dns --subnet {subnet} {name}");
                    run(&podman.command(&make));
                }
            }
        }
        podman
    }

    /// A bridge and nothing else: no address translation, no firewall.
    fn write_plugins(&self, name: &str, number: usize, subnet: &str) {
        let network = format!(
            r#"{{"cniVersion":"0.4.0","name":"{name}","plugins":[{{"type":"bridge","bridge":"cni{number}","ipam":
               {{"type":"host-local","dataDir":"{}/ipam","ranges":[[{{"subnet":"{subnet}"}}]]}}}}]}}"#,
            self.directory.display()
        );
        fs::write(self.directory.join(format!("net/{name}.conflist")), network).expect("a file");
    }

    fn command(&self, words: &str) -> String {
        let dir = self.directory.display();
        format!(
            "env CONTAINERS_CONF={dir}/containers.conf podman --root {dir}/store --runroot {dir}/run \
             --tmpdir {dir}/state --network-config-dir {dir}/net --storage-driver vfs --cgroup-manager cgroupfs \
             --events-backend none {words}"
        )
    }

    /// Starts a container with an interface in each network; a port is the end of its cable in a bridge.
    pub fn start(&mut self) -> Host {
        let name = own_name("c");
        self.containers.push(name.clone());
        let root = self.directory.join("root");
        run(&self.command(&format!(
            "run -d --name {name} --network {} --cgroups=disabled --ulimit nofile=1024:1024 \
             --ulimit nproc=4096:4096 --rootfs {} /bin/sleep 600",
            NETWORKS.join(","),
            root.display()
        )));
        let inspect = |what: &str| run(&self.command(&format!("inspect {name} --format {{{{{what}}}}}")));
        let key = inspect(".NetworkSettings.SandboxKey");
        let namespace = Namespace(key.trim().rsplit('/').next().expect("a name").to_owned());
        let [first, second] = NETWORKS.map(|network| {
            let address =
                inspect(&format!(".NetworkSettings.Networks.{network}.IPAddress")).trim().to_owned();
            let (port, device) = port_of(&namespace, &address);
            super::settle(&namespace, &device);
            Vnic { port, address }
        });
        Host { namespace, port: first.port, address: first.address, second: Some(second) }
    }
}

/// The port in the bridge at which the interface with `address` is, and that interface.
fn port_of(namespace: &Namespace, address: &str) -> (String, String) {
    let parse = |shown: String| -> Vec<serde_json::Value> {
        serde_json::from_str(&shown).unwrap_or_else(|e| panic!("{e}: {shown}"))
    };
    let inside = parse(run(&format!("ip -n {} -j addr show", namespace.0)));
    let has = |link: &&serde_json::Value| link["addr_info"].to_string().contains(&format!("\"{address}\""));
    let own = inside.iter().find(has).unwrap_or_else(|| panic!("no {address}: {inside:?}"));
    let outside = parse(run("ip -j link show"));
    let port = outside.iter().find(|link| link["ifindex"] == own["link_index"]);
    let name = |link: &serde_json::Value| link["ifname"].as_str().expect("a name").to_owned();
    (name(port.unwrap_or_else(|| panic!("no port of {own}: {outside:?}"))), name(own))
}

impl Drop for Podman {
    fn drop(&mut self) {
        for container in &self.containers {
            let command = self.command(&format!("rm -f -t 0 {container}"));
            let words: Vec<&str> = command.split_whitespace().collect();
            let _ = Command::new(words[0]).args(&words[1..]).output();
        }
        // podman cleans up behind a container in a process of its own, which may still write here.
        for _ in 0..20 {
            let _ = fs::remove_dir_all(&self.directory);
            thread::sleep(Duration::from_millis(100));
            if !self.directory.exists() {
                break;
            }
        }
    }
}

/// Mounts of the calling thread's own, in which crun finds the control groups as it wants them: version 2 alone.
pub fn own_mounts() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("mounts of its own");
    run("mount --make-rprivate /");
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        run("umount -R /sys/fs/cgroup");
        run("mount -t cgroup2 none /sys/fs/cgroup");
    }
}
