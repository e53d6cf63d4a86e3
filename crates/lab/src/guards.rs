//! Closes paths that an algorithm of the run asks to close, as `vmcc up --guard` does on a host, and counts what became of it.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vmcc_guard::{Verdict, close};
use vmcc_host::Loaded;
use vmcc_host::close_requests::CloseRequests;

/// Those of a run. Of an algorithm that somebody else has loaded, that one's guard is responsible: requests are read once.
pub(crate) struct Guards {
    guards: Vec<CloseRequests>,
    /// So many paths of a connection are spared.
    min_paths: u32,
    tally: Tally,
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

impl Guards {
    pub(crate) fn of(algorithms: &[Loaded], min_paths: u32) -> Result<Self, Error> {
        let (own, others): (Vec<_>, Vec<_>) = algorithms.iter().partition(|loaded| loaded.is_own());
        let guards = own.into_iter().filter_map(|loaded| CloseRequests::open(loaded).transpose());
        let guards: Result<Vec<CloseRequests>, _> = guards.collect();
        let others = others.into_iter().filter(|loaded| loaded.algorithm().info().detects);
        let others = others.map(|loaded| loaded.kernel_name().to_owned()).collect();
        let tally = Tally { others, ..Tally::default() };
        guards.map(|guards| Self { guards, min_paths, tally }).map_err(|e| Error::reading(READING, &e))
    }

    /// Does what was asked for since the last time. `look` comes before that: what is closed must have been seen, however short its
    /// life was.
    pub(crate) fn act(&mut self, look: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut asked = Vec::new();
        for guard in &self.guards {
            let requests = guard.poll(Duration::ZERO).map_err(|e| Error::reading(READING, &e))?;
            asked.extend(requests.into_iter().map(|request| (guard.kernel_name(), request)));
        }
        if asked.is_empty() {
            return Ok(());
        }
        look()?;
        for (algorithm, request) in asked {
            // One path that cannot be closed is no reason to end the run: it says so when it is over.
            self.tally.count(close(&request, algorithm, self.min_paths));
        }
        Ok(())
    }

    /// Results of all requests so far.
    pub(crate) fn tally(&self, algorithms: &[Loaded]) -> Tally {
        let own = algorithms.iter().filter(|loaded| loaded.is_own());
        let lost = own.map(|loaded| loaded.shortage().requests_lost).sum();
        Tally { lost, ..self.tally.clone() }
    }
}

const READING: &str = "reading what algorithms ask to close";

impl Tally {
    fn count(&mut self, verdict: Result<Verdict, impl std::error::Error + 'static>) {
        match verdict {
            Ok(Verdict::Closed) => self.closed += 1,
            Ok(Verdict::Gone) => self.gone += 1,
            Ok(Verdict::NothingToKeep) => self.nothing_to_keep += 1,
            // As was asked for.
            Ok(Verdict::Retained) => {}
            Err(error) => {
                self.refused += 1;
                self.refusal.get_or_insert_with(|| vmcc_engine::chain(&error));
            }
        }
    }

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
    use std::io;

    fn refusal() -> io::Error {
        io::Error::from_raw_os_error(nix::libc::EPERM)
    }

    #[test]
    fn a_run_says_which_requests_were_not_followed_and_why() {
        let mut tally = Tally::default();
        tally.count(Ok::<_, io::Error>(Verdict::Closed));
        assert_eq!(tally.warnings(None), Vec::<String>::new(), "nothing to say of what was done");
        for verdict in [Ok(Verdict::Gone), Ok(Verdict::NothingToKeep), Err(refusal()), Err(refusal())] {
            tally.count(verdict);
        }
        tally.lost = 3;
        let said = tally.warnings(None).join("\n");
        assert!(said.contains("of 8 requests") && said.contains("7 were not followed"), "{said}");
        for why in [
            "1: the path had ended",
            "1: the one to be kept",
            "2: Operation not permitted",
            "3: it was one of",
        ] {
            assert!(said.contains(why), "{why} is not in: {said}");
        }
    }

    #[test]
    fn an_algorithm_without_a_guard_of_the_run_is_named() {
        let tally = Tally { others: vec!["mp_vmcc".to_owned()], ..Tally::default() };
        let said = tally.warnings(Some("vm0")).join("\n");
        assert!(said.starts_with("virtual machine vm0: mp_vmcc was loaded before"), "{said}");
    }
}
