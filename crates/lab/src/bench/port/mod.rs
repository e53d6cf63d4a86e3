//! Accuracy of a port's rates and shares, and its cost.
//!
//! Rates are what the port's root queue counts as sent between two looks: the kernel's figure, not the programs'.

mod cost;
mod uncapped;

pub use cost::{Cost, EndToEnd, Programs, Qdisc};
pub use uncapped::Ratio;

use crate::Error;
use crate::bench::flood::Flood;
use crate::bench::pair::{Pair, port_of};
use crate::bench::transfer::damaged;
use serde::Serialize;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_netlink::TrafficControl;
use vmcc_port::Port;
use vmcc_port::{ConfigFile, PortStats};

/// Slow start is over, and queues are as long as they stay.
const WARMUP: Duration = Duration::from_millis(800);
const LOOK: Duration = Duration::from_secs(3);
const LOOKS: usize = 3;
const SHORT_LOOK: Duration = Duration::from_millis(300);
const RATES_MBIT: [u64; 6] = [10, 100, 1_000, 2_500, 5_000, 10_000];
/// From here on packets of wire size are more than one sender can make.
const OFFLOAD_FROM_MBIT: u64 = 1_000;
const PORTS: usize = 64;
const FLOWS_PER_PORT: usize = 16;
const FIRST_TCP_PORT: u16 = 5501;

/// A port's cap and what it sent.
#[derive(Debug, Serialize)]
pub struct Cap {
    /// The cap.
    pub rate_bps: u64,
    /// Median of the looks.
    pub sent_bps: f64,
    /// Relative to the cap.
    pub error: f64,
    /// Each look.
    pub looks_bps: Vec<f64>,
    /// True if segmentation offload is on: the port receives trains of segments.
    pub offload: bool,
}

/// Shares of a port that its classes got.
#[derive(Debug, Serialize)]
pub struct Share {
    /// Of the classes that sent.
    pub weights: Vec<u32>,
    /// Part of what all sent, per class.
    pub shares: Vec<f64>,
    /// Largest relative deviation from the weights.
    pub error: f64,
    /// All together.
    pub sent_bps: f64,
}

/// Many ports at the same time.
#[derive(Debug, Serialize)]
pub struct Many {
    /// Number of ports.
    pub ports: usize,
    /// Connections over all.
    pub flows: usize,
    /// Mean time to attach one, in milliseconds.
    pub attach_ms_per_port: f64,
    /// The cap of each.
    pub rate_bps: u64,
    /// Rate of the slowest port, in bit/s.
    pub least_bps: f64,
    /// Rate of the fastest port, in bit/s.
    pub most_bps: f64,
    /// Packets marked, over all.
    pub marked: u64,
    /// Packets dropped, over all.
    pub drops: u64,
}

/// All that was measured; what was not wanted is empty.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Release of the kernel.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
    /// Caps from small to large.
    pub caps: Vec<Cap>,
    /// Shares of classes.
    pub shares: Vec<Share>,
    /// Cost per packet.
    pub cost: Option<Cost>,
    /// Throughput with marking beside none, with offload and without.
    pub uncapped: Vec<Ratio>,
    /// Many ports at the same time.
    pub many: Option<Many>,
}

/// Names of the cases, each of which can be measured alone.
pub const CASES: [&str; 5] = ["cap", "share", "cost", "uncapped", "many"];

/// Measures the cases of [`CASES`] that are `wanted`; `progress` hears what is next. Needs root.
///
/// # Errors
/// A port cannot be served, or a connection fails.
pub fn measure(wanted: &dyn Fn(&str) -> bool, progress: &mut dyn FnMut(&str)) -> Result<Report, Error> {
    let mut report = Report {
        kernel: nix::sys::utsname::uname()
            .map(|uts| uts.release().to_string_lossy().into_owned())
            .unwrap_or_default(),
        cpus: thread::available_parallelism().map_or(1, std::num::NonZero::get),
        caps: Vec::new(),
        shares: Vec::new(),
        cost: None,
        uncapped: Vec::new(),
        many: None,
    };
    for mbit in RATES_MBIT.into_iter().filter(|_| wanted("cap")) {
        progress(&format!("cap of {mbit} Mbit/s"));
        report.caps.push(cap(mbit)?);
    }
    if wanted("share") {
        progress("shares");
        report.shares = shares()?;
    }
    if wanted("cost") {
        report.cost = Some(cost::measure(progress)?);
    }
    if wanted("uncapped") {
        progress("throughput with marking and without");
        report.uncapped = vec![uncapped::ratio(true)?, uncapped::ratio(false)?];
    }
    if wanted("many") {
        progress(&format!("{PORTS} ports"));
        report.many = Some(many()?);
    }
    Ok(report)
}

/// Two namespaces whose TCP is Reno with ECN.
fn network(paths: usize, offload: bool) -> Result<Pair, Error> {
    let network = Pair::plain(paths)?;
    network.select("reno")?;
    network.ecn(true)?;
    if !offload {
        (0..paths).try_for_each(|path| network.no_offload(path))?;
    }
    Ok(network)
}

/// A port of the client's, served as `text` says.
fn attach(network: &Pair, path: usize, text: &str) -> Result<Port, Error> {
    let config = ConfigFile::parse("bench", text).map_err(|e| damaged(e.to_string()))?.config;
    Ok(network.client.run(move || Port::attach(&port_of(path), &config))?)
}

/// Bytes that the port's root queue has sent.
fn sent(network: &Pair, path: usize) -> Result<u64, Error> {
    let port = network.client.port_index(&port_of(path))?;
    let root = network.client.run(move || TrafficControl::open()?.root(port));
    let root = root.map_err(|e| Error::kernel("reading the queue of", port_of(path), e))?;
    Ok(root.map_or(0, |queue| queue.counters.sent_bytes))
}

