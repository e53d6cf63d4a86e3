//! From samples and reports to the metrics of a run.
//!
//! | figure | what it is |
//! |---|---|
//! | window | from `warmup` to `duration` after the traffic started |
//! | `goodput_bps` | what the receiving programs read within the window (iperf3's own report), measured flows |
//! | `competing_goodput_bps` | the same for competing flows, over the part of the window in which they were active |
//! | `paths[].goodput_bps` | bytes newly acknowledged on the path's subflows within the window; with MPTCP's reinjections, so the sum may exceed `goodput_bps` slightly |
//! | `rtt_us` | smoothed RTT (`tcp_info.tcpi_rtt`), one value per subflow and sample within the window, measured flows |
//! | `retransmits`, `drops`, `ce_marks` | counters over the whole run, slow start included |
//! | `traffic.<label>.*` | the same figures for one entry of traffic, over the part of the window in which it was active |
//! | `tenant_jain` | Jain's index over what each sending host got, competing ones included |
//! | `paths[].class.<name>.*` | of the port that stands for the path: packets marked and dropped, waiting bytes, threshold |
//! | `competing_share` | competing goodput over all goodput of its path, while both were active within the window |
//! | `cpu_s_per_gb` | busy time of the whole host within the window over what all flows delivered in it |

mod classes;
mod entries;
mod paths;

use crate::run::Observed;
use crate::sampler::{Point, Track};
use crate::spec::{Cc, Flow, LabSpec, Transport};
use crate::workload::Connection;
use crate::{Error, Role};
use std::collections::{BTreeMap, BTreeSet};
use vmcc_metrics::{Dist, Extra, Metrics, stats};
use vmcc_results::{FlowRecord, RunOutput, Work};

/// A stretch of the run, in microseconds after its start.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Window {
    from_us: u64,
    to_us: u64,
}

impl Window {
    fn of(spec: &LabSpec) -> Self {
        Self { from_us: spec.warmup.get() / 1000, to_us: spec.duration.get() / 1000 }
    }

    /// The part in which `flow` was meant to send.
    fn active(self, flow: &Flow) -> Self {
        let from_us = self.from_us.max(flow.start.get() / 1000);
        Self { from_us, to_us: self.to_us.min(flow.stop.get() / 1000).max(from_us) }
    }

    fn seconds(self) -> f64 {
        (self.to_us - self.from_us) as f64 / 1e6
    }

    fn bps(self, bytes: f64) -> f64 {
        if self.to_us == self.from_us { 0.0 } else { bytes * 8.0 / self.seconds() }
    }
}

/// One connection: what the program read, and the sockets that carried it.
struct Transferred<'a> {
    flow: &'a Flow,
    started_us: u64,
    connection: &'a Connection,
    tracks: Vec<&'a Track>,
}

impl Transferred<'_> {
    fn bytes_within(&self, window: Window) -> f64 {
        let relative = |t_us: u64| (t_us as f64 - self.started_us as f64) / 1e6;
        self.connection.bytes_within(relative(window.from_us), relative(window.to_us))
    }

    /// Paths on which data was acknowledged. A refused subflow shows up as a socket, too.
    fn paths_used(&self) -> usize {
        // The handshake counts as one byte.
        let carried = |track: &&&Track| track.points.last().is_some_and(|point| point.bytes_acked > 1);
        self.tracks.iter().filter(carried).map(|track| track.path).collect::<BTreeSet<_>>().len()
    }

    fn counter(&self, read: impl Fn(&Track) -> u64) -> u64 {
        self.tracks.iter().map(|track| read(track)).sum()
    }
}

fn retransmits(track: &Track) -> u64 {
    track.points.iter().map(|point| u64::from(point.retransmits)).max().unwrap_or(0)
}

fn echoed_marks(track: &Track) -> u64 {
    track.points.iter().map(|point| u64::from(point.echoed_ce)).max().unwrap_or(0)
}

/// Reduces a run to its output.
pub(crate) fn output(spec: &LabSpec, observed: &Observed) -> Result<RunOutput, Error> {
    let transfers = join(spec, observed);
    let warnings = verify(spec, &transfers)?;
    let mut metrics = totals(spec, observed, &transfers);
    metrics.paths =
        (0..spec.paths.len()).map(|path| paths::metrics(spec, observed, &transfers, path)).collect();
    let marking = observed.ports.iter().filter(|port| port.marks);
    metrics.drops = sum(observed.ports.iter().map(|port| Some(classes::dropped(port))));
    metrics.ce_marks = sum(marking.map(|port| Some(classes::marked(port))));
    let flows = transfers.iter().enumerate().map(|(i, t)| flow_record(spec, i, t)).collect();
    let series = crate::series::build(spec, &observed.samples);
    let work = Work { cpu_s: observed.cpu_s, ..Work::default() };
    let mut output = RunOutput::default();
    (output.metrics, output.flows, output.series) = (metrics, flows, series);
    (output.work, output.warnings) = (work, warnings);
    Ok(output)
}

