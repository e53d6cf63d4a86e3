use super::*;

/// A path that is nothing but its figures.
#[derive(Clone, Debug, Default)]
pub(super) struct Plain {
    pub(super) srtt_8us: u32,
    pub(super) deviation_8us: u32,
    pub(super) cwnd_pkt: u32,
    pub(super) in_flight_pkt: u32,
    pub(super) slow_start: bool,
    pub(super) closed: bool,
    pub(super) backup: bool,
    pub(super) failed: bool,
    pub(super) loss: bool,
    pub(super) paced_out: bool,
    pub(super) next_turn: u64,
}

impl PathView for Plain {
    fn srtt_8us(&self) -> u32 {
        self.srtt_8us
    }
    fn deviation_8us(&self) -> u32 {
        self.deviation_8us
    }
    fn cwnd_pkt(&self) -> u32 {
        self.cwnd_pkt
    }
    fn in_flight_pkt(&self) -> u32 {
        self.in_flight_pkt
    }
    fn in_slow_start(&self) -> bool {
        self.slow_start
    }
    fn is_established(&self) -> bool {
        !self.closed
    }
    fn is_backup(&self) -> bool {
        self.backup
    }
    fn has_failed(&self) -> bool {
        self.failed
    }
    fn is_in_loss(&self) -> bool {
        self.loss
    }
    fn is_paced_out(&self) -> bool {
        self.paced_out
    }
    fn next_turn(&self) -> u64 {
        self.next_turn
    }
}

/// An idle path with a window of ten packets.
fn idle(rtt_us: u32) -> Plain {
    Plain { srtt_8us: rtt_us * 8, cwnd_pkt: 10, ..Plain::default() }
}

fn demand() -> Demand {
    Demand { now_us: 0, mss_bytes: 1000, window_bytes: 1 << 20, backlog_bytes: 1 << 20 }
}

fn select(selector: &mut Selector, paths: &[Plain], carriers: Paths) -> Option<usize> {
    (0..).zip(paths).for_each(|(i, path)| selector.refresh(i, path));
    selector.select(paths, carriers, |i| paths[i].srtt_8us, demand)
}

fn lowest(paths: &[Plain], carriers: Paths) -> Option<usize> {
    select(&mut Selector::new(Scheduler::LowestRtt), paths, carriers)
}

#[test]
fn lowest_rtt_selects_the_fastest_path_with_room() {
    let full = Plain { in_flight_pkt: 10, ..idle(10) };
    assert_eq!(lowest(&[idle(30), idle(20), idle(10)], Paths::NONE), Some(2));
    assert_eq!(lowest(&[idle(30), idle(20), full.clone()], Paths::NONE), Some(1));
    assert_eq!(lowest(&[full.clone(), full], Paths::NONE), None);
    assert_eq!(lowest(&[idle(10), idle(10)], Paths::NONE), Some(0), "the first of equals");
}

#[test]
fn path_filled_since_its_refresh_is_skipped() {
    let mut paths = [idle(10), idle(20)];
    let mut selector = Selector::default();
    assert_eq!(select(&mut selector, &paths, Paths::NONE), Some(0));
    paths[0].in_flight_pkt = 10;
    assert_eq!(selector.select(&paths, Paths::NONE, |i| paths[i].srtt_8us, demand), Some(1));
}

#[test]
fn reinjection_prefers_a_path_that_has_not_carried_the_segment() {
    let paths = [idle(10), idle(20)];
    assert_eq!(lowest(&paths, Paths::only(0)), Some(1));
    assert_eq!(lowest(&paths, Paths(0b11)), Some(0), "all have: the fastest again");
}

#[test]
fn failed_and_backup_paths_are_used_last() {
    let (failed, loss) = (Plain { failed: true, ..idle(1) }, Plain { loss: true, ..idle(1) });
    let (backup, closed) = (Plain { backup: true, ..idle(1) }, Plain { closed: true, ..idle(1) });
    for other in [&failed, &loss, &backup, &closed] {
        assert_eq!(lowest(&[other.clone(), idle(50)], Paths::NONE), Some(1), "{other:?}");
    }
    assert_eq!(lowest(&[closed.clone(), failed.clone()], Paths::NONE), Some(1), "alone: better than none");
    assert_eq!(lowest(&[closed.clone(), loss], Paths::NONE), Some(1), "alone: it repairs itself");
    assert_eq!(lowest(&[failed, backup.clone()], Paths::NONE), Some(1));
    assert_eq!(lowest(&[closed, Plain { paced_out: true, ..backup }], Paths::NONE), None);
}

