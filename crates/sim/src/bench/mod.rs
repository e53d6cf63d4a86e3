//! Named speed cases, and the measurement of work done per CPU second.

mod fixed;
mod measure;

use crate::engine::{Engine, Partition};
use crate::net::{Limit, NetSpec, QueueSpec};
use crate::rng::{Stream, Streams};
use crate::time::{Span, Time};
use crate::topo::{FatTree, FatTreeSpec};

pub use measure::{Measurement, measure};

use fixed::{End, FixedWindow};

/// Builds and measures the engine-only case: fixed windows on a fat tree.
pub fn ceiling(k: u32, subflows: u32, window: u32, duration: Span) -> Measurement {
    let mut net = NetSpec::new();
    let queue = |packets: u64| QueueSpec::Fifo { limit: Limit::Bytes(packets * 1500), mark: None };
    let spec = FatTreeSpec {
        k,
        rate_bps: 10_000_000_000,
        delay: Span::from_us(1),
        switch_queue: queue(100),
        host_queue: queue(1000),
    };
    let tree = FatTree::build(&mut net, &spec).expect("k of a named case is valid");
    let streams = Streams::new(1);
    let mut ecmp = streams.stream("bench/ecmp");
    let mut hosts = FixedWindow::default();
    for (from, to) in permutation(tree.hosts(), &mut streams.stream("bench/permutation")) {
        for path in distinct_paths(&mut ecmp, tree.paths(from, to), subflows) {
            let there = tree.route(&mut net, from, to, path).expect("hosts exist");
            let back = tree.route(&mut net, to, from, path).expect("hosts exist");
            let index = hosts.ends.len() as u32;
            hosts.ends.push(End { route: there, peer: index + 1, window });
            hosts.ends.push(End { route: back, peer: index, window: 0 });
        }
    }
    let mut engine = Engine::new(&net, &Partition::whole(&net), &streams, vec![hosts])
        .expect("one shard fits every network");
    measure(|| {
        engine.run_until(Time::ZERO + duration);
        engine.totals()
    })
}

/// Each host sends to another, each receives from one: a random cyclic permutation (Sattolo's algorithm).
fn permutation(hosts: u32, rng: &mut Stream) -> Vec<(u32, u32)> {
    let mut to: Vec<u32> = (0..hosts).collect();
    for i in (1..hosts).rev() {
        to.swap(i as usize, below(rng, i) as usize);
    }
    (0..hosts).zip(to).collect()
}

/// `n` path numbers out of `paths`, without repetition as long as there are enough.
fn distinct_paths(rng: &mut Stream, paths: u32, n: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..paths).collect();
    for i in (1..paths).rev() {
        all.swap(i as usize, below(rng, i + 1) as usize);
    }
    all.iter().copied().cycle().take(n as usize).collect()
}

/// A number below `n`.
fn below(rng: &mut Stream, n: u32) -> u32 {
    use rand_xoshiro::rand_core::Rng;
    ((u64::from(rng.next_u32()) * u64::from(n)) >> 32) as u32
}
