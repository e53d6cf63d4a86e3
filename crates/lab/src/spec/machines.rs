//! Hosts that are virtual machines: those that something takes off their processors, and those that shall be.

use super::{Flow, Job, LabSpec, Layout};
use crate::Error;
use crate::guest::DutyCycle;
use crate::rng::Rng;
use std::collections::BTreeSet;
use vmcc_units::{Bytes, Nanos};

/// To stop a process and to let it go on takes signals, which are some tens of microseconds late.
const MIN_PERIOD: Nanos = Nanos::from_millis(1);
/// A machine keeps what it sends, and what can be fetched of it, in its own memory.
const MAX_FILES: Bytes = Bytes::new(256 << 20);
/// Least time that a fetched connection stays open: several times the interval at which a machine samples its own sockets.
/// Each sample takes an emulated machine its time.
const LINGER: Nanos = Nanos::from_millis(200);

/// The virtual machines of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machines {
    /// Their hosts' numbers: one at most.
    pub hosts: BTreeSet<usize>,
    /// Scenario key that makes them virtual machines.
    pub key: &'static str,
    /// Patterns by which they are descheduled.
    pub sleeps: Vec<Deschedule>,
    /// Of what is random.
    pub seed: u64,
}

/// A pattern by which a host runs and is off.
#[derive(Debug, Clone, PartialEq)]
pub struct Deschedule {
    /// The host's number.
    pub host: usize,
    /// Start of the pattern, after the run's start.
    pub at: Nanos,
    /// End of the pattern, after the run's start.
    pub until: Nanos,
    /// Lengths of the periods in which the host runs and is descheduled.
    pub lengths: Lengths,
}

/// The lengths of a pattern's periods: for how long the host runs, and is off.
#[derive(Debug, Clone, PartialEq)]
pub enum Lengths {
    /// Always the same.
    Fixed(Nanos, Nanos),
    /// Exponential, with these means.
    Random(Nanos, Nanos),
    /// One after the other, again and again.
    Recorded(Vec<(Nanos, Nanos)>),
}

impl Machines {
    /// The turns of a host until `end`; periods that overlap are one.
    pub(crate) fn duty_cycles(&self, host: usize, end: Nanos) -> Vec<DutyCycle> {
        let of_host = self.sleeps.iter().enumerate().filter(|(_, sleep)| sleep.host == host);
        let mut windows: Vec<(u64, u64)> =
            of_host.flat_map(|(number, sleep)| sleep.windows(end, Rng::new(self.seed, number))).collect();
        windows.sort_unstable();
        let mut turns: Vec<DutyCycle> = Vec::new();
        let mut ended = 0;
        let mut windows = windows.into_iter().peekable();
        while let Some((from, mut to)) = windows.next() {
            while let Some((_, later)) = windows.next_if(|(next, _)| *next <= to) {
                to = to.max(later);
            }
            turns.push(DutyCycle {
                on: Nanos::new(from - ended).to_duration(),
                off: Nanos::new(to - from).to_duration(),
            });
            ended = to;
        }
        turns
    }
}

impl Deschedule {
    fn windows(&self, end: Nanos, mut rng: Rng) -> Vec<(u64, u64)> {
        let end = end.min(self.until).get();
        let (mut at, mut windows) = (self.at.get(), Vec::new());
        for number in 0.. {
            let (on, off) = match &self.lengths {
                Lengths::Fixed(on, off) => (on.get(), off.get()),
                Lengths::Random(on, off) => (rng.exponential_ns(*on), rng.exponential_ns(*off)),
                Lengths::Recorded(pairs) => {
                    let (on, off) = pairs[number % pairs.len()];
                    (on.get(), off.get())
                }
            };
            let from = at.saturating_add(on);
            at = from.saturating_add(off);
            if from >= end {
                break;
            }
            if off > 0 {
                windows.push((from, at.min(end)));
            }
        }
        windows
    }

    /// Of a pattern's periods, how long one on and one off last together, on average.
    fn mean_period(&self) -> Nanos {
        match &self.lengths {
            Lengths::Fixed(on, off) | Lengths::Random(on, off) => {
                Nanos::new(on.get().saturating_add(off.get()))
            }
            Lengths::Recorded(pairs) => {
                let sum = pairs.iter().map(|(on, off)| on.get().saturating_add(off.get()));
                Nanos::new(sum.fold(0, u64::saturating_add) / pairs.len().max(1) as u64)
            }
        }
    }
}

impl LabSpec {
    /// A host that is a virtual machine, if there is one, and the key that makes it one.
    pub(crate) fn first_machine(&self) -> Option<(&'static str, String)> {
        let host = self.hosts.get(*self.machines.hosts.first()?)?;
        Some((self.machines.key, host.clone()))
    }

    /// Has connections to a machine stay until it has looked at them, also when it was off meanwhile.
    pub(crate) fn outlast_machines(&mut self) {
        let (machines, end) = (&self.machines, self.duration);
        for flow in self.flows.iter_mut().filter(|flow| machines.hosts.contains(&flow.from)) {
            if let Job::Objects { linger, .. } = &mut flow.job {
                let turns = machines.duty_cycles(flow.from, end);
                let longest = turns.iter().map(|turn| turn.off).max().unwrap_or_default();
                let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
                *linger = Nanos::new(LINGER.get().saturating_add(longest));
            }
        }
    }

