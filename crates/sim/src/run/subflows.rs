//! A scenario's events that change subflows.

use vmcc_network::Path;
use vmcc_scenario::Scenario;
use vmcc_scenario::model::{Event, EventKind};

use crate::build::span;
use crate::engine::Engine;
use crate::error::SimError;
use crate::hosts::Hosts;
use crate::time::Time;
use crate::transport::{Managed, SubflowChange, Transport};

/// Plans the events, in their order.
pub(crate) fn plan(scenario: &Scenario) -> Vec<Managed> {
    let managed = |event: &Event| {
        let (which, change) = match &event.kind {
            EventKind::SetBackup(which) => (which, SubflowChange::Backup(true)),
            EventKind::ClearBackup(which) => (which, SubflowChange::Backup(false)),
            EventKind::CloseSubflow(which) => (which, SubflowChange::Close),
            EventKind::OpenSubflow(which) => (which, SubflowChange::Open),
            _ => return None,
        };
        Some(Managed { at: Time::ZERO + span(event.at), which: which.clone(), change })
    };
    scenario.event.iter().filter_map(managed).collect()
}

/// Checks that every event applies to at least one subflow where these start.
///
/// # Errors
/// [`SimError::NoSubflow`] for an event that applies to none.
pub(super) fn check(
    all: &[Managed],
    transports: &[Box<dyn Transport<Hosts>>],
    paths: &[Path],
) -> Result<(), SimError> {
    let applies = |managed: &Managed| transports.iter().any(|kind| kind.has_subflow(&managed.which, paths));
    match all.iter().find(|managed| !applies(managed)) {
        Some(managed) => Err(SimError::NoSubflow { at_s: managed.at.since(Time::ZERO).secs_f64() }),
        None => Ok(()),
    }
}

/// Changes the subflows of every event at this moment.
pub(super) fn apply(
    all: &[Managed],
    now: Time,
    (transports, paths): (&[Box<dyn Transport<Hosts>>], &[Path]),
    engine: &mut Engine<Hosts>,
) {
    let shards = engine.hosts().count();
    for managed in all.iter().filter(|managed| managed.at == now) {
        for (kind, shard) in transports.iter().flat_map(|kind| (0..shards).map(move |shard| (kind, shard))) {
            engine.act(shard, now, |hosts, ctx| kind.manage(managed, paths, shard, (hosts, ctx)));
        }
    }
}
