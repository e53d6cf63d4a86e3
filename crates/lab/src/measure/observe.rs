//! Observations of a run: connections, samples and ports, from which [`vmcc_metrics`] computes figures.

use super::{Descheduled, Observed as Seen, Transferred};
use crate::ports::PortRecord;
use crate::sampler::{ClassPoint, Fates, Limits, Point, Track};
use crate::spec::{self, Flow, LabSpec, OfPaths, Role, Transport};
use crate::workload::{Fetched, Report, Request};
use hdrhistogram::Histogram;
use std::collections::BTreeSet;
use std::sync::Arc;
use vmcc_metrics::observed::{
    Answers, Class, Connection, Counters, End, Entry, Job, LimitedTimes, Moment, Observed, Off, Part, Path,
    Probe, Response, Sample, Subflow,
};
use vmcc_port::ClassStats;
use vmcc_units::Nanos;

pub(super) fn observe(spec: &LabSpec, seen: &Seen, transfers: &[Transferred<'_>]) -> Observed {
    let paths: Vec<Path> = (0..spec.paths.len()).map(|path| path_of(spec, seen, path)).collect();
    let all_classes = seen.ports.iter().flat_map(|port| &port.stats.classes);
    Observed {
        window: (moment(spec.warmup), moment(spec.duration)),
        interval_ps: moment(spec.series_interval).0,
        entries: entries(spec, transfers),
        dropped_pkt: (!seen.ports.is_empty()).then(|| all_classes.map(dropped).sum()),
        paths,
        connections: transfers
            .iter()
            .filter(is_connection)
            .map(|transfer| connection(spec, &seen.samples.fates, transfer))
            .collect(),
        responses: responses(transfers),
        answers: answers(spec, seen),
        probes: probes(spec, seen),
        parts: parts(spec, transfers),
        parts_per_interval: true,
        cpu_s: seen.cpu_s,
        energy: seen.energy,
        instructions: seen.instructions,
        links: Vec::new(),
        rtts: Vec::new(),
        off: seen.absent.iter().map(|absent| off(spec, absent)).collect(),
    }
}

fn is_connection(transfer: &&Transferred<'_>) -> bool {
    !transfer.flow.job.is_datagrams()
}

/// Responses on connections that stay open.
fn responses(transfers: &[Transferred<'_>]) -> Vec<Response> {
    let of_connection = |(connection, transfer): (usize, &Transferred<'_>)| {
        let after_start = |seconds: f64| Moment(Moment::from_us(transfer.started_us).0 + ps(seconds));
        let one = |fetched: &Fetched| Response {
            connection,
            asked: after_start(fetched.wanted_s),
            answered: fetched.took_s.map(|took_s| after_start(fetched.wanted_s + took_s)),
            bytes: fetched.bytes,
        };
        transfer.connection.fetched.iter().map(one).collect::<Vec<_>>()
    };
    let connections = transfers.iter().filter(is_connection).enumerate();
    let mut responses: Vec<Response> = connections.flat_map(of_connection).collect();
    responses.sort_by_key(|response| (response.answered.is_none(), response.answered, response.asked));
    responses
}

/// Requests that programs counted.
fn answers(spec: &LabSpec, seen: &Seen) -> Vec<Answers> {
    let of_flow = |(flow, report): (&Flow, &Report)| {
        let answers = report.answers.clone()?;
        Some(Answers {
            entry: entry_of(spec, flow),
            answered: answers.answered,
            secs: answers.secs,
            latencies_ns: answers.latencies_ns,
            unfinished: answers.unfinished,
        })
    };
    spec.flows.iter().zip(&seen.reports).filter_map(of_flow).collect()
}

/// Times off of a virtual machine: those that it noticed, and those for which it was stopped.
fn off(spec: &LabSpec, absent: &Descheduled) -> Off {
    let lengths_us = absent.noticed_us.iter().map(|(_, length)| *length);
    let stopped =
        histogram(absent.stopped.iter().map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    let times = absent.noticed_us.iter().take(Off::MAX_KEPT);
    Off {
        host: spec.hosts[absent.host].clone(),
        total_us: lengths_us.clone().sum::<u64>() as f64,
        lengths_ns: histogram(lengths_us.map(|us| us.saturating_mul(1_000))),
        times: times.map(|(at, length)| (Moment::from_us(*at), *length as f64)).collect(),
        stopped_ns: Some(stopped),
        lost_pkt: None,
    }
}

/// To 1 %, as the simulator's.
fn histogram(lengths_ns: impl Iterator<Item = u64>) -> Histogram<u64> {
    // The precision is a constant that the constructor accepts; it grows with the lengths.
    let mut histogram = Histogram::new(2).expect("a valid precision");
    for length in lengths_ns {
        let _ = histogram.record(length);
    }
    histogram
}

fn moment(time: Nanos) -> Moment {
    Moment(time.get().saturating_mul(1_000))
}

/// Each entry of traffic once, in the scenario's order.
pub(crate) fn labels(spec: &LabSpec) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for flow in &spec.flows {
        if !labels.contains(&flow.label.as_str()) {
            labels.push(&flow.label);
        }
    }
    labels
}

fn entries(spec: &LabSpec, transfers: &[Transferred<'_>]) -> Vec<Entry> {
    let window = (moment(spec.warmup), moment(spec.duration));
    let of = |label: &str| {
        let flows = || spec.flows.iter().filter(|flow| flow.label == label);
        let datagrams = transfers.iter().filter(|one| one.flow.label == label && one.flow.job.is_datagrams());
        Entry {
            datagram_bytes: datagrams.map(|one| one.bytes_within(window.0, window.1)).sum(),
            label: label.to_owned(),
            competing: flows().all(|flow| flow.role == Role::Competing),
            start: flows().map(|flow| moment(flow.start)).min().unwrap_or_default(),
            stop: flows().map(|flow| moment(flow.stop)).max().unwrap_or_default(),
            probes: flows().all(|flow| flow.job.is_probes()),
        }
    };
    labels(spec).into_iter().map(of).collect()
}

fn probes(spec: &LabSpec, seen: &Seen) -> Vec<Probe> {
    let flows = spec.flows.iter().zip(&seen.reports).zip(&seen.started_us);
    let of_flow = |((flow, report), started_us): ((_, &Report), &u64)| {
        let flow: &Flow = flow;
        let spec::Job::Probes(probing) = &flow.job else { return Vec::new() };
        let path = spec.paths_of(flow).get(flow.first_subnet()).copied();
        let probe = |request: &Request| {
            let sent = Moment(Moment::from_us(*started_us).0 + ps(request.sent_s));
            Probe {
                entry: entry_of(spec, flow),
                path: path.filter(|path| *path < spec.paths.len()),
                sent,
                answered: request.took_s.map(|took_s| Moment(sent.0 + ps(took_s))),
                marked: None,
                due: sent.0 + moment(probing.timeout).0 <= moment(spec.duration).0,
            }
        };
        report.requests.iter().map(probe).collect()
    };
    flows.flat_map(of_flow).collect()
}

fn ps(seconds: f64) -> u64 {
    (seconds * 1e12) as u64
}

fn entry_of(spec: &LabSpec, flow: &Flow) -> usize {
    labels(spec).iter().position(|label| *label == flow.label).unwrap_or(0)
}

fn connection(spec: &LabSpec, fates: &Fates, transfer: &Transferred<'_>) -> Connection {
    let flow = transfer.flow;
    let whole = (Moment::default(), Moment(u64::MAX));
    let start = Moment::from_us(transfer.started_us);
    let (job, waits_by_itself) = match &flow.job {
        spec::Job::Bulk { writes_at } => (Job::Endless, writes_at.is_some()),
        // Nobody saw exactly when it ended.
        spec::Job::Sized { size, .. } | spec::Job::Chunks { size } | spec::Job::Transfer { size, .. } => {
            (Job::Transfer(size.get()), true)
        }
        spec::Job::Objects { kept: true, .. } | spec::Job::Requests(_) => (Job::Requests, true),
        spec::Job::Objects { .. } => (Job::Transfer(transfer.connection.size.unwrap_or(0)), true),
        spec::Job::Datagrams { .. } | spec::Job::Generated(_) | spec::Job::Probes(_) => (Job::Endless, true),
    };
    Connection {
        entry: entry_of(spec, flow),
        sender: flow.from,
        from: spec.hosts[flow.from].as_str().into(),
        to: spec.hosts[flow.to].as_str().into(),
        cc: flow.cc.name().into(),
        job,
        start,
        stop: moment(flow.stop),
        unloaded: flow.unloaded.map(Arc::new),
        // The program reports connections that it has, and those that it tried.
        established: transfer.connection.port != 0,
        received: transfer.connection.took_s.map(|took_s| Moment(start.0 + ps(took_s))),
        delivered_bytes: transfer.bytes_within(whole.0, whole.1) as u64,
        window_bytes: transfer.bytes_within(moment(spec.warmup), moment(spec.duration)),
        rtts: None,
        // One that writes at a rate pauses by itself.
        stalled_us: transfer
            .stream
            .delivery
            .filter(|_| !waits_by_itself)
            .map(|delivery| delivery.stalled_us as f64),
        reinjected_bytes: match &flow.transport {
            Transport::Tcp { .. } => Some(0),
            Transport::Quic(_) => None,
            Transport::Mptcp { .. } => transfer.stream.reinjected_bytes,
        },
        limits: limits(transfer),
        held_bytes: None,
        subflows: subflows(spec, fates, transfer),
    }
}

/// Limits of all sockets of a connection together; `None` if they received more payload than they sent: the limits of that
/// direction are those of its sender, which is not sampled.
fn limits(transfer: &Transferred<'_>) -> Option<LimitedTimes> {
    let all: Option<Vec<&Limits>> = transfer.tracks.iter().map(|track| track.limits.as_ref()).collect();
    let all = all?;
    let sums = all
        .iter()
        .map(|limits| limits.payload_bytes())
        .fold((0, 0), |(sent, received), (out, back)| (sent + out, received + back));
    let times = all.into_iter().map(Limits::times).reduce(LimitedTimes::plus);
    times.filter(|_| sums.0 >= sums.1)
}

/// A socket whose vNIC moves has several tracks: it is opened by the first, and closed by the last.
fn subflows(spec: &LabSpec, fates: &Fates, transfer: &Transferred<'_>) -> Vec<Subflow> {
    let sockets: BTreeSet<usize> = transfer.tracks.iter().map(|track| track.socket).collect();
    let number = |track: &Track| sockets.range(..track.socket).count();
    let one = |(at, track): (usize, &&Track)| {
        let is_its_own = |other: &&Track| other.socket == track.socket;
        let continues = transfer.tracks[..at].iter().any(is_its_own);
        let goes_on = transfer.tracks[at + 1..].iter().any(is_its_own);
        let fate = track.ends.map(|ends| (fates.of(ends), fates.end(ends)));
        let (fate, end) = fate.unwrap_or_default();
        let end = if transfer.flow.quic().is_some() { told(track) } else { end };
        let seen = subflow(spec, track, number(track));
        Subflow {
            established: seen.established || fate.opened,
            continues,
            end: if goes_on && end != End::Unseen { End::Moved } else { end },
            ..seen
        }
    };
    transfer.tracks.iter().enumerate().map(one).collect()
}

/// End of a path, as reported by its program.
fn told(track: &Track) -> End {
    track.closed.map_or(End::WithConnection, |(_, why)| End::Closed(why))
}

fn subflow(spec: &LabSpec, track: &Track, number: usize) -> Subflow {
    let most = |of: fn(&Point) -> u32| track.points.iter().map(of).max().map(u64::from);
    Subflow {
        number,
        path: Some(track.path).filter(|path| *path < spec.paths.len()),
        // A refused subflow shows up as a socket, too; the handshake counts as one byte.
        established: track.points.last().is_some_and(|point| point.bytes_acked > 1),
        counters: Counters {
            retransmits: most(|point| point.retransmits).or(Some(0)),
            timeouts: track.timeouts.map(u64::from),
            // Counted per namespace only.
            undone: None,
            ce_marks: track.arrived_ce.map(u64::from),
            echoed_ce: most(|point| point.echoed_ce).or(Some(0)),
        },
        closed_at: track.closed.map(|(at_us, _)| Moment::from_us(at_us)),
        reductions: track.reductions.iter().copied().map(Moment::from_us).collect(),
        samples: track.points.iter().map(sample).collect(),
        ..Subflow::default()
    }
}

fn sample(point: &Point) -> Sample {
    Sample {
        at: Moment::from_us(point.t_us),
        srtt_8us: point.srtt_us.saturating_mul(8),
        cwnd_pkt: point.cwnd_pkt,
        alpha: point.alpha,
        acked: point.bytes_acked,
    }
}

/// Cut where a series has a value, at the window's ends, and where competing traffic starts and stops.
fn parts(spec: &LabSpec, transfers: &[Transferred<'_>]) -> Vec<Part> {
    let end = moment(spec.duration);
    let every = moment(spec.series_interval).0.max(1);
    let mut cuts: BTreeSet<Moment> = (1..).map(|i| Moment(every * i)).take_while(|at| *at < end).collect();
    cuts.extend([moment(spec.warmup), end]);
    let competing = spec.flows.iter().filter(|flow| flow.role == Role::Competing);
    cuts.extend(competing.flat_map(|flow| [moment(flow.start), moment(flow.stop)]));
    let started = transfers.iter().filter(|transfer| transfer.flow.role == Role::Competing);
    cuts.extend(started.map(|transfer| Moment::from_us(transfer.started_us)));
    let mut from = Moment::default();
    let mut parts = Vec::new();
    for to in cuts.into_iter().filter(|at| *at > Moment::default() && *at <= end) {
        parts.push(part(spec, transfers, from, to));
        from = to;
    }
    parts
}

fn part(spec: &LabSpec, transfers: &[Transferred<'_>], from: Moment, to: Moment) -> Part {
    let none = vec![0.0; spec.paths.len()];
    let entries = vec![0.0; labels(spec).len()];
    let mut part = Part { from, to, paths: none.clone(), competing_paths: none, entries };
    for transfer in transfers {
        part.entries[entry_of(spec, transfer.flow)] += transfer.bytes_within(from, to);
        let sums = match transfer.flow.role {
            Role::Measured => &mut part.paths,
            Role::Competing => &mut part.competing_paths,
        };
        for track in &transfer.tracks {
            if let Some(sum) = sums.get_mut(track.path) {
                *sum += track.acked_within(from.us(), to.us());
            }
        }
    }
    part
}

fn path_of(spec: &LabSpec, seen: &Seen, path: usize) -> Path {
    let own = OfPaths::ports_of(path, seen.ports.iter().map(|port| &port.paths));
    let ports: Vec<&PortRecord> = own.into_iter().map(|place| &seen.ports[place]).collect();
    let (from, to) = (moment(spec.warmup).us(), moment(spec.duration).us());
    let queue = &seen.samples.queues[path];
    let inside: Vec<_> = queue.iter().filter(|point| (from..to).contains(&point.t_us)).collect();
    let sent = inside.last().zip(inside.first()).map(|(last, first)| {
        let bytes = last.stats.sent_bytes.saturating_sub(first.stats.sent_bytes);
        (bytes as f64, (last.t_us - first.t_us) as f64 / 1e6)
    });
    let total = |counter: fn(&ClassStats) -> u64| {
        let classes = ports.iter().flat_map(|port| &port.stats.classes);
        (!ports.is_empty()).then(|| classes.map(counter).sum::<u64>())
    };
    let marks = ports.iter().any(|port| port.marks);
    let backlog = queue.iter().map(|point| (Moment::from_us(point.t_us), point.stats.backlog_bytes as f64));
    Path {
        name: spec.paths[path].name.clone(),
        rate_bps: ports.first().and_then(|port| port.stats.rate_bps).map(|rate| rate as f64),
        sent,
        dropped_pkt: total(dropped),
        marked_pkt: total(|class| class.marked).filter(|_| marks),
        not_ect_pkt: total(|class| class.not_ect).filter(|_| marks),
        queue: backlog.collect(),
        classes: ports.first().map(|port| classes(seen, path, port)).unwrap_or_default(),
    }
}

fn dropped(class: &ClassStats) -> u64 {
    class.drops_full + class.drops_other
}

/// A port with one class says nothing that the path does not.
fn classes(seen: &Seen, path: usize, port: &PortRecord) -> Vec<Class> {
    let several = port.stats.classes.len() > 1;
    let points = |name: &str| seen.samples.classes[path].get(name).map_or(&[][..], Vec::as_slice);
    let at = |point: &ClassPoint| Moment::from_us(point.t_us);
    let one = |class: &ClassStats| {
        let threshold = |point: &ClassPoint| Some((at(point), point.threshold_bytes? as f64));
        let points = points(&class.name);
        Class {
            name: class.name.clone(),
            marked_pkt: port.marks.then_some(class.marked),
            dropped_pkt: Some(dropped(class)),
            queue: points.iter().map(|point| (at(point), point.backlog_bytes as f64)).collect(),
            threshold: points.iter().filter_map(threshold).collect(),
        }
    };
    port.stats.classes.iter().filter(|_| several).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Stream;
    use crate::workload;

    #[test]
    fn subflows_are_numbered_within_their_connection() {
        let spec = crate::convert::tests::of_text(
            "[topology]\nkind='leaf-spine'\nleaves=2\nspines=2\nhosts_per_leaf=2\nrate='20mbit'\ndelay='20us'\n\
             [[traffic]]\nkind='bulk'\nsubflows=2\n",
        )
        .unwrap();
        let track = |socket| {
            let mut track = Track::default();
            track.socket = socket;
            let end = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
            track.ends = Some((end, end));
            track
        };
        let tracks = [7, 4, 7].map(track);
        let connection = workload::Connection {
            port: 1,
            began_s: 0.0,
            size: None,
            read: Vec::new(),
            took_s: None,
            stalled_us: None,
            fetched: Vec::new(),
        };
        let transfer = Transferred {
            flow: &spec.flows[0],
            started_us: 0,
            connection: &connection,
            stream: Stream::default(),
            tracks: tracks.iter().collect(),
        };
        let subflows = super::connection(&spec, &Fates::default(), &transfer).subflows;
        let numbers: Vec<usize> = subflows.iter().map(|subflow| subflow.number).collect();
        assert_eq!(numbers, [1, 0, 1], "one that moved keeps its number");
        let continue_others: Vec<bool> = subflows.iter().map(|subflow| subflow.continues).collect();
        assert_eq!(continue_others, [false, false, true], "it is opened once");
        let ends: Vec<End> = subflows.iter().map(|subflow| subflow.end).collect();
        assert_eq!(ends, [End::Moved, End::WithConnection, End::WithConnection], "and ends once");
    }
}
