//! One case of a scenario, simulated.
//!
//! What comes out is observed here and made into figures by [`vmcc_metrics`].

mod accounts;
mod changes;
mod links;
mod observe;
mod reroute;
mod setup;
mod subflows;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use vmcc_metrics::observed::Observed;
use vmcc_results::{RunOutput, Work};
use vmcc_scenario::ResolvedCase;

use crate::engine::Bounds;
use crate::error::SimError;
use crate::time::{Span, Time};
use accounts::Accounts;
use setup::Setup;

/// Options of a run.
#[derive(Default)]
pub struct Options<'a> {
    /// Threads for this one run, at least 1; the results do not depend on it.
    pub threads: u32,
    /// Set by another thread to stop the run.
    pub cancel: Option<&'a AtomicBool>,
    /// Called with the share of simulated time that is done, from 0 to 1.
    pub progress: Option<&'a (dyn Fn(f64) + Sync)>,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Parts into which a run is cut at least, for progress and interruption.
const PARTS: u64 = 100;

/// Simulates a case with a seed. Same case, seed and version give the same output on every machine.
///
/// # Errors
/// [`SimError`] if the simulator cannot express the case, or if it was canceled.
pub fn run_case(case: &ResolvedCase, seed: u64, options: &Options<'_>) -> Result<RunOutput, SimError> {
    let (setup, accounts) = run(case, seed, options)?;
    Ok(output(setup, &accounts))
}

/// Simulates a case with a seed and answers what was seen, before figures are made of it.
///
/// # Errors
/// As [`run_case`].
pub fn observe_case(case: &ResolvedCase, seed: u64, options: &Options<'_>) -> Result<Observed, SimError> {
    let (mut setup, accounts) = run(case, seed, options)?;
    Ok(observe::observe(&mut setup, &accounts))
}

fn run(case: &ResolvedCase, seed: u64, options: &Options<'_>) -> Result<(Setup, Accounts), SimError> {
    let mut setup = Setup::build(case, seed, options.threads.max(1))?;
    // A mapping that holds from the start is no stop.
    setup.apply_events(Time::ZERO);
    let mut accounts = Accounts::new(&setup);
    for stop in stops(&setup) {
        run_until(&mut setup, stop, options)?;
        accounts.settle(&mut setup, stop);
        setup.apply_events(stop);
        if let Some(progress) = options.progress {
            progress(stop.ps() as f64 / setup.end.ps().max(1) as f64);
        }
    }
    Ok((setup, accounts))
}

fn output(mut setup: Setup, accounts: &Accounts) -> RunOutput {
    let observed = observe::observe(&mut setup, accounts);
    let totals = setup.engine.totals();
    let work = Work {
        packet_hops: Some(totals.packet_hops),
        events: Some(totals.events - setup.sample_events()),
        ..Work::default()
    };
    let warnings = std::mem::take(&mut setup.warnings);
    // Both a million connections and what was seen of them would take twice the memory.
    drop(setup);
    RunOutput::new(vmcc_metrics::figures(&observed), work, warnings)
}

/// Events after which a run listens to who wants it to end: a fraction of a second.
const CANCEL_CHECK_EVENTS: u64 = 1 << 20;

/// Runs to `stop` unless it is canceled, or keeps more than memory is for.
fn run_until(setup: &mut Setup, stop: Time, options: &Options<'_>) -> Result<(), SimError> {
    loop {
        if options.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Err(SimError::Canceled);
        }
        let bounds = Bounds { most: CANCEL_CHECK_EVENTS, cancel: options.cancel };
        let done = setup.engine.run_part(stop, bounds);
        let hosts = setup.hosts();
        setup.transports.iter().try_for_each(|transport| transport.check(&hosts))?;
        if done {
            return Ok(());
        }
    }
}

/// The moments at which counters are read: every interval, warm-up, remaps, the end, and what kinds of endpoints ask for.
fn stops(setup: &Setup) -> Vec<Time> {
    let every = setup.interval.ps().min((setup.end.ps() / PARTS).max(1));
    let mut stops: Vec<Time> =
        (1..).map(|i| Time::ZERO + Span::from_ps(every).times(i)).take_while(|t| *t < setup.end).collect();
    // Series are read at multiples of their own interval, which need not be multiples of the parts.
    let reads = (1..).map(|i| Time::ZERO + setup.interval.times(i)).take_while(|t| *t < setup.end);
    stops.extend(reads);
    stops.extend(setup.moves.iter().map(|moves| moves.at));
    stops.extend(setup.managed.iter().map(|managed| managed.at));
    stops.extend([setup.warmup, setup.end]);
    stops.extend(setup.transports.iter().flat_map(|transport| transport.cuts()).filter(|t| *t < setup.end));
    stops.retain(|t| *t > Time::ZERO && *t <= setup.end);
    stops.sort_unstable();
    stops.dedup();
    stops
}
