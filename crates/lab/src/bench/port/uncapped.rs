//! Throughput of an uncapped port with marking beside the same without.

use super::{FIRST_TCP_PORT, SHORT_LOOK, attach, network};
use crate::Error;
use crate::bench::flood::Flood;
use crate::bench::pair::{Pair, port_of};
use crate::topology::in_namespace;
use serde::Serialize;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_netlink::{ROOT, TrafficControl};
use vmcc_port::Port;
use vmcc_units::{Limit, Packets};

/// Many short pairs: what else runs on the machine changes from second to second.
const PAIRS: usize = 31;

/// The number of the port's queue.
const QUEUE: u32 = 0x0007_0000;

/// Throughput of an uncapped port with marking beside the same without.
#[derive(Debug, Serialize)]
pub struct Ratio {
    /// True if segmentation offload is on: the port receives trains of segments.
    pub offload: bool,
    /// Median over the pairs of throughput with marking / without.
    pub median: f64,
    /// Of the pairs.
    pub lower_quartile: f64,
    /// Of the pairs.
    pub upper_quartile: f64,
    /// Median with marking.
    pub with_bps: f64,
    /// The same without marking.
    pub without_bps: f64,
    /// Each pair: with and without.
    pub pairs_bps: Vec<(f64, f64)>,
}

/// The kernel gives a veth no queue, and marking goes by its length: one that never holds a packet back costs next to
/// nothing.
fn put_a_queue(network: &Pair) -> Result<(), Error> {
    let port = network.client.port_index(&port_of(0))?;
    in_namespace(&network.client, "adding a queue in", move || {
        TrafficControl::open()?.add_fifo(port, ROOT, QUEUE, Limit::Packets(Packets::new(1000)))
    })
}

/// An uncapped port with marking and without, in turns.
pub(super) fn ratio(offload: bool) -> Result<Ratio, Error> {
    let network = network(1, offload)?;
    put_a_queue(&network)?;
    let mut flood = None;
    let mut one = |marking: bool, pair: usize| -> Result<f64, Error> {
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
        port.map(Port::detach).transpose()?;
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
