//! A path whose MTU falls during a transfer: Linux sends again what has become too long, in the state Loss, without
//! asking for a threshold and without a reduction.

use super::row::{RECEIVER, Row};
use super::{LOSS, PORT, load, records_of};
use std::time::Duration;
use vmcc_bpf::Loaded;
use vmcc_bpf::observe::{Observer, Record};
use vmcc_testkit::netns::{Server, run};

// TCP_INFINITE_SSTHRESH: never reduced.
const INFINITE: u32 = 0x7fff_ffff;
const ATTEMPTS: usize = 6;

/// A row whose sender has packets leave from a queue, so that the router's answer finds the socket unlocked; else Linux puts
/// it off, and the losses show first.
fn row() -> Row {
    let row = Row::new();
    run(&format!("tc -n {} qdisc add dev p0 root handle 1: htb default 1", row.sender));
    let shape = "parent 1: classid 1:1 htb rate 50mbit burst 15k cburst 15k";
    run(&format!("tc -n {} class add dev p0 {shape}", row.sender));
    // The window stays what the buffer asks for; nothing is lost before the MTU falls.
    row.sender.sysctl("ipv4/tcp_wmem", "4096 65536 400000");
    row
}

/// The router's end alone: what is on its way to the receiver still fits there.
fn narrow(row: &Row) {
    run(&format!("ip -n {} link set p1 mtu 1000", row.router));
}

/// Records of a socket before and after it entered Loss for the first time.
#[derive(Debug)]
struct Fall {
    before: Record,
    after: Record,
}

fn falls(records: &[Record]) -> Vec<Fall> {
    let of_data = |r: &&Record| r.remote_port == PORT;
    let records: Vec<&Record> = records.iter().filter(of_data).collect();
    let entered = records.iter().enumerate().filter(|(_, r)| r.entered && r.state == LOSS);
    entered
        .filter_map(|(i, before)| {
            let mut segments = records[i..].iter().filter(|r| !r.entered && r.socket == before.socket);
            // As the second finds it: what the first brought about.
            let after = segments.nth(1)?;
            Some(Fall { before: **before, after: **after })
        })
        .collect()
}

fn transfer(kernel_name: &str) -> Vec<Fall> {
    let row = row();
    for end in [&row.sender, &row.receiver] {
        end.sysctl("ipv4/tcp_congestion_control", kernel_name);
    }
    let observer = Observer::start(&row.sender.file()).unwrap_or_else(|e| panic!("{e}"));
    let server = Server::start(&row.receiver, PORT);
    let records = std::thread::scope(|scope| {
        let row = &row;
        let transfer = scope.spawn(move || row.sender.iperf(&format!("-c {RECEIVER} -p {PORT} -t 2")));
        scope.spawn(move || {
            row.await_flows(1);
            std::thread::sleep(Duration::from_secs(1));
            narrow(row);
        });
        records_of(&observer, &transfer)
    });
    drop(server);
    falls(&records)
}

/// Repeats transfers until one has no timeout, and hands that one to `done`. With a timeout there is nothing to compare; the kernel's own
/// Reno has one now and then, too.
fn falls_without_a_timeout(loaded: &Loaded, kernel_name: &str, mut done: impl FnMut(&[Fall])) {
    for _ in 0..ATTEMPTS {
        let before = loaded.counters();
        let falls = transfer(kernel_name);
        println!("{kernel_name}: {falls:?}");
        assert!(!falls.is_empty(), "{kernel_name}: the MTU's fall was not noticed");
        if falls.iter().all(|fall| fall.before.ssthresh_pkt == INFINITE) {
            assert_eq!(
                loaded.counters().after_timeout,
                before.after_timeout,
                "the algorithm was told of a timeout"
            );
            return done(&falls);
        }
    }
    panic!("{kernel_name}: timeouts in each of {ATTEMPTS} transfers");
}

/// The threshold and the window stay as Linux leaves them, beside the kernel's own Reno.
pub fn a_fallen_mtu_costs_no_window() {
    let loaded = load("reno");
    for kernel_name in ["reno", loaded.kernel_name()] {
        let before = loaded.counters();
        falls_without_a_timeout(&loaded, kernel_name, |falls| {
            for Fall { before, after } in falls {
                assert_eq!(after.ssthresh_pkt, before.ssthresh_pkt, "{kernel_name}: {before:?} {after:?}");
                assert!(after.cwnd_pkt >= before.cwnd_pkt, "{kernel_name}: {before:?} {after:?}");
            }
        });
        assert_eq!(loaded.counters().mended, before.mended, "nothing was skipped");
    }
}
