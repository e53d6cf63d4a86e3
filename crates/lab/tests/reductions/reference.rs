//! Our algorithms beside the kernel's own of the same name: same path, same marks or drops, same instrument.
//!
//! A guest counts instructions, so that its idle time costs nothing: the path is slow, which is also what Linux's CUBIC needs
//! (within 31 ms it computes its growth only once).

use super::row::Row;
use super::{Reduction, Run, load, of_sorted};
use std::fmt;
use std::fs;
use vmcc_bpf::Loaded;
use vmcc_testkit::netns::run;

/// Those that Linux has of the same name.
pub const ALGORITHMS: [&str; 3] = ["dctcp", "cubic", "reno"];
const RATE: &str = "2mbit";
/// Of the ACKs; the way there has the port's queue.
const DELAY_MS: u32 = 50;
/// Within which the two agree.
const WITHIN: f64 = 0.05;

/// Share of one flow in the queue, in packets. With a window of 20 DCTCP would cut one packet or two, as alpha is just below or above
/// 0.2. Which of the two is chance: Linux's own runs differ by 6 % in their number of reductions.
fn queue_pkt(name: &str, full: Full) -> usize {
    match full {
        Full::Marks if name == "dctcp" => 20,
        _ => 10,
    }
}

/// Action of a full queue.
#[derive(Clone, Copy)]
enum Full {
    Marks,
    Drops,
}

impl Full {
    fn port(self, queue_pkt: usize) -> String {
        let rest = match self {
            Self::Marks => {
                format!("buffer = '1000pkt'\nmarking = {{ rule = 'threshold', at = '{queue_pkt}pkt' }}")
            }
            Self::Drops => format!("buffer = '{queue_pkt}pkt'"),
        };
        format!("rate = '{RATE}'\nbackend = 'htb'\n{rest}")
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Marks => "marks",
            Self::Drops => "drops",
        })
    }
}

/// Compared results of a run.
struct Seen {
    rate_mbps: f64,
    reductions: usize,
    ratio: f64,
    /// By how much a reduction lowers the window: the median.
    cut_pkt: f64,
    /// The median of DCTCP's alpha at its reductions.
    alpha: f64,
    windows_pkt: [u32; 3],
    regrown_after: u32,
    regrown: usize,
}

impl Seen {
    fn new(run: &Run, alpha: impl Fn(&Reduction) -> f64) -> Self {
        let mut cuts: Vec<u32> = run.reductions.iter().map(|r| r.from_pkt.saturating_sub(r.to_pkt)).collect();
        cuts.sort_unstable();
        let mut alphas: Vec<f64> = run.reductions.iter().map(alpha).collect();
        alphas.sort_unstable_by(f64::total_cmp);
        Self {
            rate_mbps: run.rate_bps / 1e6,
            reductions: run.reductions.len(),
            ratio: run.ratio(),
            cut_pkt: f64::from(of_sorted(&cuts, 0.5)),
            alpha: alphas.get(alphas.len() / 2).copied().unwrap_or(f64::NAN),
            windows_pkt: [0.1, 0.5, 0.9].map(|quantile| run.window_pkt(quantile)),
            regrown_after: of_sorted(&run.regrown_after, 0.5),
            regrown: run.regrown_after.len(),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, middle, high] = self.windows_pkt;
        write!(f, "{:.2} | {} | {:.3} | {:.3} ", self.rate_mbps, self.reductions, self.ratio, self.alpha)?;
        write!(f, "| {low} | {middle} | {high} | {} ({}) |", self.regrown_after, self.regrown)
    }
}

/// DCTCP's alpha as Linux keeps it (`struct dctcp`), in 1/1024.
fn alpha_of_linux(reduction: &Reduction) -> f64 {
    (reduction.private[1] >> 32) as f64 / 1024.0
}

/// As `mp_dctcp` publishes it, in 2^-30.
fn alpha_of_ours(reduction: &Reduction) -> f64 {
    reduction.private[1] as f64 / f64::from(1 << 30)
}

