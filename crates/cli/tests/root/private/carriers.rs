//! `vmcc proxy` and `vmcc cp` over TCP carriers: unmodified programs over two paths, without UDP and without MPTCP.

use crate::nobody::{Files, NOBODY, document, far_end};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vmcc_testkit::judge;
use vmcc_testkit::netns::{Namespace, join, run};

/// A bound that only a hang reaches.
const BOUND: Duration = Duration::from_secs(120);
/// Rate of each path.
const PATH_MBPS: f64 = 20.0;
const SERVER: &str = "10.9.3.2";
/// Share of a path that is neither TCP's nor the tunnel's overhead.
const NOMINAL_BPS: f64 = PATH_MBPS * 1e6 * 1448.0 / 1514.0;

/// A client with two shaped paths to a router, and a server behind that.
struct Net {
    here: Namespace,
    router: Namespace,
    there: Namespace,
    folder: TempDir,
}

impl Net {
    fn new() -> Net {
        let [here, router, there] = ["h", "r", "t"].map(Namespace::new);
        let net = Net { here, router, there, folder: tempfile::tempdir().unwrap() };
        join(&net.here, &net.router, "p0", "10.9.1");
        join(&net.here, &net.router, "p1", "10.9.2");
        join(&net.router, &net.there, "q0", "10.9.3");
        net.router.sysctl("ipv4/ip_forward", "1");
        run(&format!("ip -n {} route add default via 10.9.3.1", net.there));
        for (port, metric, gateway) in [("p0", 1, "10.9.1.2"), ("p1", 2, "10.9.2.2")] {
            run(&format!("ip -n {} route add default via {gateway} dev {port} metric {metric}", net.here));
            for end in [&net.here, &net.router] {
                let shaper = format!("root tbf rate {PATH_MBPS}mbit burst 16kb latency 50ms");
                run(&format!("tc -n {end} qdisc add dev {port} {shaper}"));
            }
        }
        for host in [&net.here, &net.there] {
            host.sysctl("mptcp/enabled", "0");
            // As the namespaces of hosts without root are: answers to either path's address may come by the other.
            host.sysctl("ipv4/conf/all/rp_filter", "0");
        }
        for (user, other) in [("server", "client"), ("client", "server")] {
            let shown = vmcc(&["--json", "keys", "--keys", &net.keys(other)]);
            let fingerprint = shown["fingerprint"].as_str().unwrap();
            vmcc(&["--json", "keys", "--keys", &net.keys(user), "--trust", fingerprint]);
        }
        net
    }

    fn keys(&self, user: &str) -> String {
        self.folder.path().join(user).display().to_string()
    }

    /// Drops UDP on every path, or lets it pass again.
    fn udp(&self, action: &str) {
        self.router.run(&format!("iptables -{action} FORWARD -p udp -j DROP"));
    }

    /// A path drops everything, and no host gets an error.
    fn cut(&self, port: &str) {
        let net = if port == "p0" { "10.9.1.0/24" } else { "10.9.2.0/24" };
        run(&format!("ip -n {} rule add iif {port} blackhole", self.router));
        run(&format!("ip -n {} rule add to {net} blackhole", self.router));
    }

    fn sent_by(&self, port: &str) -> u64 {
        let path = format!("/sys/class/net/{port}/statistics/tx_bytes");
        self.here.run(&format!("cat {path}")).trim().parse().unwrap()
    }

