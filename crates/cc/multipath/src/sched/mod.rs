//! Which path carries the next segment.
//!
//! Sources: the schedulers of the out-of-tree Linux MPTCP 0.94/0.95; M. Zhang et al., mTCP (USENIX ATC 2004), section 3.1; those of
//! `estimate`. Deviation: round robin can deal bytes instead of segments (P. Goyal et al., Start-time Fair Queueing, SIGCOMM 1996).

mod estimate;
#[cfg(test)]
mod tests;

use crate::{PathView, Paths};
use estimate::{BlestState, blest_waits, ecf_waits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Scheduler of a multipath sender: the subflow of the next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// The subflow with the lowest smoothed RTT that has room in its window.
    #[default]
    LowestRtt,
    /// Each subflow in turn.
    RoundRobin,
    /// Every segment on every subflow.
    Redundant,
    /// Blocking estimation: waits for the fast subflow if a slow one would block the window.
    Blest,
    /// Earliest completion first.
    Ecf,
    /// The subflow with the smallest share of its window in flight (mTCP).
    PipeCwnd,
}

/// State of the stream that the estimating schedulers need.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Now, in microseconds.
    pub now_us: u64,
    /// Payload of a segment.
    pub mss_bytes: u64,
    /// From the oldest byte that is not acknowledged to the end of the receive window.
    pub window_bytes: u64,
    /// Written and not sent.
    pub backlog_bytes: u64,
}

/// A connection's scheduler, and what it remembers from segment to segment.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    /// The rule.
    pub scheduler: Scheduler,
    /// The only path that may carry new data (suppression).
    pub only: Option<u8>,
    /// Round robin waits for a path without room, instead of passing its turn to the next.
    pub strict_turns: bool,
    /// Established regular paths that answer and are not in loss state.
    healthy: Paths,
    /// Those of them that may have room: a bit may be set in vain, never missing.
    ready: Paths,
    /// Round robin's virtual time: when the latest turn began.
    round: u64,
    /// ECF decided to wait for the fast path.
    ecf_waiting: bool,
    blest: BlestState,
}

impl Selector {
    /// A connection's selector at its beginning.
    pub fn new(scheduler: Scheduler) -> Selector {
        Selector { scheduler, ..Selector::default() }
    }

    /// Path `i` changed in a way that may have given it room, or taken it out of use.
    #[inline]
    pub fn refresh(&mut self, i: usize, path: &impl PathView) {
        let healthy = path.is_established() && !path.is_backup() && !path.has_failed() && !path.is_in_loss();
        self.healthy.set(i, healthy);
        self.ready.set(i, healthy && !path.is_paced_out() && path.room_pkt() > 0);
    }

    /// Records what leaves on the path that [`select`](Self::select) chose, in bytes or, where all are alike, segments: moves its
    /// [`next_turn`](PathView::next_turn).
    #[inline]
    pub fn on_sent(&self, next_turn: &mut u64, sent: u64) {
        *next_turn = self.round.max(*next_turn) + sent;
    }

    /// A segment had to be repeated because the receive window was full.
    pub fn note_blocked(&mut self) {
        self.blest.blocked = true;
    }

    /// The path for the next segment, or none for now. `carriers` have carried it before. `srtt_8us` may answer from where it is
    /// cheaper to read than from the path itself.
    #[inline(always)]
    pub fn select<P: PathView>(
        &mut self,
        paths: &[P],
        carriers: Paths,
        srtt_8us: impl Fn(usize) -> u32,
        demand: impl FnOnce() -> Demand,
    ) -> Option<usize> {
        let usual =
            matches!(self.scheduler, Scheduler::LowestRtt) && carriers.is_empty() && self.only.is_none();
        if usual && self.healthy.len() > 1 {
            return self.lowest_rtt_of_ready(paths, srtt_8us);
        }
        self.select_among(paths, carriers, demand())
    }

    /// Lowest RTT for new data when nothing is unusual: reads of the paths themselves only the one it takes.
    #[inline(always)]
    fn lowest_rtt_of_ready<P: PathView>(
        &mut self,
        paths: &[P],
        srtt_8us: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        while !self.ready.is_empty() {
            let first = self.ready.0.trailing_zeros() as usize;
            let best = if self.ready == Paths::only(first) { first } else { fastest(self.ready, &srtt_8us)? };
            if paths[best].room_pkt() > 0 && !paths[best].is_paced_out() {
                return Some(best);
            }
            self.ready.set(best, false);
        }
        None
    }

