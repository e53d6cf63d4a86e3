//! The table through which subflows see each other. Needs root: without it these tests fail, they do not skip.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_bpf::Loaded;
use vmcc_cc::{Algorithm, Params};
use vmcc_system::diag::Diag;
use vmcc_testkit::netns::{Namespace, run};
use vmcc_testkit::paths::{MAX_MPTCP_PATHS, Net, Over, Shape, alone, connect, listen, transfer};

const MB: u64 = 1 << 20;

fn lia() -> Loaded {
    let algorithm = Algorithm::by_name("lia").unwrap();
    Loaded::load(algorithm, &Params::defaults(algorithm)).unwrap_or_else(|e| panic!("{e}"))
}

/// Waits until the table is empty: sockets are released a moment after they are closed.
fn drained(loaded: &Loaded) -> usize {
    let deadline = Instant::now() + Duration::from_secs(20);
    while loaded.connections() != Some(0) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(50));
    }
    loaded.connections().unwrap()
}

/// TIME-WAIT and orphans would only delay the release; a reset ends a connection at once.
fn reset_on_close(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn root_connection_has_a_group_entry_while_it_lives() {
    let _alone = alone();
    let loaded = lia();
    let net = Net::new(2, None);
    net.select(loaded.kernel_name());
    let mut seen = None;
    transfer(&net, Over::Mptcp, 5201, |sent| {
        if sent >= 64 * MB {
            seen = loaded.connections();
        }
        sent >= 64 * MB
    });
    // Both ends run on this kernel, in one table.
    assert_eq!(seen, Some(2));
    assert_eq!(drained(&loaded), 0);
    assert!(loaded.bytes_per_connection().unwrap() <= 2048, "{:?}", loaded.bytes_per_connection());
}

#[test]
fn root_plain_tcp_takes_no_entry() {
    let _alone = alone();
    let loaded = lia();
    let net = Net::new(1, None);
    net.select(loaded.kernel_name());
    let mut seen = None;
    transfer(&net, Over::Tcp, 5202, |sent| {
        seen = loaded.connections();
        sent >= 8 * MB
    });
    assert_eq!(seen, Some(0));
}

/// Joins settle before a connection closes: Linux 6.18 itself now and then loses the socket of a subflow that joins
/// while its connection closes (with its own Reno as well), and a lost socket keeps its slot.
const SETTLE: Duration = Duration::from_millis(30);

#[test]
fn root_ten_thousand_connections_leave_nothing() {
    const CONNECTIONS: usize = 10_000;
    const WORKERS: usize = 4;
    const BATCH: usize = 50;
    let _alone = alone();
    let loaded = lia();
    let net = Net::new(2, None);
    net.select(loaded.kernel_name());
    let listener = net.server.within(|| listen(Over::Mptcp, 5203));
    let server = thread::spawn(move || {
        // Closed by the client first, except the last ones.
        let mut open = std::collections::VecDeque::new();
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::from(OwnedFd::from(listener.accept().unwrap().0));
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            stream.write_all(&word).unwrap();
            open.push_back(stream);
            if open.len() > 2 * WORKERS * BATCH {
                open.pop_front();
            }
        }
    });
    let batch = |number: usize| {
        let open: Vec<TcpStream> = (0..BATCH)
            .map(|_| {
                let mut stream = TcpStream::from(OwnedFd::from(connect(Over::Mptcp, 5203)));
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                stream.write_all(b"ping").unwrap();
                stream.read_exact(&mut [0; 4]).unwrap();
                stream
            })
            .collect();
        thread::sleep(SETTLE);
        open.iter().filter(|_| number.is_multiple_of(2)).for_each(reset_on_close);
    };
    let most = thread::scope(|scope| {
        let work = || net.client.within(|| (0..CONNECTIONS / WORKERS / BATCH).for_each(batch));
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        let mut most = 0;
        while workers.iter().any(|w| !w.is_finished()) {
            most = most.max(loaded.connections().unwrap());
            thread::sleep(Duration::from_millis(20));
        }
        workers.into_iter().for_each(|w| w.join().unwrap());
        most
    });
    server.join().unwrap();
    assert!(most > BATCH, "connections never reached the table");
    assert_eq!(drained(&loaded), 0, "entries left after {CONNECTIONS} connections");
}

#[test]
fn root_subflows_on_two_cpus_share_one_entry() {
    let _alone = alone();
    let loaded = lia();
    let net = Net::new(8, None);
    net.select(loaded.kernel_name());
    let mut entries = Vec::new();
    let mut subflows = BTreeSet::new();
    // Two connections of eight subflows each, unshaped: ACKs are handled on both CPUs at once.
    thread::scope(|scope| {
        let other = scope.spawn(|| transfer(&net, Over::Mptcp, 5205, |sent| sent >= 512 * MB));
        transfer(&net, Over::Mptcp, 5204, |sent| {
            if sent % (64 * MB) == 0 {
                entries.push(loaded.connections().unwrap());
            }
            if sent >= 512 * MB {
                for s in Diag::open().unwrap().subflows().unwrap() {
                    if s.remote.port() == 5204 {
                        subflows.insert(s.local);
                    }
                }
            }
            sent >= 512 * MB
        });
        other.join().unwrap();
    });
    assert_eq!(subflows.len(), 8, "{subflows:?}");
    assert!(entries.iter().all(|n| *n <= 4), "{entries:?}");
    assert_eq!(drained(&loaded), 0);
}

