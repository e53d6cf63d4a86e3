//! Labelled cases: networks in which it is known which subflows share a bottleneck.
//!
//! `a` sends to `z` over one bottleneck per NIC; each subflow has an access link of its own before it. `x` sends to
//! `y` through the same bottlenecks. Everything follows from the case's number.

use std::fmt::Write as _;

use rand_xoshiro::rand_core::Rng;
use vmcc_sim::rng::{Stream, Streams};

/// Behaviour of full bottlenecks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    Marked,
    TailDrop,
    /// NICs in turn.
    Mixed,
}

/// Heterogeneity of the subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kin {
    /// Rates and delays are equal.
    Twins,
    /// Rates of NICs within a factor of two of the middle, delays of subflows up to three to one.
    Unequal,
}

/// Background activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Beside {
    Nothing,
    /// Short transfers of others, through every bottleneck.
    ShortFlows,
    /// Datagrams that come and go.
    Bursts,
    /// Bulk transfers in the other direction of every bottleneck.
    Reverse,
    /// The connection itself sends answers and waits for the next request.
    Pauses,
    /// In the middle all subflows come to one bottleneck.
    Remap,
}

/// One case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) signal: Signal,
    pub(crate) kin: Kin,
    pub(crate) beside: Beside,
    pub(crate) connections: u32,
    /// The NIC of each subflow.
    pub(crate) nics: Vec<usize>,
    pub(crate) rate_mbit: u64,
    pub(crate) rtt_us: u64,
    /// A round trip with the queue that is expected, the unit of times to decide.
    pub(crate) loaded_us: u64,
    rates_mbit: Vec<u64>,
    access_us: Vec<u64>,
    buffer_pkt: u64,
    threshold_bytes: u64,
    rounds: u64,
}

const PACKET_BITS: u64 = 12_000;

