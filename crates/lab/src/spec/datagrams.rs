//! Datagrams that threads of the lab send: probes, and the congestion generator.

use crate::Error;
use vmcc_units::{BitsPerSec, Bytes, Nanos};

/// IPv4's and UDP's.
pub(crate) const UDP_HEADERS_BYTES: u64 = 28;
/// The number of a probe's request, and the shortest payload.
pub(crate) const NUMBER_BYTES: usize = 4;
/// Room for the sum in a report of the generator's receiver, and the shortest payload.
pub(crate) const SUM_BYTES: usize = 8;
/// Without fragments.
const MAX_DATAGRAM_SIZE: Bytes = Bytes::new(1_500);
/// A thread of ours sends probes.
const MIN_PROBE_INTERVAL: Nanos = Nanos::from_micros(200);
/// Shortest period of the generator.
const MIN_PERIOD: Nanos = Nanos::from_millis(1);

/// Settings of probes.
#[derive(Debug, Clone, PartialEq)]
pub struct Probing {
    /// Between two requests.
    pub interval: Nanos,
    /// True if `interval` is the mean of exponential times.
    pub random: bool,
    /// Which ones.
    pub seed: u64,
    /// The size of a request's IP packet.
    pub packet: Bytes,
    /// The size of an answer's.
    pub reply: Bytes,
    /// Timeout of an answer.
    pub timeout: Nanos,
}

/// Settings of a congestion generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Generating {
    /// The lowest and the highest rate of a busy period, counting IP packets.
    pub rates: (BitsPerSec, BitsPerSec),
    /// The shortest and the longest period.
    pub durations: (Nanos, Nanos),
    /// Share of the periods that are busy.
    pub busy: f64,
    /// The size of an IP packet.
    pub packet: Bytes,
    /// Which draws.
    pub seed: u64,
    /// True if each interface has draws of its own.
    pub independent: bool,
}

impl Probing {
    pub(super) fn check(&self, key: impl Fn(&str) -> String) -> Result<(), Error> {
        if self.interval < MIN_PROBE_INTERVAL {
            let problem = format!("a probe each {}; {MIN_PROBE_INTERVAL} is the least", self.interval);
            return Err(Error::not_expressible(key("interval"), problem));
        }
        let smallest = Bytes::new(UDP_HEADERS_BYTES + NUMBER_BYTES as u64);
        for (name, size) in [("packet", self.packet), ("reply", self.reply)] {
            if size < smallest || size > MAX_DATAGRAM_SIZE {
                let problem = format!("{size}; {smallest} to {MAX_DATAGRAM_SIZE} is what probes have");
                return Err(Error::not_expressible(key(name), problem));
            }
        }
        Ok(())
    }
}

impl Generating {
    pub(super) fn check(&self, key: impl Fn(&str) -> String) -> Result<(), Error> {
        let smallest = Bytes::new(UDP_HEADERS_BYTES + SUM_BYTES as u64);
        if self.packet < smallest || self.packet > MAX_DATAGRAM_SIZE {
            let problem = format!("{}; {smallest} to {MAX_DATAGRAM_SIZE} is what it sends", self.packet);
            return Err(Error::not_expressible(key("packet"), problem));
        }
        if self.durations.0 < MIN_PERIOD {
            let problem = format!("{}; {MIN_PERIOD} is the least", self.durations.0);
            return Err(Error::not_expressible(key("min_duration"), problem));
        }
        Ok(())
    }
}
