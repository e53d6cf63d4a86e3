//! Metrics of tiers of links, and of links over time.

use super::entries::{COUNT, NUMBER};
use super::{Engines, Kind, Metric, Place, Span};
use crate::reduce::Reduce::By;
use crate::reduce::links;
use crate::unit::Unit;

const TIER: &[Place] = &[Place::Tier];
const OF_TIER: Metric = Metric { places: TIER, engines: Engines::Simulator, ..NUMBER };
const OVER_TIME: Metric =
    Metric { places: &[Place::Series], span: Span::Interval, engines: Engines::Simulator, ..NUMBER };

pub(super) const ALL: &[Metric] = &[
    Metric {
        name: "utilization",
        title: "utilization",
        meaning: "bytes that the tier's links sent, of their rates together, over the series' intervals within the window; \
                  absent where rates change meanwhile",
        reduce: By(links::utilization),
        ..OF_TIER
    },
    Metric {
        name: "queue_bytes",
        unit: Unit::Bytes,
        title: "queue",
        meaning: "bytes that wait at a port of the tier, the mean over its ports, at the end of each of the series' intervals",
        reduce: By(links::queue),
        ..Metric { kind: Kind::Distribution, ..OF_TIER }
    },
    Metric {
        name: "max_queue_bytes",
        unit: Unit::Bytes,
        title: "longest queue",
        meaning: "bytes that wait at the port of the tier where most do, at the end of each of the series' intervals",
        reduce: By(links::max_queue),
        ..Metric { kind: Kind::Distribution, ..OF_TIER }
    },
    Metric {
        name: "imbalance",
        title: "imbalance",
        meaning: "bytes of the tier's most used link less those of its least used one, over the mean of all (CONGA, SIGCOMM 2014, \
                  section 5), in each of the series' intervals: 0 where all carry the same",
        reduce: By(links::imbalance),
        ..Metric { kind: Kind::Distribution, ..OF_TIER }
    },
    Metric {
        name: "drops",
        places: TIER,
        engines: Engines::Simulator,
        title: "drops",
        meaning: "packets of all traffic that the tier's ports and links dropped",
        reduce: By(links::drops),
        ..COUNT
    },
    Metric {
        name: "marked_pkt",
        unit: Unit::Packets,
        span: Span::Run,
        title: "marked",
        meaning: "packets of all traffic that the tier's ports marked",
        reduce: By(links::marked),
        ..OF_TIER
    },
    Metric {
        name: "utilization",
        title: "utilization",
        meaning: "bytes sent in the interval, of the rate: of a tier's links together, or of a link (entities `tier.<from>-<to>` and, \
                  where there are at most 64 links, `link.<from>-<to>`)",
        ..OVER_TIME
    },
    Metric {
        name: "max_queue_bytes",
        unit: Unit::Bytes,
        title: "longest queue",
        meaning: "bytes that wait at the port of the tier where most do",
        ..OVER_TIME
    },
    Metric {
        name: "imbalance",
        title: "imbalance",
        meaning: "bytes of the tier's most used link less those of its least used one, over the mean of all, in the interval",
        ..OVER_TIME
    },
    Metric {
        name: "drops",
        places: &[Place::Series],
        span: Span::Interval,
        engines: Engines::Simulator,
        title: "drops",
        meaning: "packets of all traffic that a tier's links, or a link, dropped in the interval",
        ..COUNT
    },
    Metric {
        name: "marked_pkt",
        unit: Unit::Packets,
        title: "marked",
        meaning: "packets of all traffic that a tier's ports, or a link's port, marked in the interval",
        ..OVER_TIME
    },
];
