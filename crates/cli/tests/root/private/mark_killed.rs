//! `vmcc mark` and `vmcc unmark`, killed between any two of the calls by which they change something: whatever a user does
//! next works, what is left is removed whole, and what was there before is back.

use crate::killed::before_calls;
use crate::wire::Pair;
use std::time::Instant;

const SERVED: [&str; 6] = ["mark", "p0", "--rate", "20mbit", "--classes", "a:dscp=46,b,c"];
const CHANGED: [&str; 6] = ["mark", "p0", "--rate", "40mbit", "--classes", "a:dscp=46,b"];
/// Without bands: all queues are replaced.
const SWITCHED: [&str; 8] =
    ["mark", "p0", "--rate", "20mbit", "--classes", "a:dscp=46,b,c", "--sparse", "false"];
const SHARED: [&str; 4] = ["mark", "p0", "--vm", "vm=20mbit:shared"];
const OTHER: [&str; 4] = ["mark", "p0", "--rate", "30mbit"];
const OTHER_SHARED: [&str; 4] = ["mark", "p0", "--vm", "vm=30mbit:shared"];

/// This many kills of each command take seconds; with all of them it takes minutes.
const KILLS: usize = 8;

/// Kills `command` before its calls, each time after `prepare`, and does what a user may do next, by turns: `mark` with
/// another rate, or something else.
fn killed_anywhere(prepare: &[&str], command: &[&str], mark: &[&str]) {
    let pair = Pair::new();
    // A queue that has to come back.
    pair.tc("qdisc add dev p0 root handle 7: pfifo limit 77");
    let before = pair.queues();
    let works = |arguments: &[&str], at: &str| {
        let (code, said) = pair.json(arguments);
        assert_eq!(code, 0, "{at}: {arguments:?}: {said}");
        said
    };
    let start = || {
        if !prepare.is_empty() {
            works(prepare, "before");
        }
        pair.silent(command)
    };
    let others: [&[&str]; 3] = [mark, &["unmark", "p0"], &["clean"]];
    let mut turns = others.iter().cycle();
    let begin = Instant::now();
    let kills = before_calls(KILLS, start, |call, n| {
        let next = *turns.next().expect("a cycle");
        let at = format!("{command:?}, before call {n} ({call}), then {next:?}");
        works(&["mark", "--list"], &at);
        works(next, &at);
        if next == mark {
            assert_eq!(works(&["mark", "p0", "--stats"], &at)["rate_bps"], 30_000_000, "{at}");
        }
        works(&["unmark", "--all"], &at);
        assert_eq!(pair.queues(), before, "{at}");
        assert_eq!(pair.records(), Vec::<String>::new(), "{at}");
        assert!(!pair.ip("link").contains(": vmcc"), "{at}: a device stays");
    });
    println!("{command:?}: killed {kills} times in {:?}", begin.elapsed());
    assert!(kills >= KILLS, "{kills}");
    pair.tc("qdisc del dev p0 root");
    pair.assert_nothing_left();
}

#[test]
fn root_mark_killed_anywhere_is_recoverable() {
    killed_anywhere(&[], &SERVED, &OTHER);
}

#[test]
fn root_mark_change_killed_anywhere_is_recoverable() {
    killed_anywhere(&SERVED, &CHANGED, &OTHER);
}

#[test]
fn root_mark_without_priority_killed_anywhere_is_recoverable() {
    killed_anywhere(&SERVED, &SWITCHED, &OTHER);
}

#[test]
fn root_unmark_killed_anywhere_is_recoverable() {
    killed_anywhere(&SERVED, &["unmark", "p0"], &OTHER);
}

#[test]
fn root_mark_of_a_shared_budget_killed_anywhere_is_recoverable() {
    killed_anywhere(&[], &SHARED, &OTHER_SHARED);
    killed_anywhere(&SHARED, &["unmark", "p0"], &OTHER_SHARED);
}