/// True if `ours` reduces as often as `theirs`. Ours keeps the fraction of a packet by which the window has grown when it reduces. Linux
/// resets it (`snd_cwnd_cnt` in `tcp_init_cwnd_reduction`). So ours has on average half a packet less to grow.
fn as_often(flows: usize, theirs: &Seen, ours: &Seen) -> bool {
    let sooner = theirs.cut_pkt / (theirs.cut_pkt - 0.5);
    let (theirs, ours) = (theirs.reductions as f64, ours.reductions as f64);
    // Several flows in one queue: chance decides whose packet it is that is marked or dropped.
    let chance = if flows == 1 { 2.0 } else { (theirs + ours).sqrt() };
    let slack = chance.max(theirs * WITHIN);
    (theirs - slack..=theirs * sooner + slack).contains(&ours)
}

/// Difference that is larger than `WITHIN` (relative) and than `slack`, in words; `None` if there is none.
fn apart(figure: &str, theirs: f64, ours: f64, slack: f64) -> Option<String> {
    let within = (ours - theirs).abs() <= (theirs * WITHIN).max(slack);
    (!within).then(|| format!("{figure}: {ours:.3} instead of {theirs:.3}"))
}

fn differences(name: &str, full: Full, flows: usize, theirs: &Seen, ours: &Seen) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(apart("goodput", theirs.rate_mbps, ours.rate_mbps, 0.0));
    // Both are whole packets: half of 19 is 9.
    let packet = (1.0 - theirs.ratio) / theirs.cut_pkt;
    found.extend(apart("ssthresh/cwnd", theirs.ratio, ours.ratio, packet));
    if name == "cubic" {
        // Back at its old window, RFC 9438's estimate of Reno grows by a packet per round trip, Linux's still by 0.53
        // (section 4.3): ours reduces more often. Up to there they are the same. (Drops come from two windows in turn, in
        // another mixture.)
        if let (Full::Marks, 1) = (full, flows) {
            let (theirs, ours) = (theirs.regrown_after, ours.regrown_after);
            found.extend(apart("regrown after", f64::from(theirs), f64::from(ours), 1.0));
        }
        return found;
    }
    if let ("reno", Full::Marks) = (name, full) {
        // Half of a window may still be above the threshold when its reduction ends, and is halved again (20, 10, 5): how
        // often depends on where within a packet growth stands. See docs/evidence/kernels.md.
        return found;
    }
    if !as_often(flows, theirs, ours) {
        found.push(format!("{} reductions instead of {}", ours.reductions, theirs.reductions));
    }
    if flows == 1 {
        // Of several flows in one queue chance decides which has how much of it. Windows are whole packets.
        let windows = theirs.windows_pkt.iter().zip(ours.windows_pkt);
        found.extend(windows.filter_map(|(t, o)| apart("window", f64::from(*t), f64::from(o), 1.0)));
    }
    found
}

fn side_by_side(name: &str, loaded: &Loaded, full: Full, flows: usize, seconds: u64) -> Vec<String> {
    let send = |kernel_name: &str| {
        let row = Row::delayed(DELAY_MS);
        row.send(kernel_name, &full.port(flows * queue_pkt(name, full)), flows, seconds)
    };
    let theirs = Seen::new(&send(name), alpha_of_linux);
    let ours = Seen::new(&send(loaded.kernel_name()), alpha_of_ours);
    let what = format!("{full}, {flows} flows");
    println!("| Linux's {name}, {what} | {theirs}\n| mp_{name}, {what} | {ours}");
    let found = differences(name, full, flows, &theirs, &ours);
    found.into_iter().map(|difference| format!("{name}, {what}, {difference}")).collect()
}

/// Runs each of `algorithms` in turn and prints a table.
pub fn beside_the_kernels_own(algorithms: &[&str], flows: &[usize], seconds: u64) {
    run("modprobe tcp_dctcp");
    // Else only the initial network namespace may choose it.
    fs::write("/proc/sys/net/ipv4/tcp_allowed_congestion_control", ALGORITHMS.join(" "))
        .expect("a guest's own");
    println!(
        "| what | Mbit/s | reductions | ssthresh/cwnd | alpha | cwnd 10 % | 50 % | 90 % | regrown after |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut found = Vec::new();
    for &name in algorithms {
        let loaded = load(name);
        for full in [Full::Marks, Full::Drops] {
            for &flows in flows {
                found.extend(side_by_side(name, &loaded, full, flows, seconds));
            }
        }
        assert_eq!(loaded.counters().mended, 0, "nothing was skipped");
    }
    assert!(found.is_empty(), "{found:#?}");
}
