//! A tenant whose connections all ask at once to close a path: it loses its own requests, is counted, and hides nobody's.

use crate::common::{folder, json, output};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_bpf::Loaded;
use vmcc_bpf::close_requests::{CloseRequest, CloseRequests};
use vmcc_cc::{Algorithm, Params};
use vmcc_port::Port;
use vmcc_testkit::paths::{Net, Over, alone, connect, listen};

/// `MP_ACCOUNT_REQUESTS` of kernel/shared/shared.h.
const PER_SECOND: usize = 64;
/// More than one account may ask for in a second.
const FLOOD: usize = 100;
/// Few, but enough at once for a queue.
const FEW: usize = 10;
/// A flood that begins late in a second is not over within it, and shows nothing; the next one may.
const ATTEMPTS: usize = 3;

/// As the kernel's programs count them.
fn second_of(time_ns: u64) -> u64 {
    time_ns >> 30
}

fn now() -> u64 {
    let mut time = nix::libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time`, which lives until the call returns.
    let read = unsafe { nix::libc::clock_gettime(nix::libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(read, 0, "{}", std::io::Error::last_os_error());
    second_of(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Two namespaces whose connections have two paths, and ports that mark almost every packet of the client's.
struct Tenant {
    net: Net,
    _ports: Vec<Port>,
    netns: u32,
    /// Each connection's two ends.
    connections: Vec<(TcpStream, TcpStream)>,
}

impl Tenant {
    fn new(connections: usize, algorithm: &str) -> Self {
        let net = Net::new(2, None);
        net.select(algorithm);
        let config =
            serde_json::json!({ "rate": "200mbit", "marking": { "rule": "threshold", "at": "2kB" } });
        let config = serde_json::from_value(config).unwrap();
        let port = |name: String| Port::attach_in(&net.client.file(), &name, &config).unwrap();
        let ports = (0..2).map(|path| port(format!("p{path}"))).collect();
        let netns = u32::try_from(std::fs::metadata(net.client.file()).unwrap().ino()).unwrap();
        let listener = net.server.within(|| listen(Over::Mptcp, 5401));
        let open = |_| {
            let client = net.client.within(|| TcpStream::from(OwnedFd::from(connect(Over::Mptcp, 5401))));
            (client, TcpStream::from(OwnedFd::from(listener.accept().unwrap().0)))
        };
        let connections: Vec<_> = (0..connections).map(open).collect();
        let mut tenant = Self { net, _ports: ports, netns, connections };
        tenant.join();
        tenant
    }

    /// Until every connection's second path carries data.
    fn join(&mut self) {
        let joined = || {
            let text = self.net.client.run("ss -Htni state established dport = :5401");
            text.matches("10.77.1.2:5401").count()
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while joined() < self.connections.len() {
            assert!(Instant::now() < deadline, "{} of {} joined", joined(), self.connections.len());
            for (client, server) in &self.connections {
                for (mut from, mut to) in [(client, server), (server, client)] {
                    from.write_all(b"ping").unwrap();
                    to.read_exact(&mut [0; 4]).unwrap();
                }
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends more on some connections than the ports let through at once.
    fn send(&self, on: std::ops::Range<usize>) {
        for (client, _) in &self.connections[on] {
            (&mut &*client).write_all(&[0; 40_000]).unwrap();
        }
    }

    fn has_asked(&self, request: &CloseRequest) -> bool {
        request.netns == self.netns
    }
}

/// Waits at most three seconds for what completes `found`.
fn until(requests: &CloseRequests, found: &mut Vec<CloseRequest>, enough: impl Fn(&[CloseRequest]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(3);
    while !enough(found) && Instant::now() < deadline {
        found.extend(requests.poll(Duration::from_millis(20)).unwrap());
    }
}

/// Floods at the beginning of a second; once its share is used up the other tenant's few connections are marked.
fn flood(attempt: usize, greedy: &Tenant, modest: &Tenant, requests: &CloseRequests) -> Vec<CloseRequest> {
    let before = now();
    while now() == before {
        thread::sleep(Duration::from_millis(5));
    }
    let mut found = Vec::new();
    greedy.send(attempt * FLOOD..(attempt + 1) * FLOOD);
    until(requests, &mut found, |all| all.iter().filter(|r| greedy.has_asked(r)).count() >= PER_SECOND);
    modest.send(attempt * FEW..(attempt + 1) * FEW);
    until(requests, &mut found, |all| all.iter().any(|r| modest.has_asked(r)));
    found
}

/// In the second of the other's request the flood had been passed on as often as it may, before that.
fn shows_something(found: &[CloseRequest], greedy: &Tenant, modest: &Tenant) -> bool {
    let Some(at) = found.iter().position(|r| modest.has_asked(r)) else { return false };
    let same = |r: &&CloseRequest| second_of(r.time_ns) == second_of(found[at].time_ns);
    found[..at].iter().filter(|r| greedy.has_asked(r)).filter(same).count() >= PER_SECOND
}

/// Checks the reports of `vmcc status` and `vmcc doctor`.
fn assert_reported(lost: u64) {
    let dir = folder();
    let (_, status) = json(dir.path(), &["status"]);
    assert_eq!(status["algorithms"][0]["shortage"]["requests_lost"], lost, "{status}");
    let text = String::from_utf8(output(dir.path(), &["status"]).stdout).unwrap();
    assert!(text.contains(&format!("dropped {lost} requests to close a path")), "{text}");
    let (_, doctor) = json(dir.path(), &["doctor"]);
    let checks = doctor["checks"].as_array().unwrap();
    let room = checks.iter().find(|check| check["name"] == "room").unwrap();
    assert!(room["reason"].as_str().unwrap().contains("requests to close one were dropped"), "{room}");
}

/// vMCC to which all paths are alike, whatever their counts and round-trip times are; it does not ask yet.
fn accusing() -> (Loaded, Params) {
    let vmcc = Algorithm::by_name("vmcc").unwrap();
    let mut params = Params::defaults(vmcc);
    for (name, value) in
        [("detector", 1.0), ("theta", 1000.0), ("phi", 1.0), ("trigger", 0.0), ("early", 86_400_000.0)]
    {
        params.set(name, value).unwrap();
    }
    (Loaded::load(vmcc, &params).unwrap_or_else(|e| panic!("{e}")), params)
}

/// Waits until this many connections have asked, heard or not.
fn until_asked(
    least: u64,
    loaded: &Loaded,
    greedy: &Tenant,
    requests: &CloseRequests,
    all: &mut Vec<CloseRequest>,
) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let asked = |all: &[CloseRequest]| {
        let passed = all.iter().filter(|r| greedy.has_asked(r)).count();
        passed as u64 + loaded.shortage().requests_lost
    };
    while asked(all) < least && Instant::now() < deadline {
        all.extend(requests.poll(Duration::from_millis(20)).unwrap());
    }
    assert!(asked(all) >= least, "{} of {least} connections asked", asked(all));
}

#[test]
fn root_flood_of_close_requests_loses_its_own_only() {
    let _alone = alone();
    let (loaded, mut params) = accusing();
    let greedy = Tenant::new(ATTEMPTS * FLOOD, loaded.kernel_name());
    let modest = Tenant::new(ATTEMPTS * FEW, loaded.kernel_name());
    let requests = CloseRequests::open(&loaded).unwrap().expect("vMCC asks to close paths");
    params.set("trigger", 1.0).unwrap();
    loaded.set_params(&params).unwrap();

    let (mut all, mut attempts) = (Vec::new(), 0);
    let shown = (0..ATTEMPTS).any(|attempt| {
        let found = flood(attempt, &greedy, &modest, &requests);
        attempts += 1;
        let shown = shows_something(&found, &greedy, &modest);
        all.extend(found);
        shown
    });
    // Not every connection is marked: some of the first meet no queue.
    until_asked((attempts * FLOOD * 3 / 4) as u64, &loaded, &greedy, &requests, &mut all);
    params.set("trigger", 0.0).unwrap();
    loaded.set_params(&params).unwrap();
    all.extend(requests.poll(Duration::from_millis(20)).unwrap());

    let lost = loaded.shortage().requests_lost;
    let passed: Vec<u64> = all.iter().filter(|r| greedy.has_asked(r)).map(|r| second_of(r.time_ns)).collect();
    println!("{attempts} floods: {} requests passed on, {lost} lost", passed.len());
    assert!(all.iter().any(|r| modest.has_asked(r)), "the other tenant's requests were hidden");
    assert!(shown, "no flood was over within a second: {passed:?}");
    for second in &passed {
        let within = passed.iter().filter(|other| *other == second).count();
        assert!(within <= PER_SECOND, "{within} in one second");
    }
    assert!(lost > 0, "a flood within a second is more than is passed on");
    assert_reported(lost);
}
