//! Response of a congestion control to marks and losses on one path, observed from outside by the kernel's tracepoints: the same for
//! vmcc's algorithms and for the kernel's own.
#![allow(dead_code, unreachable_pub, reason = "each program uses its part")]

pub mod accecn;
pub mod ecn;
pub mod ends;
pub mod mtu;
pub mod reference;
mod row;
pub mod undo;

use row::{RECEIVER, Row};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use vmcc_bpf::observe::{Observer, Record};
use vmcc_bpf::{Counters, Loaded};
use vmcc_cc::{Algorithm, Params};
use vmcc_port::ClassStats;
use vmcc_port::Port;
use vmcc_system::diag::{Diag, EcnFeedback};
use vmcc_testkit::netns::Server;
use vmcc_testkit::port::config;

// Linux's recovery states.
const OPEN: u32 = 0;
const CWR: u32 = 2;
const RECOVERY: u32 = 3;
const LOSS: u32 = 4;
const PORT: u16 = 5251;
/// Thresholds are whole packets: of a smaller window the ratio says little.
const LEAST_TELLING_PKT: u32 = 8;
/// Interval of checks for a transfer's end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub fn load(name: &str) -> Loaded {
    let algorithm = Algorithm::by_name(name).unwrap();
    Loaded::load(algorithm, &Params::defaults(algorithm)).unwrap_or_else(|e| panic!("{e}"))
}

/// All that is recorded until a transfer is over: on a busy emulated machine it may begin and end late.
fn records_of<T>(observer: &Observer, transfer: &ScopedJoinHandle<'_, T>) -> Vec<Record> {
    let mut records = Vec::new();
    loop {
        // Asked first: what was recorded until then is read below.
        let over = transfer.is_finished();
        records.extend(observer.watch(POLL_INTERVAL).unwrap());
        if over {
            return records;
        }
    }
}

/// One reduction: from which window to which threshold, and by what state.
#[derive(Clone, Copy)]
pub struct Reduction {
    pub state: u32,
    pub from_pkt: u32,
    pub to_pkt: u32,
    /// The state that the same ACK had ended.
    pub ended: Option<u32>,
    /// Of the algorithm's own, as the reduction left it.
    pub private: [u64; 3],
}

impl Reduction {
    pub fn ratio(&self) -> f64 {
        f64::from(self.to_pkt) / f64::from(self.from_pkt)
    }

    /// Window in packets to which DCTCP reduces on a mark, from the alpha that `mp_dctcp` publishes (RFC 8257, section 3.3).
    fn of_dctcp(&self) -> u32 {
        let cut = (u64::from(self.from_pkt) * self.private[1]) >> 31;
        (self.from_pkt - u32::try_from(cut).unwrap()).max(2)
    }
}

/// Congestion control and `tcp_ecn` of both ends.
pub struct Ends<'a> {
    pub sender: &'a str,
    pub receiver: &'a str,
    pub client_ecn: &'a str,
    pub server_ecn: &'a str,
}

impl<'a> Ends<'a> {
    /// The same algorithm at both ends, which ask for ECN by RFC 3168.
    pub fn both(kernel_name: &'a str) -> Self {
        Self { sender: kernel_name, receiver: kernel_name, client_ecn: "1", server_ecn: "1" }
    }
}

/// A run, by what was seen from outside.
pub struct Run {
    pub rate_bps: f64,
    /// Share of the packets at the router's port that it marked.
    pub marked_share: f64,
    /// ECN feedback of one of the connections.
    pub feedback: Option<EcnFeedback>,
    pub reductions: Vec<Reduction>,
    /// The windows at each segment that arrived once the socket had left its first slow start, in ascending order.
    pub windows_pkt: Vec<u32>,
    /// After each reduction, how many segments arrived until the window was again what it had been reduced from, in
    /// ascending order; none where another reduction came first.
    pub regrown_after: Vec<u32>,
}

