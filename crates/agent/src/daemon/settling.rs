//! Endpoints that running connections join by: each is a backup until its subflows have joined.
//!
//! Linux 6.18 delivers wrong bytes where a subflow joins while the receiving program is in `recv` and data follows before that
//! returns; other versions reset the subflow (`docs/kernels.md`). The sender puts no data on a backup while another subflow is left.

use super::item::{Item, settling_text};
use super::record::Place;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};
use vmcc_host::diag::Diag;

/// Two round trips of the slowest usual path (ADD_ADDR, SYN), and a receiver that is preempted in `recv`.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Endpoints that settle, by namespace, and since when.
#[derive(Debug, Default)]
pub(crate) struct Settling(BTreeMap<(u64, Item), Instant>);

impl Settling {
    /// Ends what has settled. Called at the start of a round, which then sets the wanted values.
    pub(crate) fn begin_round(&mut self) {
        self.0.retain(|_, since| since.elapsed() < SETTLE_TIME);
    }

    /// Time until the next round is due because an endpoint has settled.
    pub(crate) fn rest(&self) -> Option<Duration> {
        self.0.values().map(|since| SETTLE_TIME.saturating_sub(since.elapsed())).min()
    }

    /// Value that a thing gets in this round, in the calling thread's namespace, which `place` is.
    pub(crate) fn value<'a>(&mut self, place: &Place, item: &Item, wanted: &'a str) -> Cow<'a, str> {
        let Item::Endpoint(address) = item else { return wanted.into() };
        let Some(settling) = settling_text(*address, wanted) else { return wanted.into() };
        let key = (place.cookie, item.clone());
        if let Entry::Vacant(vacant) = self.0.entry(key) {
            let is_there = item.read().is_ok_and(|now| now.is_some());
            if is_there || !has_connections() {
                return wanted.into();
            }
            vacant.insert(Instant::now());
        }
        settling.into()
    }
}

/// Tests for MPTCP connections in the calling thread's namespace; assumes some where the kernel does not answer.
fn has_connections() -> bool {
    let all = Diag::open().and_then(|mut diag| diag.subflows());
    all.map_or(true, |all| all.iter().any(|subflow| subflow.mptcp.is_some()))
}
