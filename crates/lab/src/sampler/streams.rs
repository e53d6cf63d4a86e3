//! Connections as wholes, whichever subflow their data take: what their receivers' kernels have in order of the stream, and
//! what their senders' sent again on another subflow.

use crate::spec::{Flow, LabSpec, PREAMBLE_BYTES, Transport, flow_of};
use crate::topology::Topology;
use crate::{Error, Netns};
use std::collections::BTreeMap;
use vmcc_system::diag::{Diag, DiagError, MptcpDiag, Subflow};

/// Data about one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Delivery of its data, if the receiver's kernel reports it.
    pub(crate) delivery: Option<Delivery>,
    /// Payload that its sender sent again on another subflow, where that one's kernel tells.
    pub(crate) reinjected_bytes: Option<u64>,
}

/// By the flow, and the sender's port of the first subflow.
pub(crate) type Streams = BTreeMap<(usize, u16), Stream>;

/// Delivery of a connection's data, sampled now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    bytes: u64,
    /// Time at which `bytes` last grew, as sampled.
    grown_us: u64,
    /// Longest time from then to a moment at which there was not yet more: never longer than the stall was.
    pub(crate) stalled_us: u64,
}

impl Delivery {
    /// Of one that somebody else looked at.
    pub(crate) fn told(stalled_us: u64) -> Self {
        Self { stalled_us, ..Self::begin(0) }
    }

    fn begin(t_us: u64) -> Self {
        Self { bytes: 0, grown_us: t_us, stalled_us: 0 }
    }

    /// `bytes` have arrived so far, of which the first `preamble` are no data.
    fn note(&mut self, t_us: u64, bytes: u64, preamble: u64) {
        if bytes <= preamble.max(self.bytes) {
            self.stalled_us = self.stalled_us.max(t_us.saturating_sub(self.grown_us));
            return;
        }
        if self.bytes == 0 {
            // What was before is the wait for the first data.
            self.stalled_us = 0;
        }
        (self.bytes, self.grown_us) = (bytes, t_us);
    }
}

/// Reads the connections of a run's hosts.
pub(crate) struct Reader {
    /// Those of MPTCP; empty where there are none, or the kernel does not tell.
    senders: Vec<MptcpDiag>,
    receivers: Vec<MptcpDiag>,
    /// Receivers of plain TCP.
    plain: Vec<Diag>,
    streams: Streams,
}

impl Reader {
    pub(crate) fn open(topology: &Topology, spec: &LabSpec) -> Result<Self, Error> {
        let (senders, receivers) = topology.senders_and_receivers();
        let any = |plain: bool| {
            let of_kind = |flow: &&Flow| match flow.transport {
                Transport::Tcp { .. } => plain,
                Transport::Mptcp { .. } => !plain,
                Transport::Quic(_) => false,
            };
            spec.flows.iter().any(|flow| of_kind(&flow))
        };
        Ok(Self {
            senders: each(any(false), &senders, MptcpDiag::open)?,
            receivers: each(any(false), &receivers, MptcpDiag::open)?,
            plain: each(any(true), &receivers, Diag::open)?,
            streams: Streams::new(),
        })
    }

    /// Looks how far the receivers are.
    pub(crate) fn deliveries(&mut self, spec: &LabSpec, t_us: u64) -> Result<(), Error> {
        let mut seen = Vec::new();
        for end in &mut self.receivers {
            let Ok(connections) = end.connections() else {
                self.receivers.clear();
                break;
            };
            seen.extend(connections.iter().map(|c| (c.local.port(), c.remote.port(), c.received_bytes)));
        }
        for end in &mut self.plain {
            let sockets = end.subflows().map_err(|e| Error::diag(&e))?;
            let plain = sockets.iter().filter(|socket| socket.mptcp.is_none());
            seen.extend(plain.map(|s: &Subflow| (s.local.port(), s.remote.port(), Some(s.bytes_received))));
        }
        for (own, peer, bytes) in seen {
            let flow = flow_of(own).and_then(|index| Some((index, spec.flows.get(index)?)));
            let (Some((index, flow)), Some(bytes)) = (flow, bytes) else { continue };
            if t_us <= flow.stop.get() / 1_000 {
                let stream = self.streams.entry((index, peer)).or_default();
                let delivery = stream.delivery.get_or_insert(Delivery::begin(t_us));
                delivery.note(t_us, bytes, PREAMBLE_BYTES);
            }
        }
        Ok(())
    }

    /// Asks the senders what was sent again.
    pub(crate) fn reinjections(&mut self) {
        for end in &mut self.senders {
            let Ok(connections) = end.connections() else {
                self.senders.clear();
                return;
            };
            for connection in connections {
                let Some(flow) = flow_of(connection.remote.port()) else { continue };
                let stream = self.streams.entry((flow, connection.local.port())).or_default();
                stream.reinjected_bytes = connection.retransmitted_bytes;
            }
        }
    }

    pub(crate) fn finish(self) -> Streams {
        self.streams
    }
}

/// Opens one in each namespace, if any is wanted.
fn each<T: Send + 'static>(
    wanted: bool,
    namespaces: &[&Netns],
    open: fn() -> Result<T, DiagError>,
) -> Result<Vec<T>, Error> {
    let wanted = namespaces.iter().filter(|_| wanted);
    wanted.map(|namespace| namespace.run(open).map_err(|e| Error::diag(&e))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalled(seen: &[(u64, u64)]) -> u64 {
        let mut delivery = Delivery::begin(seen[0].0);
        seen.iter().for_each(|(t_us, bytes)| delivery.note(*t_us, *bytes, 37));
        delivery.stalled_us
    }

    #[test]
    fn stall_length_is_never_overestimated() {
        assert_eq!(stalled(&[(0, 100), (10, 200), (20, 300)]), 0, "it never stood");
        // From somewhere before 10 to somewhere after 40.
        assert_eq!(stalled(&[(0, 100), (10, 200), (20, 200), (40, 200), (50, 300)]), 30);
        assert_eq!(stalled(&[(0, 100), (10, 200), (20, 200), (30, 300), (90, 300)]), 60, "to the end");
    }

    #[test]
    fn wait_for_the_first_data_is_no_stall_unless_none_arrives() {
        assert_eq!(stalled(&[(0, 0), (10, 37), (50, 37), (60, 1_000), (70, 2_000)]), 0);
        assert_eq!(stalled(&[(0, 0), (10, 37), (50, 37)]), 50);
    }
}