impl Run {
    fn new(rate_bps: f64, records: &[Record], port: &ClassStats, feedback: Option<EcnFeedback>) -> Self {
        let of_data: Vec<&Record> = records.iter().filter(|r| r.remote_port == PORT).collect();
        let mut left: HashSet<u64> = HashSet::new();
        let mut windows_pkt = Vec::new();
        for record in &of_data {
            if record.entered && record.state >= CWR {
                left.insert(record.socket);
            } else if !record.entered && left.contains(&record.socket) {
                windows_pkt.push(record.cwnd_pkt);
            }
        }
        windows_pkt.sort_unstable();
        Self {
            rate_bps,
            marked_share: port.marked as f64 / port.packets as f64,
            feedback,
            reductions: reductions(&of_data),
            windows_pkt,
            regrown_after: regrown(&of_data),
        }
    }

    pub fn window_pkt(&self, quantile: f64) -> u32 {
        of_sorted(&self.windows_pkt, quantile)
    }

    /// Those that no loss and no timeout began.
    pub fn in_cwr(&self) -> impl Iterator<Item = &Reduction> {
        self.reductions.iter().filter(|r| r.state == CWR)
    }

    /// Ratios that the least threshold, two packets, does not bound.
    fn ratios(&self) -> Vec<f64> {
        let above = |r: &&Reduction| r.from_pkt >= LEAST_TELLING_PKT;
        self.reductions.iter().filter(above).map(Reduction::ratio).collect()
    }

