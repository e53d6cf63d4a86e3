//! From samples and reports to the output of a run: what belongs to which connection, whether the run did what it was asked
//! to, and what was observed. Figures are made of that by [`vmcc_metrics`].

mod observe;

use crate::Error;
use crate::guard::Tally;
use crate::ports::PortRecord;
use crate::sampler::{Delivery, Point, Samples, Stream, Track};
use crate::spec::{Cc, Flow, Job, LabSpec, Transport};
use crate::workload::{Connection, Report};
use std::collections::BTreeSet;
use std::time::Duration;
use vmcc_metrics::observed::{Energy, Moment};
use vmcc_results::{RunOutput, Work};

/// Times off of a virtual machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Descheduled {
    pub(crate) host: usize,
    /// Microseconds at which it ran again, and the length of the time off that it noticed then.
    pub(crate) noticed_us: Vec<(u64, u64)>,
    /// For how long it was stopped.
    pub(crate) stopped: Vec<Duration>,
    /// The share of the time for which it was not stopped that it had a processor.
    pub(crate) busy: f64,
    /// Results of its algorithms' requests to close paths.
    pub(crate) asked: Tally,
}

/// Observations of a transfer, from which it is measured.
pub(crate) struct Observed {
    pub(crate) samples: Samples,
    /// Per flow.
    pub(crate) reports: Vec<Report>,
    /// Start of each flow after the run's start, in microseconds: the origin of the times in its report.
    pub(crate) started_us: Vec<u64>,
    /// Paths and counters of the ports.
    pub(crate) ports: Vec<PortRecord>,
    /// CPU time of the whole host within the measured window.
    pub(crate) cpu_s: Option<f64>,
    /// The same of its energy.
    pub(crate) energy: Option<Energy>,
    /// Instructions that all its processors executed in it.
    pub(crate) instructions: Option<f64>,
    /// The virtual machine, if there is one.
    pub(crate) absent: Option<Descheduled>,
    /// Results of the algorithms' requests to close paths.
    pub(crate) asked: Tally,
}

/// One connection: what the program read, and the sockets that carried it.
struct Transferred<'a> {
    flow: &'a Flow,
    started_us: u64,
    connection: &'a Connection,
    stream: Stream,
    tracks: Vec<&'a Track>,
}

impl Transferred<'_> {
    /// Bytes that the program read between two moments.
    fn bytes_within(&self, from: Moment, to: Moment) -> f64 {
        let relative = |at: Moment| (at.us() as f64 - self.started_us as f64) / 1e6;
        self.connection.bytes_within(relative(from), relative(to))
    }

    /// Paths on which data was acknowledged. A refused subflow shows up as a socket, too.
    fn paths_used(&self) -> usize {
        // The handshake counts as one byte.
        let carried = |track: &&&Track| track.points.last().is_some_and(|point| point.bytes_acked > 1);
        self.tracks.iter().filter(carried).map(|track| track.path).collect::<BTreeSet<_>>().len()
    }
}

/// Reduces a run to its output.
pub(crate) fn output(spec: &LabSpec, observed: &Observed) -> Result<RunOutput, Error> {
    let transfers = join(spec, observed);
    let mut warnings = verify(spec, &transfers)?;
    let of_programs = spec.flows.iter().zip(&observed.reports).flat_map(|(flow, report)| {
        report.warnings.iter().map(|warning| format!("traffic {}: {warning}", flow.label))
    });
    warnings.extend(of_programs);
    warnings.extend(observed.absent.iter().filter_map(|absent| overloaded(spec, absent)));
    warnings.extend(observed.asked.warnings(None));
    let of_machines = observed.absent.iter().map(|absent| (&spec.hosts[absent.host], &absent.asked));
    warnings.extend(of_machines.flat_map(|(host, asked)| asked.warnings(Some(host))));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    warnings
        .extend(observed.cpu_s.filter(|busy_s| is_busy(spec, *busy_s, cpus)).map(|_| TOO_BUSY.to_owned()));
    let figures = vmcc_metrics::figures(&observe::observe(spec, observed, &transfers));
    Ok(RunOutput::new(figures, Work { cpu_s: observed.cpu_s, ..Work::default() }, warnings))
}

/// From this share of its time on a virtual machine's processor may be what limits its connections.
const OVERLOAD_SHARE: f64 = 0.9;

fn overloaded(spec: &LabSpec, absent: &Descheduled) -> Option<String> {
    (absent.busy > OVERLOAD_SHARE).then(|| {
        format!(
            "the virtual machine {} used a processor for {:.0} % of the time for which it was not stopped: that may be what \
             limits its connections; lower their rate",
            spec.hosts[absent.host],
            100.0 * absent.busy
        )
    })
}

/// Of the host's processors; with less, programs and the kernel wait for each other.
const MIN_IDLE_SHARE: f64 = 0.15;
/// Warning of runs that had to wait for the host's processors.
pub const TOO_BUSY: &str = "in some runs the host's processors were idle for less than 15 % of the time: a kernel that has to wait \
                        carries less and answers later, whatever the congestion control; repeat it on an idle machine, or at \
                        lower rates, before you compare";

/// True if the idle share of `cpus` processors in the run's window was below `MIN_IDLE_SHARE`. `busy_s`: their busy seconds in it, of all
/// processes.
fn is_busy(spec: &LabSpec, busy_s: f64, cpus: usize) -> bool {
    let window = spec.duration.to_duration().saturating_sub(spec.warmup.to_duration());
    busy_s > (1.0 - MIN_IDLE_SHARE) * window.as_secs_f64() * cpus as f64
}