/// The sum of those that were measured.
fn sum(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().reduce(|a, b| a + b)
}

/// Brings together each connection of the reports and its sockets. A sender's port in a report names the first
/// subflow; its token names the others. The control connection of iperf3 is in no report, so it drops out.
fn join<'a>(spec: &'a LabSpec, observed: &'a Observed) -> Vec<Transferred<'a>> {
    let mut transfers = Vec::new();
    for (index, (flow, report)) in spec.flows.iter().zip(&observed.reports).enumerate() {
        let of_flow = || observed.samples.tracks.iter().filter(|track| track.flow == index);
        for connection in &report.connections {
            let first = of_flow().find(|track| track.local_port == connection.sender_port);
            let token = first.and_then(|track| track.token);
            let belongs = |track: &&Track| match token {
                Some(token) => track.token == Some(token),
                None => track.local_port == connection.sender_port,
            };
            let tracks = of_flow().filter(belongs).collect();
            let started_us = observed.started_us[index];
            transfers.push(Transferred { flow, started_us, connection, tracks });
        }
    }
    transfers
}

/// Whether a window was seen that no algorithm of the registry sets: what stood on the stack where `ssthresh` should have
/// answered.
fn ran_away(points: &[Point]) -> bool {
    points.iter().any(|point| point.cwnd_pkt > vmcc_cc::MAX_CWND_PKT)
}

