//! Time of a transfer on a network that carries nothing else: the denominator of slowdown.

use std::collections::BTreeMap;

use crate::{LinkId, Network, RoutePair};

/// Bits of a byte, in femtoseconds per second.
const FS_BITS: u64 = 8_000_000_000_000_000;

/// Packets of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// Payload of a full packet; at least 1.
    pub payload_bytes: u32,
    /// Headers of every packet.
    pub header_bytes: u32,
}

/// Exchange before the first byte of a transfer leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// A handshake: one round trip of packets without payload.
    Handshake,
    /// A request of this many bytes in the other direction.
    Request(u64),
}

/// Timing of a connection's transfers when nothing else is on the network.
///
/// A lower bound of the completion time: propagation and serialization of every packet, headers included. There are no queues, no
/// losses, no slow start, and every subflow is open from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unloaded {
    /// Exchange before the first byte leaves.
    lead_ps: u64,
    /// Propagation on the fastest route.
    delay_ps: u64,
    /// Serialization on the fastest route: at its slowest link, and at all others.
    slowest_fs_per_byte: u64,
    others_fs_per_byte: u64,
    /// Serialization when all routes are used together.
    joint_fs_per_byte: u64,
    payload_bytes: u32,
    header_bytes: u32,
}

impl Unloaded {
    /// Microseconds from the start of a transfer of `bytes`, or from its request, to the arrival of its last byte.
    pub fn transfer_us(&self, bytes: u64) -> f64 {
        let (payload, header) = (u64::from(self.payload_bytes), u64::from(self.header_bytes));
        let packets = bytes.div_ceil(payload).max(1);
        let wire = bytes as f64 + packets as f64 * header as f64;
        let first = bytes.min(payload) + header;
        let last = bytes - (packets - 1) * payload + header;
        // However many routes there are, a packet takes one of them.
        let paced =
            (wire * self.joint_fs_per_byte as f64).max(first as f64 * self.slowest_fs_per_byte as f64);
        let serialized_fs = paced + last as f64 * self.others_fs_per_byte as f64;
        (self.lead_ps + self.delay_ps) as f64 / 1e6 + serialized_fs / 1e9
    }
}

/// A route as one packet meets it.
#[derive(Clone, Copy)]
struct Crossing {
    delay_ps: u64,
    slowest_fs_per_byte: u64,
    all_fs_per_byte: u64,
}

impl Crossing {
    fn ps(&self, bytes: u64) -> u64 {
        self.delay_ps.saturating_add(bytes.saturating_mul(self.all_fs_per_byte) / 1_000)
    }
}

impl Network {
    /// Timing of transfers over `routes`, whose `forward` carries the payload; `None` without routes. Where links are shared by
    /// several routes, each route takes in turn what the ones before it left.
    pub fn unloaded(&self, routes: &[RoutePair], framing: Framing, lead: Lead) -> Option<Unloaded> {
        let full = u64::from(framing.payload_bytes) + u64::from(framing.header_bytes);
        let crossings =
            routes.iter().map(|pair| (self.crossing(&pair.forward), self.crossing(&pair.reverse)));
        let (there, back) = crossings.min_by_key(|(there, _)| there.ps(full))?;
        let header = u64::from(framing.header_bytes);
        let lead_ps = match lead {
            Lead::Handshake => there.ps(header).saturating_add(back.ps(header)),
            Lead::Request(bytes) => back.ps(header.saturating_add(bytes).min(full)),
        };
        Some(Unloaded {
            lead_ps,
            delay_ps: there.delay_ps,
            slowest_fs_per_byte: there.slowest_fs_per_byte,
            others_fs_per_byte: there.all_fs_per_byte - there.slowest_fs_per_byte,
            joint_fs_per_byte: fs_per_byte(self.joint_rate_bps(routes)),
            payload_bytes: framing.payload_bytes.max(1),
            header_bytes: framing.header_bytes,
        })
    }

