//! Hierarchical token buckets: guarantee, ceiling, and borrowing from ancestors.
//!
//! The rules are those of Devera's HTB: a class whose ceiling bucket is empty may not send; one whose
//! guarantee bucket is not may send on its own account; otherwise it borrows from its parent if that, by
//! the same rules, may send. Leaves served at the lowest possible level go first, round robin with a
//! quantum in proportion to their guarantee. Buckets hold time at their rate and may go negative by a
//! packet, so long-run rates are exact.

use crate::net::queue::{ClassQueue, Next};
use crate::net::rate::{ps_per_byte_q16, wire_ps};
use crate::net::spec::ShaperClass;
use crate::time::{Span, Time};

/// Quantum of the leaf with the smallest guarantee: one full-sized packet.
const MIN_QUANTUM_BYTES: u64 = 1514;
/// Largest quantum, so that no leaf holds the wire for long.
const MAX_QUANTUM_BYTES: u64 = 60_000;

/// A token bucket in units of time at its rate.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    ps_per_byte_q16: u64,
    tokens_ps: i64,
    burst_ps: i64,
}

impl Bucket {
    fn new(rate_bps: u64, burst_bytes: u64) -> Bucket {
        let ps_per_byte_q16 = ps_per_byte_q16(rate_bps);
        let burst_ps = i64::try_from(wire_ps(burst_bytes, ps_per_byte_q16)).unwrap_or(i64::MAX / 4);
        let burst_ps = burst_ps.min(i64::MAX / 4);
        Bucket { ps_per_byte_q16, tokens_ps: burst_ps, burst_ps }
    }

    fn refill(&mut self, passed: Span) {
        let passed = i64::try_from(passed.ps()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        self.tokens_ps = (self.tokens_ps + passed).min(self.burst_ps);
    }

    fn charge(&mut self, bytes: u64) {
        let cost = i64::try_from(wire_ps(bytes, self.ps_per_byte_q16)).unwrap_or(i64::MAX / 4);
        self.tokens_ps -= cost.min(i64::MAX / 4);
    }

    /// Time until it may be used.
    fn wait(&self) -> Span {
        Span::from_ps(self.tokens_ps.min(0).unsigned_abs())
    }
}

#[derive(Clone, Debug)]
struct Node {
    parent: Option<usize>,
    guarantee: Bucket,
    ceiling: Bucket,
}

#[derive(Clone, Debug)]
struct Leaf {
    node: usize,
    quantum: i64,
    /// Of the rounds on own and on borrowed account.
    deficit: [i64; 2],
}

/// Permission for a leaf to send: after `wait`, with tokens of the ancestor `level` steps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    wait: Span,
    level: usize,
}

/// State of a hierarchical shaper.
#[derive(Clone, Debug)]
pub(crate) struct Shaper {
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
    /// Leaf whose turn it is, in the rounds on own and on borrowed account: bandwidth is lent in proportion
    /// to the guarantees only if own traffic does not disturb that round.
    turn: [usize; 2],
    refilled: Time,
    /// Level at which the leaf chosen last was served.
    level: usize,
}

impl Shaper {
    pub(crate) fn new(classes: &[ShaperClass]) -> Shaper {
        let node = |c: &ShaperClass| Node {
            parent: c.parent,
            guarantee: Bucket::new(c.guarantee_bps, c.burst_bytes),
            ceiling: Bucket::new(c.ceiling_bps, c.burst_bytes),
        };
        let leaves = leaves(classes);
        let smallest = leaves.iter().map(|&l| classes[l].guarantee_bps).min().unwrap_or(1).max(1);
        let quantum = |l: usize| {
            let share = u128::from(MIN_QUANTUM_BYTES) * u128::from(classes[l].guarantee_bps);
            (share / u128::from(smallest)).min(u128::from(MAX_QUANTUM_BYTES)) as i64
        };
        Shaper {
            nodes: classes.iter().map(node).collect(),
            leaves: leaves
                .iter()
                .map(|&l| Leaf { node: l, quantum: quantum(l), deficit: [quantum(l); 2] })
                .collect(),
            turn: [0; 2],
            refilled: Time::ZERO,
            level: 0,
        }
    }

    /// Which leaf may send now, or when the first may; the caller then calls [`Shaper::sent`].
    pub(crate) fn next(&mut self, queues: &[ClassQueue], now: Time) -> Next {
        self.refill(now);
        let n = self.leaves.len();
        let backlogged = (0..n).filter(|&leaf| !queues[leaf].is_empty());
        let best = backlogged
            .map(|leaf| {
                let offer = self.offer(self.leaves[leaf].node);
                let places = (leaf + n - self.turn[account(offer.level)]) % n;
                (offer, places, leaf)
            })
            .min();
        match best {
            None => Next::Empty,
            Some((offer, _, leaf)) if offer.wait == Span::ZERO => {
                self.level = offer.level;
                self.turn[account(offer.level)] = leaf;
                Next::Queue(leaf)
            }
            Some((offer, ..)) => Next::Wait(now + offer.wait),
        }
    }

    /// The leaf chosen last has sent `size` bytes.
    pub(crate) fn sent(&mut self, leaf: usize, size: u16) {
        let mut at = Some(self.leaves[leaf].node);
        let mut level = 0;
        while let Some(n) = at {
            let node = &mut self.nodes[n];
            node.ceiling.charge(size.into());
            if level >= self.level {
                node.guarantee.charge(size.into());
            }
            at = node.parent;
            level += 1;
        }
        let leaf_state = &mut self.leaves[leaf];
        let account = account(self.level);
        leaf_state.deficit[account] -= i64::from(size);
        if leaf_state.deficit[account] < 0 {
            leaf_state.deficit[account] += leaf_state.quantum;
            self.turn[account] = (leaf + 1) % self.leaves.len();
        }
    }

    /// The earliest account on which the class `node` may send.
    fn offer(&self, node: usize) -> Offer {
        let mut best = Offer { wait: Span::MAX, level: usize::MAX };
        let mut ceilings = Span::ZERO;
        let mut at = Some(node);
        let mut level = 0;
        while let Some(n) = at {
            let class = &self.nodes[n];
            ceilings = ceilings.max(class.ceiling.wait());
            best = best.min(Offer { wait: ceilings.max(class.guarantee.wait()), level });
            at = class.parent;
            level += 1;
        }
        best
    }

    fn refill(&mut self, now: Time) {
        let passed = now.since(self.refilled);
        for node in &mut self.nodes {
            node.guarantee.refill(passed);
            node.ceiling.refill(passed);
        }
        self.refilled = now;
    }
}

/// 0: own account, 1: borrowed.
fn account(level: usize) -> usize {
    level.min(1)
}

/// Indexes of the classes that are nobody's parent.
pub(crate) fn leaves(classes: &[ShaperClass]) -> Vec<usize> {
    (0..classes.len()).filter(|&c| classes.iter().all(|other| other.parent != Some(c))).collect()
}
