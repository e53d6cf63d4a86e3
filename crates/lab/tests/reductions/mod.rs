//! How a congestion control answers marks and losses on one path, seen from outside by the kernel's tracepoints: the
//! same for our algorithms and for the kernel's own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod ecn;
pub mod mtu;

use crate::ports::{Namespace, Pair, Server, client, config};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;
use vmcc_cc::{Algorithm, Params};
use vmcc_host::observe::{Observer, Record};
use vmcc_host::port::Port;
use vmcc_host::{Counters, Loaded};
use vmcc_netlink::Links;

// Linux's recovery states.
const CWR: u32 = 2;
const LOSS: u32 = 4;
const PORT: u16 = 5251;
/// Thresholds are whole packets: of a smaller window the ratio says little.
const LEAST_TELLING_PKT: u32 = 8;
/// What a run takes beyond the time that iperf3 sends: to connect, to end, on a busy emulated machine.
const SPARE: Duration = Duration::from_secs(3);

pub fn load(name: &str) -> Loaded {
    let algorithm = Algorithm::by_name(name).unwrap();
    Loaded::load(algorithm, &Params::defaults(algorithm)).unwrap_or_else(|e| panic!("{e}"))
}

/// One reduction: from which window to which threshold, and by what state.
#[derive(Clone, Copy)]
pub struct Reduction {
    pub state: u32,
    pub from_pkt: u32,
    pub to_pkt: u32,
    pub private: [u64; 3],
}

impl Reduction {
    pub fn ratio(&self) -> f64 {
        f64::from(self.to_pkt) / f64::from(self.from_pkt)
    }

    /// What DCTCP answers a mark, from the alpha that `mp_dctcp` publishes: RFC 8257 section 3.3.
    fn of_dctcp(&self) -> u32 {
        let cut = (u64::from(self.from_pkt) * self.private[1]) >> 31;
        (self.from_pkt - u32::try_from(cut).unwrap()).max(2)
    }
}

/// A run, by what was seen from outside.
pub struct Run {
    pub rate_bps: f64,
    pub reductions: Vec<Reduction>,
    /// The windows at each segment that arrived, in ascending order.
    pub windows_pkt: Vec<u32>,
}

impl Run {
    fn new(rate_bps: f64, records: &[Record]) -> Self {
        let of_data: Vec<&Record> = records.iter().filter(|r| r.remote_port == PORT).collect();
        let mut windows_pkt: Vec<u32> = of_data.iter().filter(|r| !r.entered).map(|r| r.cwnd_pkt).collect();
        windows_pkt.sort_unstable();
        Self { rate_bps, reductions: reductions(&of_data), windows_pkt }
    }

    pub fn window_pkt(&self, quantile: f64) -> u32 {
        let last = self.windows_pkt.len().saturating_sub(1);
        self.windows_pkt.get((quantile * last as f64).round() as usize).copied().unwrap_or(0)
    }

    /// Those that no loss and no timeout began.
    pub fn in_cwr(&self) -> impl Iterator<Item = &Reduction> {
        self.reductions.iter().filter(|r| r.state == CWR)
    }

    /// The median of those that the least threshold, two packets, does not bound.
    pub fn ratio(&self) -> f64 {
        let above = |r: &&Reduction| r.from_pkt >= LEAST_TELLING_PKT;
        let mut ratios: Vec<f64> = self.reductions.iter().filter(above).map(Reduction::ratio).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:6.2} Mbit/s, {:5} reductions ({:5} in CWR), ssthresh/cwnd {:.3}, cwnd {} {} {} (10, 50, 90 %)",
            self.rate_bps / 1e6,
            self.reductions.len(),
            self.in_cwr().count(),
            self.ratio(),
            self.window_pkt(0.1),
            self.window_pkt(0.5),
            self.window_pkt(0.9),
        )
    }
}

/// A socket's entries into CWR, Recovery and Loss; the threshold is that at its next segment. From CWR into Recovery
/// Linux asks for none.
fn reductions(records: &[&Record]) -> Vec<Reduction> {
    let mut state: HashMap<u64, u32> = HashMap::new();
    let mut begun: HashMap<u64, Record> = HashMap::new();
    let mut found = Vec::new();
    for record in records {
        if record.entered {
            let before = state.insert(record.socket, record.state).unwrap_or(0);
            if record.state >= CWR && before < CWR && record.state <= LOSS {
                begun.insert(record.socket, **record);
            }
        } else if let Some(begin) = begun.remove(&record.socket) {
            found.push(Reduction {
                state: begin.state,
                from_pkt: begin.prior_cwnd_pkt.max(1),
                to_pkt: record.ssthresh_pkt,
                private: record.private,
            });
        }
    }
    found
}

/// Lets a namespace's end of a path receive in a kernel thread, as the lab's hosts do: a softirq that interrupts another
/// process is where one vendor's kernel skips programs.
fn receive_in_thread(end: &Namespace) {
    end.within(|| {
        let index = nix::net::if_::if_nametoindex("p0").unwrap();
        Links::open().unwrap().receive_in_thread(index, "p0").unwrap();
    });
}

/// Sends over `pair` through a port that is served as `port` says.
pub fn send(pair: &Pair, kernel_name: &str, port: &str, flows: usize, seconds: u64) -> Run {
    for end in [&pair.a, &pair.b] {
        receive_in_thread(end);
        end.sysctl("ipv4/tcp_congestion_control", kernel_name);
    }
    let observer = Observer::start(&pair.netns()).unwrap_or_else(|e| panic!("{e}"));
    let port = Port::attach_in(&pair.netns(), "p0", &config(port)).unwrap_or_else(|e| panic!("{e}"));
    let server = Server::start(&pair.b, PORT);
    let (rate, records) = std::thread::scope(|scope| {
        let options = format!("-t {seconds} -P {flows}");
        let transfer = scope.spawn(move || client(pair, PORT, &options));
        let records = observer.watch(Duration::from_secs(seconds) + SPARE).unwrap();
        (transfer.join().unwrap(), records)
    });
    drop(server);
    port.detach().unwrap();
    Run::new(rate, &records)
}

/// While nothing is lost, at least 99 % of an algorithm's reductions are those of its answer to a mark.
pub fn marks_are_answered_as_marks(rate: &str, flows: &[usize], seconds: u64) {
    let step = format!(
        "rate = '{rate}'\nbackend = 'htb'\nbuffer = '1000pkt'\nmarking = {{ rule = 'threshold', at = '30kB' }}"
    );
    for name in ["dctcp", "vmcc", "xmp", "amp"] {
        for &flows in flows {
            let loaded = load(name);
            let run = send(&Pair::new(), loaded.kernel_name(), &step, flows, seconds);
            let counters = loaded.counters();
            println!("{name}, {flows} flows: {run}; {counters:?}");
            assert_reductions(name, &run, &counters);
        }
    }
}

fn assert_reductions(name: &str, run: &Run, counters: &Counters) {
    let reductions = run.in_cwr().count();
    // An emulated sender on a busy machine fills its port only now and then (XMP: three times in a run).
    assert!(reductions >= 2, "{name}: only {reductions} reductions");
    let share = counters.after_mark as f64 / reductions as f64;
    assert!(share >= 0.99, "{name}: {share:.3} of the reductions answered a mark");
    if name == "dctcp" {
        let equal = run.in_cwr().filter(|r| r.to_pkt == r.of_dctcp()).count();
        let share = equal as f64 / reductions as f64;
        println!("{name}: {share:.4} of the thresholds are DCTCP's");
        assert!(share >= 0.99, "{name}: {share:.3} of the thresholds are DCTCP's");
    }
}
