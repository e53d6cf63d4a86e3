//! Records of a run: counters, flow records, samples.

use super::config::ConnId;
use crate::time::{Span, Time};

/// Counters of one subflow's sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubflowCounters {
    /// Data packets sent, retransmissions included.
    pub sent: u64,
    /// Retransmissions.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Tail loss probes.
    pub probes: u32,
    /// Fast recoveries.
    pub recoveries: u32,
    /// Reductions after ECE.
    pub ecn_cuts: u32,
    /// ACKs that echoed congestion.
    pub ece_acks: u64,
    /// Timeouts that F-RTO, timestamps or duplicates showed to be spurious before the next window.
    pub spurious_timeouts: u32,
    /// Reductions taken back because timestamps or reported duplicates showed that nothing had been lost.
    pub undone: u32,
    /// Segments sent again on this subflow because another could not deliver them.
    pub reinjected: u64,
    /// Their payload.
    pub reinjected_bytes: u64,
}

/// Counters of one subflow's receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Data packets that arrived.
    pub packets: u64,
    /// Payload bytes that arrived for the first time on this subflow.
    pub bytes: u64,
    /// Packets that carried a CE mark.
    pub ce_marked: u64,
    /// Packets that had arrived on this subflow before.
    pub duplicates: u64,
    /// ACKs sent.
    pub acks: u64,
}

/// Reason for closing a subflow before its connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Its algorithm found that it shares a bottleneck with another.
    Shared,
    /// Nothing was acknowledged after many retransmissions, or nothing answered its SYN.
    Timeout,
    /// An event of the scenario closed it.
    Managed,
}

/// Record of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnRecord {
    /// Which connection.
    pub conn: ConnId,
    /// Time of the SYN.
    pub start: Time,
    /// Completion of the handshake; [`Time::NEVER`] if it never completed.
    pub established: Time,
    /// Arrival of the last byte at the receiver; [`Time::NEVER`] if it has not arrived.
    pub received: Time,
    /// Arrival of the last byte's acknowledgment at the sender; [`Time::NEVER`] if it has not arrived.
    pub acknowledged: Time,
    /// Payload bytes that the receiving application can have: in order in the connection's stream. What has
    /// arrived is in [`ReceiverCounters::bytes`].
    pub delivered_bytes: u64,
    /// Longest time without delivery, from the first one to the last or to when the application stops.
    pub stalled: Span,
    /// Time of the last delivery; [`Time::NEVER`] if there was none.
    pub delivered_at: Time,
    /// Most payload that waited for earlier data, in the queues of the connection and of its subflows, in full segments.
    pub held_bytes: u64,
    /// Requests answered (request-response only).
    pub responses: u32,
    /// Per subflow, in order of creation.
    pub subflows: Vec<SubflowRecord>,
}

impl ConnRecord {
    /// Retransmissions of all subflows.
    pub fn retransmits(&self) -> u64 {
        self.subflows.iter().map(|s| s.sender.retransmits).sum()
    }

    /// Payload that subflows sent because others had not delivered it.
    pub fn reinjected_bytes(&self) -> u64 {
        self.subflows.iter().map(|s| s.sender.reinjected_bytes).sum()
    }

    /// Timeouts of all subflows.
    pub fn timeouts(&self) -> u64 {
        self.subflows.iter().map(|s| u64::from(s.sender.timeouts)).sum()
    }
}

/// Both ends of one subflow, and where it ended up.
#[derive(Clone, Debug, PartialEq)]
pub struct SubflowRecord {
    /// The sender's counters.
    pub sender: SubflowCounters,
    /// The receiver's counters.
    pub receiver: ReceiverCounters,
    /// Window, in packets.
    pub cwnd_pkt: u32,
    /// Slow-start threshold, in packets.
    pub ssthresh_pkt: u32,
    /// Smoothed RTT in 1/8 us; 0 without a sample.
    pub srtt_8us: u32,
    /// True if it can carry data.
    pub established: bool,
    /// True if it has been established since it was last opened.
    pub opened: bool,
    /// Reason for its close, if it was closed.
    pub closed: Option<Closing>,
    /// Reason for each close before it was opened again.
    pub earlier: Vec<Closing>,
    /// Time of its close; [`Time::NEVER`] if it was not closed.
    pub closed_at: Time,
    /// The first times that losses or marks reduced its window.
    pub reduced_at: Vec<Time>,
    /// The words its algorithm publishes to siblings (for DCTCP-like ones the marked fraction).
    pub algorithm_words: [u64; 2],
}

/// A sample of one subflow of a traced connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Time,
    /// Which connection.
    pub conn: ConnId,
    /// Which subflow.
    pub subflow: u8,
    /// Window, in packets.
    pub cwnd_pkt: u32,
    /// Packets in flight.
    pub in_flight_pkt: u32,
    /// Smoothed RTT in 1/8 us.
    pub srtt_8us: u32,
    /// DCTCP's estimate of the marked fraction, of algorithms that have one.
    pub alpha: Option<f64>,
    /// Segments acknowledged on this subflow since it started.
    pub acked_pkt: u32,
    /// Retransmissions since it started.
    pub retransmits: u64,
}

/// One answered request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// Which connection carried the request.
    pub conn: ConnId,
    /// Time at which the request was written; of an object, time from which it was wanted.
    pub asked: Time,
    /// Time at which the whole response had been read.
    pub answered: Time,
    /// Bytes of the response.
    pub bytes: u64,
}
