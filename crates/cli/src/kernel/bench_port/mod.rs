//! `vmcc bench port`: how exact a port is, and what it costs.
//!
//! Rates are what the port's root queue counts as sent between two looks: the kernel's figure, not the programs'.

mod text;

use crate::failure::{Exit, Failure};
use crate::kernel::flood::Flood;
use crate::kernel::veth::Veth;
use crate::ui::Ui;
use serde::Serialize;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_host::bench::Statistics;
use vmcc_host::port::{Port, RunTime};
use vmcc_netlink::TrafficControl;
use vmcc_port::{ConfigFile, PortStats};

/// Slow start is over, and queues are as long as they stay.
const WARMUP: Duration = Duration::from_millis(800);
const LOOK: Duration = Duration::from_secs(3);
const LOOKS: usize = 3;
/// Many short pairs: what else runs on the machine changes from second to second.
const SHORT_LOOK: Duration = Duration::from_millis(300);
const PAIRS: usize = 31;
const RATES_MBIT: [u64; 6] = [10, 100, 1_000, 2_500, 5_000, 10_000];
/// From here on packets of wire size are more than one sender can make.
const OFFLOAD_FROM_MBIT: u64 = 1_000;
const PORTS: usize = 64;
const FLOWS_PER_PORT: usize = 16;
const FIRST_TCP_PORT: u16 = 5501;

#[derive(Debug, Serialize)]
struct Cap {
    rate_bps: u64,
    /// Median of the looks.
    sent_bps: f64,
    error: f64,
    /// Each look.
    looks_bps: Vec<f64>,
    offload: bool,
}

#[derive(Debug, Serialize)]
struct Share {
    weights: Vec<u32>,
    /// Part of what all sent, per class.
    shares: Vec<f64>,
    /// Largest relative deviation from the weights.
    error: f64,
    sent_bps: f64,
}

#[derive(Debug, Serialize)]
struct Cost {
    configuration: &'static str,
    packets: u64,
    ns_per_packet_out: f64,
    ns_per_packet_in: f64,
}

#[derive(Debug, Serialize)]
struct Ratio {
    offload: bool,
    /// Median over the pairs of throughput with marking / without.
    median: f64,
    lower_quartile: f64,
    upper_quartile: f64,
    /// Medians alone.
    with_bps: f64,
    without_bps: f64,
    pairs_bps: Vec<(f64, f64)>,
}

#[derive(Debug, Serialize)]
struct Many {
    ports: usize,
    flows: usize,
    attach_ms_per_port: f64,
    rate_bps: u64,
    least_bps: f64,
    most_bps: f64,
    marked: u64,
    drops: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    cpus: usize,
    caps: Vec<Cap>,
    shares: Vec<Share>,
    costs: Vec<Cost>,
    uncapped: Vec<Ratio>,
    many: Many,
}

pub(crate) fn bench(ui: &Ui) -> Result<Exit, Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::host("bench port: needs root to serve ports").help("run it with sudo"));
    }
    let report = measure(ui).map_err(Failure::host)?;
    ui.answer(&json!(report), || text::of(&report));
    Ok(Exit::Done)
}

fn measure(ui: &Ui) -> Result<Report, String> {
    let caps = RATES_MBIT.map(|mbit| {
        ui.note(&format!("cap of {mbit} Mbit/s"));
        cap(mbit)
    });
    ui.note("shares");
    let shares = shares()?;
    ui.note("nanoseconds per packet");
    let costs = costs()?;
    ui.note("throughput with marking and without");
    let uncapped = vec![ratio(true)?, ratio(false)?];
    ui.note(&format!("{PORTS} ports"));
    Ok(Report {
        kernel: nix::sys::utsname::uname()
            .map(|uts| uts.release().to_string_lossy().into_owned())
            .unwrap_or_default(),
        cpus: thread::available_parallelism().map_or(1, std::num::NonZero::get),
        caps: caps.into_iter().collect::<Result<_, _>>()?,
        shares,
        costs,
        uncapped,
        many: many()?,
    })
}

/// Two namespaces whose TCP is Reno with ECN.
fn network(paths: usize, offload: bool) -> Result<Veth, String> {
    let network = Veth::plain(paths)?;
    network.select("reno")?;
    network.ecn(true)?;
    if !offload {
        (0..paths).try_for_each(|path| network.no_offload(path))?;
    }
    Ok(network)
}

fn attach(network: &Veth, path: usize, text: &str) -> Result<Port, String> {
    let config = ConfigFile::parse("bench", text).map_err(|e| e.to_string())?.config;
    network.in_client(move || Port::attach(&format!("p{path}"), &config).map_err(|e| e.to_string()))?
}

/// What the port's root queue has sent, in bytes.
fn sent(network: &Veth, path: usize) -> Result<u64, String> {
    network.in_client(move || {
        let port = format!("p{path}");
        let index = nix::net::if_::if_nametoindex(port.as_str()).map_err(|e| format!("{port}: {e}"))?;
        let root = TrafficControl::open().and_then(|mut tc| tc.root(index));
        let root = root.map_err(|e| format!("{port}: {e}"))?;
        Ok(root.map_or(0, |queue| queue.counters.sent_bytes))
    })?
}