fn sent_bps(network: &Pair, path: usize, time: Duration) -> Result<f64, Error> {
    let (from, before) = (Instant::now(), sent(network, path)?);
    thread::sleep(time);
    let after = sent(network, path)?;
    Ok((after - before) as f64 * 8.0 / from.elapsed().as_secs_f64())
}

/// Nothing marks, so that the queue is never empty and the shaper alone decides.
fn cap(mbit: u64) -> Result<Cap, Error> {
    let offload = mbit >= OFFLOAD_FROM_MBIT;
    let network = network(1, offload)?;
    let _port = attach(&network, 0, &format!("rate = '{mbit}mbit'\nbackend = 'htb'\nbuffer = '1000pkt'"))?;
    let _flood = Flood::start(&network, 0, FIRST_TCP_PORT, 8)?;
    thread::sleep(WARMUP);
    let looks = (0..LOOKS).map(|_| sent_bps(&network, 0, LOOK / 2));
    let mut looks_bps = looks.collect::<Result<Vec<f64>, _>>()?;
    looks_bps.sort_by(f64::total_cmp);
    let (rate_bps, sent_bps) = (mbit * 1_000_000, looks_bps[LOOKS / 2]);
    Ok(Cap { rate_bps, sent_bps, error: sent_bps / rate_bps as f64 - 1.0, looks_bps, offload })
}

/// Classes by TCP port.
fn classes(weights: &[u32]) -> String {
    let class = |(index, weight): (usize, &u32)| {
        let port = FIRST_TCP_PORT + index as u16;
        format!("[[class]]\nname = 'c{index}'\nweight = {weight}\nfilter = [{{ to_port = {port} }}]\n")
    };
    weights.iter().enumerate().map(class).collect()
}

/// Shares of the classes while all send, and while the first has nothing to send.
fn shares() -> Result<Vec<Share>, Error> {
    let weights = [4, 2, 1];
    let network = network(1, false)?;
    let head = "rate = '200mbit'\nqueue = 'drr'\nbackend = 'htb'\nmarking = { rule = 'mq-ecn', rtt = '4ms', lambda = 1.0 }\n";
    let port = attach(&network, 0, &format!("{head}{}", classes(&weights)))?;
    let flood = |class: u16| Flood::start(&network, 0, FIRST_TCP_PORT + class, 8);
    let (first, _others) = (flood(0)?, [flood(1)?, flood(2)?]);
    let all = share(&port, &weights)?;
    drop(first);
    Ok(vec![all, share(&port, &weights[1..])?])
}

/// The classes that send are the last ones.
fn share(port: &Port, weights: &[u32]) -> Result<Share, Error> {
    let sent = |stats: &PortStats| -> Vec<u64> {
        let last = &stats.classes[stats.classes.len() - weights.len()..];
        last.iter().map(|class| class.bytes - class.backlog_bytes).collect()
    };
    thread::sleep(WARMUP);
    let look = || port.stats();
    let (from, before) = (Instant::now(), sent(&look()?));
    thread::sleep(LOOK);
    let after = sent(&look()?);
    let seconds = from.elapsed().as_secs_f64();
    let each: Vec<f64> = after.iter().zip(&before).map(|(b, a)| (b - a) as f64).collect();
    let all: f64 = each.iter().sum();
    let sum: u32 = weights.iter().sum();
    let shares: Vec<f64> = each.iter().map(|bytes| bytes / all).collect();
    let error = |(share, weight): (&f64, &u32)| (share * f64::from(sum) / f64::from(*weight) - 1.0).abs();
    let error = shares.iter().zip(weights).map(error).fold(0.0, f64::max);
    Ok(Share { weights: weights.to_vec(), shares, error, sent_bps: all * 8.0 / seconds })
}

fn many() -> Result<Many, Error> {
    let network = network(PORTS, false)?;
    let rate_bps = 4_000_000;
    let text =
        "rate = '4mbit'\nbackend = 'htb'\nbuffer = '1000pkt'\nmarking = { rule = 'threshold', at = '30kB' }";
    let began = Instant::now();
    let ports = (0..PORTS).map(|path| attach(&network, path, text)).collect::<Result<Vec<_>, _>>()?;
    let attach_ms_per_port = began.elapsed().as_secs_f64() * 1e3 / PORTS as f64;
    let flows = |path| Flood::start(&network, path, FIRST_TCP_PORT, FLOWS_PER_PORT);
    let floods = (0..PORTS).map(flows).collect::<Result<Vec<_>, _>>()?;
    thread::sleep(2 * WARMUP);
    let look = || -> Result<Vec<(Instant, u64)>, Error> {
        (0..PORTS).map(|path| Ok((Instant::now(), sent(&network, path)?))).collect()
    };
    let before = look()?;
    thread::sleep(LOOK);
    let after = look()?;
    let rates = before
        .iter()
        .zip(&after)
        .map(|((from, a), (to, b))| (b - a) as f64 * 8.0 / (*to - *from).as_secs_f64());
    let rates: Vec<f64> = rates.collect();
    drop(floods);
    let mut totals = (0, 0);
    for port in ports {
        let stats = port.detach()?;
        totals.0 += stats.classes[0].marked;
        totals.1 += stats.classes[0].drops_full;
    }
    Ok(Many {
        ports: PORTS,
        flows: PORTS * FLOWS_PER_PORT,
        attach_ms_per_port,
        rate_bps,
        least_bps: rates.iter().copied().fold(f64::INFINITY, f64::min),
        most_bps: rates.iter().copied().fold(0.0, f64::max),
        marked: totals.0,
        drops: totals.1,
    })
}
