//! Rates, queues and delays that need no marking, and the counters of any queue.

use crate::spec::{Direction, FRAME_BYTES, Shape, Wire};
use crate::{Error, netns::Netns};
use std::io;
use vmcc_netlink::{Counters, Impairment, Shaper, TrafficControl, os_code};
use vmcc_units::{BitsPerSec, Limit, Nanos};

/// Burst that leaves a port back to back after an idle time, as time at the port's rate. A shorter time loses rate when the kernel's
/// timer is late; a longer one lets bursts pass that the queue should see.
const BURST: Nanos = Nanos::from_micros(500);

/// Reads the counters of one queue.
pub(crate) struct QueueReader {
    tc: TrafficControl,
    port: u32,
}

impl QueueReader {
    pub(super) fn new(tc: TrafficControl, port: u32) -> Self {
        Self { tc, port }
    }

    pub(crate) fn read(&mut self) -> Result<Counters, Error> {
        let root = self.tc.root(self.port).and_then(|root| root.ok_or(io::ErrorKind::NotFound.into()));
        root.map(|root| root.counters)
            .map_err(|e| Error::kernel("reading the counters of", "a shaped port", e))
    }
}

/// Limits what leaves a port in a direction that carries only acknowledgments.
pub(super) fn limit(at: &Netns, port: &str, shape: &Shape) -> Result<(), Error> {
    let index = at.port_index(port)?;
    let shaper = shaper_of(shape);
    let done = at.run(move || TrafficControl::open()?.add_shaper(index, &shaper));
    done.map_err(|e| missing_queue(e, at, "tbf", "the token bucket shaper (CONFIG_NET_SCH_TBF)"))
}

fn shaper_of(shape: &Shape) -> Shaper {
    let burst = shape.rate.data_in(BURST).map_or(0, |bytes| bytes.get()).max(2 * FRAME_BYTES);
    let limit_pkt = match shape.buffer {
        Limit::Packets(count) => u32::try_from(count.get()).ok(),
        Limit::Bytes(_) => None,
    };
    // Checked when the input was: fits 32 bits.
    let limit_bytes = shape.buffer_bytes().and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(u32::MAX);
    Shaper { rate: shape.rate, burst_bytes: u32::try_from(burst).unwrap_or(u32::MAX), limit_bytes, limit_pkt }
}

/// Delays and loses what leaves a path towards a host, behind the bottleneck, if that direction of it does that.
pub(super) fn behind(at: &Netns, port: &str, direction: &Direction) -> Result<(), Error> {
    let rate = direction.shape.as_ref().map_or(MAX_RATE, |shape| shape.rate);
    impair(at, port, rate, &direction.wire)
}

/// Delays and loses what leaves a port that is fed at `rate`, if there is anything to do.
pub(super) fn impair(at: &Netns, port: &str, rate: BitsPerSec, wire: &Wire) -> Result<(), Error> {
    if !wire.is_impaired() {
        return Ok(());
    }
    let index = at.port_index(port)?;
    let longest = Nanos::new(wire.delay.get() + wire.jitter.get());
    // Everything that can be on the wire at once, twice over, so that netem itself drops none but what it shall.
    let in_flight = rate.data_in(longest).map_or(0, |bytes| bytes.get());
    let limit_pkt = u32::try_from(2 * in_flight / 64 + 1000).unwrap_or(u32::MAX);
    // netem draws from around its delay, here from above it.
    let jitter_us = micros(wire.jitter) / 2;
    let delay_us = micros(wire.delay).saturating_add(jitter_us);
    let impairment = Impairment { delay_us, jitter_us, loss: wire.loss, limit_pkt };
    let done = at.run(move || TrafficControl::open()?.add_impairment(index, &impairment));
    done.map_err(|e| missing_queue(e, at, "netem", "path delay and loss (netem, CONFIG_NET_SCH_NETEM)"))
}

fn micros(time: Nanos) -> u32 {
    u32::try_from(time.get() / 1000).unwrap_or(u32::MAX)
}

/// Makes a namespace's interface like a VM's: from virtio-net on, packets no longer belong to the socket that sent them.
/// A namespace's still do, as far as the queue of the port, and TCP lets a socket keep few packets in the queues of its own
/// host (TCP small queues): one connection of a container cannot fill its port, one of a VM can. netem takes packets from
/// their sockets. A kernel without it is left as it is.
pub(super) fn let_go(at: &Netns, interface: &str) -> Result<(), Error> {
    let index = at.port_index(interface)?;
    let held = Impairment { delay_us: 1, jitter_us: 0, loss: 0.0, limit_pkt: 10_000 };
    match at.run(move || TrafficControl::open()?.add_impairment(index, &held)) {
        Err(e) if os_code(&e) != Some(nix::libc::ENOENT) => {
            Err(Error::kernel("adding a queue in", format!("namespace {}", at.name()), e))
        }
        _ => Ok(()),
    }
}

/// More than a path without a shaper carries here.
const MAX_RATE: BitsPerSec = BitsPerSec::new(10_000_000_000);

fn missing_queue(error: io::Error, namespace: &Netns, kind: &str, feature: &str) -> Error {
    match os_code(&error) {
        Some(nix::libc::ENOENT) => Error::KernelFeature {
            feature: feature.to_owned(),
            cause: format!("it has no queueing discipline {kind}"),
            remedy: format!(
                "`modprobe sch_{kind}` if it is a module, else `--engine guest` or `--engine sim`"
            ),
        },
        _ => Error::kernel("adding a queue in", format!("namespace {}", namespace.name()), error),
    }
}