/// The sender's end of the only connection: the one whose windows have grown.
fn sender(loaded: &Loaded) -> vmcc_bpf::Connection {
    let busiest = |c: &vmcc_bpf::Connection| c.paths.iter().map(|p| p.cwnd_pkt).max();
    loaded.table().unwrap().into_iter().max_by_key(busiest).expect("a connection")
}

/// Its paths that enter the sums of their siblings.
fn counting(connection: &vmcc_bpf::Connection) -> usize {
    connection.paths.iter().filter(|p| p.counts).count()
}

#[test]
fn root_backup_and_closed_paths_do_not_count() {
    let _alone = alone();
    let loaded = lia();
    let net = Net::new(2, Some(Shape { rate_mbit: 50, buffer_kb: 100 }));
    net.select(loaded.kernel_name());
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut seen = Vec::new();
    transfer(&net, Over::Mptcp, 5206, |sent| {
        // Before the first block there is no connection of a sender.
        if sent < 1 << 20 {
            return false;
        }
        let now = sender(&loaded);
        match (seen.len(), now.paths.len(), counting(&now)) {
            (0, 2, 2) => {
                seen.push(now);
                // The server's address of path 1 becomes a backup: it tells the client so (MP_PRIO).
                run(&format!("ip -n {} mptcp endpoint change id 1 backup", net.server));
            }
            (1, _, 1) => {
                seen.push(now);
                let mut diag = Diag::open().unwrap();
                let all = diag.subflows().unwrap();
                let backup = all.iter().find(|s| s.mptcp.is_some_and(|m| m.joined)).expect("path 1");
                diag.destroy(backup).unwrap();
            }
            (2, 1, _) => seen.push(now),
            _ => assert!(Instant::now() < deadline, "{seen:#?}, {now:#?}"),
        }
        seen.len() == 3
    });
    assert_eq!((seen[0].paths.len(), counting(&seen[0])), (2, 2), "{seen:#?}");
    assert_eq!((seen[1].paths.len(), counting(&seen[1])), (2, 1), "{seen:#?}");
    assert_eq!((seen[2].paths.len(), counting(&seen[2])), (1, 1), "{seen:#?}");
    assert!(seen.iter().all(|c| c.token == seen[0].token));
}

/// Linux counts additional subflows: a limit of 8 gives nine paths.
#[test]
fn root_nine_paths_are_coupled_in_one_entry() {
    let _alone = alone();
    let loaded = lia();
    let net = Net::new(MAX_MPTCP_PATHS, None);
    net.select(loaded.kernel_name());
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut seen = Vec::new();
    transfer(&net, Over::Mptcp, 5211, |_| {
        seen = loaded.table().unwrap();
        let joined = seen.iter().filter(|c| c.paths.len() == MAX_MPTCP_PATHS).count();
        (joined == 2 && counting(&sender(&loaded)) == MAX_MPTCP_PATHS) || Instant::now() > deadline
    });
    let of_each: Vec<_> = seen.iter().map(|c| (c.paths.len(), counting(c))).collect();
    assert!(seen.len() == 2 && of_each.iter().all(|(paths, _)| *paths == MAX_MPTCP_PATHS), "{of_each:?}");
    // The receiver sends nothing, so its windows are not looked at.
    assert!(of_each.iter().any(|(_, counting)| *counting == MAX_MPTCP_PATHS), "{of_each:?}");
    assert_eq!(loaded.shortage(), vmcc_bpf::Shortage::default());
    assert_eq!(drained(&loaded), 0);
}

/// Connections of one path each, opened one after the other, and their other ends.
fn open_connections(net: &Net, port: u16, count: usize) -> Vec<(TcpStream, TcpStream)> {
    open_between(&net.client, &net.server, port, count)
}

fn open_between(
    client: &Namespace,
    server: &Namespace,
    port: u16,
    count: usize,
) -> Vec<(TcpStream, TcpStream)> {
    let listener = server.within(|| listen(Over::Mptcp, port));
    let open = |_| {
        let client = client.within(|| TcpStream::from(OwnedFd::from(connect(Over::Mptcp, port))));
        let server = TcpStream::from(OwnedFd::from(listener.accept().unwrap().0));
        for end in [&client, &server] {
            end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            reset_on_close(end);
        }
        (client, server)
    };
    let all: Vec<_> = (0..count).map(open).collect();
    exchange(&all);
    all
}

/// A few round trips in both directions, a moment apart.
fn exchange(connections: &[(TcpStream, TcpStream)]) {
    for _ in 0..4 {
        for (client, server) in connections {
            for (mut from, mut to) in [(client, server), (server, client)] {
                from.write_all(b"ping").unwrap();
                to.read_exact(&mut [0; 4]).unwrap();
            }
        }
        thread::sleep(SETTLE);
    }
}

