//! Random operations on a connection between this engine and noq's, both in one process and in simulated time.
//!
//! A sequence follows from its seed. After it the network heals: every stream must then end whole or reset, and both ends must become
//! quiet. `VMCC_PEER_SEQUENCES` sets the number of sequences, `VMCC_PEER_SEED` runs one of them and prints its steps.

mod end;
mod network;
mod noq;
mod own;
mod regressions;
mod sequence;
mod session;
mod streams;

use sequence::Sequence;
use session::Fault;
use std::cell::RefCell;
use std::env;
use std::ops::Range;
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Sequences of the usual run, and of CI's.
const SEQUENCES: (u64, u64) = (1_000, 10_000);

/// Failures after which no more sequences begin.
const MAX_FAILURES: usize = 10;
/// Sequences in which noq fails, of a thousand: more would leave too little that is tested.
const MAX_PEER_FAILURES: u64 = 10;

thread_local! {
    /// Place and text of this thread's last panic.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Result of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// noq panicked or stalled.
    PeerFailed,
    Failed(String),
}

impl Outcome {
    fn of(sequence: &Sequence) -> Outcome {
        match panic::catch_unwind(|| session::run(sequence)) {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(Fault::Own(cause))) => Outcome::Failed(cause),
            Ok(Err(Fault::Peer(_))) => Outcome::PeerFailed,
            Err(_) => match PANIC.take() {
                text if text.contains("noq-proto") => Outcome::PeerFailed,
                text => Outcome::Failed(text),
            },
        }
    }
}

/// Has panics recorded instead of printed while `run` runs.
fn with_recorded_panics<T>(run: impl FnOnce() -> T) -> T {
    let printing = panic::take_hook();
    panic::set_hook(Box::new(|info| PANIC.set(info.to_string())));
    let result = run();
    panic::set_hook(printing);
    result
}

/// Removes operations for as long as the sequence fails without them.
fn shrink(mut sequence: Sequence) -> Sequence {
    let mut size = sequence.operations.len();
    while size > 0 {
        let mut at = 0;
        while at < sequence.operations.len() {
            let mut shorter = sequence.clone();
            shorter.operations.drain(at..(at + size).min(sequence.operations.len()));
            match Outcome::of(&shorter) {
                Outcome::Failed(_) => sequence = shorter,
                _ => at += size,
            }
        }
        size /= 2;
    }
    sequence
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Failures among the sequences of these seeds, and the number of those in which noq failed.
fn run(seeds: Range<u64>) -> (Vec<(u64, String)>, u64) {
    let (next, of_peer) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let seed = next.fetch_add(1, Ordering::Relaxed)
                    && seed < seeds.end
                    && failed.lock().unwrap().len() < MAX_FAILURES
                {
                    match Outcome::of(&Sequence::draw(seed)) {
                        Outcome::Passed => {}
                        Outcome::PeerFailed => drop(of_peer.fetch_add(1, Ordering::Relaxed)),
                        Outcome::Failed(cause) => failed.lock().unwrap().push((seed, cause)),
                    }
                }
            });
        }
    });
    (failed.into_inner().unwrap(), of_peer.into_inner())
}

#[test]
fn random_operations_leave_streams_whole_and_both_ends_quiet() {
    let seeds = match number("VMCC_PEER_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let usual = if env::var_os("CI").is_some() { SEQUENCES.1 } else { SEQUENCES.0 };
            0..number("VMCC_PEER_SEQUENCES").unwrap_or(usual)
        }
    };
    let count = seeds.end - seeds.start;
    let (failed, of_peer) = with_recorded_panics(|| run(seeds));
    println!("{count} sequences; noq failed in {of_peer}");
    if let Some((seed, _)) = failed.first() {
        let smallest = with_recorded_panics(|| shrink(Sequence::draw(*seed)));
        panic!("{failed:#?}\nthe first needs no more than {smallest:?}");
    }
    assert!(of_peer <= 2 + count * MAX_PEER_FAILURES / 1000, "noq failed in {of_peer} of {count} sequences");
}
