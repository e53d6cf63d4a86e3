//! A path that is suddenly slower than the retransmission timer: the ACKs that come late show that nothing was lost, and
//! Linux takes the reduction back (Eifel, `tcp_try_undo_loss`). Without SACK it stays in Loss while it does.

use super::row::{RECEIVER, Row};
use super::{CWR, LOSS, PORT, load, records_of};
use std::time::Duration;
use vmcc_bpf::observe::{Observer, Record};
use vmcc_testkit::netns::{Server, run};

const SECONDS: u64 = 6;

/// The first timeout of a connection that has seen no other reduction, and what came after.
#[derive(Debug)]
struct Timeout {
    before: Record,
    entered: Record,
    /// Each segment until the next reduction.
    segments: Vec<Record>,
}

fn first_timeout(records: &[Record]) -> Option<Timeout> {
    let at = records.iter().position(|r| r.remote_port == PORT && r.entered && r.state >= CWR)?;
    let entered = records[at];
    let before = *records[..at].iter().rev().find(|r| r.socket == entered.socket && !r.entered)?;
    let later = records[at + 1..].iter().filter(|r| r.socket == entered.socket);
    let segments =
        later.take_while(|r| !r.entered || r.state < CWR).filter(|r| !r.entered).copied().collect();
    (entered.state == LOSS).then_some(Timeout { before, entered, segments })
}

fn transfer(kernel_name: &str) -> Timeout {
    let row = Row::delayed(5);
    for end in [&row.sender, &row.receiver] {
        end.sysctl("ipv4/tcp_congestion_control", kernel_name);
        end.sysctl("ipv4/tcp_sack", "0");
    }
    // The window stays what the buffer asks for; nothing is lost.
    row.sender.sysctl("ipv4/tcp_wmem", "4096 65536 65536");
    let observer = Observer::start(&row.sender.file()).unwrap_or_else(|e| panic!("{e}"));
    let server = Server::start(&row.receiver, PORT);
    let records = std::thread::scope(|scope| {
        let row = &row;
        let transfer = scope
            .spawn(move || row.sender.iperf(&format!("-c {RECEIVER} -p {PORT} -b 5M -l 4k -t {SECONDS}")));
        scope.spawn(move || {
            row.await_flows(1);
            std::thread::sleep(Duration::from_secs(1));
            run(&format!("tc -n {} qdisc change dev p1 root netem delay 600ms limit 10000", row.receiver));
        });
        records_of(&observer, &transfer)
    });
    drop(server);
    first_timeout(&records).unwrap_or_else(|| panic!("{kernel_name}: the timer did not expire"))
}

/// Threshold and window are what they were, as under the kernel's own Reno.
pub fn what_is_undone_without_sack_is_restored() {
    let loaded = load("reno");
    for kernel_name in ["reno", loaded.kernel_name()] {
        let Timeout { before, entered, segments } = transfer(kernel_name);
        println!("{kernel_name}: {before:?}\n{entered:?}\n{:?}", segments.last());
        let reduced = segments.iter().take_while(|r| r.ssthresh_pkt < before.ssthresh_pkt).count();
        let restored = &segments[reduced..];
        println!("{kernel_name}: {reduced} segments before it was undone, {} after", restored.len());
        // Windows are mended, if they are, with the next ACK.
        assert!(reduced >= 1 && restored.len() >= 10, "{kernel_name}: nothing was undone");
        for segment in restored {
            assert_eq!(segment.ssthresh_pkt, before.ssthresh_pkt, "{kernel_name}: {segment:?}");
            assert!(segment.cwnd_pkt >= entered.prior_cwnd_pkt, "{kernel_name}: {segment:?}");
        }
    }
    assert_eq!(loaded.counters().mended, 0, "nothing was skipped");
}
