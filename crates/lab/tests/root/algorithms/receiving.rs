//! Hosts of the lab receive in kernel threads, and what they receive has the wire's size.

use crate::common::{alone, namespaces_of, registry, run, two_paths};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const MTU_BYTES: usize = 1500;
const PACKETS: usize = 2_000;

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: none after 20 s");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The largest of the packets that hosts' TCP is handed in a namespace, without link headers.
fn largest_packet(namespace: &str) -> usize {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    let inside = thread::spawn(move || {
        setns(&file, CloneFlags::CLONE_NEWNET).unwrap();
        let packets =
            socket(AddressFamily::Packet, SockType::Datagram, SockFlag::empty(), SockProtocol::EthAll)
                .unwrap();
        let mut byte = [0];
        let mut size = || recv(packets.as_raw_fd(), &mut byte, MsgFlags::MSG_TRUNC).unwrap();
        (0..PACKETS).map(|_| size()).max()
    });
    inside.join().unwrap().unwrap()
}

/// The folders of `/proc` of the kernel threads in which hosts of any lab receive.
fn receiving_threads() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|process| process.path());
    let receives = |process: &PathBuf| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        name.starts_with("napi/p0-") || name.starts_with("napi/p1-")
    };
    processes.filter(receives).collect()
}

#[test]
fn root_hosts_receive_wire_size_packets_in_threaded_napi() {
    let _alone = alone();
    let before = receiving_threads();
    let mut spec = two_paths(registry("lia"), 4);
    let run_id = format!("receive-{}", std::process::id());
    spec.run_id = Some(run_id.clone());
    let transfer = thread::spawn(move || run(&spec).unwrap());
    // A name appears before its namespace; those of the paths come after those of the hosts.
    let server = wait_for("the server's namespace", || {
        let names = namespaces_of(&run_id);
        let built = names.iter().any(|name| name.ends_with("-mid1"));
        names.into_iter().find(|name| built && name.ends_with("-server"))
    });
    let largest = largest_packet(&server);
    let threads = &receiving_threads() - &before;
    assert!(transfer.join().unwrap().metrics.goodput_bps.unwrap() > 0.0);
    assert_eq!(largest, MTU_BYTES, "a full packet, none merged");
    assert!(threads.len() >= 4, "two hosts with two ports each: {threads:?}");
    // The kernel takes namespaces apart after their names are gone; those of a test before may still be at it.
    wait_for("the threads' end", || receiving_threads().is_disjoint(&threads).then_some(()));
}
