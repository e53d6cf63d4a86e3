//! Containers of podman on a bridge of its own (CNI), without a registry: their root file system is one busybox. The
//! network is the runtime's; iperf3 is the host's, run in a container's network namespace.

use super::{Host, Namespace, own_name, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Containers and what podman knows of them; removed on drop.
pub struct Podman {
    directory: PathBuf,
    containers: Vec<String>,
}

impl Podman {
    /// For a thread whose mounts and network are its own.
    pub fn new() -> Self {
        let directory = Path::new("/tmp").join(own_name("pod"));
        for part in
            ["net", "root/bin", "root/proc", "root/sys", "root/dev", "root/etc", "root/tmp", "root/run"]
        {
            fs::create_dir_all(directory.join(part)).unwrap_or_else(|e| panic!("{part}: {e}"));
        }
        fs::copy("/bin/busybox", directory.join("root/bin/busybox")).expect("busybox-static");
        symlink("busybox", directory.join("root/bin/sleep")).expect("a link");
        let network = format!(
            r#"{{"cniVersion":"0.4.0","name":"vmcc","plugins":[{{"type":"bridge","bridge":"cni0","ipam":
               {{"type":"host-local","dataDir":"{}/ipam","ranges":[[{{"subnet":"10.80.0.0/24"}}]]}}}}]}}"#,
            directory.display()
        );
        fs::write(directory.join("net/vmcc.conflist"), network).expect("a file");
        Self { directory, containers: Vec::new() }
    }

    fn command(&self, words: &str) -> String {
        let dir = self.directory.display();
        format!(
            "podman --root {dir}/store --runroot {dir}/run --tmpdir {dir}/state --network-config-dir {dir}/net \
             --storage-driver vfs --cgroup-manager cgroupfs --events-backend none {words}"
        )
    }

    /// Starts a container; its port is the end of its cable in the bridge.
    pub fn start(&mut self) -> Host {
        let name = own_name("c");
        self.containers.push(name.clone());
        let root = self.directory.join("root");
        run(&self.command(&format!(
            "run -d --name {name} --network vmcc --cgroups=disabled --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
             --rootfs {} /bin/sleep 600",
            root.display()
        )));
        let inspect = |what: &str| run(&self.command(&format!("inspect {name} --format {{{{{what}}}}}")));
        let key = inspect(".NetworkSettings.SandboxKey");
        let address = inspect(".NetworkSettings.Networks.vmcc.IPAddress").trim().to_owned();
        let namespace = Namespace(key.trim().rsplit('/').next().expect("a name").to_owned());
        let shown = run(&format!("ip -n {} -j link show eth0", namespace.0));
        let shown: serde_json::Value =
            serde_json::from_str(&shown).unwrap_or_else(|e| panic!("{e}: {shown}"));
        let peer = shown[0]["link_index"].as_u64().unwrap_or_else(|| panic!("{shown}"));
        let all = run("ip -j link show");
        let all: serde_json::Value = serde_json::from_str(&all).unwrap_or_else(|e| panic!("{e}: {all}"));
        let port = all.as_array().expect("links").iter().find(|link| link["ifindex"] == peer);
        let port = port.unwrap_or_else(|| panic!("no link {peer}: {all}"))["ifname"]
            .as_str()
            .expect("a name")
            .to_owned();
        super::settle(&namespace, "eth0");
        Host { namespace, port, address }
    }
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
