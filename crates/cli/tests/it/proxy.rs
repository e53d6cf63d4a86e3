//! `vmcc proxy`, `keys` and `paths` over addresses of the loopback.

use crate::common;
use crate::it::sides::{Side, TIMEOUT, Users, answer, fails};
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Gives back what each connection brings, once its end has come.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut all = Vec::new();
                if stream.read_to_end(&mut all).is_ok() {
                    stream.write_all(&all).unwrap();
                }
            });
        }
    });
    address
}

fn asked(mut stream: TcpStream, data: &[u8]) -> Vec<u8> {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut back = Vec::new();
    thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        scope.spawn(move || {
            writer.write_all(data).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut back).unwrap();
    });
    back
}

/// A connection through SOCKS5, and the code of its answer.
fn socks(proxy: SocketAddr, command: u8, to: SocketAddr) -> (TcpStream, u8, u16) {
    socks_to(proxy, command, &to.ip().to_string(), to.port())
}

fn socks_to(proxy: SocketAddr, command: u8, name: &str, port: u16) -> (TcpStream, u8, u16) {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let name = [&[name.len() as u8][..], name.as_bytes()].concat();
    let wish = [&[5, 1, 0, 5, command, 0, 3][..], &name, &port.to_be_bytes()].concat();
    stream.write_all(&wish).unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    (stream, reply[3], u16::from_be_bytes([reply[10], reply[11]]))
}

/// Checks the client's live status and its Prometheus metrics: `twice` bytes were sent and came back two times.
fn is_seen(client: &Side, metrics: SocketAddr, twice: u64) {
    let programs = vmcc_apps::status::programs().0;
    let own = programs.iter().find(|program| program.pid == client.child.id()).unwrap();
    let paths = &own.connections[0].paths;
    let of = |path: &vmcc_apps::status::Path| [path.acked_bytes, path.received_bytes];
    let [acked, received] = [0, 1].map(|i| paths.iter().map(|path| of(path)[i]).sum::<u64>());
    assert!(
        own.name == "proxy" && paths.len() == 2 && acked >= 2 * twice && received >= 2 * twice,
        "{own:?}"
    );

    let mut stream = TcpStream::connect(metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("vmcc_quic_connections 1\n"), "{said}");
    let acked = |local: &str| {
        let line = format!("vmcc_quic_acked_bytes_total{{local=\"{local}\"}} ");
        said.lines().find_map(|own| own.strip_prefix(&line)).unwrap().parse::<u64>().unwrap()
    };
    assert!(acked("127.0.0.1") + acked("127.0.0.2") >= 2 * twice, "{said}");
}

