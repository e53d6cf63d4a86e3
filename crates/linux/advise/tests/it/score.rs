//! Advice beside measured outcomes (docs/evidence), and the table of it in docs/evidence/advise.md.

use crate::facts::{MBIT, bulk, client, responses, with};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use vmcc_advise::facts::Application;
use vmcc_advise::{Facts, Verdict, advise};

/// Relation of a case to the rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    /// A number of the rules was taken from it.
    Made,
    /// Recorded before, and no number was taken from it.
    Recorded,
    /// Run after the rules were fixed.
    HeldOut,
    /// Small answers on the simulator, which shares them between paths where a kernel does not.
    Contradicted,
}

#[derive(Clone, Copy)]
enum Measured {
    /// Goodput, or requests, over TCP's; below 1.1 it did not help.
    Ratio(f64),
    /// At least this ratio.
    AtLeast(f64),
    /// Connections went on, or not, after a path had failed.
    Survives(bool),
}
use Measured::{AtLeast, Ratio, Survives};

struct Case {
    set: Set,
    name: &'static str,
    engine: &'static str,
    facts: Facts,
    measured: Measured,
}

fn case(set: Set, name: &'static str, engine: &'static str, facts: Facts, measured: Measured) -> Case {
    Case { set, name, engine, facts, measured }
}

/// Gain from which paths helped.
const WORTH: f64 = 1.1;
const TOLERANCE: f64 = 0.25;

/// Figure 4 of the paper on applications, as run: 200 Mb/s and 5 ms.
fn icpe(size: u64) -> Facts {
    with(client(&[(200 * MBIT, 5_000), (200 * MBIT, 5_000)]), bulk(Some(size)))
}

/// The four networks of the examples: 200 Mb/s, or a tenant's 40 Mb/s, and 1 ms.
fn example(rate_mbit: u64, application: Application) -> Facts {
    with(client(&[(rate_mbit * MBIT, 1_000), (rate_mbit * MBIT, 1_000)]), application)
}

fn demo() -> Facts {
    with(client(&[(100 * MBIT, 2_000), (100 * MBIT, 2_000)]), bulk(None))
}

fn from_disk(rate_mbit: u64, disk_mbit: u64, size: u64) -> Facts {
    let application = Application { demand_bps: Some(disk_mbit * MBIT), ..bulk(Some(size)) };
    with(client(&[(rate_mbit * MBIT, 5_000), (rate_mbit * MBIT, 5_000)]), application)
}

/// Transfers by FTP, whose data connections keep one path.
fn ftp() -> Facts {
    example(200, Application { closes_listener: true, ..bulk(Some(5_000_000)) })
}

/// Two parts of one interface.
fn one_cap() -> Facts {
    let mut facts = with(client(&[(120 * MBIT, 5_000), (120 * MBIT, 5_000)]), bulk(None));
    facts.nics.iter_mut().for_each(|nic| nic.lower = Some("throttle".to_owned()));
    facts
}