    /// True if the user-space links of virtual machines delay and lose packets, rather than netem, which not every kernel has.
    pub(crate) fn userspace_links_impair(&self) -> bool {
        let from_machine = |flow: &Flow| self.machines.hosts.contains(&flow.from);
        matches!(self.layout, Layout::ParallelPaths) && self.flows.iter().all(from_machine)
    }

    pub(super) fn check_machines(&self) -> Result<(), Error> {
        for sleep in &self.machines.sleeps {
            if sleep.mean_period() < MIN_PERIOD {
                let problem =
                    format!("it runs and is off within {}; {MIN_PERIOD} is the least", sleep.mean_period());
                return Err(Error::not_expressible("event.deschedule", problem));
            }
        }
        let Some(host) = self.machines.hosts.first() else { return Ok(()) };
        let name = &self.hosts[*host];
        let refused =
            |problem: &str| Err(Error::not_expressible(self.machines.key, format!("{name}: {problem}")));
        if self.machines.hosts.len() > 1 {
            return refused("another host is a virtual machine, too, and it makes one");
        }
        if !self.remaps.is_empty() {
            return refused("a vNIC moves, which a virtual machine does not see");
        }
        if self.flows.iter().any(|flow| flow.to == *host) {
            return refused(
                "it is sent to, or fetches, and a virtual machine only sends and is fetched from",
            );
        }
        if self.flows.iter().any(|flow| flow.from == *host && flow.quic().is_some()) {
            return refused("it sends QUIC, whose programs run beside the network");
        }
        if self.throttles.iter().any(|throttle| throttle.host == *host) {
            return refused("its programs have a quota, which containers have");
        }
        let own: Vec<&Flow> = self.flows.iter().filter(|flow| flow.from == *host).collect();
        if own.iter().any(|flow| flow.round > 0 && flow.client() == *host) {
            return refused("its transfers come in rounds, and it does not see what others have received");
        }
        let stack = |flow: &Flow| (flow.role, flow.cc.kernel_name(), flow.ecn);
        if own.iter().any(|flow| stack(flow) != stack(own[0])) {
            return refused(
                "its entries of traffic differ in their congestion control, ECN or role, and it has one TCP",
            );
        }
        if own.iter().map(|flow| flow.kept_bytes()).fold(0, u64::saturating_add) > MAX_FILES.get() {
            return refused(&format!("it keeps its files and objects in memory, at most {MAX_FILES}"));
        }
        let jitters =
            |path: &super::Path| !path.out.wire.jitter.is_zero() || !path.back.wire.jitter.is_zero();
        if self.userspace_links_impair() && self.paths.iter().any(jitters) {
            return Err(Error::not_expressible(
                "topology.jitter",
                "a virtual machine's cable has a constant delay",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(sleeps: &[(u64, u64, Lengths)]) -> Vec<(u64, u64)> {
        let sleep = |(at, until, lengths): &(u64, u64, Lengths)| Deschedule {
            host: 0,
            at: Nanos::new(*at),
            until: Nanos::new(*until),
            lengths: lengths.clone(),
        };
        let machines = Machines { sleeps: sleeps.iter().map(sleep).collect(), ..Machines::default() };
        let all = machines.duty_cycles(0, Nanos::new(1000));
        assert_eq!(machines.duty_cycles(1, Nanos::new(1000)), []);
        all.iter().map(|turn| (turn.on.as_nanos() as u64, turn.off.as_nanos() as u64)).collect()
    }

    fn fixed(on: u64, off: u64) -> Lengths {
        Lengths::Fixed(Nanos::new(on), Nanos::new(off))
    }

    #[test]
    fn pattern_ends_at_its_stop_time_and_merges_with_others() {
        assert_eq!(turns(&[(0, 500, fixed(100, 150))]), [(100, 150), (100, 150)]);
        assert_eq!(turns(&[(0, 400, fixed(100, 250))]), [(100, 250)]);
        assert_eq!(turns(&[(100, 9999, fixed(300, 400))]), [(400, 400)], "the run ends");
        assert_eq!(turns(&[(0, 500, fixed(100, 150)), (0, 400, fixed(200, 200))]), [(100, 400)]);
    }

    #[test]
    fn recorded_pattern_repeats_and_allows_zero_lengths() {
        let pairs = [(10, 0), (20, 300), (0, 50)].map(|(on, off)| (Nanos::new(on), Nanos::new(off)));
        let found = turns(&[(0, 800, Lengths::Recorded(pairs.to_vec()))]);
        assert_eq!(found, [(30, 350), (30, 350), (30, 10)], "cut where the pattern ends");
    }

    #[test]
    fn random_times_have_their_means_and_follow_the_seed() {
        let of = |seed| {
            let lengths = Lengths::Random(Nanos::from_millis(3), Nanos::from_millis(30));
            let sleep = Deschedule { host: 0, at: Nanos::ZERO, until: Nanos::from_secs(3000), lengths };
            Machines { sleeps: vec![sleep], seed, ..Machines::default() }
                .duty_cycles(0, Nanos::from_secs(3000))
        };
        let turns = of(1);
        let mean = |of: fn(&DutyCycle) -> f64| turns.iter().map(of).sum::<f64>() / turns.len() as f64;
        let (on, off) = (mean(|turn| turn.on.as_secs_f64()), mean(|turn| turn.off.as_secs_f64()));
        assert!((on / 3e-3 - 1.0).abs() < 0.03 && (off / 30e-3 - 1.0).abs() < 0.03, "{on} {off}");
        assert!(turns == of(1) && turns != of(2));
    }
}
