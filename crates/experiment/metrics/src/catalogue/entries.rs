//! Metrics of runs, paths and entries of traffic, except those of [`super::lives`]. Their order is the order of tables.

use super::{Engines, Kind, Metric, Place, Span};
use crate::reduce::Reduce::{self, By, Sum};
use crate::reduce::{energy, goodput, ports, probes, rtt, transfers};
use crate::unit::Unit;

/// Defaults of an entry; each entry overrides what differs.
pub(super) const NUMBER: Metric = Metric {
    name: "",
    places: &[Place::Run],
    unit: Unit::Ratio,
    kind: Kind::Number,
    span: Span::Window,
    engines: Engines::All,
    title: "",
    shown: &[],
    meaning: "",
    reduce: Reduce::There,
};
pub(super) const COUNT: Metric = Metric { unit: Unit::Count, kind: Kind::Count, span: Span::Run, ..NUMBER };
pub(super) const DISTRIBUTION: Metric = Metric { kind: Kind::Distribution, ..NUMBER };
const RATE: Metric = Metric { unit: Unit::BitsPerSecond, ..NUMBER };

pub(super) const ALL: &[Metric] = &[
    Metric {
        name: "goodput_bps",
        places: &[Place::Run, Place::Traffic],
        title: "goodput",
        shown: &[("", "goodput")],
        meaning: "payload that receiving applications got in order, times 8, per second: of the measured traffic \
                  over the window, of an entry over its own time within the window",
        reduce: By(goodput::of),
        ..RATE
    },
    Metric {
        name: "goodput_bps",
        places: &[Place::Path],
        title: "goodput",
        shown: &[("", "path *")],
        meaning: "payload that the path's subflows of the measured traffic carried, each byte once per subflow, times \
                  8, per second; what MPTCP sends again on another path counts on both",
        reduce: By(goodput::of_path),
        ..RATE
    },
    Metric {
        name: "competing_goodput_bps",
        title: "competing goodput",
        shown: &[("", "competing")],
        meaning: "the goodput of competing traffic, each entry over its own time within the window",
        reduce: By(goodput::competing),
        ..RATE
    },
    Metric {
        name: "competing_share",
        title: "competing share",
        shown: &[("", "share left")],
        meaning: "what competing traffic carried of all that its paths carried, from its first start to its last stop \
                  within the window; the mean over paths that have some",
        reduce: By(goodput::competing_share),
        ..NUMBER
    },
    Metric {
        name: "rtt_us",
        places: &[Place::Run, Place::Path, Place::Traffic],
        unit: Unit::Microseconds,
        title: "RTT",
        shown: &[("p50", "RTT p50"), ("p99", "RTT p99")],
        meaning: "smoothed RTTs, sampled at equal intervals on each subflow that makes progress; of runs and entries, those \
                  of endless connections, or where there are none, of all connections (on the simulator then every RTT \
                  sample)",
        reduce: By(rtt::of),
        ..DISTRIBUTION
    },
    Metric {
        name: "probe_rtt_us",
        places: &[Place::Run, Place::Path, Place::Traffic],
        unit: Unit::Microseconds,
        title: "RTT of probes",
        shown: &[("p50", "probe RTT p50"), ("p99", "probe RTT p99")],
        meaning: "from a probe's leaving to its answer's arrival: every probe of the measured traffic that was sent within \
                  the window and answered in time",
        reduce: By(probes::rtt),
        ..DISTRIBUTION
    },
    Metric {
        name: "probe_loss",
        places: &[Place::Run, Place::Path, Place::Traffic],
        title: "loss of probes",
        shown: &[("", "probe loss")],
        meaning: "probes that no answer came to in time, of those sent within the window at least a `timeout` before the run's \
                  end",
        reduce: By(probes::loss),
        ..NUMBER
    },
    Metric {
        name: "probe_marked",
        places: &[Place::Run, Place::Path, Place::Traffic],
        engines: Engines::Simulator,
        title: "marks of probes",
        meaning: "answered probes that had arrived with congestion experienced, of those sent within the window",
        reduce: By(probes::marked),
        ..NUMBER
    },
    Metric {
        name: "fct_us",
        places: &[Place::Run, Place::Traffic, Place::Size],
        unit: Unit::Microseconds,
        engines: Engines::All,
        title: "flow completion time",
        shown: &[("p50", "FCT p50"), ("p99", "FCT p99")],
        meaning: "completion times of sized transfers and requests begun within the window: from the first SYN to the \
                  last byte at the receiver, of requests, from their arrival, to the whole answer (kernels: of files, to the \
                  server's answer)",
        reduce: By(transfers::completion_times),
        ..DISTRIBUTION
    },
    Metric {
        name: "requests_per_s",
        places: &[Place::Run, Place::Traffic],
        unit: Unit::PerSecond,
        title: "requests",
        shown: &[("", "requests")],
        meaning: "answered requests of `request-response` and of `kept_connections` per second over the entry's time within \
                  the window (kernels: what `request-response` programs count over their whole run, as are their `fct_us`)",
        reduce: By(transfers::requests_per_s),
        ..NUMBER
    },
    Metric {
        name: "slowdown",
        places: &[Place::Run, Place::Traffic, Place::Size],
        title: "slowdown",
        shown: &[("p50", "slowdown p50"), ("p99", "slowdown p99")],
        meaning: "completion time over the time of the same transfer or request on the empty network (`ideal_us` of \
                  `flows.parquet`), of those that `fct_us` counts",
        reduce: By(transfers::slowdowns),
        ..DISTRIBUTION
    },
    Metric {
        name: "flow_goodput_bps",
        unit: Unit::BitsPerSecond,
        title: "goodput of connections",
        meaning: "goodput of single measured connections: of endless ones over their entry's time within the window, or, \
                  where there are none, of completed transfers begun within it over their completion time and of \
                  connections that carry requests over their entry's time within it",
        reduce: By(goodput::of_connections),
        ..DISTRIBUTION
    },
    Metric {
        name: "jain",
        title: "Jain index",
        shown: &[("", "Jain index")],
        meaning: "Jain's fairness index over the goodput of connections (`flow_goodput_bps`), 1/n to 1",
        reduce: By(goodput::jain),
        ..NUMBER
    },
    Metric {
        name: "tenant_jain",
        title: "Jain index of hosts",
        meaning: "Jain's fairness index over what each host that sends without end got, competing ones included",
        reduce: By(goodput::tenant_jain),
        ..NUMBER
    },
    Metric {
        name: "established",
        title: "established",
        shown: &[("", "established")],
        meaning: "measured connections whose handshake completed",
        reduce: By(transfers::established),
        ..COUNT
    },
    Metric {
        name: "completed",
        places: &[Place::Run, Place::Traffic],
        engines: Engines::All,
        title: "completed",
        shown: &[("", "completed")],
        meaning: "sized transfers and requests that completed",
        reduce: By(transfers::completed),
        ..COUNT
    },
    Metric {
        name: "unfinished",
        span: Span::Window,
        engines: Engines::All,
        title: "unfinished",
        meaning: "sized transfers and requests begun within the window that had not completed at its end, whether or not their \
                  connection had been established: completion times are without them (kernels: `redis-benchmark` that is cut off \
                  counts all its requests, as it reports none)",
        reduce: By(transfers::unfinished),
        ..COUNT
    },
    Metric {
        name: "unfinished_share",
        places: &[Place::Run, Place::Traffic, Place::Size],
        title: "share unfinished",
        shown: &[("", "unfinished")],
        meaning: "`unfinished` transfers and requests of all that began within the window: the part that completion times and \
                  slowdowns leave out",
        reduce: By(transfers::unfinished_share),
        ..NUMBER
    },
    Metric {
        name: "retransmits",
        places: &[Place::Run, Place::Path, Place::Traffic],
        title: "retransmits",
        shown: &[("", "retransmits")],
        meaning: "data segments that a subflow sent again; what MPTCP sends again on another subflow is new there",
        reduce: Sum(|subflow| subflow.counters.retransmits),
        ..COUNT
    },
    Metric {
        name: "timeouts",
        title: "timeouts",
        shown: &[("", "timeouts")],
        meaning: "retransmission timeouts of the measured traffic (kernels: Linux 6.7 and later)",
        reduce: Sum(|subflow| subflow.counters.timeouts),
        ..COUNT
    },
    Metric {
        name: "undone",
        places: &[Place::Run, Place::Path, Place::Traffic],
        engines: Engines::Simulator,
        title: "reductions undone",
        meaning: "recoveries and timeouts that were taken back, because timestamps, duplicates that the receiver reported or \
                  F-RTO showed that nothing had been lost (a kernel counts them per namespace, for all its connections: \
                  `nstat TcpExtTCPFullUndo TcpExtTCPPartialUndo TcpExtTCPDSACKUndo TcpExtTCPLossUndo`)",
        reduce: Sum(|subflow| subflow.counters.undone),
        ..COUNT
    },
    Metric {
        name: "ce_marks",
        places: &[Place::Run, Place::Path],
        title: "CE marks",
        shown: &[("", "CE marks")],
        meaning: "packets of the measured traffic that arrived with congestion experienced (kernels: Linux 6.18 and later)",
        reduce: Sum(|subflow| subflow.counters.ce_marks),
        ..COUNT
    },
    Metric {
        name: "drops",
        places: &[Place::Run, Place::Path],
        title: "drops",
        shown: &[("", "drops")],
        meaning: "packets of all traffic that queues and links dropped (kernels: queues of ports that carry data, so neither \
                  a link's losses nor ports that carry only acknowledgments)",
        reduce: By(ports::drops),
        ..COUNT
    },
    Metric {
        name: "marked_pkt",
        places: &[Place::Path],
        unit: Unit::Packets,
        span: Span::Run,
        title: "marked",
        meaning: "packets of all traffic that the path's queues marked, whether they arrived or were dropped later \
                  (kernels: absent where none of them marks)",
        reduce: By(ports::marked),
        ..NUMBER
    },
    Metric {
        name: "ce_marks",
        places: &[Place::Class],
        engines: Engines::Kernels,
        title: "CE marks",
        meaning: "packets of all traffic that this queue marked",
        reduce: By(ports::marks),
        ..COUNT
    },
    Metric {
        name: "drops",
        places: &[Place::Class],
        engines: Engines::Kernels,
        title: "drops",
        meaning: "packets of all traffic that this queue dropped",
        reduce: By(ports::drops),
        ..COUNT
    },
    Metric {
        name: "queue_bytes",
        places: &[Place::Path, Place::Class],
        unit: Unit::Bytes,
        title: "queue",
        meaning: "bytes of all traffic that wait at the port that stands for the path, at equal intervals",
        reduce: By(ports::queue),
        ..DISTRIBUTION
    },
    Metric {
        name: "threshold_bytes",
        places: &[Place::Class],
        unit: Unit::Bytes,
        title: "marking threshold",
        meaning: "backlog from which on the queue marked, at equal intervals",
        reduce: By(ports::threshold),
        ..DISTRIBUTION
    },
    Metric {
        name: "share_while_loaded",
        places: &[Place::Path],
        title: "share while others send",
        meaning: "what the path carried of all that measured traffic sent over paths, in those parts of the window (cut at \
                  the series' interval) in which competing traffic arrived somewhere; absent without any such part",
        reduce: By(goodput::share_while_loaded),
        ..NUMBER
    },
    Metric {
        name: "share_while_free",
        places: &[Place::Path],
        title: "share while no other sends",
        meaning: "the same in those parts in which no competing traffic arrived; absent where there is none at all",
        reduce: By(goodput::share_while_free),
        ..NUMBER
    },
    Metric {
        name: "utilization",
        places: &[Place::Path],
        title: "utilization",
        meaning: "what the port that stands for the path sent, of its rate; absent where the rate changes meanwhile",
        reduce: By(ports::utilization),
        ..NUMBER
    },
    Metric {
        name: "not_ect_pkt",
        places: &[Place::Path],
        unit: Unit::Packets,
        kind: Kind::Number,
        span: Span::Run,
        engines: Engines::Kernels,
        title: "not ECN-capable",
        meaning: "packets of all traffic that met a queue above its threshold and could not be marked",
        reduce: By(ports::not_ect),
        ..NUMBER
    },
    Metric {
        name: "echoed_ce_pkt",
        unit: Unit::Packets,
        span: Span::Run,
        engines: Engines::Kernels,
        title: "echoed marks",
        meaning: "measured packets whose ACK echoed congestion: more than arrived with it where the receiver repeats the \
                  echo until it is answered (RFC 3168)",
        reduce: Sum(|subflow| subflow.counters.echoed_ce),
        ..NUMBER
    },
    Metric {
        name: "cpu_s_per_gb",
        unit: Unit::SecondsPerGigabyte,
        engines: Engines::Kernels,
        title: "CPU seconds per gigabyte",
        shown: &[("", "CPU s/GB")],
        meaning: "CPU seconds of the whole host over gigabytes (10^9 B) that all traffic delivered",
        reduce: By(energy::cpu_s_per_gb),
        ..NUMBER
    },
    Metric {
        name: "modelled_j_per_gb",
        unit: Unit::JoulesPerGigabyte,
        title: "modelled joules per gigabyte",
        meaning: "a model, not a measurement: 50 W until the last transfer is done, or to the end of the run, and 40 µJ for \
                  each full segment that was delivered or sent again, over gigabytes (10^9 B) that all connections \
                  delivered in the whole run",
        span: Span::Run,
        reduce: By(energy::modelled_j_per_gb),
        ..NUMBER
    },
    Metric {
        name: "package_j_per_gb",
        unit: Unit::JoulesPerGigabyte,
        engines: Engines::Counters,
        title: "package joules per gigabyte",
        meaning: "joules of all processor packages of the host, read from RAPL, over gigabytes (10^9 B) that all traffic \
                  delivered",
        reduce: By(energy::package_j_per_gb),
        ..NUMBER
    },
    Metric {
        name: "dram_j_per_gb",
        unit: Unit::JoulesPerGigabyte,
        engines: Engines::Counters,
        title: "memory joules per gigabyte",
        meaning: "joules of the host's memory, read from RAPL, over gigabytes (10^9 B) that all traffic delivered",
        reduce: By(energy::dram_j_per_gb),
        ..NUMBER
    },
    Metric {
        name: "instructions_per_byte",
        unit: Unit::PerByte,
        engines: Engines::Counters,
        title: "instructions per byte, a proxy for energy",
        meaning: "a proxy for energy, not a measurement of it: instructions that all processors of the host executed, counted by \
                  themselves, over bytes that all traffic delivered",
        reduce: By(energy::instructions_per_byte),
        ..NUMBER
    },
];
