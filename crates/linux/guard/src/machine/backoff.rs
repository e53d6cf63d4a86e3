//! Back-off of paths that were closed or suppressed, until they are tried again.

use std::net::IpAddr;
use std::time::Duration;
use vmcc_system::diag::Subflow;

/// Upper bound of the back-off.
const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// Maximum number of entries. More would mean a host that closes paths all the time.
const MAX_ENTRIES: usize = 4096;

/// State of a path in back-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackoffState {
    Closed,
    Suppressed,
    /// It was tried again, and how that ends is not known yet.
    Tried,
}

/// Back-off of one path.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    pub(crate) netns: u32,
    /// As it was last seen.
    pub(crate) subflow: Subflow,
    pub(crate) state: BackoffState,
    since: Duration,
    /// Number of back-offs so far.
    times: u32,
    /// Its socket was kept and is no backup any more: while that is there, so is the path.
    runs_on: bool,
    /// Hash of its namespace's topology at the first scan of the back-off.
    topology: Option<u64>,
}

impl Backoff {
    fn is(&self, netns: u32, subflow: &Subflow) -> bool {
        let token = |s: &Subflow| s.mptcp.map(|mptcp| mptcp.token_local);
        let ends = |s: &Subflow| (s.local.ip(), s.remote, token(s));
        self.netns == netns && ends(&self.subflow) == ends(subflow)
    }

    /// From here on; once more if it was tried before.
    fn try_again(&mut self, now: Duration) {
        self.times += u32::from(self.state == BackoffState::Tried);
        self.runs_on |= self.state == BackoffState::Suppressed;
        (self.state, self.since, self.topology) = (BackoffState::Tried, now, None);
    }

    /// True if the back-off is over: `base`, doubled for each earlier back-off. After a change of addresses, interfaces or routes it
    /// is only `base`.
    fn is_due(&self, now: Duration, base: Duration, topology: u64) -> bool {
        let changed = self.topology.is_some_and(|then| then != topology);
        let doubled = base.saturating_mul(1_u32.checked_shl(self.times - 1).unwrap_or(u32::MAX));
        let wait = if changed { base } else { doubled.clamp(base, MAX_BACKOFF.max(base)) };
        now.saturating_sub(self.since) >= wait
    }
}

/// Back-offs of all paths.
#[derive(Debug, Default)]
pub(crate) struct Backoffs(Vec<Backoff>);

impl Backoffs {
    /// Begins the back-off of a path; doubled if the path had one before.
    pub(crate) fn begin(&mut self, now: Duration, netns: u32, subflow: &Subflow, state: BackoffState) {
        let before = self.0.iter().position(|one| one.is(netns, subflow)).map(|at| self.0.swap_remove(at));
        let times = before.map_or(0, |one| one.times) + 1;
        if self.0.len() < MAX_ENTRIES {
            self.0.push(Backoff {
                netns,
                subflow: subflow.clone(),
                state,
                since: now,
                times,
                runs_on: false,
                topology: None,
            });
        }
    }

    /// Restores the back-off that `due` returned, without doubling: the path could not be tried.
    pub(crate) fn not_tried(&mut self, now: Duration, as_it_was: Backoff) {
        self.0.retain(|one| !one.is(as_it_was.netns, &as_it_was.subflow));
        self.0.push(Backoff { since: now, topology: None, ..as_it_was });
    }

    /// The namespaces that have some.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|one| one.netns)
    }

    /// Forgets those whose connection is over, by the subflows that a namespace has; all if it is not there any more.
    pub(crate) fn forget(&mut self, netns: u32, all: &[Subflow]) {
        let token = |s: &Subflow| s.mptcp.map(|mptcp| mptcp.token_local);
        self.0.retain(|one| one.netns != netns || all.iter().any(|s| token(s) == token(&one.subflow)));
    }

    /// Other closed paths from an address, which are tried with those that are due; they count as tried from here on.
    pub(crate) fn with(&mut self, now: Duration, netns: u32, address: IpAddr) -> Vec<Backoff> {
        let is_with = |one: &&mut Backoff| {
            one.netns == netns
                && one.state != BackoffState::Suppressed
                && one.since != now
                && one.subflow.local.ip().to_canonical() == address
        };
        let tried = |one: &mut Backoff| {
            let as_it_was = one.clone();
            one.try_again(now);
            as_it_was
        };
        self.0.iter_mut().filter(is_with).map(tried).collect()
    }

    /// Marks every suppressed path as tried: none is a backup any more.
    pub(crate) fn release(&mut self, now: Duration) {
        self.0
            .iter_mut()
            .filter(|one| one.state == BackoffState::Suppressed)
            .for_each(|one| one.try_again(now));
    }

    /// Those of a namespace that are to be tried now, by the subflows that it has; they count as tried from here on. One that
    /// was tried and is not there had no success.
    pub(crate) fn due(&mut self, now: Duration, base: Duration, seen: &Seen<'_>) -> Vec<Backoff> {
        let mut due = Vec::new();
        for one in self.0.iter_mut().filter(|one| one.netns == seen.netns) {
            // The one that was closed may be listed still.
            let is_it =
                |s: &Subflow| (one.runs_on || s.cookie != one.subflow.cookie) && one.is(seen.netns, s);
            let runs = seen.all.iter().find(|s| one.state != BackoffState::Suppressed && is_it(s));
            if let Some(runs) = runs {
                // By itself, or as it was tried.
                one.state = BackoffState::Tried;
                if !runs.established {
                    // Its back-off begins when this handshake is given up.
                    one.since = now;
                }
            } else if one.is_due(now, base, seen.topology) {
                due.push(one.clone());
                one.try_again(now);
            }
            one.topology.get_or_insert(seen.topology);
        }
        due
    }
}

/// A network namespace as it is now.
pub(crate) struct Seen<'a> {
    pub(crate) netns: u32,
    pub(crate) all: &'a [Subflow],
    /// Of addresses, interfaces and routes.
    pub(crate) topology: u64,
}