    fn proxy(&self, namespace: &Namespace, user: &str, args: &[&str]) -> Side {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace.0, env!("CARGO_BIN_EXE_vmcc"), "proxy"]);
        command.args(["--keys", &self.keys(user)]).args(args);
        Side::start(&mut command)
    }

    /// Both sides of a proxy, listening for SOCKS5 at port 1080 and forwarding port 2222.
    fn proxies(&self, carrier: &str) -> (Side, Side) {
        let server = self.proxy(&self.there, "server", &["--listen", "0.0.0.0:4433", "--carrier", carrier]);
        server.says("listening for clients");
        let client = ["--socks", "127.0.0.1:1080", "--forward", "127.0.0.1:2222=127.0.0.1:2222"];
        let to = format!("{SERVER}:4433");
        let client = self.proxy(&self.here, "client", &[&client[..], &[&to, "--carrier", carrier]].concat());
        client.says("listening for a forward");
        (server, client)
    }

    /// Carriers of the client's only session, once they are as wanted.
    fn paths(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let output = Command::new("ip")
                .args(["netns", "exec", &self.here.0, env!("CARGO_BIN_EXE_vmcc"), "--json", "status"])
                .output()
                .unwrap();
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let connections = status["connections"].as_array().cloned().unwrap_or_default();
            // A QUIC connection under it is shown by itself.
            let is_session = |one: &&Value| one["algorithm"].as_str().unwrap().starts_with("uncoupled");
            let session = connections.iter().find(is_session);
            let paths = session.and_then(|one| one["paths"].as_array()).cloned().unwrap_or_default();
            if wanted(&paths) {
                return paths;
            }
            assert!(begun.elapsed() < BOUND, "{status}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// A download by curl with these options; its rate in bit/s.
    fn curl(&self, options: &str) -> Child {
        let curl = format!("netns exec {} curl -sS -w %{{speed_download}} {options}", self.here);
        Command::new("ip").args(curl.split_whitespace()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Rates of one download per path, both at once: the control.
    fn separate_bps(&self, bytes: usize) -> f64 {
        let one =
            |device| self.curl(&format!("--interface {device} -o /dev/null http://{SERVER}:8080/{bytes}"));
        let both = ["p0", "p1"].map(one);
        both.into_iter().map(rate_bps).sum()
    }

    fn tunnelled(&self, bytes: usize) -> Child {
        let target = self.folder.path().join("got");
        let options = "--socks5-hostname 127.0.0.1:1080 http://127.0.0.1:8080";
        self.curl(&format!("-o {} {options}/{bytes}", target.display()))
    }

    fn got(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("got")).unwrap()
    }
}

fn rate_bps(curl: Child) -> f64 {
    let output = curl.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    8.0 * String::from_utf8(output.stdout).unwrap().parse::<f64>().unwrap()
}

fn vmcc(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_vmcc")).args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One side of a proxy; ended on drop.
struct Side {
    child: Child,
    said: std::sync::mpsc::Receiver<String>,
}

impl Side {
    fn start(command: &mut Command) -> Side {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (send, said) = std::sync::mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).all(|line| send.send(line).is_ok()));
        Side { child, said }
    }

    fn says(&self, words: &str) {
        let mut all = String::new();
        while !all.contains(words) {
            all += &self.said.recv_timeout(BOUND).unwrap_or_else(|_| panic!("{words}: {all}"));
            all.push('\n');
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn byte(i: usize) -> u8 {
    (i ^ i >> 8 ^ i >> 16).wrapping_mul(31) as u8
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(byte).collect()
}

/// An HTTP server in a namespace that answers `/N` with this many bytes.
fn serve_http(there: &Namespace) {
    let listener = there.within(|| TcpListener::bind("0.0.0.0:8080").unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer(stream.unwrap()));
        }
    });
}

fn answer(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    while lines.next().is_some_and(|line| !line.is_empty()) {}
    let len = request.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
    // A client may go before the end.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&data(len)));
}

#[test]
fn root_curl_aggregates_two_paths_over_tcp() {
    let net = Net::new();
    net.udp("A");
    serve_http(&net.there);
    let _proxies = net.proxies("tcp");
    let paths = net.paths(|paths| paths.len() == 2);
    assert!(paths.iter().all(|path| path["device"].is_string()), "{paths:?}");
    let size = 10_000_000;
    judge(
        || {
            let before = net.separate_bps(size / 4);
            let tunnelled = rate_bps(net.tunnelled(size));
            let after = net.separate_bps(size / 4);
            println!(
                "a TCP per path {before:.0}, one tunnelled {tunnelled:.0}, a TCP per path {after:.0} bit/s"
            );
            assert!(net.got() == data(size), "the bytes are the same");
            (before, tunnelled, after)
        },
        |(before, tunnelled, after)| {
            assert!(
                *tunnelled >= 0.9 * before.min(*after),
                "{tunnelled:.0} of {before:.0}, {after:.0} bit/s"
            );
            assert!(*tunnelled > 1.4 * NOMINAL_BPS, "more than one path carries");
        },
        |(before, _, after)| before.min(*after) / (2.0 * NOMINAL_BPS),
    );
}

#[test]
#[ignore = "needs openssh-server: scripts/setup.sh apps"]
fn root_rsync_over_ssh_survives_a_cut_path() {
    let net = Net::new();
    net.udp("A");
    let sshd = Sshd::start(&net);
    let _proxies = net.proxies("tcp");
    net.paths(|paths| paths.len() == 2);
    let (from, to) = (net.folder.path().join("from"), net.folder.path().join("to"));
    let all = data(12_000_000);
    fs::write(&from, &all).unwrap();
    let ssh = format!("ssh -p 2222 -i {} -F none -o StrictHostKeyChecking=no", sshd.key);
    let mut rsync = Command::new("ip");
    rsync.args(["netns", "exec", &net.here.0, "rsync", "--whole-file", "--inplace", "-e", &ssh]);
    let mut child = rsync.arg(&from).arg(format!("root@127.0.0.1:{}", to.display())).spawn().unwrap();
    let begun = Instant::now();
    while fs::metadata(&to).map_or(0, |found| found.len()) < 3_000_000 {
        assert!(begun.elapsed() < BOUND && child.try_wait().unwrap().is_none(), "it does not begin");
        thread::sleep(Duration::from_millis(10));
    }
    net.cut("p0");
    assert!(child.wait().unwrap().success());
    assert!(fs::read(&to).unwrap() == all);
}

/// An sshd in the server's namespace, for root with one key.
struct Sshd {
    child: Child,
    key: String,
}

impl Sshd {
    fn start(net: &Net) -> Sshd {
        let at = |name: &str| net.folder.path().join(name).display().to_string();
        let (host, key) = (at("host_key"), at("user_key"));
        for file in [&host, &key] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", file]).status();
            assert!(made.unwrap().success());
        }
        fs::create_dir_all("/run/sshd").unwrap();
        fs::set_permissions(Path::new("/run/sshd"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &net.there.0, "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null"]);
        command.args(["-h", &host, "-p", "2222", "-o", "StrictModes=no", "-o", "UsePAM=no"]);
        command.args(["-o", &format!("AuthorizedKeysFile={key}.pub"), "-o", "PermitRootLogin=yes"]);
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !net.there.run("ss -Hltn sport = :2222").contains("LISTEN") {
            assert!(begun.elapsed() < BOUND, "sshd does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        Sshd { child, key }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A user without rights copies over both paths, one of which is cut.
#[test]
fn root_copy_over_tcp_without_udp_survives_a_cut_path() {
    let (files, net) = (Files::new(), Net::new());
    net.udp("A");
    let all = files.data(12_000_000);
    let mut far = far_end(&files, &net.there);
    let within = format!("ip netns exec {} {NOBODY} env XDG_RUNTIME_DIR=/nonexistent", net.here);
    let mut child = files.cp(&within, "there/copy").args(["--carrier", "tcp"]).spawn().unwrap();
    let begun = Instant::now();
    while ["p0", "p1"].iter().any(|port| net.sent_by(port) < 1_000_000) {
        assert!(begun.elapsed() < BOUND && child.try_wait().unwrap().is_none(), "both paths carry");
        thread::sleep(Duration::from_millis(10));
    }
    net.cut("p0");
    let output = child.wait_with_output().unwrap();
    let copied = document(&output);
    assert_eq!(output.status.code(), Some(0), "{copied}");
    assert!(fs::read(files.path("there/copy")).unwrap() == all);
    assert!(far.wait().unwrap().success(), "the far end ends with its client");
}

#[test]
fn root_auto_carrier_falls_back_to_tcp_and_returns_without_loss() {
    let net = Net::new();
    serve_http(&net.there);
    let _proxies = net.proxies("auto");
    let is_udp = |path: &Value| path["backup"] == false && path["silent"] == false;
    // UDP carries, and TCP waits.
    net.paths(|paths| paths.iter().any(is_udp) && paths.iter().any(|path| path["backup"] == true));
    let size = 20_000_000;
    let mut curl = net.tunnelled(size);
    let got = net.folder.path().join("got");
    let begun = Instant::now();
    while fs::metadata(&got).map_or(0, |found| found.len()) < 4_000_000 {
        assert!(begun.elapsed() < BOUND && curl.try_wait().unwrap().is_none(), "it does not begin");
        thread::sleep(Duration::from_millis(10));
    }
    net.udp("A");
    rate_bps(curl);
    assert!(net.got() == data(size));
    net.paths(|paths| !paths.iter().any(is_udp));
    net.udp("D");
    net.paths(|paths| paths.iter().any(is_udp));
    rate_bps(net.tunnelled(size / 10));
    assert!(net.got() == data(size / 10));
}

#[test]
fn root_auto_carrier_without_udp_uses_tcp_and_an_http_proxy() {
    let net = Net::new();
    net.udp("A");
    serve_http(&net.there);
    let (server, client) = net.proxies("auto");
    rate_bps(net.tunnelled(100_000));
    assert!(net.got() == data(100_000));
    drop(client);
    // Nothing but the HTTP proxy leads to the server.
    let connect = net.router.within(|| TcpListener::bind("0.0.0.0:3128").unwrap());
    let router = net.router.file();
    thread::spawn(move || serve_connect(&connect, &router));
    net.router.run("iptables -A FORWARD -j DROP");
    let to = format!("{SERVER}:4433");
    let client = [&to[..], "--carrier", "tcp", "--via-http-proxy", "10.9.1.2:3128"];
    let client = net.proxy(&net.here, "client", &client);
    client.says("listening for SOCKS5");
    rate_bps(net.tunnelled(100_000));
    assert!(net.got() == data(100_000));
    drop(server);
}

/// An HTTP proxy that knows CONNECT, in a namespace.
fn serve_connect(listener: &TcpListener, namespace: &Path) {
    let file = fs::File::open(namespace).unwrap();
    nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    for near in listener.incoming() {
        let mut near = near.unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && near.read(&mut byte).is_ok_and(|len| len == 1) {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
        let far = TcpStream::connect(target).unwrap();
        near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    }
}

#[test]
fn root_untrusted_peers_and_garbage_do_not_disturb_a_session() {
    let net = Net::new();
    net.udp("A");
    serve_http(&net.there);
    let (_server, client) = net.proxies("tcp");
    let garbage = || {
        let at = format!("{SERVER}:4433");
        for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-x\r\n", &[0x16, 3, 1, 0x40, 0, 1], &[0; 4000]]
        {
            let mut stream = TcpStream::connect(&at).unwrap();
            stream.set_read_timeout(Some(BOUND)).unwrap();
            let _ = stream.write_all(words);
            let _ = stream.shutdown(Shutdown::Write);
            // An alert of TLS, and the end.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    };
    net.here.within(garbage);
    // An untrusted client reports that and its remedy.
    let stranger = net.folder.path().join("stranger").display().to_string();
    let trusted = vmcc(&["--json", "keys", "--keys", &net.keys("server")]);
    let output = Command::new("ip")
        .args(["netns", "exec", &net.here.0, env!("CARGO_BIN_EXE_vmcc"), "proxy", "--keys", &stranger])
        .args(["--peer", trusted["fingerprint"].as_str().unwrap(), "--socks", "127.0.0.1:1081"])
        .args([&format!("{SERVER}:4433"), "--carrier", "tcp"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("vmcc keys --trust"), "{said}");
    rate_bps(net.tunnelled(100_000));
    assert!(net.got() == data(100_000));
    drop(client);
}