/// Brings together each connection of the reports and its sockets. The port that connected, in a report, names the first
/// subflow; its token names the others. The control connection of iperf3 is in no report, so it drops out.
fn join<'a>(spec: &'a LabSpec, observed: &'a Observed) -> Vec<Transferred<'a>> {
    let mut transfers = Vec::new();
    for (index, (flow, report)) in spec.flows.iter().zip(&observed.reports).enumerate() {
        let of_flow = || observed.samples.tracks.iter().filter(|track| track.flow == index);
        for connection in &report.connections {
            let first = of_flow().find(|track| track.port == connection.port);
            let token = first.and_then(|track| track.token);
            let belongs = |track: &&Track| match token {
                Some(token) => track.token == Some(token),
                None => track.port == connection.port,
            };
            let tracks = of_flow().filter(belongs).collect();
            let started_us = observed.started_us[index] + (connection.began_s * 1e6) as u64;
            let stream = observed.samples.streams.get(&(index, connection.port)).copied();
            let stream = match connection.stalled_us {
                Some(stalled_us) => {
                    Stream { delivery: Some(Delivery::told(stalled_us)), ..Stream::default() }
                }
                None => stream.unwrap_or_default(),
            };
            transfers.push(Transferred { flow, started_us, connection, stream, tracks });
        }
    }
    transfers
}

/// True if a sample has a window that no algorithm of the registry sets: a stack value in place of the result of `ssthresh`.
fn ran_away(points: &[Point]) -> bool {
    points.iter().any(|point| point.cwnd_pkt > vmcc_cc::MAX_CWND_PKT)
}

/// Refuses figures of a run that did not do what it was asked to.
fn verify(spec: &LabSpec, transfers: &[Transferred<'_>]) -> Result<Vec<String>, Error> {
    let mut warnings = Vec::new();
    let mut fallen_back = 0;
    for transfer in transfers {
        let label = &transfer.flow.label;
        let wrong = |cause: String, remedy: &str| {
            Err(Error::Measurement { what: format!("traffic {label}"), cause, remedy: remedy.to_owned() })
        };
        let Some(first) = transfer.tracks.first() else {
            // A short one may come and go between two samples, and datagrams have no sockets of TCP.
            if !matches!(&transfer.flow.job, Job::Bulk { .. }) {
                continue;
            }
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
            // Of thousands some lose their first two SYNs; the third asks for plain TCP.
            if !first.multipath && transfer.flow.job.is_fetched() {
                fallen_back += 1;
                continue;
            }
            if !first.multipath {
                let cause = "it fell back to plain TCP".to_owned();
                return wrong(
                    cause,
                    "check that `sysctl net.mptcp.enabled` is 1 and no firewall strips options",
                );
            }
            // Soon done, one may be so before its second subflow is there.
            if transfer.flow.job.is_fetched() && !transfer.flow.job.keeps_connections() {
                continue;
            }
            let used = transfer.paths_used();
            let paths = spec.paths_of(transfer.flow).into_iter().collect::<BTreeSet<_>>().len();
            if used < paths {
                warnings.push(format!("traffic {label}: a connection used {used} of {paths} paths"));
            }
        }
        if let Some(quic) = transfer.flow.quic() {
            let (used, paths) = (transfer.paths_used(), quic.subnets.len());
            if used < paths {
                warnings.push(format!("traffic {label}: a connection used {used} of {paths} paths"));
            }
        }
        let ours = matches!(transfer.flow.cc, Cc::Registry(_));
        if ours && transfer.tracks.iter().any(|track| ran_away(&track.points)) {
            warnings.push(format!(
                "traffic {label}: a congestion window ran away, because this kernel left out a callback of the \
                 congestion control; losses and goodput suffer from that (docs/reference/kernels.md), and --engine guest does not"
            ));
        }
    }
    let seen = transfers.iter().filter(|transfer| !transfer.tracks.is_empty()).count();
    // Of few connections that stay open, congestion may take the first SYNs of one.
    let kept = spec.flows.iter().any(|flow| flow.job.keeps_connections());
    if fallen_back * if kept { 2 } else { 10 } > seen {
        return Err(Error::Measurement {
            what: "fetched objects".to_owned(),
            cause: format!("{fallen_back} of {seen} connections fell back to plain TCP"),
            remedy: "check that `sysctl net.mptcp.enabled` is 1 and no firewall strips options".to_owned(),
        });
    }
    if fallen_back > 0 {
        warnings.push("some connections lost their first SYNs and fell back to plain TCP".to_owned());
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_without_idle_time_is_busy() {
        let spec = crate::convert::tests::of_text(
            "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n[[traffic]]\nkind='bulk'\n",
        )
        .unwrap();
        let window_s = (spec.duration.to_duration() - spec.warmup.to_duration()).as_secs_f64();
        assert!(!is_busy(&spec, 1.6 * window_s, 2) && is_busy(&spec, 1.8 * window_s, 2));
        assert!(is_busy(&spec, 0.9 * window_s, 1));
    }

    #[test]
    fn window_above_every_algorithm_range_is_runaway() {
        let points = |cwnd_pkt| [Point::default(), Point { cwnd_pkt, ..Point::default() }];
        assert!(!ran_away(&points(vmcc_cc::MAX_CWND_PKT)));
        assert!(ran_away(&points(229_806_049)), "as seen on a guarded kernel");
    }
}
