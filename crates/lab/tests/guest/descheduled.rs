//! A sender in a VM that is off now and then: what it delivers under each algorithm, and whether it notices. See
//! docs/evidence/throttling.md.

use crate::descheduled::neighbours::{self, Shared, WEIGHTS};
use crate::descheduled::sender::ONE_PATH;
use crate::descheduled::wire::Shape;
use crate::descheduled::{self, Lab, Transfer};
use std::time::Duration;
use vmcc_lab::guest::DutyCycle;
use vmcc_metrics::stats::{mean_ci95, percentile_sorted};

/// A link that an emulated machine fills on a busy host: a round trip of 10 ms, and a queue of about 20 packets.
const SHAPE: Shape = Shape { rate_bps: 20e6, queue_bytes: 30_000.0, delay: Duration::from_millis(5) };
const TIME_SLICES_MS: [u64; 3] = [30, 120, 480];

/// A VM among four with as much to do: it has one time slice, and then three others have theirs.
fn one_of_four(slice_ms: u64) -> DutyCycle {
    DutyCycle { on: Duration::from_millis(slice_ms), off: Duration::from_millis(3 * slice_ms) }
}

#[test]
#[ignore = "on demand: boots a VM, 20 s"]
fn on_linux_6_18_sender_measures_its_descheduled_time() {
    let mut lab = Lab::new(SHAPE);
    let turn = DutyCycle { on: Duration::from_millis(200), off: Duration::from_millis(300) };
    let sent = lab.transfer("mp_lia", 6, Some(turn));
    println!("{sent:?}");
    assert!(sent.goodput_bps > 1e6, "{sent:?}");
    // The last one is cut short when everything has arrived.
    let (_, whole) = sent.off.split_last().expect("times off");
    assert!(whole.len() >= 6 && whole.iter().all(|off| *off >= turn.off), "{sent:?}");
    let noticed = sent.seen.off_us.iter().filter(|off| **off >= 280_000).count();
    assert!(noticed * 10 >= whole.len() * 7, "{noticed} noticed: {sent:?}");
}

