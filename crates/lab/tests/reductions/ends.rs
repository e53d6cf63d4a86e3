//! The ACK that ends a recovery may begin the next reduction (Linux's `tcp_fastretrans_alert`: to Open, then
//! `tcp_try_to_open` to CWR if it echoes a mark): what it is answered does not depend on what it ends.

use super::row::Row;
use super::{CWR, LOSS, RECOVERY, Reduction, load};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use vmcc_testkit::netns::run;

const FLOWS: usize = 4;
const SECONDS: u64 = 15;
const MARKING: &str =
    "rate = '10mbit'\nbackend = 'htb'\nbuffer = '1000pkt'\nmarking = { rule = 'threshold', at = '6pkt' }";
const DELAY_MS: u32 = 20;
/// Of the packets that reach the router one in this many is lost.
const ONE_IN: u32 = 100;
/// And all of some flows, for as long as the retransmission timer needs to expire; the others keep the queue full.
const DARK: Duration = Duration::from_millis(500);
const LIGHT: Duration = Duration::from_millis(700);
/// As often as the transfer lasts, and no more than this.
const TIMES: u32 = 40;

/// Loses what the sender sends, at the router.
fn lose(row: &Row, priority: u32, what: &str) {
    run(&format!("tc -n {} filter add dev p0 ingress protocol ip prio {priority} {what}", row.router));
}

fn darken_now_and_then(row: &Row, over: &AtomicBool) {
    row.await_flows(FLOWS);
    for _ in 0..TIMES {
        thread::sleep(LIGHT);
        if over.load(Ordering::Relaxed) {
            return;
        }
        // A client's ports are two apart: every other flow.
        lose(row, 1, "u32 match ip sport 0 0x2 action drop");
        thread::sleep(DARK);
        run(&format!("tc -n {} filter del dev p0 ingress prio 1", row.router));
    }
}

fn share_of(what: &str, all: &[&Reduction], least: usize, share: f64, answered: impl Fn(&Reduction) -> bool) {
    let right = all.iter().filter(|r| answered(r)).count();
    println!("{what}: {right} of {}", all.len());
    assert!(all.len() >= least, "only {} {what}", all.len());
    assert!(right as f64 >= share * all.len() as f64, "{what}: {right} of {}", all.len());
}

pub fn an_ack_that_ends_a_recovery_is_answered_by_what_it_echoes() {
    let loaded = load("dctcp");
    let row = Row::delayed(DELAY_MS);
    run(&format!("tc -n {} qdisc add dev p0 ingress", row.router));
    lose(&row, 2, &format!("matchall action ok random determ drop {ONE_IN}"));
    let over = AtomicBool::new(false);
    let run = thread::scope(|scope| {
        scope.spawn(|| darken_now_and_then(&row, &over));
        let run = row.send(loaded.kernel_name(), MARKING, FLOWS, SECONDS);
        over.store(true, Ordering::Relaxed);
        run
    });
    println!("{run}; {:?}", loaded.counters());
    // Hardly a timeout ends while the queue is above its threshold.
    for (what, ended, least) in [("CWR", CWR, 10), ("Recovery", RECOVERY, 10), ("Loss", LOSS, 1)] {
        let all: Vec<&Reduction> = run.in_cwr().filter(|r| r.ended == Some(ended)).collect();
        share_of(&format!("marks that end {what}"), &all, least, 0.99, |r| r.to_pkt == r.of_dctcp());
    }
    let losses: Vec<&Reduction> = run.reductions.iter().filter(|r| r.state >= RECOVERY).collect();
    // A timeout in a window that was reduced already is not asked about: 1 of 93 was.
    share_of("losses and timeouts", &losses, 20, 0.95, |r| r.to_pkt <= (r.from_pkt / 2).max(2));
}