#[test]
fn programs_use_both_paths() {
    let (users, target) = (Users::acquainted(), echo());
    let mut server = Side::start(&["--listen", "0.0.0.0:0", "--keys", &users.keys("server")]);
    let at = format!("127.0.0.1:{}", server.address("listening for clients").port());
    let forward = format!("127.0.0.1:0={target}");
    let keys = users.keys("client");
    let socks_at = ["--socks", "127.0.0.1:0", "--forward", &forward];
    let locals = ["--local", "127.0.0.1", "--local", "127.0.0.2", "--keys", &keys];
    let mut client =
        Side::start(&[&[&at[..], "--metrics", "127.0.0.1:0"], &socks_at[..], &locals[..]].concat());
    let metrics_at = client.address("listening for Prometheus");
    let (socks_at, forward_at) =
        (client.address("listening for SOCKS5"), client.address("listening for a forward"));

    let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 21) as u8).collect();
    assert!(asked(TcpStream::connect(forward_at).unwrap(), &data) == data);
    let (stream, code, _) = socks(socks_at, 1, target);
    assert_eq!(code, 0);
    assert!(asked(stream, &data) == data);
    is_seen(&client, metrics_at, data.len() as u64);
    // Nothing listens there: the program gets the cause that the server saw.
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    assert_eq!(socks(socks_at, 1, nobody).1, 5);
    assert_eq!(socks_to(socks_at, 1, "no..name", 80).1, 4);

    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    far.set_read_timeout(Some(TIMEOUT)).unwrap();
    near.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (association, code, relay) = socks(socks_at, 3, near.local_addr().unwrap());
    assert_eq!(code, 0);
    let head = [&[0, 0, 0, 1, 127, 0, 0, 1][..], &far.local_addr().unwrap().port().to_be_bytes()].concat();
    near.send_to(&[&head[..], b"ping"].concat(), (Ipv4Addr::LOCALHOST, relay)).unwrap();
    let mut buffer = [0; 100];
    let (len, from) = far.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"ping");
    far.send_to(b"pong", from).unwrap();
    let len = near.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], [&head[..], b"pong"].concat());
    drop(association);

    let (code, routes) =
        answer(&["paths", &at, "--local", "127.0.0.1", "--local", "127.0.0.2", "--probes", "3"]);
    let routes = routes.as_array().unwrap();
    assert_eq!((code, routes.len()), (0, 2));
    assert!(
        routes.iter().all(|route| route["path"] == true && route["rtt_ms"].as_f64() > Some(0.0)),
        "{routes:?}"
    );
    // Both end at the same address, which is all there is of a way within a host; and what is known by use counts more than probes.
    assert_eq!((&routes[0]["chosen"], &routes[1]["overlap"]), (&true.into(), &1.0.into()), "{routes:?}");
    assert!(routes.iter().all(|route| route["hops"][0]["address"] == "127.0.0.1"), "{routes:?}");
    assert!(routes.iter().any(|route| route["of_traffic"] == true), "{routes:?}");

    // The server's side may be started again: the next program's connection makes a new one of ours.
    assert_eq!(server.end(), Some(130));
    let mut server = Side::start(&["--listen", &at, "--keys", &users.keys("server")]);
    server.address("listening for clients");
    let mut back = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(forward_at).unwrap();
        // It is broken off as long as the new one has not come about.
        let sent = stream.write_all(b"again").and_then(|()| stream.shutdown(Shutdown::Write));
        if sent.and_then(|()| stream.read_to_end(&mut back)).is_ok_and(|len| len > 0) {
            break;
        }
        thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(back, b"again");
    let pid = client.child.id();
    assert_eq!(client.end(), Some(130));
    assert!(vmcc_apps::status::programs().0.iter().all(|program| program.pid != pid));
}

/// A page that is whole once its script has fetched everything, and what it fetches: 20 pieces of 60 kB.
const PAGE: &str = "<p id='got'></p><script>Promise.all([...Array(20).keys()].map(i => fetch('/' + i).then(a => a.text())))\
    .then(all => got.textContent = all.every((text, i) => text === String(i).padStart(60000, '.')))</script>";

/// Answers each request as a web server does, a connection each.
fn web() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let answer = |mut stream: TcpStream| -> std::io::Result<()> {
        let mut request = String::new();
        let mut lines = BufReader::new(stream.try_clone()?);
        lines.read_line(&mut request)?;
        while {
            let mut line = String::new();
            lines.read_line(&mut line)? > 2
        } {}
        let path = request.split(' ').nth(1).unwrap_or("/").trim_start_matches('/');
        let body = if path.is_empty() { PAGE.to_owned() } else { format!("{path:.>60000}") };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head, body].concat().into_bytes())
    };
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A browser gives up what it does not need.
            thread::spawn(move || answer(stream.unwrap()).ok());
        }
    });
    address
}

#[test]
fn unmodified_browser_works_through_the_proxy() {
    let users = Users::acquainted();
    let mut server = Side::start(&["--listen", "127.0.0.1:0", "--keys", &users.keys("server")]);
    let at = server.address("listening for clients").to_string();
    let mut client = Side::start(&[&at, "--socks", "127.0.0.1:0", "--keys", &users.keys("client")]);
    let socks_at = client.address("listening for SOCKS5");
    // Without this setting it goes to the loopback directly.
    let mut browser = common::chromium(users.folder.path());
    browser.args(["--proxy-bypass-list=<-loopback>", "--virtual-time-budget=20000", "--dump-dom"]);
    browser.arg(format!("--proxy-server=socks5://{socks_at}"));
    let output = common::browse(browser.arg(format!("http://localhost:{}/", web().port())));
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("<p id=\"got\">true</p>"), "{page}{}", String::from_utf8_lossy(&output.stderr));
    let programs = vmcc_apps::status::programs().0;
    let own = programs.iter().find(|program| program.pid == client.child.id()).unwrap();
    let received: u64 = own.connections[0].paths.iter().map(|path| path.received_bytes).sum();
    assert!(received > 1_200_000, "all came by it: {own:?}");
}