fn from_environment(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// `VMCC_TEST_RUNS`, `VMCC_TEST_SECONDS` and `VMCC_TEST_ALGORITHMS` say how often, how long and what.
#[test]
#[ignore = "on demand: a table of half an hour"]
fn table_of_descheduled_goodput() {
    let runs: u32 = from_environment("VMCC_TEST_RUNS", "10").parse().expect("a number");
    let seconds: u32 = from_environment("VMCC_TEST_SECONDS", "8").parse().expect("a number");
    let algorithms = from_environment("VMCC_TEST_ALGORITHMS", &format!("{ONE_PATH},mp_lia,mp_vmsched"));
    let algorithms: Vec<&str> = algorithms.split(',').collect();
    let slices: Vec<Option<u64>> = std::iter::once(None).chain(TIME_SLICES_MS.map(Some)).collect();
    let mut lab = Lab::new(SHAPE);
    let mut cells: Vec<(Option<u64>, &str, Vec<Transfer>)> =
        slices.iter().flat_map(|slice| algorithms.iter().map(|name| (*slice, *name, Vec::new()))).collect();
    for _ in 0..runs {
        for (slice, name, transfers) in &mut cells {
            let one = lab.transfer(name, seconds, slice.map(one_of_four));
            println!("{slice:?} {name}: {:.2} Mbit/s, {:?}", one.goodput_bps / 1e6, counted(&one));
            transfers.push(one);
        }
    }
    println!(
        "\nTs ms | algorithm | Mbit/s, 95 % | probes, timeouts, for nothing | off: asked for, taken p50 p99, noticed p50 p99 ms"
    );
    for (slice, name, transfers) in &cells {
        println!("{}", line(*slice, name, transfers));
    }
    println!("\nTs ms | times off that the VM noticed, below {BOUNDS_MS:?} ms and above");
    for slice in slices {
        let of_slice = cells.iter().filter(|(other, ..)| *other == slice).flat_map(|(.., all)| all);
        println!("{} | {:?}", slice.unwrap_or(0), histogram(of_slice.flat_map(|one| &one.seen.off_us)));
    }
}

/// The same as one of four busy VMs on one processor, by `cpu.weight`; the receiver and everything else is on the other one.
#[test]
#[ignore = "on demand: a table of half an hour"]
fn table_of_weights() {
    let runs: u32 = from_environment("VMCC_TEST_RUNS", "10").parse().expect("a number");
    let seconds: u32 = from_environment("VMCC_TEST_SECONDS", "8").parse().expect("a number");
    let algorithms = from_environment("VMCC_TEST_ALGORITHMS", "mp_lia,mp_vmsched,mp_awake");
    neighbours::keep_off();
    let mut lab = Lab::new(SHAPE);
    // There is a sender to be found once it has sent.
    lab.transfer(ONE_PATH, 2, None);
    let shared = Shared::new();
    // Alone, what one of them carries is enough to compare with.
    let alone = algorithms.split(',').take(1).map(|name| (0, None, name));
    let all = || algorithms.split(',');
    let beside = WEIGHTS.iter().flat_map(|(weight, share)| all().map(|name| (*weight, Some(*share), name)));
    let cells =
        alone.chain(beside).map(|(weight, share, name)| (weight, share, name, Vec::new(), Vec::new()));
    let mut cells: Vec<_> = cells.collect();
    for _ in 0..runs {
        for (weight, asked, name, transfers, shares) in &mut cells {
            let (one, share) = lab.transfer_beside(name, seconds, *asked, &shared);
            println!(
                "weight {weight} {name}: {:.3} Mbit/s at {:.4} of a processor, {:?}",
                one.goodput_bps / 1e6,
                share,
                counted(&one)
            );
            transfers.push(one);
            shares.push(share);
        }
    }
    println!(
        "\nweight (0: alone) | algorithm | Mbit/s, 95 % | share of the processor, 95 % | off ms p50, p99"
    );
    for (weight, _, name, transfers, shares) in &cells {
        let rates: Vec<f64> = transfers.iter().map(|one| one.goodput_bps / 1e6).collect();
        let (rate, share) = (mean_ci95(&rates).expect("some"), mean_ci95(shares).expect("some"));
        let off = transfers.iter().flat_map(|one| one.seen.off_us.iter().map(|us| *us as f64 / 1e3));
        println!("{weight} | {name} | {rate:?} | {share:?} | {}", both(off.collect()));
    }
    println!("\nweight | times off that the VM noticed, below {BOUNDS_MS:?} ms and above");
    for weight in std::iter::once(0).chain(WEIGHTS.map(|(weight, _)| weight)) {
        let of_weight = cells.iter().filter(|cell| cell.0 == weight).flat_map(|cell| &cell.3);
        println!("{weight} | {:?}", histogram(of_weight.flat_map(|one| &one.seen.off_us)));
    }
}

const BOUNDS_MS: [u64; 9] = [20, 50, 80, 95, 200, 345, 500, 1400, 1600];

/// Number of values below each bound and not below the previous one, and number of those above all bounds.
fn histogram<'a>(off_us: impl Iterator<Item = &'a u64>) -> [u32; BOUNDS_MS.len() + 1] {
    let mut counts = [0; BOUNDS_MS.len() + 1];
    for us in off_us {
        counts[BOUNDS_MS.iter().filter(|bound| us / 1000 >= **bound).count()] += 1;
    }
    counts
}

fn counted(one: &Transfer) -> (u64, u64, u64) {
    (one.seen.probes, one.seen.timeouts, one.seen.spurious)
}

fn line(slice: Option<u64>, name: &str, transfers: &[Transfer]) -> String {
    let rates: Vec<f64> = transfers.iter().map(|one| one.goodput_bps / 1e6).collect();
    let rate = mean_ci95(&rates).expect("some");
    let sums = transfers.iter().map(counted).fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    let asked = slice.map_or(0.0, |ms| 3.0 * ms as f64);
    let taken = transfers.iter().flat_map(|one| one.off.iter().map(|off| off.as_secs_f64() * 1e3));
    // Shorter ones are the host's other work.
    let noticed = transfers.iter().flat_map(|one| one.seen.off_us.iter().map(|us| *us as f64 / 1e3));
    let [taken, noticed] = [taken.collect(), noticed.filter(|ms| *ms > asked / 2.0).collect()].map(both);
    format!("{} | {name} | {rate:?} | {sums:?} | {asked} | {taken} | {noticed}", slice.unwrap_or(0))
}

/// Median and 99th percentile.
fn both(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    if values.is_empty() {
        return "-".to_owned();
    }
    let [half, most] = [0.5, 0.99].map(|share| percentile_sorted(&values, share));
    format!("{half:.1} {most:.1} ({} times)", values.len())
}

#[test]
#[ignore = "runs in a VM"]
fn inside_the_sender() {
    descheduled::sender::serve();
}
