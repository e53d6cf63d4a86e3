//! Metrics of connections (columns of `flows.parquet`) and over time (values of `series.parquet`).

use super::entries::NUMBER;
use super::{Engines, Kind, Metric, Place, Span};
use crate::reduce::Reduce::Mean;
use crate::unit::Unit;

const OF_FLOW: Metric = Metric { places: &[Place::Flow], span: Span::Life, ..NUMBER };
const OVER_TIME: Metric = Metric { places: &[Place::Series], span: Span::Interval, ..NUMBER };

pub(super) const ALL: &[Metric] = &[
    Metric {
        name: "goodput_bps",
        title: "goodput",
        unit: Unit::BitsPerSecond,
        shown: &[("", "Goodput per flow")],
        meaning: "delivered payload times 8 per second: of a transfer over its life, of an endless connection or one that \
                  carries requests over its entry's time within the window",
        ..OF_FLOW
    },
    Metric {
        name: "fct_us",
        unit: Unit::Microseconds,
        engines: Engines::All,
        title: "flow completion time",
        shown: &[("", "Flow completion time")],
        meaning: "completion time of a completed transfer or request",
        ..OF_FLOW
    },
    Metric {
        name: "ideal_us",
        unit: Unit::Microseconds,
        title: "time on the empty network",
        meaning: "time of the same transfer or request when nothing else is on the network: a round trip for the handshake (of a \
                  request, its way), then propagation and serialization of all packets, headers included, over all its paths \
                  together; no slow start and no losses; rates and delays as the run starts",
        ..OF_FLOW
    },
    Metric {
        name: "slowdown",
        title: "slowdown",
        shown: &[("", "Slowdown")],
        meaning: "completion time over `ideal_us`, of a completed transfer or request",
        ..OF_FLOW
    },
    Metric {
        name: "rtt_mean_us",
        unit: Unit::Microseconds,
        span: Span::Window,
        title: "mean RTT",
        shown: &[("", "Mean RTT per flow")],
        meaning: "mean of the connection's round-trip times within the window",
        ..OF_FLOW
    },
    Metric {
        name: "rtt_p50_us",
        unit: Unit::Microseconds,
        span: Span::Window,
        title: "median RTT",
        meaning: "median of the connection's round-trip times within the window",
        ..OF_FLOW
    },
    Metric {
        name: "rtt_p99_us",
        unit: Unit::Microseconds,
        span: Span::Window,
        title: "99th percentile of the RTT",
        meaning: "99th percentile of the connection's round-trip times within the window",
        ..OF_FLOW
    },
    Metric {
        name: "delivered_bytes",
        unit: Unit::Bytes,
        title: "delivered",
        meaning: "payload that the receiving application got in order",
        ..OF_FLOW
    },
    Metric {
        name: "subflows",
        unit: Unit::Count,
        kind: Kind::Count,
        title: "subflows",
        meaning: "subflows that were established",
        ..OF_FLOW
    },
    Metric {
        name: "retransmits",
        unit: Unit::Count,
        kind: Kind::Count,
        title: "retransmits",
        meaning: "data segments that its subflows sent again",
        ..OF_FLOW
    },
    Metric {
        name: "timeouts",
        unit: Unit::Count,
        kind: Kind::Count,
        title: "timeouts",
        meaning: "retransmission timeouts of its subflows",
        ..OF_FLOW
    },
    Metric {
        name: "ce_marks",
        unit: Unit::Count,
        kind: Kind::Count,
        title: "CE marks",
        meaning: "its packets that arrived with congestion experienced",
        ..OF_FLOW
    },
    Metric {
        name: "goodput_bps",
        unit: Unit::BitsPerSecond,
        title: "goodput",
        meaning: "of a path, what the subflows of the measured traffic carried; of an entry of traffic, what its \
                  applications got in order",
        ..OVER_TIME
    },
    Metric {
        name: "srtt_us",
        unit: Unit::Microseconds,
        title: "smoothed RTT",
        meaning: "of a path, the mean over the measured subflows on it; of a subflow of few, its own",
        reduce: Mean(|sample| Some(f64::from(sample.srtt_8us) / 8.0)),
        ..OVER_TIME
    },
    Metric {
        name: "cwnd_pkt",
        unit: Unit::Packets,
        title: "congestion window",
        meaning: "of a path, the mean over the measured subflows on it; of a subflow of few, its own",
        reduce: Mean(|sample| Some(f64::from(sample.cwnd_pkt))),
        ..OVER_TIME
    },
    Metric {
        name: "probe_rtt_us",
        unit: Unit::Microseconds,
        title: "RTT of probes",
        meaning: "of a path, the mean over the measured probes that left on it and were answered; where paths have no names, of \
                  an entry of traffic",
        ..OVER_TIME
    },
    Metric {
        name: "alpha",
        title: "DCTCP's alpha",
        meaning: "the sender's estimate of the fraction of its packets that are marked, under vmcc's algorithms that keep one \
                  as DCTCP does (`dctcp`, `vmcc`): of a path, the mean over the measured subflows on it; of a subflow of few, its own",
        reduce: Mean(|sample| sample.alpha),
        ..OVER_TIME
    },
    Metric {
        name: "queue_bytes",
        unit: Unit::Bytes,
        title: "queue",
        meaning: "bytes that wait at the port that stands for a path, in one of its queues (entity path.queue), or at the ports of a tier, the \
                  mean, or of a link",
        ..OVER_TIME
    },
    Metric {
        name: "threshold_bytes",
        unit: Unit::Bytes,
        title: "marking threshold",
        meaning: "backlog from which on a queue marks (entity path.queue)",
        ..OVER_TIME
    },
];