fn uniform(from: &mut Stream) -> f64 {
    (from.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn pick<T: Copy>(from: &mut Stream, of: &[T]) -> T {
    of[(uniform(from) * of.len() as f64) as usize]
}

fn log_uniform(from: &mut Stream, low: f64, high: f64) -> f64 {
    low * (high / low).powf(uniform(from))
}

/// Rate and round trip such that no case is millions of packets long.
fn pace(rng: &mut Stream) -> (u64, u64) {
    loop {
        let rate_mbit = log_uniform(rng, 10.0, 10_000.0) as u64;
        let rtt_us = log_uniform(rng, 100.0, 50_000.0) as u64;
        if (2..=700).contains(&(rate_mbit * rtt_us / PACKET_BITS)) {
            return (rate_mbit, rtt_us);
        }
    }
}

impl Case {
    /// The case with this number. `rounds` is how long it lasts, in loaded round trips.
    pub(crate) fn new(seed: u64, rounds: u64) -> Self {
        use {Beside as B, Signal as S};
        let mut rng = Streams::new(seed).stream("sharing/case");
        let rng = &mut rng;
        let signal = pick(rng, &[S::Marked, S::Marked, S::TailDrop, S::Mixed]);
        let kin = pick(rng, &[Kin::Twins, Kin::Unequal]);
        let beside = pick(
            rng,
            &[B::Nothing, B::Nothing, B::Nothing, B::ShortFlows, B::Bursts, B::Reverse, B::Pauses, B::Remap],
        );
        let connections = pick(rng, &[1, 1, 2, 5, 10, 30, 100]);
        let subflows = pick(rng, &[2, 2, 2, 3, 4, 6, 8]);
        let mut nics = partition(rng, subflows);
        if beside == B::Remap {
            nics = vec![0, 1];
        }
        let (rate_mbit, rtt_us) = pace(rng);
        let count = nics.iter().max().map_or(1, |most| most + 1);
        let unequal = |rng: &mut Stream, low, high| match kin {
            Kin::Twins => 1.0,
            Kin::Unequal => log_uniform(rng, low, high),
        };
        let rates_mbit =
            (0..count).map(|_| ((rate_mbit as f64 * unequal(rng, 0.5, 2.0)) as u64).max(1)).collect();
        // A fourth of the round trip lies before the bottleneck, a fourth behind it, twins or not.
        let access_us =
            nics.iter().map(|_| ((rtt_us as f64 / 4.0 * unequal(rng, 0.5, 3.0)) as u64).max(1)).collect();
        let bdp_pkt = rate_mbit * rtt_us / PACKET_BITS;
        let buffer_pkt = ((bdp_pkt as f64 * log_uniform(rng, 0.5, 2.0)) as u64).max(60);
        let threshold_pkt = ((bdp_pkt as f64 * log_uniform(rng, 0.17, 1.0)) as u64).max(10);
        let most = nics.iter().map(|nic| nics.iter().filter(|n| *n == nic).count()).max().unwrap_or(1) as u64;
        let floor_pkt = 2 * most * u64::from(connections);
        let queue_pkt = if signal == S::Marked { threshold_pkt } else { buffer_pkt * 2 / 3 };
        let waiting_pkt = queue_pkt.max(floor_pkt.saturating_sub(bdp_pkt).min(buffer_pkt.max(1000)));
        let loaded_us = rtt_us + waiting_pkt * PACKET_BITS / rate_mbit;
        Self {
            seed,
            signal,
            kin,
            beside,
            connections,
            nics,
            rate_mbit,
            rtt_us,
            loaded_us,
            rates_mbit,
            access_us,
            buffer_pkt,
            threshold_bytes: threshold_pkt * 1500,
            rounds,
        }
    }

    fn is_marked(&self, nic: usize) -> bool {
        match self.signal {
            Signal::Marked => true,
            Signal::TailDrop => false,
            Signal::Mixed => nic.is_multiple_of(2),
        }
    }

    fn bottleneck(&self, nic: usize) -> String {
        if self.is_marked(nic) {
            let buffer = self.buffer_pkt.max(1000).max(4 * self.threshold_bytes / 1500);
            let at = self.threshold_bytes;
            format!("buffer = \"{buffer}pkt\", marking = {{ rule = \"threshold\", at = \"{at}B\" }}")
        } else {
            format!("buffer = \"{}pkt\"", self.buffer_pkt)
        }
    }

    /// The scenario, with these lines in `[host]`.
    pub(crate) fn scenario(&self, host: &str) -> String {
        let mut text = String::new();
        let duration_us = self.rounds * self.loaded_us;
        let _ = writeln!(text, "title = \"case {}\"\nduration = \"{duration_us}us\"", self.seed);
        let _ = writeln!(text, "warmup = \"0s\"\nruns = 1\n[host]\ncc = \"vmcc\"\n{host}");
        text += &if self.beside == Beside::Remap { self.virtual_host() } else { self.graph() };
        text += &self.traffic(duration_us);
        text
    }

    fn graph(&self) -> String {
        let (mut links, mut routes) = (String::new(), String::new());
        let fast = self.rates_mbit.iter().max().unwrap_or(&1) * 10;
        for (nic, rate) in self.rates_mbit.iter().enumerate() {
            let delay = self.rtt_us / 4;
            let queue = self.bottleneck(nic);
            let _ = writeln!(
                links,
                "{{ from = \"n{nic}\", to = \"m{nic}\", rate = \"{rate}mbit\", delay = \"{delay}us\", {queue} }},"
            );
            for (from, to) in [(format!("m{nic}"), "z"), (format!("n{nic}"), "x"), (format!("m{nic}"), "y")] {
                let _ = writeln!(
                    links,
                    "{{ from = \"{from}\", to = \"{to}\", rate = \"{fast}mbit\", delay = \"1us\" }},"
                );
            }
            let _ =
                writeln!(routes, "{{ name = \"x{nic}\", via = [\"x\", \"n{nic}\", \"m{nic}\", \"y\"] }},");
        }
        for (i, (nic, delay)) in self.nics.iter().zip(&self.access_us).enumerate() {
            let _ = writeln!(
                links,
                "{{ from = \"a\", to = \"p{i}\", rate = \"{fast}mbit\", delay = \"{delay}us\" }},\n\
                 {{ from = \"p{i}\", to = \"n{nic}\", rate = \"{fast}mbit\", delay = \"1us\" }},"
            );
            let _ = writeln!(
                routes,
                "{{ name = \"r{i}\", via = [\"a\", \"p{i}\", \"n{nic}\", \"m{nic}\", \"z\"] }},"
            );
        }
        format!(
            "[topology]\nkind = \"graph\"\nrouting = \"explicit\"\nhosts = [\"a\", \"z\", \"x\", \"y\"]\n\
             routes = [\n{routes}]\nlinks = [\n{links}]\n"
        )
    }

    fn virtual_host(&self) -> String {
        let (rate, delay, queue) = (self.rate_mbit, self.rtt_us / 2, self.bottleneck(0));
        let (at, fast) = (self.rounds * self.loaded_us / 2, rate * 10);
        format!(
            "[topology]\nkind = \"virtual-host\"\nvms = 1\nnics = 2\nvnics = 2\nvm_rate = \"{fast}mbit\"\n\
             buffer = \"2000pkt\"\npath_rate = \"{rate}mbit\"\npath_delay = \"{delay}us\"\npath_{}\n\
             [[event]]\nat = \"{at}us\"\nkind = \"remap\"\nvm = \"vm0\"\nvnic = 1\nnic = 0\n",
            queue.replace(", marking", "\npath_marking")
        )
    }

    fn traffic(&self, duration_us: u64) -> String {
        let connections = self.connections;
        let mut text = match self.beside {
            Beside::Remap => format!(
                "[[traffic]]\nname = \"own\"\nkind = \"bulk\"\nfrom = \"vm0\"\nto = \"client\"\nconnections = {connections}\n"
            ),
            Beside::Pauses => {
                let share = self.rate_mbit * self.loaded_us / 8 / u64::from(connections);
                format!(
                    "[[traffic]]\nname = \"own\"\nkind = \"request-response\"\nfrom = \"z\"\nto = \"a\"\nrequest = \"100B\"\n\
                     response = \"{}B\"\nthink = \"{}us\"\nconnections = {connections}\nsubflows = {}\n",
                    (20 * share).max(30_000),
                    5 * self.rtt_us,
                    self.nics.len()
                )
            }
            _ => format!(
                "[[traffic]]\nname = \"own\"\nkind = \"bulk\"\nfrom = \"a\"\nto = \"z\"\nconnections = {connections}\nsubflows = {}\n",
                self.nics.len()
            ),
        };
        for (nic, rate) in self.rates_mbit.iter().enumerate() {
            let ends = "from = \"x\"\nto = \"y\"\ncompeting = true";
            match self.beside {
                Beside::ShortFlows => {
                    // A third of the link in transfers of about 20 packets.
                    let per_second = rate * 1_000_000 / 3 / 240_000;
                    let limit = per_second * duration_us / 1_000_000 + 10;
                    let _ = writeln!(
                        text,
                        "[[traffic]]\nname = \"short{nic}\"\nkind = \"poisson\"\n{ends}\npath = \"x{nic}\"\nprotocol = \"tcp\"\n\
                         cc = \"cubic\"\nsizes = \"30kB\"\nper_second = {}\nlimit = {limit}",
                        per_second.max(1)
                    );
                }
                Beside::Bursts => {
                    let _ = writeln!(
                        text,
                        "[[traffic]]\nname = \"burst{nic}\"\nkind = \"on-off-udp\"\n{ends}\npath = \"x{nic}\"\nrate = \"{}kbit\"\n\
                         on = \"{}us\"\noff = \"{}us\"\nrandom = true",
                        rate * 500,
                        5 * self.loaded_us,
                        15 * self.loaded_us
                    );
                }
                Beside::Reverse => {
                    let _ = writeln!(
                        text,
                        "[[traffic]]\nname = \"back{nic}\"\nkind = \"bulk\"\nfrom = \"y\"\nto = \"x\"\ncompeting = true\n\
                         path = \"x{nic}\"\nprotocol = \"tcp\"\ncc = \"{}\"\nconnections = 2",
                        if self.is_marked(nic) { "dctcp" } else { "cubic" }
                    );
                }
                Beside::Nothing | Beside::Pauses | Beside::Remap => {}
            }
        }
        text
    }

    /// The NIC of each subflow at the end.
    pub(crate) fn nics_at_the_end(&self) -> Vec<usize> {
        if self.beside == Beside::Remap { vec![0; self.nics.len()] } else { self.nics.clone() }
    }

    /// Time at which subflows that did not share a bottleneck begin to share one, in us; 0 if they never do.
    pub(crate) fn comes_together_us(&self) -> u64 {
        if self.beside == Beside::Remap { self.rounds * self.loaded_us / 2 } else { 0 }
    }
}

/// Any partition: all shared and all apart as often as what is between.
fn partition(rng: &mut Stream, subflows: usize) -> Vec<usize> {
    let apart = uniform(rng);
    let mut nics: Vec<usize> = Vec::with_capacity(subflows);
    for i in 0..subflows {
        let next = nics.iter().max().map_or(0, |most| most + 1);
        let new = if apart < 0.33 { i == 0 } else { apart >= 0.67 || uniform(rng) < 0.5 };
        nics.push(if new || next == 0 { next } else { (uniform(rng) * next as f64) as usize });
    }
    nics
}