fn sent_bps(network: &Veth, path: usize, time: Duration) -> Result<f64, String> {
    let (from, before) = (Instant::now(), sent(network, path)?);
    thread::sleep(time);
    let after = sent(network, path)?;
    Ok((after - before) as f64 * 8.0 / from.elapsed().as_secs_f64())
}

/// Nothing marks, so that the queue is never empty and the shaper alone decides.
fn cap(mbit: u64) -> Result<Cap, String> {
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
fn shares() -> Result<Vec<Share>, String> {
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
fn share(port: &Port, weights: &[u32]) -> Result<Share, String> {
    let sent = |stats: &PortStats| -> Vec<u64> {
        let last = &stats.classes[stats.classes.len() - weights.len()..];
        last.iter().map(|class| class.bytes - class.backlog_bytes).collect()
    };
    thread::sleep(WARMUP);
    let look = || port.stats().map_err(|e| e.to_string());
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

/// Packets of wire size, so that a call is a packet.
fn costs() -> Result<Vec<Cost>, String> {
    let eight = classes(&[1; 8]);
    let wanted = [
        ("one class, a fixed threshold", "marking = { rule = 'threshold', at = '100kB' }".to_owned()),
        ("one class, MQ-ECN by the measured RTT", "marking = { rule = 'mq-ecn', lambda = 1.0 }".to_owned()),
        (
            "eight classes by filters, MQ-ECN by the measured RTT",
            format!("queue = 'drr'\nmarking = {{ rule = 'mq-ecn', lambda = 1.0 }}\n{eight}"),
        ),
        (
            "eight classes by filters, virtual queues",
            format!(
                "queue = 'drr'\nphantom = 0.95\nmarking = {{ rule = 'threshold', at = '100kB' }}\n{eight}"
            ),
        ),
    ];
    wanted.into_iter().map(|(name, text)| cost(name, &text)).collect()
}

fn cost(configuration: &'static str, text: &str) -> Result<Cost, String> {
    let network = network(1, false)?;
    let port = attach(&network, 0, &format!("rate = '1gbit'\nbackend = 'htb'\n{text}"))?;
    let _flood = Flood::start(&network, 0, FIRST_TCP_PORT + 7, 4)?;
    thread::sleep(WARMUP);
    let run_times = || port.run_times().map_err(|e| e.to_string());
    let _statistics = Statistics::enable().map_err(|e| e.to_string())?;
    let before = run_times()?;
    thread::sleep(LOOK);
    let after = run_times()?;
    let per_call = |direction: usize| {
        let (RunTime { ns: n0, calls: c0 }, RunTime { ns, calls }) = (before[direction], after[direction]);
        (ns - n0) as f64 / (calls - c0).max(1) as f64
    };
    let packets = after[0].calls - before[0].calls;
    Ok(Cost { configuration, packets, ns_per_packet_out: per_call(0), ns_per_packet_in: per_call(1) })
}

/// An uncapped port with marking and without, in turns.
fn ratio(offload: bool) -> Result<Ratio, String> {
    let network = network(1, offload)?;
    let mut flood = None;
    let mut one = |marking: bool, pair: usize| -> Result<f64, String> {
        let text = "marking = { rule = 'threshold', at = '100kB' }";
        let port = if marking { Some(attach(&network, 0, text)?) } else { None };
        let running: &Flood = match &flood {
            Some(running) => running,
            None => flood.insert(Flood::start(&network, 0, FIRST_TCP_PORT + pair as u16, 2)?),
        };
        thread::sleep(Duration::from_millis(100));
        let (from, before) = (Instant::now(), running.received());
        thread::sleep(SHORT_LOOK);
        let bytes = running.received() - before;
        let bps = bytes as f64 * 8.0 / from.elapsed().as_secs_f64();
        port.map(Port::detach).transpose().map_err(|e| e.to_string())?;
        Ok(bps)
    };
    let mut pairs_bps = Vec::new();
    for pair in 0..PAIRS {
        // Who goes first alternates, so that a drift of the machine favours neither.
        let with_first = if pair % 2 == 0 { Some(one(true, pair)?) } else { None };
        let without = one(false, pair)?;
        pairs_bps.push((with_first.map_or_else(|| one(true, pair), Ok)?, without));
    }
    let sorted = |of: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = pairs_bps.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let ratios = sorted(|(with, without)| with / without);
    Ok(Ratio {
        offload,
        median: ratios[PAIRS / 2],
        lower_quartile: ratios[PAIRS / 4],
        upper_quartile: ratios[PAIRS - 1 - PAIRS / 4],
        with_bps: sorted(|pair| pair.0)[PAIRS / 2],
        without_bps: sorted(|pair| pair.1)[PAIRS / 2],
        pairs_bps,
    })
}

fn many() -> Result<Many, String> {
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
    let look = || -> Result<Vec<(Instant, u64)>, String> {
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
        let stats = port.detach().map_err(|e| e.to_string())?;
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