    #[inline(never)]
    fn select_among<P: PathView>(&mut self, paths: &[P], carriers: Paths, demand: Demand) -> Option<usize> {
        let among = candidates(paths, self.only);
        match self.scheduler {
            Scheduler::LowestRtt | Scheduler::Redundant => lowest_rtt(paths, among, carriers),
            Scheduler::PipeCwnd => pipe_cwnd(paths, among),
            Scheduler::RoundRobin => self.round_robin(paths, among),
            Scheduler::Blest | Scheduler::Ecf => {
                let best = lowest_rtt(paths, among, carriers)?;
                let fastest = fastest(among, |i| paths[i].srtt_8us())?;
                let waits = fastest != best && self.waits(&paths[fastest], &paths[best], &demand);
                (!waits).then_some(best)
            }
        }
    }

    /// Start-time fair queueing of equal paths: the one whose turn comes first, of several the first. Turns that passed while a path
    /// had no room are lost, so that it does not catch up later.
    fn round_robin<P: PathView>(&mut self, paths: &[P], among: Paths) -> Option<usize> {
        let eligible = among.filter(|i| self.strict_turns || paths[i].room_pkt() > 0);
        let turn = |i: usize| paths[i].next_turn().max(self.round);
        let chosen = eligible.into_iter().min_by_key(|&i| turn(i))?;
        self.round = turn(chosen);
        (paths[chosen].room_pkt() > 0).then_some(chosen)
    }

    fn waits<P: PathView>(&mut self, fast: &P, slow: &P, demand: &Demand) -> bool {
        let mss = demand.mss_bytes;
        if self.scheduler == Scheduler::Blest {
            self.blest.update(demand.now_us, u64::from(slow.srtt_8us() >> 3));
            return blest_waits(fast, slow, demand.window_bytes, mss, self.blest.lambda_milli);
        }
        let (waits, waiting) = ecf_waits(fast, slow, demand.backlog_bytes, mss, self.ecf_waiting);
        self.ecf_waiting = waiting;
        waits
    }
}

/// Paths for one segment: established ones that answer, backups only where nothing else exists, room aside. One that is alone may
/// be in loss state.
fn candidates<P: PathView>(paths: &[P], only: Option<u8>) -> Paths {
    let established = paths.iter().filter(|path| path.is_established()).count();
    let (mut regular, mut backup) = (Paths::NONE, Paths::NONE);
    for (i, path) in paths.iter().enumerate() {
        if path.is_established() && !(path.has_failed() && established > 1) {
            let kind = if path.is_backup() { &mut backup } else { &mut regular };
            kind.set(i, true);
        }
    }
    let mut among = if regular.is_empty() { backup } else { regular };
    if let Some(only) = only.map(usize::from).filter(|&only| among.has(only)) {
        among = Paths::only(only);
    }
    let alone = among.len() == 1;
    let usable = |path: &P| (alone || (!path.has_failed() && !path.is_in_loss())) && !path.is_paced_out();
    among.filter(|i| usable(&paths[i]))
}

/// Lowest RTT among those with room, at first among those that have not carried the segment.
fn lowest_rtt<P: PathView>(paths: &[P], among: Paths, carriers: Paths) -> Option<usize> {
    let with_room = among.filter(|i| paths[i].room_pkt() > 0);
    let fresh = Paths(with_room.0 & !carriers.0);
    let pool = if fresh.is_empty() { with_room } else { fresh };
    fastest(pool, |i| paths[i].srtt_8us())
}

/// The one with the lowest RTT, of several the first.
#[inline]
fn fastest(paths: Paths, srtt_8us: impl Fn(usize) -> u32) -> Option<usize> {
    // In one number, which compares without a branch.
    let key = |i: usize| u64::from(srtt_8us(i)) << 8 | i as u64;
    paths.into_iter().map(key).min().map(|key| (key & 0xff) as usize)
}

fn pipe_cwnd<P: PathView>(paths: &[P], among: Paths) -> Option<usize> {
    among.filter(|i| paths[i].room_pkt() > 0).into_iter().min_by(|&a, &b| {
        let (x, y) = (&paths[a], &paths[b]);
        let left = u64::from(x.in_flight_pkt()) * u64::from(y.cwnd_pkt());
        let right = u64::from(y.in_flight_pkt()) * u64::from(x.cwnd_pkt());
        left.cmp(&right).then(x.srtt_8us().cmp(&y.srtt_8us())).then(a.cmp(&b))
    })
}
