//! `vmcc cp` between hosts with two routes between them: the programs have no rights, and the kernel no MPTCP.

use crate::nobody::{Files, Listening, NOBODY, document, far_end, far_end_by};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_testkit::netns::{Namespace, join, run};

/// Bytes of what is copied over two routes.
const SIZE: u32 = 60_000_000;

/// Two hosts and a router, which each of them reaches in two routes of 100 Mbit/s.
struct Net {
    here: Namespace,
    router: Namespace,
    there: Namespace,
}

impl Net {
    fn new() -> Net {
        let net = Net { here: Namespace::new("h"), router: Namespace::new("r"), there: Namespace::new("t") };
        join(&net.here, &net.router, "p0", "10.9.1");
        join(&net.here, &net.router, "p1", "10.9.2");
        join(&net.router, &net.there, "q0", "10.9.3");
        join(&net.router, &net.there, "q1", "10.9.4");
        net.router.sysctl("ipv4/ip_forward", "1");
        for (host, port, metric, gateway) in [
            (&net.here, "p0", 1, "1.2"),
            (&net.here, "p1", 2, "2.2"),
            (&net.there, "q0", 1, "3.1"),
            (&net.there, "q1", 2, "4.1"),
        ] {
            host.sysctl("mptcp/enabled", "0");
            run(&format!("ip -n {host} route add default via 10.9.{gateway} dev {port} metric {metric}"));
            let shaper = "root tbf rate 100mbit burst 64k latency 30ms";
            run(&format!("tc -n {host} qdisc add dev {port} {shaper}"));
            run(&format!("tc -n {} qdisc add dev {port} {shaper}", net.router));
        }
        net
    }

    /// The way by `p1`, as if somebody had plugged a cable in: the route comes after the address.
    fn open_second(&self) {
        run(&format!("ip -n {} link set p1 up", self.here));
        run(&format!("ip -n {} route add default via 10.9.2.2 dev p1 metric 2", self.here));
    }

    /// The path by `p0` drops everything, and no host gets an error.
    fn cut(&self) {
        run(&format!("ip -n {} rule add iif p0 blackhole", self.router));
        run(&format!("ip -n {} rule add to 10.9.1.0/24 blackhole", self.router));
    }

    fn bytes_by(&self, port: &str) -> u64 {
        let path = format!("/sys/class/net/{port}/statistics/tx_bytes");
        self.here.run(&format!("cat {path}")).trim().parse().unwrap()
    }
}

#[test]
fn root_copy_uses_added_routes_and_survives_removed_ones() {
    let (files, net) = (Files::new(), Net::new());
    let data = files.data(SIZE);
    let mut far = far_end(&files, &net.there);
    // Where nobody's programs are found, and looked for.
    let run_here = files.path("here").join("run");
    fs::create_dir(&run_here).unwrap();
    files.open("here/run");
    let within = format!("ip netns exec {} env XDG_RUNTIME_DIR={} {NOBODY}", net.here, run_here.display());
    run(&format!("ip -n {} link set p1 down", net.here));
    let mut child = files.cp(&within, "there/copy").spawn().unwrap();
    let mut carries = |port| {
        let begun = net.bytes_by(port);
        while net.bytes_by(port) < begun + 2_000_000 && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(5));
        }
    };
    carries("p0");
    net.open_second();
    carries("p1");
    let status = run(&format!("{within} {} --json status", files.path("vmcc").display()));
    net.cut();
    let (a, b) = (net.bytes_by("p0"), net.bytes_by("p1"));
    let output = child.wait_with_output().unwrap();
    let copied = document(&output);
    let status: Value = serde_json::from_str(&status).unwrap();
    let shown = &status["connections"][0];
    assert_eq!(shown["program"]["name"], "cp", "{status}");
    let devices = shown["paths"].as_array().unwrap().iter().map(|path| path["device"].as_str().unwrap());
    let devices: BTreeSet<_> = devices.collect();
    assert_eq!(devices, BTreeSet::from(["p0", "p1"]), "{status}");
    assert_eq!(output.status.code(), Some(0), "{copied}");
    assert!(fs::read(files.path("there/copy")).unwrap() == data);
    let rest = i64::from(SIZE) - (a + b) as i64;
    assert!(rest > 1_000_000, "it was cut before the end");
    // What `p0` had not brought left by `p1`; probes ask `p0` until the end.
    assert!((net.bytes_by("p1") - b) as i64 >= rest, "{copied}");
    assert!(net.bytes_by("p0") - a < 4_000_000, "{copied}");
    assert!(far.wait().unwrap().success(), "the far end ends with its client");
}

