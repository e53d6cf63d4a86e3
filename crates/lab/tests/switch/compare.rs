//! Marking against tail drop on the ports between two hosts.

use super::traffic::Measured;
use super::{config, multipath};
use vmcc_host::port::Port;

/// A port of 100 Mbit/s that marks at 30 kB.
pub const MARKING: &str = "rate = '100mbit'\nmarking = { rule = 'threshold', at = '30kB' }\n";

/// One line of the table of platforms: the same transfer over ports that mark and over ports that drop.
#[derive(Debug)]
pub struct Row {
    pub marked: Measured,
    pub tail_drop: Measured,
    /// While the ports marked.
    pub marks: u64,
    /// Dropped by full queues while the ports marked.
    pub drops: u64,
    /// Marks while the ports had no rule.
    pub marks_without_rule: u64,
}

impl Row {
    /// Over ports that mark now; leaves them without a rule.
    fn measure(ports: &mut [Port], backend: &str, measure: &impl Fn() -> Measured) -> Self {
        let before = read(ports);
        let marked = measure();
        let between = read(ports);
        set_rule(ports, "{ rule = 'none' }", backend);
        let tail_drop = measure();
        Self {
            marked,
            tail_drop,
            marks: between.marks - before.marks,
            drops: between.drops - before.drops,
            marks_without_rule: read(ports).marks - between.marks,
        }
    }

    /// What marking is for: CE marks on the way, nothing dropped, no less goodput, and much shorter queues.
    fn fault(&self) -> Option<&'static str> {
        let (marked, tail_drop) = (&self.marked, &self.tail_drop);
        let faults = [
            (self.marks == 0, "nothing was marked"),
            (self.drops > 0, "marked before the queue was full, and yet dropped"),
            (self.marks_without_rule > 0, "marked without a rule"),
            // The speed of an emulated machine varies from one run to the next, so this is coarse.
            (marked.goodput_bps <= 0.6 * tail_drop.goodput_bps, "marking cost goodput"),
            (marked.rtt_p50_us * 3 >= tail_drop.rtt_p50_us, "the queue is not much shorter"),
        ];
        faults.into_iter().find(|(wrong, _)| *wrong).map(|(_, what)| what)
    }

    fn print(&self, name: &str, backend: &str) {
        let (marked, tail_drop) = (&self.marked, &self.tail_drop);
        println!(
            "| {name} | {backend} | {:.1}, {:.1} | {:.2}, {:.2} | {} | {}, {} |",
            marked.goodput_bps / 1e6,
            tail_drop.goodput_bps / 1e6,
            marked.rtt_p50_us as f64 / 1e3,
            tail_drop.rtt_p50_us as f64 / 1e3,
            self.marks,
            marked.retransmits,
            tail_drop.retransmits,
        );
    }
}

/// Runs `measure` over ports that mark and over the same ports when they drop, prints the line, and checks it.
pub fn compare(name: &str, mut ports: Vec<Port>, backend: &str, measure: impl Fn() -> Measured) {
    let row = Row::measure(&mut ports, backend, &measure);
    row.print(name, backend);
    assert_eq!(row.fault(), None, "{name}: {row:?}");
    detach(ports);
}

/// The same for an MPTCP connection under vMCC over ports that mark by [`multipath::RULE`]; each of two subflows carries
/// a part of it. At most three times: there are kernels that skip a congestion control in BPF now and then, after which
/// a window grows until the queue is full, and an emulated machine may stand still until TCP gives up waiting.
pub fn compare_multipath(name: &str, mut ports: Vec<Port>, backend: &str, measure: impl Fn() -> Measured) {
    let name = format!("MPTCP: {name}");
    let mut row = Row::measure(&mut ports, backend, &measure);
    row.print(&name, backend);
    for _ in 1..3 {
        let Some(fault) = row.fault() else { break };
        println!("{fault} ({} packets dropped); again:", row.drops);
        set_rule(&mut ports, multipath::RULE, backend);
        row = Row::measure(&mut ports, backend, &measure);
        row.print(&name, backend);
    }
    assert_eq!(row.fault(), None, "{name}: {row:?}");
    for measured in [&row.marked, &row.tail_drop] {
        let parts = &measured.subflow_bytes;
        assert_eq!(parts.len(), 2, "{name}: {row:?}");
        assert!(parts.iter().all(|part| part * 10 > parts.iter().sum::<u64>()), "{name}: {row:?}");
    }
    detach(ports);
}

/// Since the ports were attached, over all of them.
#[derive(Debug, Default)]
struct Counters {
    marks: u64,
    drops: u64,
}

fn read(ports: &[Port]) -> Counters {
    let mut all = Counters::default();
    for port in ports {
        let class = &port.stats().unwrap_or_else(|e| panic!("{e}")).classes[0];
        all.marks += class.marked;
        all.drops += class.drops_full;
    }
    all
}

fn set_rule(ports: &mut [Port], rule: &str, backend: &str) {
    for port in ports {
        let rate = port.stats().unwrap_or_else(|e| panic!("{e}")).rate_bps.expect("a rate") / 1_000_000;
        let text = format!("rate = '{rate}mbit'\nmarking = {rule}\nbackend = '{backend}'\n");
        port.reconfigure(&config(&text)).unwrap_or_else(|e| panic!("{e}"));
    }
}

fn detach(ports: Vec<Port>) {
    for port in ports {
        port.detach().unwrap_or_else(|e| panic!("{e}"));
    }
}
