//! Invariants of a run, for all settings.

use super::point::{Measured, Point};
use vmcc_sim::tcp::{ConnRecord, SubflowRecord};
use vmcc_sim::time::{Span, Time};

/// A law's name, and what speaks against it.
type Verdict = (&'static str, Option<String>);

fn verdict(law: &'static str, holds: bool, complaint: impl FnOnce() -> String) -> Verdict {
    (law, (!holds).then(complaint))
}

fn sum(records: &[ConnRecord], counter: impl Fn(&SubflowRecord) -> u64) -> u64 {
    records.iter().flat_map(|record| &record.subflows).map(counter).sum()
}

impl Point {
    /// The laws that say something at this point.
    pub(crate) fn laws(&self, m: &Measured) -> Vec<Verdict> {
        let mut all = vec![
            self.no_more_than_the_links_carry(m),
            nothing_appears_or_vanishes(m),
            every_packet_is_accounted_for(m),
            everything_written_arrives(m),
            self.the_queue_keeps_its_limit(m),
            verdict("a run can be repeated", m.repeatable, String::new),
        ];
        all.extend(self.round_trips_are_possible(m));
        all.extend(self.nothing_is_sent_twice_for_nothing(m));
        all.extend(self.paths_are_filled(m));
        all.extend(self.nobody_starves(m));
        all
    }

    /// Payload that the paths can carry in so long.
    fn capacity_bytes(&self, time: Span) -> f64 {
        let payload = f64::from(self.mtu_bytes - self.header_bytes()) / f64::from(self.mtu_bytes);
        self.rate_bps as f64 * self.paths as f64 * time.secs_f64() / 8.0 * payload
    }

    fn no_more_than_the_links_carry(&self, m: &Measured) -> Verdict {
        let (got, most) = (m.delivered_bytes.iter().sum::<u64>(), self.capacity_bytes(m.senders_stop));
        verdict("no more than the links carry", got as f64 <= most * 1.000_001, || format!("{got} of {most}"))
    }

    fn the_queue_keeps_its_limit(&self, m: &Measured) -> Verdict {
        let most = self.buffer_pkt * u64::from(self.mtu_bytes);
        verdict("a queue keeps its limit", m.queue_bytes <= most, || format!("{} of {most}", m.queue_bytes))
    }

    /// Never shorter than without a queue, nor longer than behind a full one with a delayed ACK. The histogram is exact to
    /// 1 %. A packet that waits for a hole to be filled is not measured: its SACK was.
    fn round_trips_are_possible(&self, m: &Measured) -> Option<Verdict> {
        let (least, most) = m.rtt?;
        let base = self.base_rtt().ps() as f64;
        let full = (self.longest_rtt() + self.delayed_ack).ps() as f64;
        let holds = least.ps() as f64 >= base * 0.985 && most.ps() as f64 <= full * 1.015;
        Some(verdict("round trips are possible", holds, || {
            format!("{} to {} us, possible are {} to {}", least.us(), most.us(), base / 1e6, full / 1e6)
        }))
    }
}

/// Sent is delivered, dropped or under way; in the end, nothing is under way.
fn nothing_appears_or_vanishes(m: &Measured) -> Verdict {
    let (t, end) = (m.totals_stopped, m.totals);
    let holds = t.sent == t.delivered + t.dropped + t.in_flight
        && end.sent == end.delivered + end.dropped
        && end.in_flight == 0;
    verdict("nothing appears or vanishes", holds, || format!("{t:?}, in the end {end:?}"))
}

/// Hosts and links count alike: data and, per subflow, at most a handshake of three messages with its repetitions.
fn every_packet_is_accounted_for(m: &Measured) -> Verdict {
    let sent = sum(&m.finished, |s| s.sender.sent);
    let received = sum(&m.finished, |s| s.receiver.packets);
    let entered = m.carried + m.dropped;
    let controls = 8 * m.finished.iter().map(|r| r.subflows.len() as u64).sum::<u64>();
    let holds =
        (sent..=sent + controls).contains(&entered) && (received..=received + controls).contains(&m.carried);
    verdict("every packet is accounted for", holds, || {
        format!("sent {sent}, at the links {entered}, carried {}, received {received}", m.carried)
    })
}

/// Whatever was lost: some time after senders have stopped, they know that receivers have everything; over one path,
/// everything that arrived for the first time is in order.
fn everything_written_arrives(m: &Measured) -> Verdict {
    let all = |r: &ConnRecord| {
        let fresh: u64 = r.subflows.iter().map(|s| s.receiver.bytes).sum();
        let in_order =
            if r.subflows.len() > 1 { fresh >= r.delivered_bytes } else { fresh == r.delivered_bytes };
        r.acknowledged != Time::NEVER && in_order
    };
    verdict("everything written arrives", m.finished.iter().all(all), || format!("{:?}", m.finished))
}

impl Point {
    /// Without reordering and timeouts, what arrives twice is a tail loss probe (RFC 8985 section 7.3).
    fn nothing_is_sent_twice_for_nothing(&self, m: &Measured) -> Option<Verdict> {
        let timeouts = sum(&m.finished, |s| u64::from(s.sender.timeouts));
        let probes = sum(&m.finished, |s| u64::from(s.sender.probes));
        let twice = sum(&m.finished, |s| s.receiver.duplicates);
        let resent = sum(&m.finished, |s| s.sender.retransmits);
        (timeouts == 0).then(|| {
            let holds = twice <= probes && resent <= m.dropped + probes;
            verdict("nothing is sent twice for nothing", holds, || {
                format!("{twice} twice, {resent} sent again, {} dropped, {probes} probes", m.dropped)
            })
        })
    }

    /// Round trips that fit into the second half of the run, each behind a queue as long as the path or, if less, a full one.
    fn rounds(&self, m: &Measured) -> f64 {
        let queue = self.wire().secs_f64() * self.pipe_pkt().min(self.buffer_pkt as f64);
        m.senders_stop.secs_f64() / 2.0 / (self.base_rtt().secs_f64() + queue)
    }

    fn delivered_in_second_half(&self, m: &Measured) -> Vec<f64> {
        m.delivered_bytes.iter().zip(&m.delivered_half_bytes).map(|(all, half)| (all - half) as f64).collect()
    }

    /// With a buffer of a bandwidth-delay product, once slow start has had its rounds.
    fn paths_are_filled(&self, m: &Measured) -> Option<Verdict> {
        let window = self.pipe_pkt() * self.paths as f64 / self.flows as f64;
        let enough = (window / 10.0).log2().max(0.0) + 10.0;
        if (self.buffer_pkt as f64) < self.pipe_pkt().max(20.0) || self.rounds(m) < enough {
            return None;
        }
        let least = if self.algorithm.name() == "wvegas" { 0.2 } else { 0.6 };
        let got: f64 = self.delivered_in_second_half(m).iter().sum();
        let share = got / self.capacity_bytes(Span::from_ps(m.senders_stop.ps() / 2));
        Some(verdict("paths are filled", share >= least, || format!("{share:.3}")))
    }

    /// Equals whose packets are marked have at least a fifth of their share each: there is room for what they cannot go
    /// below, two packets each, and who lost something in slow start and timed out had time to return.
    fn nobody_starves(&self, m: &Measured) -> Option<Verdict> {
        let roomy = self.buffer_pkt >= 4 * self.flows as u64;
        let settled = m.dropped == 0 || m.senders_stop >= Span::from_secs(4);
        if !self.marks || self.flows < 2 || self.rounds(m) < 30.0 || !roomy || !settled {
            return None;
        }
        let got = self.delivered_in_second_half(m);
        let fair = got.iter().sum::<f64>() / got.len() as f64;
        Some(verdict("nobody starves", got.iter().all(|g| *g >= fair / 5.0), || format!("{got:?}")))
    }
}
