//! From a finished run to its output.

use std::collections::BTreeMap;

use vmcc_metrics::{Dist, Extra, Metrics, PathMetrics, stats};
use vmcc_results::{FlowRecord, RunOutput, Work};
use vmcc_scenario::model::EventKind;

use super::accounts::Accounts;
use super::series;
use super::setup::{Flow, Setup};
use crate::engine::{ClassSample, QueueSample};
use crate::host::{App, FlowRecord as Finished, Hosts, Response, RttGroups, Sample};
use crate::time::Time;

/// Everything that metrics are made from.
pub(crate) struct Finale<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) accounts: Accounts,
    /// How each flow went, and its answers.
    records: Vec<(Finished, Option<Finished>)>,
    /// Samples of windows and RTTs, by time, connection and subflow, with the flow's index.
    pub(crate) samples: Vec<(usize, Sample)>,
    pub(crate) queues: Vec<QueueSample>,
    pub(crate) classes: Vec<ClassSample>,
    rtts: RttGroups,
    /// Completion times of each flow's transfers begun within the window, in microseconds.
    completions: Vec<Vec<f64>>,
    /// Answered requests with their flow's index, by time.
    responses: Vec<(usize, Response)>,
    /// Transfers that each flow completed in the whole run.
    completed: Vec<u64>,
}

pub(crate) fn output(setup: &mut Setup, accounts: Accounts) -> RunOutput {
    let queues = (setup.engine.take_samples(), setup.engine.take_class_samples());
    let warnings = std::mem::take(&mut setup.warnings);
    let totals = setup.engine.totals();
    let finale = Finale::new(setup, accounts, queues);
    let metrics = finale.metrics(totals.dropped);
    RunOutput {
        metrics,
        flows: finale.flow_records(),
        series: series::build(&finale),
        work: Work {
            packet_hops: Some(totals.packet_hops),
            events: Some(totals.events - setup.sample_events()),
            ..Work::default()
        },
        warnings,
    }
}

fn us(time: Time, since: Time) -> f64 {
    time.since(since).ps() as f64 / 1e6
}

fn endless(flow: &Flow) -> bool {
    super::setup::endless(flow.planned.app)
}

impl<'a> Finale<'a> {
    fn new(
        setup: &'a Setup,
        accounts: Accounts,
        (queues, classes): (Vec<QueueSample>, Vec<ClassSample>),
    ) -> Self {
        let hosts = setup.hosts();
        let record = |flow: &Flow| {
            let answers = flow.answers.map(|id| setup.directory.flow(id, &hosts));
            (setup.directory.flow(flow.conn, &hosts), answers)
        };
        let records: Vec<_> = setup.flows.iter().map(record).collect();
        let by_conn: BTreeMap<u32, usize> =
            setup.flows.iter().enumerate().map(|(index, flow)| (flow.conn.0, index)).collect();
        let samples = samples(&hosts, &by_conn);
        let responses = responses(&hosts, &by_conn);
        let (completions, completed) = completions(setup, &records, &responses);
        let rtts = setup.directory.rtts(hosts.iter().copied());
        Self { setup, accounts, records, samples, queues, classes, rtts, completions, responses, completed }
    }

    pub(crate) fn in_window(&self, at: Time) -> bool {
        at >= self.setup.warmup && at <= self.setup.end
    }

    fn window_secs(&self) -> f64 {
        self.setup.end.since(self.setup.warmup).secs_f64()
    }

    fn flows(&self, keep: impl Fn(&Flow) -> bool) -> Vec<usize> {
        (0..self.setup.flows.len()).filter(|&index| keep(&self.setup.flows[index])).collect()
    }

    fn metrics(&self, dropped: u64) -> Metrics {
        let measured = self.flows(|flow| !flow.competing);
        let finite = measured.iter().any(|&index| !endless(&self.setup.flows[index]));
        let goodputs = self.flow_goodputs(&measured);
        let mut metrics = Metrics {
            goodput_bps: self.goodput(false),
            competing_goodput_bps: self.goodput(true),
            drops: Some(dropped),
            paths: (0..self.setup.fabric.paths.len()).map(|path| self.path(path)).collect(),
            extra: self.extras(),
            ..Metrics::default()
        };
        if !measured.is_empty() {
            let established = |i: &&usize| self.records[**i].0.established != Time::NEVER;
            metrics.established = Some(measured.iter().filter(established).count() as u64);
            metrics.completed = finite.then(|| measured.iter().map(|&i| self.completed[i]).sum());
            metrics.unfinished =
                finite.then(|| measured.iter().filter(|i| self.is_unfinished(**i)).count() as u64);
            metrics.retransmits = Some(self.sum(&measured, Finished::retransmits));
            metrics.timeouts = Some(self.sum(&measured, Finished::timeouts));
            metrics.ce_marks = Some(self.sum(&measured, ce_marks));
            metrics.rtt_us = self.rtt(&measured);
            metrics.fct_us = self.fct(&measured);
            metrics.jain = stats::jain(&goodputs);
            metrics.flow_goodput_bps = Dist::from_samples(&mut goodputs.clone());
        }
        metrics
    }