#[test]
fn root_full_disk_and_missing_permissions_are_reported() {
    let files = Files::new();
    files.data(9_000_000);
    let disk = files.path("there").display().to_string();
    let full = |size: &str| {
        format!("exec unshare --mount sh -c 'mount -t tmpfs -o size={size} none {disk} && exec \"$@\"' sh")
    };
    let cp = |script: &str, within: &str| {
        files.script("ssh", &format!("shift\n{script} sh -c \"$*\""));
        let output = files.cp(within, "there").output().unwrap();
        (output.status.code(), document(&output).to_string())
    };
    let (code, said) = cp(&full("4m"), "env");
    assert!(code == Some(3) && said.contains("No space left"), "{said}");
    let (code, said) = cp(&full("20m"), "env");
    assert_eq!(code, Some(0), "{said}");
    fs::set_permissions(Path::new(&disk), fs::Permissions::from_mode(0o555)).unwrap();
    let (code, said) = cp("exec", NOBODY);
    assert!(code == Some(3) && said.contains("Permission denied"), "{said}");
    assert!(fs::read_dir(&disk).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn root_routers_are_discovered_without_privileges() {
    let (files, net) = (Files::new(), Net::new());
    let vmcc = files.path("vmcc").display().to_string();
    let _server = Listening::new(&files, &net.there);
    let ask = format!("ip netns exec {} {NOBODY} {vmcc} --json paths 10.9.3.2:4433 --probes 3", net.here);
    let routes: Value = serde_json::from_str(&run(&ask)).unwrap();
    for (port, router) in [("p0", "10.9.1.2"), ("p1", "10.9.2.2")] {
        let route = routes.as_array().unwrap().iter().find(|route| route["interface"] == port).unwrap();
        let hops: Vec<_> = route["hops"].as_array().unwrap().iter().map(|hop| &hop["address"]).collect();
        assert_eq!(hops, [router, "10.9.3.2"], "{routes}");
        assert!(route["score"].as_f64() > Some(0.0), "{routes}");
    }
}

/// Two hosts joined by these links, with the link-local addresses alone that the kernel gives them.
fn join_by_links<const N: usize>(links: [&str; N]) -> [Namespace; 2] {
    let hosts = ["h", "t"].map(Namespace::new);
    let [here, there] = &hosts;
    for link in links {
        run(&format!("ip -n {here} link add {link} type veth peer name {link} netns {there}"));
        for host in &hosts {
            host.sysctl(&format!("ipv6/conf/{link}/accept_dad"), "0");
            run(&format!("ip -n {host} link set {link} up"));
            run(&format!("tc -n {host} qdisc add dev {link} root tbf rate 100mbit burst 64k latency 30ms"));
        }
    }
    for (host, link) in hosts.iter().flat_map(|host| links.map(|link| (host, link))) {
        let begun = Instant::now();
        while link_local(host, link).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{host} has no address on {link}");
            thread::sleep(Duration::from_millis(10));
        }
    }
    hosts
}

/// The link-local address of a host on a link, once it can be used.
fn link_local(host: &Namespace, link: &str) -> Option<String> {
    let shown = run(&format!("ip -n {host} -6 -brief address show dev {link} scope link -tentative"));
    shown.split_whitespace().find_map(|word| Some(word.strip_suffix("/64")?.to_owned()))
}

#[test]
fn root_link_local_hosts_copy_over_every_link() {
    let files = Files::new();
    let data = files.data(SIZE / 3);
    let [here, there] = join_by_links(["p0", "p1"]);
    let within = format!("ip netns exec {here} {NOBODY}");
    let mut far = far_end(&files, &there);
    let output = files.cp(&within, "there/both").output().unwrap();
    let copied = document(&output);
    assert_eq!(output.status.code(), Some(0), "{copied}");
    assert!(fs::read(files.path("there/both")).unwrap() == data);
    assert!(far.wait().unwrap().success());
    for link in ["p0", "p1"] {
        let own = link_local(&here, link).unwrap();
        let paths = copied["paths"].as_array().unwrap().iter().filter(|path| path["local"] == own.as_str());
        let sent: u64 = paths.map(|path| path["sent_bytes"].as_u64().unwrap()).sum();
        assert!(sent > 1_000_000, "{link}: {copied}");
    }
}

/// A server with other addresses as well, to which its link alone leads.
#[test]
fn root_copy_uses_the_link_of_ssh() {
    let files = Files::new();
    let data = files.data(1_000_000);
    let [here, there] = join_by_links(["p0"]);
    run(&format!("ip -n {there} link add d0 type veth peer name d1"));
    run(&format!("ip -n {there} addr add 192.0.2.1/32 dev d0"));
    ["d0", "d1"].iter().for_each(|link| _ = run(&format!("ip -n {there} link set {link} up")));
    let [client, server] = [&here, &there].map(|host| format!("{}%p0", link_local(host, "p0").unwrap()));
    let within = format!("ip netns exec {here} {NOBODY}");
    let mut far = far_end_by(&files, &there, &format!("{client} 50000 {server} 22"));
    let output = files.cp_to(&within, &format!("[{server}]"), "there/copy").output().unwrap();
    let copied = document(&output);
    assert_eq!(output.status.code(), Some(0), "{copied}");
    assert!(fs::read(files.path("there/copy")).unwrap() == data);
    assert!(far.wait().unwrap().success());
}