#[test]
fn suppression_uses_one_path_while_it_is_alive() {
    let mut selector = Selector { only: Some(1), ..Selector::default() };
    assert_eq!(select(&mut selector, &[idle(10), idle(20)], Paths::NONE), Some(1));
    let failed = Plain { failed: true, ..idle(20) };
    assert_eq!(select(&mut selector, &[idle(10), failed], Paths::NONE), Some(0));
}

/// Paths that are chosen for segments of these sizes.
fn choices(selector: &mut Selector, paths: &mut [Plain], sizes: &[u64]) -> Vec<Option<usize>> {
    let one = |&bytes: &u64| {
        let chosen = select(selector, paths, Paths::NONE);
        chosen.into_iter().for_each(|i| selector.on_sent(&mut paths[i].next_turn, bytes));
        chosen
    };
    sizes.iter().map(one).collect()
}

fn round_robin(strict_turns: bool) -> Selector {
    Selector { strict_turns, ..Selector::new(Scheduler::RoundRobin) }
}

#[test]
fn round_robin_alternates_between_paths_with_room() {
    let full = Plain { in_flight_pkt: 10, ..idle(90) };
    let choose =
        |strict, other: &Plain| choices(&mut round_robin(strict), &mut [idle(10), other.clone()], &[1000; 5]);
    assert_eq!(choose(false, &idle(90)), [0, 1, 0, 1, 0].map(Some));
    assert_eq!(choose(false, &full), [Some(0); 5]);
    assert_eq!(choose(true, &full), [Some(0), None, None, None, None], "it waits");
}

#[test]
fn round_robin_deals_bytes_not_segments() {
    // A segment of 16 kB is worth many of 20 bytes.
    let sizes = [16_000, 20, 16_000, 20, 20, 16_000];
    let chosen = choices(&mut round_robin(false), &mut [idle(10), idle(10)], &sizes);
    assert_eq!(chosen, [0, 1, 1, 0, 0, 1].map(Some));
}

#[test]
fn round_robin_path_without_room_does_not_catch_up() {
    let (mut selector, full) = (round_robin(false), Plain { in_flight_pkt: 10, ..idle(10) });
    let mut paths = [idle(10), full];
    assert_eq!(choices(&mut selector, &mut paths, &[1000; 100]), [Some(0); 100]);
    paths[1].in_flight_pkt = 0;
    assert_eq!(choices(&mut selector, &mut paths, &[1000; 4]), [1, 0, 1, 0].map(Some));
}

#[test]
fn pipe_cwnd_balances_in_flight_over_window() {
    let path = |in_flight_pkt, cwnd_pkt| Plain { in_flight_pkt, cwnd_pkt, ..idle(10) };
    let least = |paths: &[Plain]| select(&mut Selector::new(Scheduler::PipeCwnd), paths, Paths::NONE);
    assert_eq!(least(&[path(5, 10), path(30, 100)]), Some(1), "half against three tenths");
    assert_eq!(least(&[path(2, 10), path(30, 100)]), Some(0));
    assert_eq!(least(&[Plain { srtt_8us: 800, ..path(1, 2) }, path(2, 4)]), Some(1), "equal: the faster");
}

#[test]
fn blest_and_ecf_idle_a_slow_path_that_would_block() {
    let full = Plain { in_flight_pkt: 10, ..idle(10) };
    for scheduler in [Scheduler::Blest, Scheduler::Ecf] {
        let mut selector = Selector::new(scheduler);
        let few = Demand { window_bytes: 5_000, backlog_bytes: 1_000, ..demand() };
        let paths = [full.clone(), idle(1_000)];
        let choose = |selector: &mut Selector, demand: Demand| {
            selector.select(&paths, Paths::NONE, |i| paths[i].srtt_8us, || demand)
        };
        assert_eq!(choose(&mut selector, few), None, "{scheduler:?}");
        let much = Demand { window_bytes: 1 << 30, backlog_bytes: 1 << 30, ..demand() };
        assert_eq!(choose(&mut selector, much), Some(1), "{scheduler:?}");
    }
}