    /// The median of the ratios.
    pub fn ratio(&self) -> f64 {
        let mut ratios = self.ratios();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub fn mean_ratio(&self) -> f64 {
        let ratios = self.ratios();
        ratios.iter().sum::<f64>() / ratios.len() as f64
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

fn of_sorted(all: &[u32], quantile: f64) -> u32 {
    let last = all.len().saturating_sub(1);
    all.get((quantile * last as f64).round() as usize).copied().unwrap_or(0)
}

/// Values of `Run::regrown_after`.
fn regrown(records: &[&Record]) -> Vec<u32> {
    let mut growing: HashMap<u64, (u32, u32)> = HashMap::new();
    let mut found = Vec::new();
    for record in records {
        if record.entered {
            growing.remove(&record.socket);
            if record.state == OPEN && record.ssthresh_pkt < record.prior_cwnd_pkt {
                growing.insert(record.socket, (record.prior_cwnd_pkt, 0));
            }
        } else if let Some((from_pkt, segments)) = growing.get_mut(&record.socket) {
            *segments += 1;
            if record.cwnd_pkt >= *from_pkt {
                found.push(*segments);
                growing.remove(&record.socket);
            }
        }
    }
    found.sort_unstable();
    found
}

/// State of a socket between two of its records.
#[derive(Default)]
struct Progress {
    state: u32,
    /// The state that an ACK has just ended: no other segment has arrived since.
    ended: Option<u32>,
    /// A reduction whose answer has not shown yet.
    begun: Option<Record>,
}

/// A socket's entries into CWR, Recovery and Loss; the threshold is that at its next segment. From CWR into Recovery
/// Linux asks for none.
fn reductions(records: &[&Record]) -> Vec<Reduction> {
    let mut sockets: HashMap<u64, Progress> = HashMap::new();
    let mut found = Vec::new();
    for record in records {
        let socket = sockets.entry(record.socket).or_default();
        if record.entered {
            let before = std::mem::replace(&mut socket.state, record.state);
            if record.state == OPEN {
                socket.ended = Some(before);
            } else if record.state >= CWR && before < CWR && record.state <= LOSS {
                socket.begun = Some(**record);
            }
            continue;
        }
        let ended = socket.ended.take();
        found.extend(socket.begun.take().map(|begin| Reduction {
            state: begin.state,
            from_pkt: begin.prior_cwnd_pkt.max(1),
            to_pkt: record.ssthresh_pkt,
            ended,
            private: record.private,
        }));
    }
    found
}

impl Row {
    /// Waits until this many connections of a transfer, and the one that iperf3 controls it by, are there: what comes
    /// before, such as loading a port's programs, takes any time on an emulated machine. Half a minute at most.
    pub fn await_flows(&self, flows: usize) {
        let connections = || self.sender.run(&format!("ss -Htn state established dport = :{PORT}"));
        for _ in 0..300 {
            if connections().lines().count() > flows {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// ECN feedback of the newest connection, while it is open.
    fn feedback(&self) -> Option<EcnFeedback> {
        let subflows = self.sender.within(|| Diag::open().unwrap().subflows().unwrap());
        subflows
            .iter()
            .filter(|s| s.remote.port() == PORT)
            .max_by_key(|s| s.local.port())
            .map(|s| s.ecn_feedback)
    }

    /// Sends with congestion control `kernel_name` while the router's port to the receiver is served as `config_toml` says.
    pub fn send(&self, kernel_name: &str, config_toml: &str, flows: usize, seconds: u64) -> Run {
        self.send_between(&Ends::both(kernel_name), config_toml, flows, seconds)
    }

    /// The same between unlike ends.
    pub fn send_between(&self, ends: &Ends<'_>, config_toml: &str, flows: usize, seconds: u64) -> Run {
        for (end, kernel_name, ecn) in
            [(&self.sender, ends.sender, ends.client_ecn), (&self.receiver, ends.receiver, ends.server_ecn)]
        {
            end.sysctl("ipv4/tcp_congestion_control", kernel_name);
            end.sysctl("ipv4/tcp_ecn", ecn);
        }
        let observer = Observer::start(&self.sender.file()).unwrap_or_else(|e| panic!("{e}"));
        let port = Port::attach_in(&self.router.file(), "p1", &config(config_toml))
            .unwrap_or_else(|e| panic!("{e}"));
        let server = Server::start(&self.receiver, PORT);
        let (rate, records, feedback) = std::thread::scope(|scope| {
            let options = format!("-c {} -p {PORT} -t {seconds} -P {flows}", RECEIVER);
            let transfer = scope.spawn(move || self.sender.iperf(&options));
            self.await_flows(flows);
            let feedback = self.feedback();
            let records = records_of(&observer, &transfer);
            (transfer.join().unwrap(), records, feedback)
        });
        drop(server);
        let [seen] = port.detach().unwrap().classes.try_into().expect("one class");
        Run::new(rate, &records, &seen, feedback)
    }
}

/// While nothing is lost, at least 99 % of an algorithm's reductions are those of its answer to a mark; also of one that
/// needs no ECN, and depends on its connection's ECN alone. `at_once` of the algorithms run side by side, each over a router
/// of its own.
pub fn marks_are_answered_as_marks(rate: &str, flows: &[usize], seconds: u64, at_once: usize) {
    let step = format!(
        "rate = '{rate}'\nbackend = 'htb'\nbuffer = '1000pkt'\nmarking = {{ rule = 'threshold', at = '30kB' }}"
    );
    let of_one = |name: &str| {
        for &flows in flows {
            // A sender that a busy machine deschedules for longer than a retransmission timeout reduces too seldom to judge.
            for attempt in 1..=vmcc_testkit::ATTEMPTS {
                let loaded = load(name);
                let row = Row::packet_by_packet();
                let run = row.send(loaded.kernel_name(), &step, flows, seconds);
                let counters = loaded.counters();
                println!("{name}, {flows} flows: {run}; {counters:?}");
                if run.in_cwr().count() >= MIN_REDUCTIONS || attempt == vmcc_testkit::ATTEMPTS {
                    assert_reductions(name, &run, &counters);
                    break;
                }
            }
        }
    };
    for names in ["dctcp", "vmcc", "xmp", "amp", "cubic"].chunks(at_once) {
        side_by_side(names, of_one);
    }
}

/// Each by a thread of its own; all are over, or one has failed, when it returns.
fn side_by_side(names: &[&str], of_one: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(|| of_one(name));
        }
    });
}

/// Least number of reductions whose causes are judged.
const MIN_REDUCTIONS: usize = 10;

fn assert_reductions(name: &str, run: &Run, counters: &Counters) {
    let reductions = run.in_cwr().count();
    assert!(reductions >= MIN_REDUCTIONS, "{name}: only {reductions} reductions");
    let share = counters.after_mark as f64 / reductions as f64;
    assert!(share >= 0.99, "{name}: {share:.3} of the reductions answered a mark");
    if name == "dctcp" {
        let equal = run.in_cwr().filter(|r| r.to_pkt == r.of_dctcp()).count();
        let share = equal as f64 / reductions as f64;
        println!("{name}: {share:.4} of the thresholds are DCTCP's");
        assert!(share >= 0.99, "{name}: {share:.3} of the thresholds are DCTCP's");
    }
}