/// Even of a program that had said all it had to say, while the other end had not.
#[test]
fn reset_of_a_program_is_propagated() {
    let users = Users::acquainted();
    let mut server = Side::start(&["--listen", "127.0.0.1:0", "--keys", &users.keys("server")]);
    let at = server.address("listening for clients").to_string();
    let mut client = Side::start(&[&at, "--socks", "127.0.0.1:0", "--keys", &users.keys("client")]);
    let socks_at = client.address("listening for SOCKS5");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (stream, code, _) = socks(socks_at, 1, listener.local_addr().unwrap());
    assert_eq!(code, 0);
    let (mut there, _) = listener.accept().unwrap();
    (&stream).write_all(b"question").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(there.read_to_end(&mut Vec::new()).unwrap(), 8);
    assert!(there.take_error().unwrap().is_none());
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    let begin = Instant::now();
    let error = loop {
        match there.take_error().unwrap() {
            None if begin.elapsed() < TIMEOUT => thread::sleep(Duration::from_millis(10)),
            error => break error,
        }
    };
    // What a reset is called after the other direction's end.
    assert_eq!(error.map(|error| error.kind()), Some(std::io::ErrorKind::BrokenPipe));
}

#[test]
fn programs_exceed_the_default_file_limit() {
    let users = Users::acquainted();
    let mut server = Side::limited(64, &["--listen", "127.0.0.1:0", "--keys", &users.keys("server")]);
    let at = server.address("listening for clients").to_string();
    let mut client = Side::limited(64, &[&at, "--socks", "127.0.0.1:0", "--keys", &users.keys("client")]);
    let socks_at = client.address("listening for SOCKS5");
    let echo = echo();
    let open: Vec<_> = (0..100).map(|_| socks(socks_at, 1, echo)).collect();
    for (stream, code, _) in open {
        assert_eq!(code, 0);
        assert_eq!(asked(stream, b"whole"), b"whole");
    }
}

/// Sends to each connection for as long as it takes anything; how many bytes were taken so far, of all.
fn source() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, sent) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let count = sent.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), count.clone());
            thread::spawn(move || {
                while let Ok(len) = stream.write(&[7; 1 << 16]) {
                    count.fetch_add(len as u64, Ordering::SeqCst);
                }
            });
        }
    });
    (address, sent)
}

/// Accepts connections and keeps them, without a word.
fn silent() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    address
}

/// A figure of a process in KiB, such as `VmRSS`.
fn memory_kib(side: &Side, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", side.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn open_files(side: &Side) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", side.child.id())).unwrap().count()
}

fn wait_until(what: &str, most: Duration, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < most, "{what}: not within {most:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A client and a server on this host, and where SOCKS5 is.
fn pair(users: &Users) -> (Side, Side, SocketAddr) {
    let mut server = Side::start(&["--listen", "127.0.0.1:0", "--keys", &users.keys("server")]);
    let at = server.address("listening for clients").to_string();
    let mut client = Side::start(&[&at, "--socks", "127.0.0.1:0", "--keys", &users.keys("client")]);
    let socks_at = client.address("listening for SOCKS5");
    (server, client, socks_at)
}

#[test]
fn unread_downloads_block_no_others_and_bound_memory() {
    let users = Users::acquainted();
    let (server, client, socks_at) = pair(&users);
    let ((source, sent), echo) = (source(), echo());
    let before = [&server, &client].map(|side| memory_kib(side, "VmHWM"));
    let unread: Vec<_> = (0..150)
        .map(|_| {
            let (stream, code, _) = socks(socks_at, 1, source);
            assert_eq!(code, 0);
            stream
        })
        .collect();
    // Until no buffer on the way takes any more.
    let (mut last, mut since) = (0, Instant::now());
    wait_until("the downloads stop", Duration::from_secs(120), || {
        let now = sent.load(Ordering::SeqCst);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    });
    let (stream, code, _) = socks(socks_at, 1, echo);
    assert_eq!(code, 0);
    assert!(asked(stream, &[5; 1_000_000]) == [5; 1_000_000]);
    for (side, before) in [&server, &client].into_iter().zip(before) {
        let grown = memory_kib(side, "VmHWM") - before;
        assert!(grown < 80 << 10, "{grown} KiB for {} unread downloads", unread.len());
    }
}

/// Nothing else tells a program that has closed its connection from one that only has nothing more to say.
#[test]
fn program_exit_frees_the_slot_of_a_silent_target() {
    let users = Users::acquainted();
    let (server, client, socks_at) = pair(&users);
    let files = || [&server, &client].map(open_files);
    let target = silent();
    let (mut stream, code, _) = socks(socks_at, 1, target);
    assert_eq!(code, 0);
    stream.write_all(b"to nobody").unwrap();
    // Of the minute in which the kernel answers for a closed connection.
    let short: libc::c_int = 1;
    // SAFETY: the value is one that the option takes, and outlives the call.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_LINGER2,
            (&raw const short).cast(),
            size_of_val(&short) as libc::socklen_t,
        )
    };
    assert_eq!(done, 0);
    let (half_closed, _, _) = socks(socks_at, 1, target);
    half_closed.shutdown(Shutdown::Write).unwrap();
    let both = files();
    drop(stream);
    let one = both.map(|count| count - 1);
    wait_until("the other program alone is carried", Duration::from_secs(90), || files() == one);
    drop(half_closed);
}