fn recorded() -> Vec<Case> {
    use Set::{Contradicted, Made, Recorded};
    let file = || bulk(Some(40_000_000));
    let pages = || responses(10_000, 8);
    let redis = || responses(1_000, 100);
    let transactions = || responses(1_000, 4);
    let equal = client(&[(20 * MBIT, 4_000), (20 * MBIT, 4_000)]);
    vec![
        case(Made, "fig4, 100 kB", "sim", icpe(100_000), Ratio(0.88)),
        case(Made, "fig4, 1 MB", "sim", icpe(1_000_000), Ratio(1.16)),
        case(Made, "fig4, 10 MB", "sim", icpe(10_000_000), Ratio(1.83)),
        case(Made, "fig4, 100 MB", "sim", icpe(100_000_000), Ratio(1.96)),
        case(Made, "rsync, idle", "sim", example(200, file()), Ratio(1.98)),
        case(Made, "rsync, tenant", "sim", example(40, file()), Ratio(1.97)),
        case(Made, "rsync, congested", "sim", example(200, file()), Ratio(2.29)),
        case(Made, "demo, LIA", "sim", demo(), Ratio(1.49)),
        case(Made, "Redis, 1 kB", "kernel", example(200, redis()), Ratio(1.0)),
        case(Made, "wrk, 10 kB", "kernel", example(200, pages()), Ratio(1.0)),
        case(Made, "answers of 32 kB", "kernel", example(200, responses(32_000, 3)), Ratio(1.015)),
        case(Made, "answers of 200 kB", "kernel", example(200, responses(200_000, 3)), AtLeast(1.25)),
        case(Made, "FTP, 5 MB", "kernel", ftp(), Ratio(1.0)),
        case(Made, "FTP, a NIC fails", "kernel", ftp(), Survives(false)),
        case(Recorded, "rsync, idle", "kernel", example(200, file()), Ratio(1.75)),
        case(Recorded, "demo, vMCC", "sim", demo(), Ratio(1.61)),
        case(Recorded, "demo, uncoupled Reno", "sim", demo(), Ratio(1.71)),
        case(Recorded, "two of 20 Mb/s, LIA", "kernel", with(equal.clone(), bulk(None)), Ratio(1.60)),
        case(Recorded, "two of 20 Mb/s, vMCC", "kernel", with(equal, bulk(None)), Ratio(1.67)),
        case(Recorded, "objects of 50 kB", "kernel", example(100, responses(50_000, 3)), Ratio(1.0)),
        case(Recorded, "PostgreSQL, idle", "sim", example(200, transactions()), Ratio(1.00)),
        case(Recorded, "PostgreSQL, tenant", "sim", example(40, transactions()), Ratio(1.01)),
        case(Recorded, "PostgreSQL, congested", "sim", example(200, transactions()), Ratio(1.05)),
        case(Recorded, "fig11, slow NICs", "sim", from_disk(20, 88, 60_000_000), Ratio(1.97)),
        case(Recorded, "fig11, fast NICs", "sim", from_disk(200, 88, 60_000_000), Ratio(1.00)),
        case(Recorded, "fig12, congested", "sim", from_disk(200, 88, 50_000_000), Ratio(1.23)),
        case(Recorded, "fig13, one cap", "sim", one_cap(), Ratio(0.99)),
        case(Recorded, "rsync, a NIC fails", "sim", example(200, file()), Survives(true)),
        case(Recorded, "rsync, a NIC fails", "kernel", example(200, file()), Survives(true)),
        case(Recorded, "Redis, a NIC fails", "kernel", example(200, redis()), Survives(true)),
        case(Recorded, "wrk, a NIC fails", "sim", example(200, pages()), Survives(true)),
        case(Recorded, "PostgreSQL, a NIC fails", "sim", example(200, transactions()), Survives(true)),
        case(Contradicted, "wrk, idle", "sim", example(200, pages()), Ratio(1.96)),
        case(Contradicted, "wrk, tenant", "sim", example(40, pages()), Ratio(1.96)),
        case(Contradicted, "wrk, congested", "sim", example(200, pages()), Ratio(1.85)),
        case(Contradicted, "Redis, idle", "sim", example(200, redis()), Ratio(1.92)),
        case(Contradicted, "Redis, tenant", "sim", example(40, redis()), Ratio(1.93)),
        case(Contradicted, "Redis, congested", "sim", example(200, redis()), Ratio(0.90)),
    ]
}