    fn sum(&self, flows: &[usize], counter: impl Fn(&Finished) -> u64) -> u64 {
        let both = |i: &usize| {
            let (record, answers) = &self.records[*i];
            counter(record) + answers.as_ref().map_or(0, &counter)
        };
        flows.iter().map(both).sum()
    }

    /// Seconds of the window in which an entry of traffic was active.
    fn active_secs(&self, traffic: usize) -> f64 {
        let common = &self.setup.scenario.traffic[traffic].common;
        let start = (Time::ZERO + crate::lower::span(common.start)).max(self.setup.warmup);
        let stop = common.stop.map_or(self.setup.end, |stop| Time::ZERO + crate::lower::span(stop));
        stop.min(self.setup.end).since(start).secs_f64()
    }

    /// Bytes that an entry delivered within the window.
    fn window_bytes(&self, traffic: usize) -> u64 {
        let setup = self.setup;
        let flows =
            setup.flows.iter().zip(&self.accounts.window).filter(|(f, _)| f.planned.traffic == traffic);
        let sinks = setup.datagrams.iter().zip(&self.accounts.datagram_window);
        let sinks = sinks.filter(|((_, planned), _)| planned.traffic == traffic);
        flows.map(|(_, bytes)| bytes).sum::<u64>() + sinks.map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn entry_goodput(&self, traffic: usize) -> Option<f64> {
        let secs = self.active_secs(traffic);
        (secs > 0.0).then(|| self.window_bytes(traffic) as f64 * 8.0 / secs)
    }

    /// Measured traffic over the whole window; competing traffic over its own time.
    fn goodput(&self, competing: bool) -> Option<f64> {
        let entries = self.setup.scenario.traffic.iter().enumerate();
        let kept: Vec<usize> =
            entries.filter(|(_, t)| t.is_competing() == competing).map(|(index, _)| index).collect();
        if competing {
            let rates: Vec<f64> = kept.iter().filter_map(|&t| self.entry_goodput(t)).collect();
            return (!rates.is_empty()).then(|| rates.iter().sum());
        }
        let bytes: u64 = kept.iter().map(|&traffic| self.window_bytes(traffic)).sum();
        (!kept.is_empty()).then(|| bytes as f64 * 8.0 / self.window_secs())
    }

    /// Goodput of single connections: of endless ones within the window, or else of completed transfers begun within it.
    fn flow_goodputs(&self, flows: &[usize]) -> Vec<f64> {
        let endless_ones: Vec<usize> =
            flows.iter().copied().filter(|&i| endless(&self.setup.flows[i])).collect();
        if endless_ones.is_empty() {
            return flows.iter().filter_map(|&i| self.transfer_goodput(i)).collect();
        }
        endless_ones.into_iter().filter_map(|i| self.window_goodput(i)).collect()
    }

    fn window_goodput(&self, index: usize) -> Option<f64> {
        let secs = self.active_secs(self.setup.flows[index].planned.traffic);
        (secs > 0.0).then(|| self.accounts.window[index] as f64 * 8.0 / secs)
    }

    /// Whether a transfer that began within the window was still open at its end.
    fn is_unfinished(&self, index: usize) -> bool {
        let record = &self.records[index].0;
        let sized = matches!(self.setup.flows[index].planned.app, App::Sized { .. });
        sized && self.in_window(record.start) && record.received == Time::NEVER
    }

    fn transfer_goodput(&self, index: usize) -> Option<f64> {
        let App::Sized { bytes } = self.setup.flows[index].planned.app else {
            return self.window_goodput(index);
        };
        let record = &self.records[index].0;
        if record.start < self.setup.warmup {
            return None;
        }
        let secs = record.received.since(record.start).secs_f64();
        (record.received != Time::NEVER && secs > 0.0).then(|| bytes as f64 * 8.0 / secs)
    }

    /// Smoothed RTTs at equal intervals; for short transfers, which such samples would miss, every sample.
    fn rtt(&self, flows: &[usize]) -> Option<Dist> {
        if flows.iter().any(|&index| endless(&self.setup.flows[index])) {
            let wanted =
                |index: usize| endless(&self.setup.flows[index]) && flows.binary_search(&index).is_ok();
            return Dist::from_samples(&mut self.srtts(wanted, |_, _| true));
        }
        self.every_rtt(flows)
    }

    /// Smoothed RTTs within the window of the subflows that made progress since their previous sample.
    fn srtts(&self, wanted: impl Fn(usize) -> bool, on: impl Fn(usize, &Sample) -> bool) -> Vec<f64> {
        let mut before: BTreeMap<(usize, u8), u32> = BTreeMap::new();
        let mut values = Vec::new();
        for (index, sample) in self.samples.iter().filter(|(index, _)| wanted(*index)) {
            let last = before.insert((*index, sample.subflow), sample.acked_pkt);
            let moved = last.is_none_or(|last| sample.acked_pkt > last);
            if moved && sample.srtt_8us > 0 && self.in_window(sample.at) && on(*index, sample) {
                values.push(f64::from(sample.srtt_8us) / 8.0);
            }
        }
        values
    }

    fn every_rtt(&self, flows: &[usize]) -> Option<Dist> {
        let mut groups: Vec<u16> = flows.iter().map(|&index| self.setup.flows[index].group).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut sum: Option<hdrhistogram::Histogram<u64>> = None;
        for group in groups {
            let Some(mut histogram) = self.rtts.group(group).cloned() else { continue };
            if let Some(early) = self.accounts.rtts_at_warmup.as_ref().and_then(|r| r.group(group)) {
                // What was counted before the window is part of what was counted in all.
                let _ = histogram.subtract(early);
            }
            match &mut sum {
                // Same bounds and precision.
                Some(sum) => drop(sum.add(&histogram)),
                None => sum = Some(histogram),
            }
        }
        let sum = sum.filter(|histogram| !histogram.is_empty())?;
        let us = |ns: u64| ns as f64 / 1e3;
        Some(Dist {
            mean: sum.mean() / 1e3,
            p50: us(sum.value_at_quantile(0.5)),
            p99: us(sum.value_at_quantile(0.99)),
            min: Some(us(sum.min())),
            max: Some(us(sum.max())),
            samples: Some(sum.len()),
        })
    }

    fn fct(&self, flows: &[usize]) -> Option<Dist> {
        Dist::from_samples(
            &mut flows.iter().flat_map(|&i| self.completions[i].iter().copied()).collect::<Vec<_>>(),
        )
    }

    fn path(&self, path: usize) -> PathMetrics {
        let setup = self.setup;
        let named = &setup.fabric.paths[path];
        let inside = self.accounts.parts.iter().filter(|part| part.from >= setup.warmup);
        let bytes: u64 = inside.map(|part| part.paths[path]).sum();
        let counted = |counter: fn(&crate::host::SubflowRecord) -> u64| {
            let measured = self.flows(|flow| !flow.competing);
            measured.iter().map(|&i| self.on_path(i, path, counter)).sum::<u64>()
        };
        let measured = |index: usize| !setup.flows[index].competing;
        let on = |index: usize, s: &Sample| setup.flows[index].paths[usize::from(s.subflow)] == Some(path);
        let mut queue: Vec<f64> = self
            .queues
            .iter()
            .filter(|sample| sample.link == named.queue && self.in_window(sample.at))
            .map(|sample| sample.backlog_bytes as f64)
            .collect();
        let counters = named.links.iter().map(|link| setup.engine.counters(*link));
        PathMetrics {
            path: named.name.clone(),
            goodput_bps: Some(bytes as f64 * 8.0 / self.window_secs()),
            rtt_us: Dist::from_samples(&mut self.srtts(measured, on)),
            retransmits: Some(counted(|s| s.sender.retransmits)),
            ce_marks: Some(counted(|s| s.receiver.ce_marked)),
            drops: Some(counters.map(|c| c.drops.iter().sum::<u64>()).sum()),
            queue_bytes: Dist::from_samples(&mut queue),
            utilization: self.utilization(path),
            extra: super::classes::extras(self, path),
        }
    }

    fn on_path(&self, index: usize, path: usize, counter: fn(&crate::host::SubflowRecord) -> u64) -> u64 {
        let (record, answers) = &self.records[index];
        let paths = &self.setup.flows[index].paths;
        let of = |record: &Finished| {
            let subflows = record.subflows.iter().zip(paths).filter(|(_, p)| **p == Some(path));
            subflows.map(|(s, _)| counter(s)).sum::<u64>()
        };
        of(record) + answers.as_ref().map_or(0, of)
    }

    /// Absent where the rate changes during the run.
    fn utilization(&self, path: usize) -> Option<f64> {
        let setup = self.setup;
        let changes = |kind: &EventKind| matches!(kind, EventKind::SetRate(_));
        if setup.scenario.event.iter().any(|event| changes(&event.kind)) {
            return None;
        }
        let queue = setup.fabric.paths[path].queue;
        let rate = setup.fabric.net.links()[queue.0 as usize].rate_bps as f64;
        let sent = setup.engine.counters(queue).bytes - self.accounts.links_at_warmup[path].bytes;
        Some(sent as f64 * 8.0 / (rate * self.window_secs()))
    }

    fn extras(&self) -> BTreeMap<String, Extra> {
        let mut extra = BTreeMap::new();
        for (traffic, label) in self.setup.labels.iter().enumerate() {
            let flows = self.flows(|flow| flow.planned.traffic == traffic);
            let mut put = |metric: &str, value: Option<Extra>| {
                if let Some(value) = value {
                    extra.insert(format!("traffic.{label}.{metric}"), value);
                }
            };
            put("goodput_bps", self.entry_goodput(traffic).map(Extra::Number));
            if flows.is_empty() {
                continue;
            }
            let finite = flows.iter().any(|&index| !endless(&self.setup.flows[index]));
            let completed = flows.iter().map(|&i| self.completed[i]).sum::<u64>() as f64;
            put("completed", finite.then_some(Extra::Number(completed)));
            put("retransmits", Some(Extra::Number(self.sum(&flows, Finished::retransmits) as f64)));
            put("rtt_us", self.rtt(&flows).map(Extra::Dist));
            put("fct_us", self.fct(&flows).map(Extra::Dist));
        }
        if let Some(jain) = self.tenant_jain() {
            extra.insert("tenant_jain".into(), Extra::Number(jain));
        }
        if let Some(share) = self.competing_share() {
            extra.insert("competing_share".into(), Extra::Number(share));
        }
        extra
    }

    /// Fairness among the hosts that send without end, whoever they are.
    fn tenant_jain(&self) -> Option<f64> {
        let mut tenants: BTreeMap<usize, f64> = BTreeMap::new();
        for (index, flow) in self.setup.flows.iter().enumerate().filter(|(_, flow)| endless(flow)) {
            let secs = self.active_secs(flow.planned.traffic);
            let rate = if secs > 0.0 { self.accounts.window[index] as f64 * 8.0 / secs } else { 0.0 };
            *tenants.entry(flow.planned.from).or_default() += rate;
        }
        stats::jain(&tenants.into_values().collect::<Vec<f64>>())
    }

    /// What competing connections got of their paths while the first to the last of them was active.
    fn competing_share(&self) -> Option<f64> {
        let competing = self.flows(|flow| flow.competing && endless(flow));
        let planned = |i: &usize| &self.setup.flows[*i].planned;
        let from = competing.iter().map(|i| planned(i).start).min()?.max(self.setup.warmup);
        let to = competing.iter().map(|i| planned(i).stop.min(self.setup.end)).max()?;
        let parts: Vec<_> =
            self.accounts.parts.iter().filter(|part| part.from >= from && part.to <= to).collect();
        let share = |path: usize| {
            let theirs: u64 = parts.iter().map(|part| part.competing_paths[path]).sum();
            let ours: u64 = parts.iter().map(|part| part.paths[path]).sum();
            (theirs > 0).then(|| theirs as f64 / (theirs + ours) as f64)
        };
        let shares: Vec<f64> = (0..self.setup.fabric.paths.len()).filter_map(share).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    }

    /// Every connection, then every answered request.
    fn flow_records(&self) -> Vec<FlowRecord> {
        let connections = (0..self.setup.flows.len()).map(|index| self.flow_record(index));
        connections.chain(self.responses.iter().map(|(index, r)| self.request_record(*index, r))).collect()
    }

    /// One request with its answer. What is counted per connection stands in the connection's record.
    fn request_record(&self, index: usize, response: &Response) -> FlowRecord {
        let flow = &self.setup.flows[index];
        let size_bytes = match flow.planned.app {
            App::RequestResponse { response_bytes, .. } => response_bytes,
            _ => 0,
        };
        FlowRecord {
            start_us: response.asked.us(),
            end_us: Some(response.answered.us()),
            size_bytes: Some(size_bytes),
            delivered_bytes: size_bytes,
            completed: true,
            measured: !flow.competing && response.asked >= self.setup.warmup,
            fct_us: Some(us(response.answered, response.asked)),
            ..self.named(index)
        }
    }

    fn flow_record(&self, index: usize) -> FlowRecord {
        let (flow, (record, answers)) = (&self.setup.flows[index], &self.records[index]);
        let size_bytes = match flow.planned.app {
            App::Sized { bytes } => Some(bytes),
            _ => None,
        };
        let done = record.received != Time::NEVER;
        // An endless connection that was stopped has ended there.
        let ended = if done { record.received } else { flow.planned.stop };
        let end = if ended <= self.setup.end { ended } else { self.setup.end };
        let delivered_bytes = record.delivered_bytes + answers.as_ref().map_or(0, |a| a.delivered_bytes);
        let secs = end.since(record.start).secs_f64();
        let life = (secs > 0.0).then(|| delivered_bytes as f64 * 8.0 / secs);
        let rtt = if self.own_rtts() { self.every_rtt(&[index]) } else { None };
        FlowRecord {
            start_us: record.start.us(),
            end_us: (ended <= self.setup.end).then(|| ended.us()),
            size_bytes,
            delivered_bytes,
            completed: size_bytes.is_some() && done,
            measured: !flow.competing && (size_bytes.is_none() || record.start >= self.setup.warmup),
            goodput_bps: if size_bytes.is_some() { life } else { self.window_goodput(index) },
            fct_us: (size_bytes.is_some() && done).then(|| us(record.received, record.start)),
            rtt_mean_us: rtt.map(|rtt| rtt.mean),
            rtt_p50_us: rtt.map(|rtt| rtt.p50),
            rtt_p99_us: rtt.map(|rtt| rtt.p99),
            retransmits: Some(self.sum(&[index], Finished::retransmits)),
            timeouts: Some(self.sum(&[index], Finished::timeouts)),
            ce_marks: Some(self.sum(&[index], ce_marks)),
            ..self.named(index)
        }
    }

    /// What every record of a connection says about it.
    fn named(&self, index: usize) -> FlowRecord {
        let (flow, subflows) = (&self.setup.flows[index], &self.records[index].0.subflows);
        FlowRecord {
            flow: index as u64,
            traffic: self.setup.labels[flow.planned.traffic].clone(),
            from: flow.planned.from_name.clone(),
            to: flow.planned.to_name.clone(),
            cc: flow.cc.clone(),
            subflows: subflows.iter().filter(|s| s.established || s.closed).count() as u32,
            ..FlowRecord::default()
        }
    }

    /// Whether every connection has an RTT distribution of its own.
    fn own_rtts(&self) -> bool {
        let mut groups: Vec<u16> = self.setup.flows.iter().map(|flow| flow.group).collect();
        groups.sort_unstable();
        groups.windows(2).all(|pair| pair[0] != pair[1])
    }
}

fn ce_marks(record: &Finished) -> u64 {
    record.subflows.iter().map(|s| s.receiver.ce_marked).sum()
}

/// All samples with the index of their flow, in an order that does not depend on shards.
fn samples(hosts: &[&Hosts], by_conn: &BTreeMap<u32, usize>) -> Vec<(usize, Sample)> {
    let all = hosts.iter().flat_map(|shard| shard.samples());
    let mut samples: Vec<(usize, Sample)> =
        all.filter_map(|sample| Some((*by_conn.get(&sample.conn.0)?, *sample))).collect();
    samples.sort_by_key(|(index, sample)| (sample.at, *index, sample.subflow));
    samples
}

/// Answered requests with the index of their flow, in an order that does not depend on shards.
fn responses(hosts: &[&Hosts], by_conn: &BTreeMap<u32, usize>) -> Vec<(usize, Response)> {
    let all = hosts.iter().flat_map(|shard| shard.responses());
    let mut responses: Vec<(usize, Response)> =
        all.filter_map(|response| Some((*by_conn.get(&response.conn.0)?, *response))).collect();
    responses.sort_by_key(|(index, response)| (response.answered, *index, response.asked));
    responses
}

/// Completion times by flow, and how many transfers each completed.
fn completions(
    setup: &Setup,
    records: &[(Finished, Option<Finished>)],
    responses: &[(usize, Response)],
) -> (Vec<Vec<f64>>, Vec<u64>) {
    let mut times = vec![Vec::new(); records.len()];
    let mut completed = vec![0; records.len()];
    for (index, (record, _)) in records.iter().enumerate() {
        if matches!(setup.flows[index].planned.app, App::Sized { .. }) && record.received != Time::NEVER {
            completed[index] += 1;
            if record.start >= setup.warmup {
                times[index].push(us(record.received, record.start));
            }
        }
    }
    for (index, response) in responses {
        completed[*index] += 1;
        if response.asked >= setup.warmup {
            times[*index].push(us(response.answered, response.asked));
        }
    }
    (times, completed)
}
