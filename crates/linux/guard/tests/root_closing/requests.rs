//! Requests to close a path. The algorithm is the kernel's own here: the target of a request does not depend on ours.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_guard::{Guard, GuardState, Policy, RequestCounts, RequestReaders};
use vmcc_netlink::{PathManager, SubflowEnds};
use vmcc_system::diag::{Diag, Subflow};
use vmcc_testkit::netns::run;
use vmcc_testkit::paths::{Net, Over, transfer};

/// Every kernel has it, and every namespace may select it.
const ALGORITHM: &str = "reno";
/// A test that waits longer hangs.
const HANGS: Duration = Duration::from_secs(60);

fn own_namespace() -> u32 {
    u32::try_from(std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino()).unwrap()
}

fn request(close: &Subflow, keep: &Subflow) -> CloseRequest {
    CloseRequest::between(close, keep, own_namespace())
}

/// Results of requests of an algorithm to one guard.
fn follow(requests: &[CloseRequest], kernel_name: &str, min_paths: u32) -> RequestCounts {
    let policy = Policy { min_paths, drain: Duration::ZERO, ..Policy::default() };
    let mut guard = Guard::new(RequestReaders::default(), policy, GuardState::default());
    guard.enqueue(requests.to_vec(), kernel_name);
    guard.act(&mut |done| drop(done.unwrap()));
    guard.counts()
}

const NONE: RequestCounts =
    RequestCounts { closed: 0, gone: 0, nothing_to_keep: 0, retained: 0, failed: 0, pending: 0 };
const CLOSED: RequestCounts = RequestCounts { closed: 1, ..NONE };
const GONE: RequestCounts = RequestCounts { gone: 1, ..NONE };
const RETAINED: RequestCounts = RequestCounts { retained: 1, ..NONE };
/// The path to keep is not alive: the guard waits for another one.
const PENDING: RequestCounts = RequestCounts { pending: 1, ..NONE };

/// A transfer over two paths, the second bound to its device; `act` gets the client's two subflows, in its namespace.
fn with_two_paths(port: u16, act: impl FnOnce(&Subflow, &Subflow) + Send) {
    let net = Net::new(2, None);
    net.select(ALGORITHM);
    run(&format!("ip -n {} mptcp endpoint add 10.77.1.1 dev p1 subflow fullmesh", net.client));
    let mut act = Some(act);
    let deadline = Instant::now() + Duration::from_secs(20);
    transfer(&net, Over::Mptcp, port, |_| {
        let all = Diag::open().unwrap().subflows().unwrap();
        let ours: Vec<&Subflow> =
            all.iter().filter(|s| s.remote.port() == port && s.established && s.bytes_acked > 0).collect();
        if let (Some(first), Some(second)) =
            (ours.iter().find(|s| s.interface == 0), ours.iter().find(|s| s.interface != 0))
        {
            act.take().expect("asked once")(first, second);
            return true;
        }
        assert!(Instant::now() < deadline, "no second path: {all:#?}");
        false
    });
    assert!(act.is_none());
}

fn is_there(socket: &Subflow) -> bool {
    let all = Diag::open().unwrap().subflows().unwrap();
    all.iter().any(|s| (s.local, s.remote, s.established) == (socket.local, socket.remote, true))
}

/// The kernel turns to a listener where no connection has the ends that were asked for.
#[test]
fn root_listener_on_a_reused_port_survives() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let (client, server) = (TcpStream::connect(local).unwrap(), listener.accept().unwrap());
    let all = Diag::open().unwrap().subflows().unwrap();
    let connection = all.iter().find(|s| s.local == local).unwrap();
    let gone = SocketAddr::from(([127, 0, 0, 1], 1));
    let past = CloseRequest { remote: gone, ..request(connection, connection) };
    assert_eq!(follow(&[past], &connection.algorithm, 1), GONE);
    // Plain TCP is never meant, whatever its ends are.
    assert_eq!(follow(&[request(connection, connection)], &connection.algorithm, 1), GONE);
    // Nor does a socket's number open the way to a listener.
    let stranger = Subflow { remote: gone, ..connection.clone() };
    assert!(Diag::open().unwrap().destroy(&stranger).is_err());
    assert!(is_there(connection));
    drop((client, server));
    TcpStream::connect(local).expect("it still listens");
}

#[test]
fn root_path_bound_to_a_device_is_closed() {
    with_two_paths(5311, |first, second| {
        assert_eq!(follow(&[request(second, first)], ALGORITHM, 1), CLOSED);
        assert!(is_there(first) && !is_there(second));
    });
}

#[test]
fn root_retained_path_is_left_alone() {
    with_two_paths(5315, |first, second| {
        // A full mesh has more than these two.
        let all = Diag::open().unwrap().subflows().unwrap();
        let of_connection =
            |s: &&Subflow| s.mptcp.map(|m| m.token_local) == first.mptcp.map(|m| m.token_local);
        println!("{} subflows", all.iter().filter(of_connection).count());
        let most = vmcc_cc::MAX_PATHS as u32;
        assert_eq!(follow(&[request(second, first)], ALGORITHM, most), RETAINED);
        assert!(is_there(first) && is_there(second));
    });
}