/// Names of three cases, rates and round-trip times of the paths, rate of the source, ratios.
type Network = ([&'static str; 3], &'static [(u64, u64)], Option<u64>, [f64; 3]);

/// `docs/evidence/advise.toml`.
fn held_out() -> Vec<Case> {
    const SIZES: [u64; 3] = [300_000, 3_000_000, 30_000_000];
    let networks: [Network; 6] = [
        (["long, 300 kB", "long, 3 MB", "long, 30 MB"], &[(50, 20_000); 2], None, [1.055, 1.501, 1.918]),
        (["fast, 300 kB", "fast, 3 MB", "fast, 30 MB"], &[(1_000, 500); 2], None, [1.090, 1.760, 1.948]),
        (
            ["unequal, 300 kB", "unequal, 3 MB", "unequal, 30 MB"],
            &[(100, 10_000), (30, 10_000)],
            None,
            [1.018, 1.070, 1.267],
        ),
        (
            ["DSL + LTE, 300 kB", "DSL + LTE, 3 MB", "DSL + LTE, 30 MB"],
            &[(20, 30_000), (40, 60_000)],
            None,
            [0.992, 1.732, 2.753],
        ),
        (["three, 300 kB", "three, 3 MB", "three, 30 MB"], &[(50, 20_000); 3], None, [1.083, 1.671, 2.748]),
        (["disk, 300 kB", "disk, 3 MB", "disk, 30 MB"], &[(50, 20_000); 2], Some(40), [1.055, 1.000, 1.000]),
    ];
    let mut cases = Vec::new();
    for (names, paths, disk_mbit, ratios) in networks {
        let paths: Vec<(u64, u64)> = paths.iter().map(|(rate, rtt_us)| (rate * MBIT, *rtt_us)).collect();
        for ((name, size), ratio) in names.into_iter().zip(SIZES).zip(ratios) {
            let demand_bps = disk_mbit.map(|rate: u64| rate * MBIT);
            let facts = with(client(&paths), Application { demand_bps, ..bulk(Some(size)) });
            cases.push(case(Set::HeldOut, name, "sim", facts, Ratio(ratio)));
        }
    }
    cases
}

/// Outcome of a comparison; `None`: nothing to compare.
struct Score {
    verdict: bool,
    gain: Option<bool>,
    row: String,
}

fn score(case: &Case) -> Score {
    let advice = advise(&case.facts);
    let helps = advice.verdict == Verdict::Helps;
    let expected = advice.gain.and_then(|gain| gain.expected).unwrap_or(f64::NAN);
    let (verdict, gain, measured) = match case.measured {
        Ratio(ratio) => {
            let near = (expected / ratio - 1.0).abs() <= TOLERANCE;
            (helps == (ratio >= WORTH), Some(near), format!("{ratio:.2}"))
        }
        AtLeast(ratio) => (helps, None, format!("{ratio:.2} or more")),
        Survives(survives) => {
            let text = if survives { "survives" } else { "does not" };
            (advice.survives == survives, None, text.to_owned())
        }
    };
    let mark = |right: bool| if right { "yes" } else { "**no**" };
    let advised = match case.measured {
        Survives(_) => if advice.survives { "survives" } else { "does not" }.to_owned(),
        _ => format!("{expected:.2}"),
    };
    let near = gain.map_or("-", mark);
    let row = format!(
        "| {} | {} | {measured} | {advised} | {} | {near} |\n",
        case.name,
        case.engine,
        mark(verdict)
    );
    Score { verdict, gain, row }
}

#[derive(Default)]
struct Total {
    table: String,
    cases: usize,
    right: usize,
    gains: usize,
    near: usize,
}

fn total(cases: &[Case], set: Set) -> Total {
    let mut total = Total {
        table: "| case | engine | measured | advised | verdict right | gain within 25 % |\n|---|---|---|---|---|---|\n".to_owned(),
        ..Total::default()
    };
    for scored in cases.iter().filter(|case| case.set == set).map(score) {
        total.table.push_str(&scored.row);
        total.cases += 1;
        total.right += usize::from(scored.verdict);
        total.gains += usize::from(scored.gain.is_some());
        total.near += usize::from(scored.gain == Some(true));
    }
    let Total { cases, right, gains, near, .. } = total;
    let _ =
        write!(total.table, "\n{right} of {cases} verdicts right; {near} of {gains} gains within 25 %.\n");
    total
}

#[test]
fn advice_agrees_with_measured_outcomes() {
    let cases: Vec<Case> = recorded().into_iter().chain(held_out()).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/evidence/advise.md");
    let page = fs::read_to_string(page).unwrap();
    let held_out = total(&cases, Set::HeldOut);
    let tables =
        [Set::HeldOut, Set::Recorded, Set::Made, Set::Contradicted].map(|set| total(&cases, set).table);
    let missing: Vec<&String> = tables.iter().filter(|table| !page.contains(*table)).collect();
    assert!(missing.is_empty(), "put this into docs/evidence/advise.md:\n{}", tables.join("\n\n"));
    assert!(held_out.right * 10 >= held_out.cases * 9, "{}", held_out.table);
    assert!(held_out.near * 10 >= held_out.gains * 9, "{}", held_out.table);
}
