//! Loading into the running kernel. Needs root: without it these tests fail, they do not skip.

mod common;

use common::{Net, Over, Shape, alone, transfer};
use vmcc_cc::{Algorithm, Params};
use vmcc_host::{Loaded, diag::Diag};

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
    const AT_MOST: u32 = 200_000;
    let ours = |program: &libbpf_rs::query::ProgramInfo| loaded.program_ids().contains(&program.id);
    let programs: Vec<_> = libbpf_rs::query::ProgInfoIter::default().filter(ours).collect();
    assert_eq!(programs.len(), loaded.program_ids().len());
    for program in programs {
        println!("{} {:?}: {}", loaded.kernel_name(), program.name, program.verified_insns);
        assert!((1..AT_MOST).contains(&program.verified_insns), "{:?}", program.name);
    }
}

#[test]
fn root_every_algorithm_loads_and_is_gone_after() {
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

#[test]
fn root_every_algorithm_carries_mptcp_over_two_paths() {
    let _alone = alone();
    let net = Net::new(2, Some(Shape { rate_mbit: 100, buffer_kb: 150 }));
    for algorithm in Algorithm::all() {
        let loaded = load(algorithm);
        net.select(loaded.kernel_name());
        let mut seen = Vec::new();
        let done = transfer(&net, Over::Mptcp, 5001, |sent| {
            if sent >= 16 * MB {
                seen = Diag::open().unwrap().subflows().unwrap();
            }
            sent >= 16 * MB
        });
        let mbit = done.bytes as f64 * 8e-6 / done.seconds;
        let carried: Vec<_> = seen.iter().filter(|s| s.remote.port() == 5001).collect();
        println!(
            "{:<12} {mbit:6.1} Mbit/s, {:?}",
            loaded.kernel_name(),
            carried
                .iter()
                .map(|s| (s.bytes_acked, s.cwnd_pkt, s.delivered_ce_pkt, s.retransmitted_pkt, s.mptcp))
                .collect::<Vec<_>>()
        );
        assert_eq!(carried.len(), 2, "{carried:?}");
        for subflow in carried {
            assert_eq!(subflow.algorithm, loaded.kernel_name());
            assert!(subflow.bytes_acked > MB, "{subflow:?}");
        }
    }
}

#[test]
fn root_every_algorithm_carries_plain_tcp() {
    let _alone = alone();
    let net = Net::new(1, Some(Shape { rate_mbit: 30, buffer_kb: 150 }));
    for algorithm in Algorithm::all() {
        let loaded = load(algorithm);
        net.select(loaded.kernel_name());
        let done = transfer(&net, Over::Tcp, 5002, |sent| sent >= 4 * MB);
        let mbit = done.bytes as f64 * 8e-6 / done.seconds;
        println!("{:<12} {mbit:6.1} Mbit/s", loaded.kernel_name());
        assert!(mbit > 8.0, "{} reached {mbit} Mbit/s of 30", loaded.kernel_name());
    }
}
