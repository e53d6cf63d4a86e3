//! Loading into the running kernel. Needs root: without it these tests fail, they do not skip.

use nix::libc;
use nix::sys::socket::sockopt::{GetStruct, SetStruct};
use nix::sys::socket::{getsockopt, setsockopt};
use socket2::Socket;
use std::io::{self, Write};
use std::net::Shutdown;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use vmcc_bpf::Loaded;
use vmcc_cc::{Algorithm, Params};
use vmcc_port::Port;
use vmcc_system::diag::{Diag, Subflow};
use vmcc_testkit::control::payload_bps;
use vmcc_testkit::netns::run;
use vmcc_testkit::paths::{Net, Over, Shape, alone, connect, listen, transfer};

const MB: u64 = 1 << 20;

fn available() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

fn load(algorithm: Algorithm) -> Loaded {
    Loaded::load(algorithm, &Params::defaults(algorithm)).unwrap_or_else(|e| panic!("{e}"))
}

/// Kernels refuse a program after a million instructions followed, and differ in how many they need; every load waits
/// for it.
fn verified_with_ease(loaded: &Loaded) {
    const AT_MOST: u32 = 400_000;
    let ours = |program: &libbpf_rs::query::ProgramInfo| loaded.program_ids().contains(&program.id);
    let programs: Vec<_> = libbpf_rs::query::ProgInfoIter::default().filter(ours).collect();
    assert_eq!(programs.len(), loaded.program_ids().len());
    for program in programs {
        println!("{} {:?}: {}", loaded.kernel_name(), program.name, program.verified_insns);
        assert!((1..AT_MOST).contains(&program.verified_insns), "{:?}", program.name);
    }
}

#[test]
fn root_every_algorithm_loads_and_unloads() {
    let _alone = alone();
    for algorithm in Algorithm::all() {
        let name = algorithm.info().kernel_name.to_owned();
        let loaded = load(algorithm);
        assert!(available().contains(&name), "{name}");
        verified_with_ease(&loaded);
        drop(loaded);
        assert!(!available().contains(&name), "{name}");
    }
}

/// `vmcc bench kernel` beside `vmcc up` counts the calls of programs that another process loaded.
#[test]
fn root_shared_registration_has_every_program_of_its_owner() {
    let _alone = alone();
    let ids = |loaded: &Loaded| {
        let mut ids = loaded.program_ids().to_vec();
        ids.sort_unstable();
        ids
    };
    for algorithm in Algorithm::all() {
        let owner = load(algorithm);
        let shared = load(algorithm);
        assert!(owner.is_own() && !shared.is_own());
        assert_eq!(ids(&shared), ids(&owner), "{}", owner.kernel_name());
    }
}

#[test]
fn root_every_algorithm_carries_mptcp_over_two_paths() {
    let _alone = alone();
    let net = Net::new(2, Some(Shape { rate_mbit: 50, buffer_kb: 150 }));
    for algorithm in Algorithm::all() {
        let loaded = load(algorithm);
        let name = loaded.kernel_name();
        let carried = || {
            net.select(name);
            let mut seen = Vec::new();
            transfer(&net, Over::Mptcp, 5001, |sent| {
                if sent >= 16 * MB {
                    seen = Diag::open().unwrap().subflows().unwrap();
                }
                sent >= 16 * MB
            });
            seen.retain(|s| s.remote.port() == 5001);
            seen
        };
        let verdict = |carried: &Vec<Subflow>| {
            println!("{name}: {carried:?}");
            assert_eq!(carried.len(), 2, "{carried:?}");
            for subflow in carried {
                assert_eq!(subflow.algorithm, name);
                assert!(subflow.bytes_acked > MB, "{subflow:?}");
            }
        };
        vmcc_testkit::judge(carried, verdict, |_| reno_share(&net, 50));
    }
}

/// Share of the first path's rate that plain TCP under the kernel's Reno fills now.
fn reno_share(net: &Net, rate_mbit: u32) -> f64 {
    net.select("reno");
    let done = transfer(net, Over::Tcp, 5004, |sent| sent >= 4 * MB);
    done.bytes as f64 * 8.0 / done.seconds / payload_bps(rate_mbit)
}

