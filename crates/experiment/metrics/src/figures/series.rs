//! Values over time: one per interval, at the interval's end.
//!
//! | entity | metrics |
//! |---|---|
//! | a path's name | `goodput_bps`, `queue_bytes`, `probe_rtt_us`, and what subflows say, the mean over the measured ones on it |
//! | `<path>.<queue>` where a path's port has several queues | `queue_bytes`, `threshold_bytes` |
//! | a traffic entry's label | `goodput_bps`, and `probe_rtt_us` where paths have no names |
//! | `tier.<from>-<to>`, and `link.<from>-<to>` where there are few | `queue_bytes`, `max_queue_bytes`, `utilization`, `imbalance`, `drops`, `marked_pkt` |
//! | a host's name | `vm_off_us`, whenever it runs again |
//! | `flow<n>.<path, or number of the subflow>` where there are few | what subflows say |

use crate::Series;
use crate::catalogue::{self, Place};
use crate::observed::{Moment, Observed, Sample};
use crate::reduce::{Reduce, links};
use std::collections::BTreeMap;

/// Subflows up to this number have series of their own.
const OWN_SERIES: usize = 32;

/// Sums and weights of the values of an entity's metric within one interval; their quotient is the value.
type Sums = BTreeMap<(String, &'static str), (f64, f64)>;

/// A metric of subflows, and its value in a sample.
type Mean = (&'static str, fn(&Sample) -> Option<f64>);

struct Intervals<'a> {
    seen: &'a Observed,
    sums: Vec<Sums>,
}

pub(super) fn build(seen: &Observed) -> Series {
    let every = seen.interval_ps.max(1);
    let steps = usize::try_from(seen.window.1.0.div_ceil(every)).unwrap_or(0);
    let mut intervals = Intervals { seen, sums: vec![Sums::new(); steps] };
    intervals.goodputs();
    intervals.subflows();
    intervals.queues();
    intervals.probes();
    intervals.links();
    let mut series = Series::default();
    for (index, sums) in intervals.sums.iter().enumerate() {
        let end = every.saturating_mul(index as u64 + 1).min(seen.window.1.0);
        for ((entity, metric), (sum, weight)) in sums.iter().filter(|(_, (_, weight))| *weight > 0.0) {
            let (entity, metric) = (series.name(entity), series.name(metric));
            series.push(Moment(end).us(), entity, metric, sum / weight);
        }
    }
    for host in &seen.off {
        let (entity, metric) = (series.name(&host.host), series.name("vm_off_us"));
        host.times.iter().for_each(|(at, us)| series.push(at.us(), entity, metric, *us));
    }
    series
}

impl Intervals<'_> {
    /// A value at an interval's end belongs to it.
    fn add(&mut self, at: Moment, entity: &str, metric: &'static str, value: f64, weight: f64) {
        let step = usize::try_from(at.0.saturating_sub(1) / self.seen.interval_ps.max(1));
        let Some(sums) = step.ok().and_then(|step| self.sums.get_mut(step)) else { return };
        let sum = sums.entry((entity.to_owned(), metric)).or_default();
        *sum = (sum.0 + value, sum.1 + weight);
    }

    /// At the time when they were sent.
    fn probes(&mut self) {
        let seen = self.seen;
        for probe in seen.probes.iter().filter(|probe| !seen.entries[probe.entry].competing) {
            let Some(answered) = probe.answered else { continue };
            let path = probe.path.map(|path| &seen.paths[path].name);
            let entity = path.unwrap_or(&seen.entries[probe.entry].label);
            self.add(probe.sent, entity, "probe_rtt_us", answered.us_since(probe.sent), 1.0);
        }
    }

    /// Bits over seconds. Probes deliver nothing, which is no goodput of zero.
    fn goodputs(&mut self) {
        let seen = self.seen;
        let delivers = seen.parts_per_interval && seen.entries.iter().any(|entry| !entry.probes);
        for part in seen.parts.iter().filter(|_| delivers) {
            let secs = part.to.secs_since(part.from);
            let paths = seen.paths.iter().map(|path| &path.name).zip(&part.paths);
            let entries = seen.entries.iter().zip(&part.entries).filter(|(entry, _)| !entry.probes);
            for (entity, bytes) in paths.chain(entries.map(|(entry, bytes)| (&entry.label, bytes))) {
                self.add(part.to, entity, "goodput_bps", bytes * 8.0, secs);
            }
        }
    }

    fn subflows(&mut self) {
        let seen = self.seen;
        let means = catalogue::of(Place::Series).filter_map(|metric| match metric.reduce {
            Reduce::Mean(of) => Some((metric.name, of)),
            _ => None,
        });
        let means: Vec<Mean> = means.collect();
        let count: usize = seen.connections.iter().map(|connection| connection.subflows.len()).sum();
        for (index, connection) in seen.connections.iter().enumerate() {
            let measured = !seen.entries[connection.entry].competing;
            for subflow in &connection.subflows {
                let path = subflow.path.map(|path| seen.paths[path].name.as_str());
                let own = (count <= OWN_SERIES).then(|| match path {
                    Some(path) => format!("flow{index}.{path}"),
                    None => format!("flow{index}.{}", subflow.number),
                });
                let entities: Vec<&str> =
                    path.filter(|_| measured).into_iter().chain(own.as_deref()).collect();
                for sample in subflow.samples.iter().filter(|sample| sample.at <= connection.stop) {
                    self.sample(&entities, &means, sample);
                }
            }
        }
    }

    /// Before its first round trip a subflow has nothing to say.
    fn sample(&mut self, entities: &[&str], means: &[Mean], sample: &Sample) {
        if sample.srtt_8us == 0 {
            return;
        }
        for (metric, of) in means {
            let Some(value) = of(sample) else { continue };
            entities.iter().for_each(|entity| self.add(sample.at, entity, metric, value, 1.0));
        }
    }

    fn links(&mut self) {
        for links in &self.seen.links {
            for sample in &links.samples {
                for (metric, value) in links::over_time(links, sample) {
                    self.add(sample.to, &links.name, metric, value, 1.0);
                }
            }
        }
    }

    fn queues(&mut self) {
        let seen = self.seen;
        for path in &seen.paths {
            path.queue.iter().for_each(|(at, bytes)| self.add(*at, &path.name, "queue_bytes", *bytes, 1.0));
            for class in &path.classes {
                let entity = format!("{}.{}", path.name, class.name);
                class.queue.iter().for_each(|(at, v)| self.add(*at, &entity, "queue_bytes", *v, 1.0));
                class.threshold.iter().for_each(|(at, v)| self.add(*at, &entity, "threshold_bytes", *v, 1.0));
            }
        }
    }
}
