//! Metrics of connections, subflows and hosts over their lives: reinjection, stalls, closed subflows, windows, off times.

use super::entries::{COUNT, DISTRIBUTION, NUMBER};
use super::{Engines, Metric, Place, Span};
use crate::observed::{Closed, End};
use crate::reduce::Reduce::{By, Sum};
use crate::reduce::{limits, off, waiting, windows};
use crate::unit::Unit;

const LIMITED: Metric = Metric { places: &[Place::Run, Place::Traffic], span: Span::Run, ..NUMBER };

const SUBFLOWS: Metric = Metric { places: &[Place::Run, Place::Path, Place::Traffic], ..COUNT };

pub(super) const ALL: &[Metric] = &[
    Metric {
        name: "reinjected_bytes",
        places: &[Place::Run, Place::Traffic],
        unit: Unit::Bytes,
        title: "reinjected",
        meaning: "payload that subflows sent because another subflow of their connection had not delivered it (kernels: what \
                  MPTCP counts as sent again, Linux 6.5 and later)",
        reduce: By(waiting::reinjected),
        ..COUNT
    },
    Metric {
        name: "stalled_us",
        places: &[Place::Run, Place::Traffic],
        unit: Unit::Microseconds,
        span: Span::Run,
        title: "longest stall",
        meaning: "of each connection that always has data, the longest time without delivery in order, from its first \
                  delivery (or, without any, its start) to its end or the run's (kernels: what the receiver's socket has, \
                  seen every 10 ms, so that up to 20 ms are missing and shorter stalls are 0; MPTCP from Linux 6.5 on)",
        reduce: By(waiting::stalled),
        ..DISTRIBUTION
    },
    Metric {
        name: "held_bytes",
        places: &[Place::Run, Place::Traffic],
        unit: Unit::Bytes,
        span: Span::Run,
        engines: Engines::Simulator,
        title: "held out of order",
        meaning: "of each connection, the most payload that waited at its receiver for earlier data, of the subflow or of the \
                  connection, in full segments (no kernel says it: it counts what arrived out of order, not how long it stays)",
        reduce: By(waiting::held),
        ..DISTRIBUTION
    },
    Metric {
        name: "cwnd_limited",
        title: "limited by congestion window",
        meaning: "share of the connections' time, from their handshake to their last acknowledgment or the run's end, in which \
                  they had more to send and only congestion windows or pacing held it; of requests and answers, the direction of \
                  the larger ones (kernels: what the three below leave; of MPTCP, sums over subflows; absent for QUIC and for \
                  connections whose client writes more than it reads)",
        reduce: By(limits::congestion),
        ..LIMITED
    },
    Metric {
        name: "rwnd_limited",
        title: "limited by receive window",
        meaning: "the same for the receiver's window (kernels: `tcpi_rwnd_limited`; of MPTCP a kernel does not say it: subflows \
                  that wait for the connection's window count as limited by the send buffer or the application)",
        reduce: By(limits::receive_window),
        ..LIMITED
    },
    Metric {
        name: "sndbuf_limited",
        title: "limited by send buffer",
        meaning: "the same for the send buffer: all that it holds was sent, the congestion window had room and the writer waited \
                  (kernels: `tcpi_sndbuf_limited`, which counts few of these times, or the share of samples with a full buffer if \
                  that is more)",
        reduce: By(limits::send_buffer),
        ..LIMITED
    },
    Metric {
        name: "app_limited",
        title: "limited by application",
        meaning: "the same without anything left to send while congestion windows had room (kernels: the time that is not in \
                  `tcpi_busy_time`, and of that the share of samples with room, less than a segment unsent and room in the send buffer)",
        reduce: By(limits::application),
        ..LIMITED
    },
    Metric {
        name: "subflows_opened",
        title: "subflows opened",
        meaning: "subflows of the measured traffic that were established, each as often as it was opened; of a plain TCP \
                  connection, the one",
        reduce: Sum(|subflow| Some(subflow.opened())),
        ..SUBFLOWS
    },
    Metric {
        name: "subflows_closed",
        title: "subflows closed",
        meaning: "opened subflows that were closed, for whatever reason, while their connection went on",
        reduce: Sum(|subflow| subflow.ended(|end| matches!(end, End::Closed(_)))),
        ..SUBFLOWS
    },
    Metric {
        name: "subflows_closed_guard",
        title: "closed for sharing a bottleneck",
        meaning: "subflows that were torn down at the sending host while their connection went on: their algorithm had found \
                  that they share a bottleneck",
        reduce: Sum(|subflow| subflow.ended(|end| end == End::Closed(Closed::Guard))),
        ..SUBFLOWS
    },
    Metric {
        name: "subflows_closed_timeout",
        title: "closed after timeouts",
        meaning: "subflows that were given up, because nothing was acknowledged any more, while their connection went on",
        reduce: Sum(|subflow| subflow.ended(|end| end == End::Closed(Closed::Timeout))),
        ..SUBFLOWS
    },
    Metric {
        name: "subflows_closed_reset",
        engines: Engines::Kernels,
        title: "reset",
        meaning: "subflows that the other end, or the network in its name, reset while their connection went on",
        reduce: Sum(|subflow| subflow.ended(|end| end == End::Closed(Closed::Reset))),
        ..SUBFLOWS
    },
    Metric {
        name: "subflows_closed_path_manager",
        title: "closed with their address",
        meaning: "subflows that were closed because the other end withdrew their address, or because an event closed them, while \
                  their connection went on",
        reduce: Sum(|subflow| subflow.ended(|end| end == End::Closed(Closed::PathManager))),
        ..SUBFLOWS
    },
    Metric {
        name: "subflows_closed_peer",
        engines: Engines::Kernels,
        title: "closed by the other end",
        meaning: "subflows that ended in order, without an error, while their connection went on: mostly by the other end",
        reduce: Sum(|subflow| subflow.ended(|end| end == End::Closed(Closed::Peer))),
        ..SUBFLOWS
    },
    Metric {
        name: "subflows_closed_end",
        title: "closed with their connection",
        meaning: "opened subflows that lasted as long as their connection, or to the end of the run; one that moved, on its \
                  last path",
        reduce: Sum(|subflow| subflow.ended(|end| end == End::WithConnection)),
        ..SUBFLOWS
    },
    Metric {
        name: "window_pkt",
        places: &[Place::Run, Place::Traffic],
        unit: Unit::Packets,
        title: "congestion window",
        meaning: "congestion windows of the measured subflows, one value of each at equal intervals",
        reduce: By(windows::of),
        ..DISTRIBUTION
    },
    Metric {
        name: "lia_alpha",
        places: &[Place::Run, Place::Traffic],
        unit: Unit::Count,
        title: "LIA's alpha",
        meaning: "what RFC 6356's alpha is, whatever the congestion control, for the windows and smoothed round-trip times of a \
                  connection's subflows at equal intervals; 1/n for n alike, more where they are not",
        reduce: By(windows::coupling),
        ..DISTRIBUTION
    },
    Metric {
        name: "reduction_gap_us",
        places: &[Place::Run, Place::Traffic],
        unit: Unit::Microseconds,
        engines: Engines::Simulator,
        title: "reductions apart",
        meaning: "of two subflows of a measured connection, from each reduction of the one that was reduced less often, by a loss \
                  or a mark, to the nearest of the other; without timeouts",
        reduce: By(windows::gaps),
        ..DISTRIBUTION
    },
    Metric {
        name: "vm_off_us",
        places: &[Place::Run, Place::Series],
        unit: Unit::Microseconds,
        span: Span::Run,
        title: "VM off time",
        meaning: "how long hosts were off their CPUs, each time (events `deschedule`; overlapping ones are one), to 1 %; on a \
                  kernel as the virtual machine itself notices by its clock, from 10 ms on",
        reduce: By(off::times),
        ..DISTRIBUTION
    },
    Metric {
        name: "vm_stopped_us",
        unit: Unit::Microseconds,
        span: Span::Run,
        engines: Engines::Kernels,
        title: "VM stopped",
        meaning: "for how long a virtual machine was stopped, each time, measured by what stopped it, to 1 %",
        reduce: By(off::stopped),
        ..DISTRIBUTION
    },
    Metric {
        name: "vm_off_total_us",
        unit: Unit::Microseconds,
        span: Span::Run,
        title: "VM off time in all",
        meaning: "how long hosts were off their CPUs in all, summed over those that events deschedule",
        reduce: By(off::total),
        ..NUMBER
    },
    Metric {
        name: "vm_off_lost",
        unit: Unit::Count,
        span: Span::Run,
        engines: Engines::Simulator,
        title: "packets that a VM missed",
        meaning: "packets that came while their host was off its CPU and its receive ring full (`ring` of events `deschedule`)",
        reduce: By(off::lost),
        ..NUMBER
    },
];