    fn crossing(&self, links: &[LinkId]) -> Crossing {
        let start = Crossing { delay_ps: 0, slowest_fs_per_byte: 0, all_fs_per_byte: 0 };
        links.iter().map(|link| &self.port(*link).settings).fold(start, |sum, link| {
            let own = fs_per_byte(link.rate.get());
            Crossing {
                delay_ps: sum.delay_ps.saturating_add(link.delay.get().saturating_mul(1_000)),
                slowest_fs_per_byte: sum.slowest_fs_per_byte.max(own),
                all_fs_per_byte: sum.all_fs_per_byte.saturating_add(own),
            }
        })
    }

    fn joint_rate_bps(&self, routes: &[RoutePair]) -> u64 {
        let mut left: BTreeMap<LinkId, u64> = BTreeMap::new();
        let mut sum = 0_u64;
        for pair in routes {
            let rest = |left: &BTreeMap<LinkId, u64>, link: &LinkId| {
                left.get(link).copied().unwrap_or_else(|| self.port(*link).settings.rate.get())
            };
            let rate = pair.forward.iter().map(|link| rest(&left, link)).min().unwrap_or(0);
            for link in &pair.forward {
                let rest = rest(&left, link) - rate;
                left.insert(*link, rest);
            }
            sum = sum.saturating_add(rate);
        }
        sum
    }
}

fn fs_per_byte(rate_bps: u64) -> u64 {
    FS_BITS / rate_bps.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostId, Topology};

    const FRAMING: Framing = Framing { payload_bytes: 1448, header_bytes: 52 };

    fn unloaded(topology: &str, (from, to): (u32, u32), count: usize, lead: Lead) -> Unloaded {
        let topology: Topology = serde_json::from_str(topology).unwrap();
        let network = topology.network();
        let mut next = 0;
        let mut draw = || {
            next += 1;
            next
        };
        let routes = network.routes.between(HostId(from), HostId(to), count, &mut draw);
        network.unloaded(&routes, FRAMING, lead).unwrap()
    }

    #[test]
    fn transfer_time_is_propagation_and_serialization_link_by_link() {
        let dumbbell = r#"{ "kind": "dumbbell", "pairs": 2, "rate": "12mbit", "delay": "1ms", "access_rate": "120mbit" }"#;
        // One full packet: 0.1 ms, 1 ms and 0.1 ms; before it 52 bytes there and back.
        let one = unloaded(dumbbell, (0, 2), 1, Lead::Handshake);
        let handshake = 2.0 * (1_000.0 + 52.0 * 8.0 / 12.0 * 1.2);
        assert!((one.transfer_us(1448) - (handshake + 2_200.0)).abs() < 0.1, "{}", one.transfer_us(1448));
        // Every further packet takes 1 ms more at the bottleneck.
        let more = one.transfer_us(101 * 1448) - one.transfer_us(1448);
        assert!((more - 100_000.0).abs() < 0.1, "{more}");
        let asked = unloaded(dumbbell, (0, 2), 1, Lead::Request(0));
        assert!((one.transfer_us(1) - asked.transfer_us(1) - handshake / 2.0).abs() < 0.1);
    }

    #[test]
    fn disjoint_paths_add_up_and_shared_links_count_once() {
        let paths = r#"{ "kind": "parallel-paths", "paths": 2, "rate": "100mbit", "delay": "1ms" }"#;
        let big = 1_448_000_000;
        let rate = |unloaded: Unloaded| 1_500_000_000.0 * 8.0 / unloaded.transfer_us(big);
        assert!((rate(unloaded(paths, (0, 1), 2, Lead::Handshake)) / 200.0 - 1.0).abs() < 0.01);
        let tree = r#"{ "kind": "fat-tree", "k": 4, "rate": "100mbit", "delay": "1us" }"#;
        assert!((rate(unloaded(tree, (0, 15), 8, Lead::Handshake)) / 100.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn extreme_sizes_and_rates_do_not_overflow() {
        for rate in ["1kbit", "400gbit"] {
            let text = format!(r#"{{ "kind": "fat-tree", "k": 2, "rate": "{rate}", "delay": "1s" }}"#);
            let one = unloaded(&text, (0, 1), 1, Lead::Request(u64::MAX));
            for bytes in [0, 1, 1448, 1449, 2_000_000_000_000] {
                let us = one.transfer_us(bytes);
                assert!(us.is_finite() && us > 1e6, "{rate}, {bytes} B: {us} us");
            }
        }
    }
}
