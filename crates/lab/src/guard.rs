//! The guard of a run: the one of `vmcc up --guard`, with its policy, and what became of the algorithms' requests.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vmcc_bpf::{ControlError, Loaded};
use vmcc_guard::{Guard, GuardEvent, GuardState, Policy, RequestCounts, RequestReaders};

/// Guard of a run's own algorithms. Requests are read once: those of an algorithm that another process has loaded belong to its
/// guard.
pub(crate) struct RunGuard {
    guard: Guard,
    /// Reason of the first failure.
    refusal: Option<String>,
    /// Algorithms whose requests are not ours to read.
    others: Vec<String>,
}

/// Results of the algorithms' requests to close paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    closed: u64,
    /// The path had ended by itself.
    gone: u64,
    /// Of the path to be kept nothing was alive.
    nothing_to_keep: u64,
    refused: u64,
    /// Reason of the first refusal.
    refusal: Option<String>,
    /// The kernel programs could not pass them on.
    lost: u64,
    /// Algorithms whose requests are not ours to read.
    others: Vec<String>,
}

impl RunGuard {
    /// `min_paths`: the guard's policy of that name; the others have their defaults.
    pub(crate) fn new(algorithms: &[Loaded], min_paths: u32) -> Result<Self, Error> {
        let (own, others): (Vec<_>, Vec<_>) = algorithms.iter().partition(|loaded| loaded.is_own());
        let requests = RequestReaders::open(own).map_err(|e| Error::reading(READING, &e))?;
        let policy = Policy { min_paths, ..Policy::default() };
        let guard = Guard::new(requests, policy, GuardState::default());
        let others = others.into_iter().filter(|loaded| loaded.algorithm().info().detects);
        let others = others.map(|loaded| loaded.kernel_name().to_owned()).collect();
        Ok(Self { guard, refusal: None, others })
    }

    /// Performs what is due. `look` comes before that: a path that is closed must have been sampled, however short its life was.
    pub(crate) fn act(&mut self, look: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut unreadable = None;
        self.guard.receive(Duration::ZERO, &mut |read| unreadable = read.err());
        if let Some(error) = unreadable {
            return Err(Error::reading(READING, &error));
        }
        if !self.guard.is_due() {
            return Ok(());
        }
        look()?;
        self.guard.act(&mut |done| note(&mut self.refusal, done));
        Ok(())
    }

    /// Ends the guard; results of all requests.
    pub(crate) fn end(mut self, algorithms: &[Loaded]) -> Tally {
        let own = algorithms.iter().filter(|loaded| loaded.is_own());
        let lost = own.map(|loaded| loaded.shortage().requests_lost).sum();
        let counts = self.guard.counts();
        self.guard.end(&mut |done| note(&mut self.refusal, done));
        Tally { lost, refusal: self.refusal, others: self.others, ..Tally::from(counts) }
    }
}

/// One path that cannot be closed is no reason to end the run: a warning says so when it is over.
fn note(refusal: &mut Option<String>, done: Result<GuardEvent, ControlError>) {
    if let Err(error) = done {
        refusal.get_or_insert_with(|| vmcc_engine::chain(&error));
    }
}

impl From<RequestCounts> for Tally {
    /// Retained paths are as the scenario asks, and no result to warn of.
    fn from(counts: RequestCounts) -> Self {
        let RequestCounts { closed, gone, nothing_to_keep, failed, pending, .. } = counts;
        Self { closed, gone, nothing_to_keep: nothing_to_keep + pending, refused: failed, ..Self::default() }
    }
}

const READING: &str = "reading what algorithms ask to close";

impl Tally {
    /// Warnings for readers of the run's figures. `at`: the virtual machine in which the algorithms ran, if it was one.
    pub(crate) fn warnings(&self, at: Option<&str>) -> Vec<String> {
        let whose = at.map_or(String::new(), |host| format!("virtual machine {host}: "));
        let failed = self.refused + self.lost;
        let asked = self.closed + self.gone + self.nothing_to_keep + failed;
        let left = [
            (self.gone, "the path had ended already"),
            (self.nothing_to_keep, "the one to be kept was not alive"),
            (self.refused, self.refusal.as_deref().unwrap_or("it was refused")),
            (self.lost, "it was one of too many at once"),
        ];
        let left = left.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count}: {why}"));
        let left = left.collect::<Vec<_>>();
        let open = (!left.is_empty()).then(|| {
            format!(
                "{whose}of {asked} requests to close a path that shares a bottleneck {} were not followed ({})",
                asked - self.closed,
                left.join("; ")
            )
        });
        let others = self.others.iter().map(|name| {
            format!(
                "{whose}{name} was loaded before the run by somebody else, whose guard (`vmcc up --guard`) has to close the \
                 paths that it asks to close; without one none is closed"
            )
        });
        open.into_iter().chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_warns_of_requests_that_were_not_followed() {
        let followed = Tally::from(RequestCounts { closed: 1, retained: 5, ..RequestCounts::default() });
        assert_eq!(followed.warnings(None), Vec::<String>::new());
        let counts =
            RequestCounts { closed: 1, gone: 1, nothing_to_keep: 1, retained: 5, failed: 2, pending: 1 };
        let refusal = Some("Operation not permitted".to_owned());
        let said = Tally { lost: 3, refusal, ..Tally::from(counts) }.warnings(None).join("\n");
        assert!(said.contains("of 9 requests") && said.contains("8 were not followed"), "{said}");
        for why in [
            "1: the path had ended",
            "2: the one to be kept",
            "2: Operation not permitted",
            "3: it was one of",
        ] {
            assert!(said.contains(why), "{why} is not in: {said}");
        }
    }

    #[test]
    fn algorithm_without_a_guard_is_named() {
        let tally = Tally { others: vec!["mp_vmcc".to_owned()], ..Tally::default() };
        let said = tally.warnings(Some("vm0")).join("\n");
        assert!(said.starts_with("virtual machine vm0: mp_vmcc was loaded before"), "{said}");
    }
}