#[test]
fn root_every_algorithm_carries_plain_tcp() {
    let _alone = alone();
    let net = Net::new(1, Some(Shape { rate_mbit: 30, buffer_kb: 150 }));
    for algorithm in Algorithm::all() {
        let loaded = load(algorithm);
        let name = loaded.kernel_name();
        let reached = || {
            net.select(name);
            let done = transfer(&net, Over::Tcp, 5002, |sent| sent >= 4 * MB);
            done.bytes as f64 * 8e-6 / done.seconds
        };
        let verdict = |mbit: &f64| assert!(*mbit > 8.0, "{name} reached {mbit} Mbit/s of 30");
        vmcc_testkit::judge(reached, verdict, |_| reno_share(&net, 30));
    }
}

#[derive(Clone, Copy)]
struct MaxPacingRate;
nix::getsockopt_impl!(MaxPacingRate, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, GetStruct<u64>);
nix::setsockopt_impl!(MaxPacingRate, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, SetStruct<'_, u64>);

/// Connections that send without end, each with a reader at the other end.
fn send_without_end(net: &Net, port: u16, count: usize) -> Vec<Socket> {
    let listener = net.server.within(|| listen(Over::Tcp, port));
    let begin = |_| {
        let sender = net.client.within(|| connect(Over::Tcp, port));
        let (mut writer, (mut reader, _)) = (sender.try_clone().unwrap(), listener.accept().unwrap());
        thread::spawn(move || while writer.write_all(&[0; 1 << 14]).is_ok() {});
        thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
        sender
    };
    (0..count).map(begin).collect()
}

/// Established subflows to `port` as Linux reports them, in the order of their local ports.
fn look(net: &Net, port: u16) -> Vec<Subflow> {
    let all = net.client.within(|| Diag::open().unwrap().subflows().unwrap());
    let mut ours: Vec<_> = all.into_iter().filter(|s| s.remote.port() == port && s.established).collect();
    ours.sort_by_key(|s| s.local.port());
    ours
}

fn of(net: &Net, socket: &Socket) -> Subflow {
    let local = socket.local_addr().unwrap().as_socket().unwrap();
    let remote = socket.peer_addr().unwrap().as_socket().unwrap();
    look(net, remote.port()).into_iter().find(|s| s.local == local).expect("it is open")
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(40), "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// With windows of two packets all have two on their way at any moment.
fn wait_until_spaced(net: &Net, port: u16) {
    wait_until("packets are spaced", || {
        let looks = (0..40).flat_map(|_| look(net, port));
        let in_flight: Vec<u32> = looks.map(|s| s.in_flight_pkt).collect();
        in_flight.iter().sum::<u32>() < 3 * u32::try_from(in_flight.len()).unwrap() / 2
    });
}

#[test]
fn root_spacing_keeps_the_pacing_rate_of_the_application() {
    const LIMIT: u64 = 200_000;
    let _alone = alone();
    let net = Net::new(1, None);
    run(&format!("ip -n {} link set p0 gso_max_segs 1", net.client));
    let loaded = load(Algorithm::by_name("drizzle").unwrap());
    net.select(loaded.kernel_name());
    let settings = "rate = '4mbit'\nmarking = { rule = 'threshold', at = '1pkt' }";
    let marking = Port::attach_in(&net.client.file(), "p0", &toml::from_str(settings).unwrap()).unwrap();

    let mut senders = send_without_end(&net, 5003, 8);
    setsockopt(&senders[0], MaxPacingRate, &LIMIT).unwrap();
    wait_until_spaced(&net, 5003);
    let limits: Vec<u64> = senders[..2].iter().map(|s| getsockopt(s, MaxPacingRate).unwrap()).collect();
    assert_eq!(limits, [LIMIT, u64::MAX], "spaced");

    // Nothing is marked any more: one goes on in windows, the other as its application wants.
    for sender in senders.drain(2..) {
        sender.shutdown(Shutdown::Both).unwrap();
    }
    marking.detach().unwrap();
    wait_until("windows grow", || of(&net, &senders[1]).cwnd_pkt > 4);
    senders[1].shutdown(Shutdown::Both).unwrap();
    // Time before bytes: a delay between both makes the rate appear lower, never higher.
    let (begun, from) = (Instant::now(), of(&net, &senders[0]).bytes_acked);
    wait_until("it goes on", || of(&net, &senders[0]).bytes_acked > from + 300_000);
    let rate = 300e3 / begun.elapsed().as_secs_f64();
    assert!(rate < 1.2 * LIMIT as f64, "{rate} bytes/s");
    assert_eq!(getsockopt(&senders[0], MaxPacingRate).unwrap(), LIMIT);
    senders[0].shutdown(Shutdown::Both).unwrap();
}
