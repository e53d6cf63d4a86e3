//! Samples of the kernel's sockets and queues while a run lasts.

use crate::iperf;
use crate::spec::LabSpec;
use crate::topology::{QueueReader, Topology, path_of};
use crate::{Error, Role};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use vmcc_host::diag::{Diag, Subflow};
use vmcc_netlink::QueueStats;

/// More points than any run of the lab takes; beyond, sampling stops.
const MAX_POINTS: usize = 10_000_000;

/// What one subflow's socket said at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) t_us: u64,
    pub(crate) srtt_us: u32,
    pub(crate) cwnd_pkt: u32,
    pub(crate) bytes_acked: u64,
    pub(crate) retransmits: u32,
    pub(crate) echoed_ce: u32,
}

/// One subflow (or single-path connection) over time.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    /// Index into [`LabSpec::flows`].
    pub(crate) flow: usize,
    /// Index into [`LabSpec::paths`].
    pub(crate) path: usize,
    pub(crate) local_port: u16,
    /// Whether it is an MPTCP subflow.
    pub(crate) multipath: bool,
    /// What the subflows of one MPTCP connection share: the receiver's token. The sender's sockets will not do:
    /// kernels report neither token of the first subflow of a connection in a way that its other subflows share.
    pub(crate) token: Option<u32>,
    pub(crate) algorithm: String,
    pub(crate) points: Vec<Point>,
}

/// What a queue said at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueuePoint {
    pub(crate) t_us: u64,
    pub(crate) stats: QueueStats,
}

/// Everything sampled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) tracks: Vec<Track>,
    /// Per path.
    pub(crate) queues: Vec<Vec<QueuePoint>>,
    points: usize,
}

/// Open connections to everything that is sampled.
pub(crate) struct Sampler {
    senders: Vec<Diag>,
    receivers: Vec<Diag>,
    queues: Vec<QueueReader>,
    flows: usize,
    known: BTreeMap<(SocketAddr, SocketAddr), usize>,
    samples: Samples,
}

impl Sampler {
    pub(crate) fn open(topology: &Topology, spec: &LabSpec) -> Result<Self, Error> {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        let roles = [Role::Measured, Role::Competing];
        for role in roles.into_iter().filter(|role| spec.flows.iter().any(|flow| flow.role == *role)) {
            let (sender, receiver) = topology.ends(role);
            senders.push(sender.run(Diag::open).map_err(|e| Error::diag(&e))?);
            receivers.push(receiver.run(Diag::open).map_err(|e| Error::diag(&e))?);
        }
        let queues: Result<Vec<_>, _> =
            (0..spec.paths.len()).map(|path| topology.queue_reader(path)).collect();
        let samples = Samples { queues: vec![Vec::new(); spec.paths.len()], ..Samples::default() };
        let (queues, flows) = (queues?, spec.flows.len());
        Ok(Self { senders, receivers, queues, flows, known: BTreeMap::new(), samples })
    }

    /// Takes one sample of everything.
    pub(crate) fn take(&mut self, t_us: u64) -> Result<(), Error> {
        for (path, queue) in self.queues.iter_mut().enumerate() {
            let stats = queue.read()?;
            self.samples.queues[path].push(QueuePoint { t_us, stats });
        }
        for end in &mut self.senders {
            for subflow in end.subflows().map_err(|e| Error::diag(&e))? {
                record(&mut self.known, &mut self.samples, self.flows, t_us, &subflow);
            }
        }
        Ok(())
    }

    /// Finds out which subflows belong together. Once per connection suffices; the answer does not change.
    pub(crate) fn group(&mut self) -> Result<(), Error> {
        for end in &mut self.receivers {
            for subflow in end.subflows().map_err(|e| Error::diag(&e))? {
                let token = subflow.mptcp.map(|mptcp| mptcp.token_local).filter(|token| *token != 0);
                // The sender sees the same socket pair the other way round.
                if let Some(index) = self.known.get(&(subflow.remote, subflow.local)) {
                    let track = &mut self.samples.tracks[*index];
                    track.token = track.token.or(token);
                }
            }
        }
        Ok(())
    }

    /// What was sampled so far.
    pub(crate) fn samples(&self) -> &Samples {
        &self.samples
    }