#[test]
fn root_one_of_two_mutually_accused_paths_survives() {
    with_two_paths(5312, |first, second| {
        let requests = [request(first, second), request(second, first)];
        assert_eq!(follow(&requests, ALGORITHM, 1), RequestCounts { closed: 1, pending: 1, ..NONE });
        assert!(!is_there(first) && is_there(second));
    });
}

#[test]
fn root_outdated_request_closes_nothing() {
    with_two_paths(5313, |first, second| {
        let meant = request(second, first);
        let cookie = u64::from_ne_bytes(second.cookie);
        for (other, why) in [
            (CloseRequest { token: meant.token ^ 1, ..meant }, "another connection"),
            (CloseRequest { cookie: cookie + 1, ..meant }, "another socket between these ends"),
            (CloseRequest { bytes_acked: 1 << 60, ..meant }, "a later socket between these ends"),
            (CloseRequest { interface: 0, ..meant }, "a socket that is bound to no device"),
        ] {
            assert_eq!(follow(&[other], ALGORITHM, 1), GONE, "{why}");
        }
        assert_eq!(follow(&[meant], "mp_vmcc", 1), GONE, "another algorithm");
        let nobody = CloseRequest { peer_local: "10.77.9.9:1".parse().unwrap(), ..meant };
        assert_eq!(follow(&[nobody], ALGORITHM, 1), PENDING);
        assert!(is_there(first) && is_there(second));
        assert_eq!(follow(&[CloseRequest { cookie, ..meant }], ALGORITHM, 1), CLOSED);
    });
}

/// The client's own path manager, in its namespace.
fn open_from(first: &Subflow, local: SocketAddr, port: u16) {
    let ends = SubflowEnds {
        token: first.mptcp.unwrap().token_local,
        local,
        local_id: 1,
        device: 0,
        remote: format!("10.77.1.2:{port}").parse().unwrap(),
    };
    let began = Instant::now();
    while let Err(error) = PathManager::open().unwrap().open_subflow(&ends) {
        assert!(began.elapsed() < HANGS, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Those of a connection, the second once it is there and has carried something.
fn two(port: u16, first: &Subflow, not: [u8; 8]) -> Option<(Subflow, Subflow)> {
    let all = Diag::open().unwrap().subflows().unwrap();
    let carries = |s: &&Subflow| s.remote.port() == port && s.established && s.bytes_acked > 0;
    let find = |which: &dyn Fn(&Subflow) -> bool| all.iter().filter(carries).find(|s| which(s)).cloned();
    Some((find(&|s| s.cookie == first.cookie)?, find(&|s| s.cookie != first.cookie && s.cookie != not)?))
}

/// As soon as the client has one that carries.
fn first(port: u16) -> Option<Subflow> {
    let all = Diag::open().unwrap().subflows().unwrap();
    all.into_iter().find(|s| s.remote.port() == port && s.established && s.bytes_acked > 0)
}

#[test]
fn root_old_verdict_does_not_close_a_reused_address_pair() {
    const PORT: u16 = 5314;
    let net = Net::new(2, None);
    net.select(ALGORITHM);
    net.client.sysctl("mptcp/pm_type", "1");
    let began = Instant::now();
    // The first path, then the verdict on the second.
    let (mut kept, mut verdict): (Option<Subflow>, Option<(Subflow, CloseRequest)>) = (None, None);
    let local: SocketAddr = "10.77.1.1:45000".parse().unwrap();
    transfer(&net, Over::Mptcp, PORT, |_| {
        assert!(began.elapsed() < HANGS, "{kept:#?} {verdict:#?}");
        let Some(one) = kept.clone() else {
            kept = first(PORT);
            kept.iter().for_each(|one| open_from(one, local, PORT));
            return false;
        };
        let before = verdict.as_ref().map_or([0; 8], |(socket, _)| socket.cookie);
        let Some((one, other)) = two(PORT, &one, before) else { return false };
        let Some((past, old)) = verdict.clone() else {
            let old = CloseRequest {
                cookie: u64::from_ne_bytes(other.cookie),
                bytes_acked: 0,
                ..request(&other, &one)
            };
            Diag::open().unwrap().destroy(&other).unwrap();
            verdict = Some((other, old));
            open_from(&one, local, PORT);
            return false;
        };
        assert_eq!((past.local, past.remote), (other.local, other.remote), "the same ends");
        assert_ne!(past.cookie, other.cookie, "another socket");
        assert_eq!(follow(&[old], ALGORITHM, 1), GONE);
        assert!(is_there(&other), "never hit");
        assert_eq!(follow(&[request(&other, &one)], ALGORITHM, 1), CLOSED, "a verdict of its own does");
        true
    });
}