#[test]
fn root_namespace_at_its_quota_takes_no_entries_from_others() {
    let _alone = alone();
    let loaded = lia();
    loaded.limit_accounts(2).unwrap();
    let (greedy, modest) = (Net::new(1, None), Net::new(1, None));
    for net in [&greedy, &modest] {
        net.select(loaded.kernel_name());
    }
    let many = open_connections(&greedy, 5207, 5);
    // Each end is in a namespace, hence an account, of its own.
    assert_eq!(loaded.connections(), Some(4), "two at each end");
    assert_eq!(loaded.shortage().uncoupled, 6, "three at each end, each counted once");
    let few = open_connections(&modest, 5208, 2);
    assert_eq!(loaded.connections(), Some(8), "the others have their room");
    assert_eq!(loaded.shortage().uncoupled, 6);
    loaded.limit_accounts(100).unwrap();
    exchange(&many);
    assert_eq!(loaded.connections(), Some(14), "who found no room joins when there is some");
    drop((many, few));
    assert_eq!(drained(&loaded), 0);
    let again = open_connections(&greedy, 5209, 3);
    assert_eq!(loaded.connections(), Some(6), "room that was given back is there again");
    drop(again);
}

/// A process that sleeps in namespaces of its own.
struct Sleeper(Child);

impl Sleeper {
    /// `launcher` makes namespaces of these kinds; waits until it has.
    fn start(launcher: &str, kinds: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let flags: String = kinds.iter().map(|kind| format!(" --{kind}")).collect();
        command.args(["-c", &format!("exec {launcher} unshare{flags} sleep 600")]);
        let sleeper = Self(command.spawn().unwrap());
        let began = Instant::now();
        while fs::read_to_string(sleeper.file("comm")).unwrap().trim() != "sleep" {
            assert!(began.elapsed() < Duration::from_secs(60), "{launcher}");
            thread::sleep(Duration::from_millis(20));
        }
        sleeper
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.0.id())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_subordinate_uids_share_the_quota_of_their_user() {
    const USER: u32 = 54_242;
    let _alone = alone();
    let loaded = lia();
    loaded.limit_accounts(2).unwrap();
    let outer = Sleeper::start(&format!("setpriv --reuid={USER} --regid={USER} --clear-groups"), &["user"]);
    for map in ["uid_map", "gid_map"] {
        fs::write(outer.file(map), format!("0 {USER} 1\n1 1000000 10\n")).unwrap();
    }
    let inside = |uid: u32| {
        let launcher = format!("nsenter --user --target {} --setuid {uid} --setgid {uid}", outer.0.id());
        let sleeper = Sleeper::start(&launcher, &["user", "net"]);
        let ns = Namespace(format!("vmcct{}-u{uid}", std::process::id()));
        run(&format!("ip netns attach {ns} {}", sleeper.0.id()));
        run(&format!("ip -n {ns} link set lo up"));
        run(&format!("ip -n {ns} addr add 10.77.0.2/32 dev lo"));
        ns.sysctl("ipv4/tcp_congestion_control", loaded.kernel_name());
        (ns, sleeper)
    };
    let ((first, _first), (second, _second)) = (inside(1), inside(2));
    let open = open_between(&first, &first, 5211, 1);
    assert_eq!(loaded.connections(), Some(2), "both of its ends");
    let more = open_between(&second, &second, 5211, 1);
    assert_eq!((loaded.connections(), loaded.shortage().uncoupled), (Some(2), 2), "another uid of one user");
    drop((open, more));
    assert_eq!(drained(&loaded), 0);
}

#[test]
fn root_unreferenced_entries_are_reclaimed_and_recreated() {
    let _alone = alone();
    let loaded = lia();
    let net = Net::new(1, None);
    net.select(loaded.kernel_name());
    let open = open_connections(&net, 5210, 3);
    assert_eq!(
        (vmcc_bpf::collect_garbage(Duration::ZERO).unwrap(), loaded.connections()),
        (0, Some(6)),
        "they live"
    );
    // From here on only our sockets hold the namespaces: nothing leads there, as after a release that never came.
    for ns in [&net.client, &net.server] {
        run(&format!("ip netns del {ns}"));
    }
    assert_eq!(vmcc_bpf::collect_garbage(vmcc_bpf::GC_MIN_AGE).unwrap(), 0, "too young");
    assert_eq!(vmcc_bpf::collect_garbage(Duration::ZERO).unwrap(), 6);
    // Whom a late ACK called may be back already: all have been sent by then, so once more is the end of it.
    std::thread::sleep(Duration::from_millis(300));
    vmcc_bpf::collect_garbage(Duration::ZERO).unwrap();
    assert_eq!(loaded.connections(), Some(0));
    exchange(&open);
    assert_eq!(loaded.connections(), Some(6), "they were alive after all");
    drop(open);
    assert_eq!(drained(&loaded), 0);
}