    pub(crate) fn finish(self) -> Samples {
        self.samples
    }
}

fn record(
    known: &mut BTreeMap<(SocketAddr, SocketAddr), usize>,
    samples: &mut Samples,
    flows: usize,
    t_us: u64,
    subflow: &Subflow,
) {
    let IpAddr::V4(local) = subflow.local.ip() else { return };
    let flow = iperf::flow_of(subflow.remote.port()).filter(|flow| *flow < flows);
    let (Some(flow), Some(path)) = (flow, path_of(local)) else { return };
    if samples.points >= MAX_POINTS {
        return;
    }
    samples.points += 1;
    let index = *known.entry((subflow.local, subflow.remote)).or_insert_with(|| {
        samples.tracks.push(Track {
            flow,
            path,
            local_port: subflow.local.port(),
            multipath: false,
            token: None,
            algorithm: subflow.algorithm.clone(),
            points: Vec::new(),
        });
        samples.tracks.len() - 1
    });
    let track = &mut samples.tracks[index];
    track.multipath |= subflow.mptcp.is_some();
    // The program selects its algorithm after connecting; the last word counts.
    if track.algorithm != subflow.algorithm {
        track.algorithm.clone_from(&subflow.algorithm);
    }
    track.points.push(Point {
        t_us,
        srtt_us: subflow.srtt_us,
        cwnd_pkt: subflow.cwnd_pkt,
        bytes_acked: subflow.bytes_acked,
        retransmits: subflow.retransmitted_pkt,
        echoed_ce: subflow.delivered_ce_pkt,
    });
}

impl Track {
    /// Bytes acknowledged until `t_us`, on the line between the samples around it.
    pub(crate) fn acked_at(&self, t_us: u64) -> f64 {
        let after = self.points.partition_point(|point| point.t_us < t_us);
        match (after.checked_sub(1).map(|i| self.points[i]), self.points.get(after)) {
            (None, Some(first)) if first.t_us > t_us => 0.0,
            (None, Some(first)) => first.bytes_acked as f64,
            (Some(last), None) => last.bytes_acked as f64,
            (Some(a), Some(b)) => {
                let share = (t_us - a.t_us) as f64 / (b.t_us - a.t_us) as f64;
                a.bytes_acked as f64 + share * (b.bytes_acked as f64 - a.bytes_acked as f64)
            }
            (None, None) => 0.0,
        }
    }

    /// Bytes acknowledged from `from_us` to `to_us`.
    pub(crate) fn acked_within(&self, from_us: u64, to_us: u64) -> f64 {
        (self.acked_at(to_us) - self.acked_at(from_us)).max(0.0)
    }

    pub(crate) fn within(&self, from_us: u64, to_us: u64) -> &[Point] {
        let from = self.points.partition_point(|point| point.t_us < from_us);
        let to = self.points.partition_point(|point| point.t_us < to_us);
        &self.points[from..to.max(from)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(points: &[(u64, u64)]) -> Track {
        let point = |&(t_us, bytes_acked): &(u64, u64)| Point {
            t_us,
            srtt_us: 100,
            cwnd_pkt: 10,
            bytes_acked,
            retransmits: 0,
            echoed_ce: 0,
        };
        Track {
            flow: 0,
            path: 0,
            local_port: 1,
            multipath: false,
            token: None,
            algorithm: String::new(),
            points: points.iter().map(point).collect(),
        }
    }

    #[test]
    fn acknowledged_bytes_are_interpolated_and_flat_outside() {
        let t = track(&[(100, 1000), (200, 3000), (300, 3000)]);
        assert_eq!(t.acked_at(50), 0.0);
        assert_eq!(t.acked_at(100), 1000.0);
        assert_eq!(t.acked_at(150), 2000.0);
        assert_eq!(t.acked_at(999), 3000.0);
        assert_eq!(t.acked_within(150, 250), 1000.0);
        assert_eq!(track(&[]).acked_within(0, 10), 0.0);
    }

    #[test]
    fn windows_of_points_are_half_open() {
        let t = track(&[(100, 0), (200, 0), (300, 0)]);
        assert_eq!(t.within(100, 300).len(), 2);
        assert_eq!(t.within(301, 400).len(), 0);
    }
}
