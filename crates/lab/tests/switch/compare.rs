//! Marking against tail drop on the ports between two hosts.

use super::traffic::Measured;
use super::{config, multipath};
use std::thread;
use std::time::Duration;
use vmcc_port::{Port, PortStats};
use vmcc_testkit::control::PAYLOAD_SHARE;

/// A port of 100 Mbit/s that marks at 30 kB.
pub const MARKING: &str = "rate = '100mbit'\nmarking = { rule = 'threshold', at = '30kB' }\n";

/// The rule of [`MARKING`], and its threshold.
const RULE: &str = "{ rule = 'threshold', at = '30kB' }";
const THRESHOLD_BYTES: u64 = 30_000;

/// Interval of looks at the ports' queues.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// Attempts at a pair of transfers.
const TRIES: usize = 5;

/// Minimum factor by which marking shortens the RTT: two ports have short queues each, and the shortest tail drop (of Open vSwitch's
/// packet socket) is three times as long.
const SHORTER: u64 = 2;

/// One transfer, and what the ports did meanwhile.
#[derive(Debug)]
struct Sample {
    measured: Measured,
    marks: u64,
    /// By full queues.
    drops: u64,
    /// Median length of a port's queue while it is not empty.
    backlog_p50_bytes: u64,
}

impl Sample {
    fn take(ports: &[Port], measure: &(impl Fn() -> Measured + Sync)) -> Self {
        let (marks, drops) = counters(ports);
        let mut backlogs = Vec::new();
        let measured = thread::scope(|scope| {
            let running = scope.spawn(measure);
            while !running.is_finished() {
                let each = ports.iter().map(|port| stats(port).classes[0].backlog_bytes);
                backlogs.extend(each.filter(|bytes| *bytes > 0));
                thread::sleep(SAMPLE_INTERVAL);
            }
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        backlogs.sort_unstable();
        let backlog_p50_bytes = backlogs.get(backlogs.len() / 2).copied().unwrap_or(0);
        let after = counters(ports);
        Self { measured, marks: after.0 - marks, drops: after.1 - drops, backlog_p50_bytes }
    }
}

/// One line of the table of platforms: the same transfer over ports that mark and over ports that drop.
#[derive(Debug)]
struct Row {
    marked: Sample,
    tail_drop: Sample,
}

impl Row {
    /// Violated property of marking: CE marks on the way, nothing dropped, no less goodput, queues near the threshold, and much
    /// shorter RTTs. `shorter`: the minimum factor.
    fn fault(&self, threshold_bytes: u64, shorter: u64) -> Option<&'static str> {
        let (marked, tail_drop) = (&self.marked.measured, &self.tail_drop.measured);
        let faults = [
            (self.tail_drop.marks > 0, "marked without a rule"),
            (self.marked.marks == 0, "nothing was marked"),
            (self.marked.drops > 0, "dropped in spite of marks"),
            // The speed of an emulated machine varies from one run to the next, so this is coarse.
            (marked.goodput_bps <= 0.6 * tail_drop.goodput_bps, "marking cost goodput"),
            // Reno halves its window at a mark: around the threshold, never twice as much for long.
            (
                self.marked.backlog_p50_bytes > 2 * threshold_bytes,
                "the queue is longer than its threshold allows",
            ),
            (marked.rtt_p50_us * shorter >= tail_drop.rtt_p50_us, "the queue is not much shorter"),
        ];
        faults.into_iter().find(|(wrong, _)| *wrong).map(|(_, what)| what)
    }

    fn print(&self, name: &str, backend: &str) {
        let (marked, tail_drop) = (&self.marked.measured, &self.tail_drop.measured);
        println!(
            "| {name} | {backend} | {:.1}, {:.1} | {:.2}, {:.2} | {} | {}, {} | queues of {} and {} bytes",
            marked.goodput_bps / 1e6,
            tail_drop.goodput_bps / 1e6,
            marked.rtt_p50_us as f64 / 1e3,
            tail_drop.rtt_p50_us as f64 / 1e3,
            self.marked.marks,
            marked.retransmits,
            tail_drop.retransmits,
            self.marked.backlog_p50_bytes,
            self.tail_drop.backlog_p50_bytes,
        );
    }
}

/// Runs `measure` over ports that mark and over the same ports when they drop, prints the line, and checks it. The control is
/// the share of the ports' rate that the transfer over dropping ports reaches.
pub fn compare(name: &str, mut ports: Vec<Port>, backend: &str, measure: impl Fn() -> Measured + Sync) {
    let nominal = rate_bps(&ports) as f64 * PAYLOAD_SHARE;
    let mut pair = || {
        set_rule(&mut ports, RULE, backend);
        let marked = Sample::take(&ports, &measure);
        set_rule(&mut ports, "{ rule = 'none' }", backend);
        let row = Row { marked, tail_drop: Sample::take(&ports, &measure) };
        row.print(name, backend);
        row
    };
    let verdict = |row: &Row| assert_eq!(row.fault(THRESHOLD_BYTES, 3), None, "{name}: {row:?}");
    vmcc_testkit::judge(&mut pair, verdict, |row| row.tail_drop.measured.goodput_bps / nominal);
    detach(ports);
}

fn rate_bps(ports: &[Port]) -> u64 {
    let rates = ports.iter().map(|port| stats(port).rate_bps);
    rates.map(|rate| rate.expect("a rate")).sum()
}

/// The same for an MPTCP connection under vMCC over ports that mark by [`multipath::RULE`]; each of two subflows carries
/// a part of it. Tried again when it is not as it should be: there are kernels that skip a congestion control in BPF now and
/// then, after which a window grows until the queue is full (docs/reference/kernels.md), and an emulated machine may stand still until
/// TCP gives up waiting, or be too slow to fill the ports.
pub fn compare_multipath(
    name: &str,
    mut ports: Vec<Port>,
    backend: &str,
    measure: impl Fn() -> Measured + Sync,
) {
    let name = format!("MPTCP: {name}");
    let mut pair = || {
        set_rule(&mut ports, "{ rule = 'none' }", backend);
        let tail_drop = Sample::take(&ports, &measure);
        set_rule(&mut ports, multipath::RULE, backend);
        let row = Row { marked: Sample::take(&ports, &measure), tail_drop };
        row.print(&name, backend);
        row
    };
    let mut row = pair();
    for _ in 1..TRIES {
        let Some(fault) = row.fault(multipath::THRESHOLD_BYTES, SHORTER) else { break };
        println!("{fault} ({} packets dropped by full queues); again:", row.marked.drops);
        row = pair();
    }
    assert_eq!(row.fault(multipath::THRESHOLD_BYTES, SHORTER), None, "{name}: {row:?}");
    for sample in [&row.marked, &row.tail_drop] {
        let parts = &sample.measured.subflow_bytes;
        println!("subflows carried {parts:?} bytes");
        assert_eq!(parts.len(), 2, "{name}: {row:?}");
        assert!(parts.iter().all(|part| part * 10 > parts.iter().sum::<u64>()), "{name}: {row:?}");
    }
    detach(ports);
}

/// Marks and drops since the ports were attached, over all of them.
fn counters(ports: &[Port]) -> (u64, u64) {
    let each = ports.iter().map(|port| {
        let class = &stats(port).classes[0];
        (class.marked, class.drops_full)
    });
    each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn stats(port: &Port) -> PortStats {
    port.stats().unwrap_or_else(|e| panic!("{e}"))
}

fn set_rule(ports: &mut [Port], rule: &str, backend: &str) {
    for port in ports {
        let rate = stats(port).rate_bps.expect("a rate") / 1_000_000;
        let text = format!("rate = '{rate}mbit'\nmarking = {rule}\nbackend = '{backend}'\n");
        port.reconfigure(&config(&text)).unwrap_or_else(|e| panic!("{e}"));
    }
}

fn detach(ports: Vec<Port>) {
    for port in ports {
        port.detach().unwrap_or_else(|e| panic!("{e}"));
    }
}