/// Refuses figures of a run that did not do what it was asked to.
fn verify(spec: &LabSpec, transfers: &[Transferred<'_>]) -> Result<Vec<String>, Error> {
    let mut warnings = Vec::new();
    for transfer in transfers {
        let label = &transfer.flow.label;
        let wrong = |cause: String, remedy: &str| {
            Err(Error::Measurement { what: format!("traffic {label}"), cause, remedy: remedy.to_owned() })
        };
        let Some(first) = transfer.tracks.first() else {
            return wrong(
                "none of its sockets was seen in the kernel".to_owned(),
                "sample more often (interval), or run for longer",
            );
        };
        let wanted = transfer.flow.cc.kernel_name();
        if let Some(other) = transfer.tracks.iter().find(|track| track.algorithm != wanted) {
            let cause = format!("a subflow ran under {:?} instead of {wanted:?}", other.algorithm);
            return wrong(cause, "`vmcc doctor` says whether the algorithm can be selected here");
        }
        if matches!(transfer.flow.transport, Transport::Mptcp { .. }) {
            if !first.multipath {
                let cause = "it fell back to plain TCP".to_owned();
                return wrong(
                    cause,
                    "check that `sysctl net.mptcp.enabled` is 1 and no firewall strips options",
                );
            }
            let used = transfer.paths_used();
            let paths = spec.paths_of(transfer.flow).into_iter().collect::<BTreeSet<_>>().len();
            if used < paths {
                warnings.push(format!("traffic {label}: a connection used {used} of {paths} paths"));
            }
        }
        let ours = matches!(transfer.flow.cc, Cc::Registry(_));
        if ours && transfer.tracks.iter().any(|track| ran_away(&track.points)) {
            warnings.push(format!(
                "traffic {label}: a congestion window ran away, because this kernel left out a callback of the \
                 congestion control; losses and goodput suffer from that (docs/kernels.md), and --engine guest does not"
            ));
        }
    }
    Ok(warnings)
}

fn of_role<'a>(transfers: &'a [Transferred<'a>], role: Role) -> impl Iterator<Item = &'a Transferred<'a>> {
    transfers.iter().filter(move |transfer| transfer.flow.role == role)
}

fn totals(spec: &LabSpec, observed: &Observed, transfers: &[Transferred<'_>]) -> Metrics {
    let window = Window::of(spec);
    let bytes = |role| of_role(transfers, role).map(|t| t.bytes_within(window)).sum::<f64>();
    let goodputs: Vec<f64> = of_role(transfers, Role::Measured)
        .map(|t| window.active(t.flow).bps(t.bytes_within(window)))
        .collect();
    let tracks = || of_role(transfers, Role::Measured).flat_map(|t| t.tracks.iter().copied());
    let gigabytes = (bytes(Role::Measured) + bytes(Role::Competing)) / 1e9;
    Metrics {
        goodput_bps: Some(window.bps(bytes(Role::Measured))),
        competing_goodput_bps: competing_goodput(window, transfers),
        established: Some(goodputs.len() as u64),
        retransmits: Some(of_role(transfers, Role::Measured).map(|t| t.counter(retransmits)).sum()),
        rtt_us: rtt(window, tracks()),
        jain: stats::jain(&goodputs),
        flow_goodput_bps: Dist::from_samples(&mut goodputs.clone()),
        cpu_s_per_gb: observed.cpu_s.filter(|_| gigabytes > 0.0).map(|cpu_s| cpu_s / gigabytes),
        extra: extras(spec, window, transfers),
        ..Metrics::default()
    }
}

/// The mean over the flows' own time within the window: a flow that competes for half of the run with 50 Mbit/s
/// has 50 Mbit/s, not 25.
fn competing_goodput(window: Window, transfers: &[Transferred<'_>]) -> Option<f64> {
    let rates: Vec<f64> = of_role(transfers, Role::Competing)
        .map(|t| window.active(t.flow).bps(t.bytes_within(window)))
        .collect();
    (!rates.is_empty()).then(|| rates.iter().sum())
}

fn extras(spec: &LabSpec, window: Window, transfers: &[Transferred<'_>]) -> BTreeMap<String, Extra> {
    let mut extra = entries::extras(spec, window, transfers);
    let echoed = of_role(transfers, Role::Measured).map(|t| t.counter(echoed_marks)).sum::<u64>();
    extra.insert("echoed_ce_pkt".to_owned(), Extra::Number(echoed as f64));
    let shares: Vec<f64> =
        (0..spec.paths.len()).filter_map(|path| share(spec, window, transfers, path)).collect();
    if !shares.is_empty() {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        extra.insert("competing_share".to_owned(), Extra::Number(mean));
    }
    extra
}

/// What competing flows got of a path, over all that was acknowledged on it while they were active.
fn share(spec: &LabSpec, window: Window, transfers: &[Transferred<'_>], path: usize) -> Option<f64> {
    let on_path = |t: &&Transferred<'_>| spec.paths_of(t.flow).get(t.flow.first_lane()) == Some(&path);
    let competing: Vec<_> = of_role(transfers, Role::Competing).filter(on_path).collect();
    let from_us = competing.iter().map(|t| window.active(t.flow).from_us).min()?;
    let to_us = competing.iter().map(|t| window.active(t.flow).to_us).max()?;
    let acked = |t: &Transferred<'_>| {
        let tracks = t.tracks.iter().filter(|track| track.path == path);
        tracks.map(|track| track.acked_within(from_us, to_us)).sum::<f64>()
    };
    let theirs: f64 = competing.iter().map(|t| acked(t)).sum();
    let ours: f64 = of_role(transfers, Role::Measured).map(acked).sum();
    (theirs + ours > 0.0).then(|| theirs / (theirs + ours))
}

fn rtt<'a>(window: Window, tracks: impl Iterator<Item = &'a Track>) -> Option<Dist> {
    let points = tracks.flat_map(|track| track.within(window.from_us, window.to_us));
    // Zero: no sample yet.
    let mut samples: Vec<f64> =
        points.filter(|point| point.srtt_us > 0).map(|point| f64::from(point.srtt_us)).collect();
    Dist::from_samples(&mut samples)
}

fn flow_record(spec: &LabSpec, number: usize, transfer: &Transferred<'_>) -> FlowRecord {
    let window = Window::of(spec);
    let whole = Window { from_us: 0, to_us: u64::MAX / 2 };
    let dist = rtt(window, transfer.tracks.iter().copied());
    FlowRecord {
        flow: number as u64,
        traffic: transfer.flow.label.clone(),
        from: spec.hosts[transfer.flow.from].clone(),
        to: spec.hosts[transfer.flow.to].clone(),
        cc: transfer.flow.cc.name().to_owned(),
        subflows: u32::try_from(transfer.paths_used()).unwrap_or(u32::MAX),
        start_us: transfer.started_us,
        end_us: transfer.tracks.iter().filter_map(|track| Some(track.points.last()?.t_us)).max(),
        delivered_bytes: transfer.bytes_within(whole) as u64,
        measured: transfer.flow.role == Role::Measured,
        goodput_bps: Some(window.active(transfer.flow).bps(transfer.bytes_within(window))),
        rtt_mean_us: dist.map(|d| d.mean),
        rtt_p50_us: dist.map(|d| d.p50),
        rtt_p99_us: dist.map(|d| d.p99),
        retransmits: Some(transfer.counter(retransmits)),
        ce_marks: Some(transfer.counter(echoed_marks)),
        ..FlowRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_beyond_every_algorithms_range_has_run_away() {
        let points = |cwnd_pkt| [Point::default(), Point { cwnd_pkt, ..Point::default() }];
        assert!(!ran_away(&points(vmcc_cc::MAX_CWND_PKT)));
        assert!(ran_away(&points(229_806_049)), "as seen on a guarded kernel");
    }
}
