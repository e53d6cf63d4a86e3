//! Interfaces that carry a copy, with more pairs of addresses than paths.

use crate::nobody::{Files, NOBODY, far_end};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_testkit::netns::{Namespace, join, run};

/// More than 10 Mbit/s carry in the time of a test.
const SIZE: u32 = 60_000_000;
const DEADLINE: Duration = Duration::from_secs(40);
/// Paths of a connection unless its program says otherwise (`vmcc_transport::Config`).
const DEFAULT_PATHS: usize = 8;
/// Paths without a round trip are counted under this name.
const UNANSWERED: &str = "unanswered";

/// A copy that goes on, by nobody, from one namespace to another. Ends on drop.
struct Copy {
    within: String,
    files: Files,
    children: [Child; 2],
}

impl Copy {
    fn start(here: &Namespace, there: &Namespace) -> Copy {
        let files = Files::new();
        files.data(SIZE);
        let far = far_end(&files, there);
        let folder = files.path("here").join("run");
        fs::create_dir(&folder).unwrap();
        files.open("here/run");
        let within = format!("ip netns exec {here} env XDG_RUNTIME_DIR={} {NOBODY}", folder.display());
        let child = files.cp(&within, "there/copy").spawn().unwrap();
        Copy { within, files, children: [child, far] }
    }

    /// Open paths by interface, and those that never answered.
    fn paths(&self) -> BTreeMap<String, usize> {
        let words = format!("{} {} --json status", self.within, self.files.path("vmcc").display());
        let words: Vec<&str> = words.split_whitespace().collect();
        // Without a connection yet there is an error instead.
        let status = Command::new(words[0]).args(&words[1..]).output().unwrap().stdout;
        let status: Value = serde_json::from_slice(&status).unwrap_or_default();
        let mut count = BTreeMap::new();
        for path in status["connections"][0]["paths"].as_array().into_iter().flatten() {
            let answered = path["srtt_us"].as_u64() > Some(0);
            let device = path["device"].as_str().filter(|_| answered).unwrap_or(UNANSWERED);
            *count.entry(device.to_owned()).or_default() += 1;
        }
        count
    }

    /// Waits until paths are as wanted.
    fn until(&mut self, wanted: impl Fn(&BTreeMap<String, usize>) -> bool) {
        let begin = Instant::now();
        loop {
            let paths = self.paths();
            if wanted(&paths) {
                return;
            }
            if begin.elapsed() >= DEADLINE {
                let _ = self.children[0].kill();
                let mut said = String::new();
                let _ = self.children[0].stderr.take().unwrap().read_to_string(&mut said);
                panic!("{paths:?}: {said}");
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A host with interfaces to a router, which leads to a server.
struct Net {
    here: Namespace,
    router: Namespace,
    there: Namespace,
}

impl Net {
    fn new() -> Net {
        let [here, router, there] = ["h", "r", "t"].map(Namespace::new);
        join(&router, &there, "q0", "10.9.9");
        run(&format!("ip -n {there} route add default via 10.9.9.1"));
        router.sysctl("ipv4/ip_forward", "1");
        Net { here, router, there }
    }

    /// Another interface, with this many addresses.
    fn link(&self, port: &str, net: &str, addresses: u8) {
        let Net { here, router, .. } = self;
        join(here, router, port, net);
        for host in [here, router] {
            run(&format!("tc -n {host} qdisc add dev {port} root tbf rate 10mbit burst 64k latency 30ms"));
        }
        (11..10 + addresses)
            .for_each(|last| drop(run(&format!("ip -n {here} addr add {net}.{last}/24 dev {port}"))));
        run(&format!("ip -n {here} route add default via {net}.2 dev {port} metric {}", &net[5..]));
    }

    fn copy(&self) -> Copy {
        Copy::start(&self.here, &self.there)
    }
}

#[test]
fn root_interfaces_share_paths_regardless_of_address_count() {
    let net = Net::new();
    net.link("p0", "10.9.1", 8);
    net.link("p1", "10.9.2", 8);
    let mut copy = net.copy();
    let half = Some(&(DEFAULT_PATHS / 2));
    copy.until(|paths| paths.get("p0") == half && paths.get("p1") == half);
}

#[test]
fn root_late_interface_takes_its_share() {
    let net = Net::new();
    net.link("p0", "10.9.1", 8);
    let mut copy = net.copy();
    copy.until(|paths| paths.get("p0") == Some(&DEFAULT_PATHS));
    net.link("p1", "10.9.2", 1);
    copy.until(|paths| paths.contains_key("p1"));
}

/// Packets leave without ARP for hosts that do not exist, as on bridges of containers.
#[test]
fn root_dead_interfaces_do_not_block_another() {
    let (net, nowhere) = (Net::new(), Namespace::new("n"));
    net.link("p0", "10.9.1", 1);
    for i in 0..12 {
        join(&net.here, &nowhere, &format!("docker{i}"), &format!("172.{}.0", 17 + i));
        run(&format!("ip -n {} link set docker{i} arp off", net.here));
    }
    net.link("p1", "10.9.2", 1);
    let mut copy = net.copy();
    copy.until(|paths| paths.contains_key("p0"));
    copy.until(|paths| paths.contains_key("p1"));
}

/// Nothing but probes leaves by the bridges.
#[test]
fn root_interface_added_after_all_others_failed_is_used() {
    let (net, nowhere) = (Net::new(), Namespace::new("n"));
    net.here.sysctl("ipv6/conf/all/disable_ipv6", "1");
    net.link("p0", "10.9.1", 1);
    for i in 0..12 {
        join(&net.here, &nowhere, &format!("docker{i}"), &format!("172.{}.0", 17 + i));
        run(&format!("ip -n {} link set docker{i} arp off", net.here));
    }
    let mut copy = net.copy();
    let probes = |i| -> u64 {
        let counter = format!("/sys/class/net/docker{i}/statistics/tx_packets");
        run(&format!("ip netns exec {} cat {counter}", net.here)).trim().parse().unwrap()
    };
    copy.until(|_| (0..12).all(|i| probes(i) > 1));
    net.link("p1", "10.9.2", 1);
    copy.until(|paths| paths.contains_key("p1"));
}