#[test]
fn idle_programs_are_evicted_for_new_ones() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let users = Users::acquainted();
    let (_server, mut client, socks_at) = pair(&users);
    let (target, echo) = (silent(), echo());
    for _ in 0..1000 {
        let (stream, code, _) = socks(socks_at, 1, target);
        assert_eq!(code, 0);
        stream.shutdown(Shutdown::Write).unwrap();
    }
    for _ in 0..3 {
        let (stream, code, _) = socks(socks_at, 1, echo);
        assert_eq!(code, 0);
        assert_eq!(asked(stream, b"whole"), b"whole");
    }
    client.says("1000 programs are connected");
}

#[test]
fn association_is_bound_to_the_port_of_its_program() {
    let users = Users::acquainted();
    let (_server, _client, socks_at) = pair(&users);
    let bound = || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    };
    let (far, owner, other) = (bound(), bound(), bound());
    let (_association, code, relay) = socks(socks_at, 3, owner.local_addr().unwrap());
    assert_eq!(code, 0);
    let head = [&[0, 0, 0, 1, 127, 0, 0, 1][..], &far.local_addr().unwrap().port().to_be_bytes()].concat();
    let send = |from: &UdpSocket, text: &[u8]| {
        from.send_to(&[&head[..], text].concat(), (Ipv4Addr::LOCALHOST, relay)).unwrap();
    };
    for text in [b"stolen", b"stolen"] {
        send(&other, text);
    }
    send(&owner, b"mine");
    let mut buffer = [0; 100];
    let (len, from) = far.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"mine");
    far.send_to(b"back", from).unwrap();
    let len = owner.recv(&mut buffer).unwrap();
    assert!(buffer[..len].ends_with(b"back"));
    other.set_nonblocking(true).unwrap();
    assert!(other.recv(&mut buffer).is_err());
}

/// As by `nohup`, and in the background of a shell without job control.
#[test]
fn signals_ignored_at_start_stay_ignored() {
    let users = Users::acquainted();
    let script = "trap '' HUP INT; exec \"$0\" proxy --listen 127.0.0.1:0 --keys \"$1\"";
    let keys = users.keys("server");
    let mut server = Side::run(Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_vmcc"), &keys]));
    let at = server.address("listening for clients").to_string();
    let pid = Pid::from_raw(server.child.id() as i32);
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGHUP] {
        kill(pid, signal).unwrap();
    }
    // It serves: what it was sent has been dealt with before.
    let mut client = Side::start(&[&at, "--socks", "127.0.0.1:0", "--keys", &users.keys("client")]);
    let socks_at = client.address("listening for SOCKS5");
    let (stream, code, _) = socks(socks_at, 1, echo());
    assert_eq!((code, asked(stream, b"still")), (0, b"still".to_vec()));
    assert_eq!(server.child.try_wait().unwrap(), None);
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(130));
}

#[test]
fn untrusted_peers_and_open_listeners_are_refused() {
    let users = Users::new();
    users.trust("server", "friend");
    let keys = users.keys("server");
    let (server_print, stranger) = (users.fingerprint("server"), users.keys("stranger"));
    let mut server = Side::start(&["--listen", "127.0.0.1:0", "--keys", &keys]);
    let at = server.address("listening for clients").to_string();
    fails(&["proxy", &at, "--keys", &stranger], 2, &["no server is trusted", "vmcc keys"]);
    let wrong = users.fingerprint("friend");
    let args = ["proxy", &at, "--socks", "127.0.0.1:0", "--keys", &stranger, "--peer"];
    fails(&[&args[..], &[&wrong]].concat(), 3, &["not trusted", &server_print]);
    // The server tells only after the client has taken the handshake for done.
    let mut side = Side::start(&[&args[1..], &[&server_print]].concat());
    let mut said = String::new();
    while !said.contains("not trusted") {
        assert!(side.lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(said.contains(&users.fingerprint("stranger")), "{said}");
    assert_eq!(side.child.wait().unwrap().code(), Some(3));

    let nobody = users.keys("nobody");
    fails(
        &["proxy", "--listen", "0.0.0.0:0", "--keys", &nobody],
        2,
        &["clients are not authenticated", "--trust"],
    );
    let open = ["proxy", &at, "--keys", &keys, "--socks", "0.0.0.0:1080"];
    fails(&open, 2, &["clients are not authenticated", "127.0.0.1"]);
    fails(&["proxy", "--listen", &at, "--keys", &keys], 3, &[&at, "cannot be listened at"]);
    fails(&["proxy", &at, "--keys", &keys, "--peer", "sha256:12"], 2, &["sha256:12", "vmcc keys"]);
    fails(&["proxy", &at, "--keys", &keys, "--forward", "5432=db"], 2, &["5432=db", "127.0.0.1:5432"]);
    fails(
        &["proxy", "no.such.host.invalid:1", "--keys", &keys, "--socks", "127.0.0.1:0"],
        2,
        &["no.such.host.invalid: ", "check the name"],
    );
    let (code, routes) = answer(&["paths", "192.0.2.1:9", "--local", "127.0.0.1", "--probes", "1"]);
    assert_eq!((code, &routes[0]["path"]), (3, &false.into()), "{routes}");
}

#[test]
fn killed_server_is_reported_with_its_lost_connections() {
    let (users, target) = (Users::acquainted(), echo());
    let server_keys = users.keys("server");
    let mut server = Side::start(&["--listen", "127.0.0.1:0", "--keys", &server_keys]);
    let at = server.address("listening for clients").to_string();
    let forward = format!("127.0.0.1:0={target}");
    let mut client = Side::start(&[&at, "--keys", &users.keys("client"), "--forward", &forward]);
    let forward_at = client.address("listening for a forward");
    assert_eq!(asked(TcpStream::connect(forward_at).unwrap(), b"first"), b"first");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let mut server = Side::start(&["--listen", &at, "--keys", &server_keys]);
    server.address("listening for clients");
    // Whatever is sent now is answered by one who does not know of it.
    let waits = TcpStream::connect(forward_at).unwrap();
    let mut said = String::new();
    while !said.contains("no longer connected") {
        assert!(client.lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(said.contains("stateless reset"), "{said}");
    drop(waits);
}

/// Nobody listens at its port: that comes back at once, and nobody waits for silence to last.
#[test]
fn vanished_server_is_reported_to_connected_and_new_programs() {
    let users = Users::acquainted();
    let (mut server, mut client, socks_at) = pair(&users);
    let (mut stream, code, _) = socks(socks_at, 1, silent());
    assert_eq!(code, 0);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert_ne!(socks(socks_at, 1, silent()).1, 0);
    assert!(stream.read(&mut [0]).is_err(), "it is broken off");
    // Silence would have the connection time out, and a new one fail after 8 s.
    client.says("the peer's port any more (ICMP port unreachable)");
    assert_ne!(socks(socks_at, 1, silent()).1, 0);
    client.says("nobody listens at that port (ICMP port unreachable)");
}

#[test]
fn invalid_endpoint_errors_have_a_remedy() {
    let users = Users::new();
    let keys = users.keys("client");
    for (place, words) in [
        ("localhost", "write localhost:PORT, such as localhost:4433"),
        ("::1", "[::1]:PORT"),
        ("localhost:0", "1 to 65535"),
        ("https://localhost:4433", "without a scheme"),
        (":4433", "it names no host"),
    ] {
        fails(&["paths", place], 2, &[place, words]);
        fails(&["proxy", place, "--keys", &keys], 2, &[place, words]);
    }
    fails(&["paths", "no.such.host.invalid:1"], 2, &["no.such.host.invalid: ", "check the name"]);
    fails(&["proxy", "--listen", "4433", "--keys", &keys], 2, &["127.0.0.1:4433", "0.0.0.0:4433"]);
    fails(&["proxy", "a:1", "--socks", "localhost:1080", "--keys", &keys], 2, &["not a name"]);
    fails(&["paths", "a:1", "--local", "eth0"], 2, &["eth0", "ip address"]);
    fails(&["keys", "--keys", &keys, "--trust", "12:34"], 2, &["12:34", "vmcc keys"]);
}
