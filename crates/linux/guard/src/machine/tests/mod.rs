mod visits;

use super::backoff::{Backoff, BackoffState, Backoffs, Seen};
use super::health::{Finding, PathHealth};
use super::judge::{Judged, judge};
use crate::policy::Policy;
use std::time::Duration;
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_system::diag::{CaState, EcnFeedback, Mptcp, Subflow};

/// A subflow of one connection that has sent a megabyte more than was acknowledged, and to which nothing comes back.
fn subflow(cookie: u8, bytes_acked: u64) -> Subflow {
    let mptcp = Mptcp {
        token_local: 7,
        token_remote: 8,
        id_local: cookie,
        id_remote: 0,
        joined: true,
        backup: false,
        established: true,
    };
    Subflow {
        local: format!("10.0.{cookie}.1:100").parse().unwrap(),
        remote: format!("10.0.{cookie}.2:200").parse().unwrap(),
        cookie: [cookie; 8],
        mptcp: Some(mptcp),
        bytes_acked,
        bytes_sent: bytes_acked + 1_000_000,
        interface: 0,
        established: true,
        algorithm: "mp_vmcc".to_owned(),
        ecn: true,
        ecn_feedback: EcnFeedback::Rfc3168,
        ca_state: CaState::Open,
        srtt_us: 0,
        rttvar_us: 0,
        min_rtt_us: None,
        rto_us: 0,
        cwnd_pkt: 10,
        ssthresh_pkt: None,
        in_flight_pkt: 0,
        mss_bytes: 1448,
        retransmitted_pkt: 0,
        bytes_received: 0,
        bytes_retransmitted: 0,
        data_segments_sent: 0,
        data_segments_received: 0,
        delivered_pkt: 0,
        delivered_ce_pkt: 0,
        not_sent_bytes: 0,
        delivery_rate_bps: 0,
        busy_us: 0,
        receive_window_limited_us: 0,
        send_buffer_limited_us: 0,
        send_buffer_full: None,
        unanswered_timeouts: 2,
        heard_ms_ago: 60_000,
        sent_ms_ago: 60_000,
        timeouts: None,
        received_ce_pkt: None,
    }
}

/// Which had something to send all the time.
fn busy(now: f64, subflow: Subflow) -> Subflow {
    Subflow { busy_us: (now * 1e6) as u64, ..subflow }
}

fn idle(subflow: Subflow) -> Subflow {
    Subflow { bytes_sent: subflow.bytes_acked, ..subflow }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

const FAILED: Policy = Policy {
    dry_run: false,
    drain: Duration::ZERO,
    min_paths: 1,
    failed: Some(2.0),
    useless: None,
    retry: None,
};
const USELESS: Policy = Policy { failed: None, useless: Some(10.0), ..FAILED };

/// Looks every half second; `at` makes the subflows of a time, which send something again ten times a second. What was
/// found, by time and cookie.
fn found(policy: &Policy, until: f64, at: impl Fn(f64) -> Vec<Subflow>) -> Vec<(f64, u8, Finding)> {
    let again = |now: f64, s: Subflow| Subflow { retransmitted_pkt: (now * 10.0) as u32, ..s };
    found_exactly(policy, until, |now| at(now).into_iter().map(|s| again(now, s)).collect())
}

fn found_exactly(policy: &Policy, until: f64, at: impl Fn(f64) -> Vec<Subflow>) -> Vec<(f64, u8, Finding)> {
    let (mut health, mut all) = (PathHealth::default(), Vec::new());
    for half in 0..(until * 2.0) as u32 {
        let now = f64::from(half) / 2.0;
        let found = health.scan(seconds(now), &at(now), |s| s.algorithm == "mp_vmcc", policy);
        all.extend(found.into_iter().map(|(s, finding)| (now, s.cookie[0], finding)));
    }
    all
}

#[test]
fn path_fails_after_chi_silent_timeouts_while_others_deliver() {
    let delivers = |cookie, now: f64| subflow(cookie, (now * 1e6) as u64);
    // Nothing but the least timeout of 200 ms, so 0.4 s, at the next look after that.
    let one = found(&FAILED, 3.0, |now| vec![delivers(1, now), delivers(2, now.min(1.0))]);
    assert_eq!(one.first().map(|(at, which, _)| (*at, *which)), Some((1.5, 2)), "{one:?}");
    let slow = |now: f64| Subflow { srtt_us: 600_000, ..delivers(2, now.min(1.0)) };
    let later = found(&FAILED, 5.0, |now| vec![delivers(1, now), slow(now)]);
    assert_eq!(later.first().map(|(at, ..)| *at), Some(3.0), "0.8 s twice: {later:?}");
    assert_eq!(found(&FAILED, 9.0, |now| vec![delivers(1, now.min(1.0)), delivers(2, now.min(1.0))]), []);
    assert_eq!(found(&FAILED, 9.0, |now| vec![delivers(1, now), idle(subflow(2, 5))]), [], "nothing is due");
    assert_eq!(found(&FAILED, 9.0, |now| vec![delivers(2, now.min(1.0))]), [], "a lone one");
    let other = |now: f64| Subflow { mptcp: None, ..delivers(1, now) };
    assert_eq!(found(&FAILED, 9.0, |now| vec![other(now), delivers(2, now.min(1.0))]), [], "no sibling");
    let off = Policy { failed: None, ..FAILED };
    assert_eq!(found(&off, 9.0, |now| vec![delivers(1, now), delivers(2, now.min(1.0))]), []);
}

#[test]
fn congested_path_does_not_fail() {
    let delivers = |cookie, now: f64| subflow(cookie, (now * 1e6) as u64);
    let silent = |now: f64| delivers(2, now.min(1.0));
    let with = |other: &dyn Fn(Subflow) -> Subflow, policy: &Policy| {
        found(policy, 9.0, |now| vec![delivers(1, now), other(silent(now))]).len()
    };
    assert!(with(&|s| s, &FAILED) > 0);
    assert_eq!(with(&|s| Subflow { heard_ms_ago: 399, ..s }, &FAILED), 0, "duplicate ACKs come");
    assert!(with(&|s| Subflow { heard_ms_ago: 400, ..s }, &FAILED) > 0);
    assert_eq!(with(&|s| Subflow { unanswered_timeouts: 1, ..s }, &FAILED), 0, "one retransmission was lost");
    let patient = Policy { failed: Some(2.5), ..FAILED };
    assert_eq!(with(&|s| s, &patient), 0, "two of three timeouts");
    assert!(with(&|s| Subflow { unanswered_timeouts: 3, ..s }, &patient) > 0);
    let most = Policy { failed: Some(30.0), ..FAILED };
    assert!(
        with(&|s| Subflow { unanswered_timeouts: 8, ..s }, &most) > 0,
        "TCP may give up before the thirtieth"
    );
}

#[test]
fn timeouts_without_a_sent_retransmission_are_not_counted() {
    let delivers = |cookie, now: f64| subflow(cookie, (now * 1e6) as u64);
    // Twelve packets are sent again until one second, and as many after that.
    let of = |after: u32, sent_ms_ago| {
        let found = found_exactly(&FAILED, 9.0, |now| {
            let again = if now > 1.0 { 12 + after } else { (now * 12.0) as u32 };
            let silent = Subflow { retransmitted_pkt: again, sent_ms_ago, ..delivers(2, now.min(1.0)) };
            vec![delivers(1, now), Subflow { heard_ms_ago: 500, ..silent }]
        });
        found.len()
    };
    assert_eq!(of(0, 500), 0, "timeouts go by, and nothing leaves");
    assert_eq!(of(1, 500), 0, "one of the two left");
    assert!(of(2, 500) > 0);
    assert_eq!(of(0, 499), 0);
    assert!(of(1, 499) > 0, "and one before it was looked, after the last that was heard");
}

#[test]
fn lossy_path_fails_after_more_timeouts() {
    let of = |lost: f64, timeouts| {
        let silent = |now: f64| {
            let heard = now.min(5.0);
            let sent = (heard * 1e6) as u64;
            let again = ((heard - 1.0).max(0.0) * 1e6 * lost) as u64;
            let s = Subflow { unanswered_timeouts: timeouts, bytes_retransmitted: again, ..subflow(2, sent) };
            Subflow { bytes_sent: sent + again + 1_000_000, ..s }
        };
        !found(&FAILED, 9.0, |now| vec![subflow(1, (now * 1e6) as u64), silent(now)]).is_empty()
    };
    assert!(of(0.0, 2) && of(0.02, 2));
    assert!(!of(0.05, 2) && of(0.05, 3), "one of twenty: two in a row are no rare chance");
    assert!(!of(0.4, 4) && of(0.4, 5), "of little use alive, and not worth waiting a minute for");
    assert!(!of(9.0, 4) && of(9.0, 5));
}

#[test]
fn fast_retransmissions_are_not_counted_as_timeouts() {
    // Until 1 s all is acknowledged, until 2 s duplicates come while packets are sent again, then nothing comes or leaves.
    let of = |again: u32, sent_ms_ago| {
        let silent = |now: f64| Subflow {
            retransmitted_pkt: if now < 1.5 { 0 } else { again },
            unanswered_timeouts: if now > 2.0 { 2 } else { 0 },
            heard_ms_ago: ((now - 2.0).max(0.0) * 1e3) as u32,
            sent_ms_ago,
            ..subflow(2, (now.min(1.0) * 1e6) as u64)
        };
        found_exactly(&FAILED, 9.0, |now| vec![subflow(1, (now * 1e6) as u64), silent(now)]).len()
    };
    assert_eq!(of(2, 60_000), 0);
    assert_eq!(of(5, 60_000), 0);
    assert_eq!(of(5, 0), 0, "and something new has left since");
    // The first timer expires before it is looked again.
    let held = |now: f64| Subflow {
        retransmitted_pkt: if now < 1.5 { 0 } else { 5 },
        unanswered_timeouts: ((now - 1.0).max(0.0) / 0.5).min(2.0) as u32,
        ..subflow(2, (now.min(1.0) * 1e6) as u64)
    };
    assert_eq!(found_exactly(&FAILED, 9.0, |now| vec![subflow(1, (now * 1e6) as u64), held(now)]), []);
}

#[test]
fn silence_of_all_paths_fails_none() {
    // From 1 to 4 s nothing gets through; then one path's timer expires before the other's.
    let at = |unanswered_after: u32| {
        found_exactly(&FAILED, 9.0, |now| {
            let out = |cookie, until: f64, after: u32| {
                let acked = if now > until { now - until + 1.0 } else { now.min(1.0) };
                let timeouts = if now <= 1.0 {
                    0
                } else if now < 4.5 {
                    3
                } else {
                    after
                };
                let s = subflow(cookie, (acked * 1e6) as u64);
                Subflow { unanswered_timeouts: timeouts, retransmitted_pkt: timeouts, ..s }
            };
            vec![out(1, 4.0, 3), out(2, 99.0, unanswered_after)]
        })
    };
    assert_eq!(at(4), [], "one more of its timeouts was in vain");
    assert_eq!(at(5).first().map(|found| found.1), Some(2));
}

#[test]
fn path_fails_beside_one_with_another_algorithm() {
    let reno = |now: f64| Subflow { algorithm: "reno".to_owned(), ..subflow(1, (now * 1e6) as u64) };
    let silent = |now: f64| subflow(2, (now.min(1.0) * 1e6) as u64);
    assert!(found(&FAILED, 9.0, |now| vec![reno(now), silent(now)]).iter().any(|found| found.1 == 2));
    let ours = |now: f64| subflow(1, (now * 1e6) as u64);
    let theirs = |now: f64| Subflow { algorithm: "reno".to_owned(), ..silent(now) };
    assert_eq!(found(&FAILED, 9.0, |now| vec![ours(now), theirs(now)]), [], "it is not ours to close");
}

#[test]
fn reconnected_socket_is_another_path() {
    // After 12 s it has the same cookie, and has carried nothing; another connection's token or not.
    let carried = |now: f64| if now < 12.0 { now * 1e7 } else { (now - 12.0) * 1e6 } as u64;
    for token_local in [7, 9] {
        let again = |now: f64| {
            let s = busy(now, subflow(2, carried(now)));
            let mptcp = s.mptcp.map(|m| Mptcp { token_local: if now < 12.0 { 7 } else { token_local }, ..m });
            Subflow { mptcp, ..s }
        };
        let other = |now: f64| busy(now, subflow(1, (now * 1e5) as u64));
        let found = found(&USELESS, 21.0, |now| vec![again(now), other(now)]);
        assert_eq!(found.iter().map(|(at, cookie, _)| (*at, *cookie)).collect::<Vec<_>>(), [(10.0, 1)]);
    }
}

#[test]
fn path_with_other_active_connections_does_not_fail() {
    let of = |beside: Subflow, timeouts| {
        let silent =
            |now: f64| Subflow { unanswered_timeouts: timeouts, ..subflow(2, (now.min(1.0) * 1e6) as u64) };
        found(&FAILED, 9.0, |now| vec![subflow(1, (now * 1e6) as u64), silent(now), beside.clone()]).len()
    };
    let plain = Subflow { cookie: [9; 8], mptcp: None, algorithm: "cubic".to_owned(), ..subflow(2, 5) };
    let heard = |ms, s: &Subflow| Subflow { heard_ms_ago: ms, ..s.clone() };
    assert!(of(plain.clone(), 5) > 0, "it is silent as well");
    assert_eq!(of(heard(399, &plain), 5), 0);
    assert!(of(heard(400, &plain), 5) > 0);
    assert!(of(heard(1, &plain), 6) > 0, "something has failed that only this one crosses");
    let elsewhere = Subflow { remote: "10.0.9.9:200".parse().unwrap(), ..plain.clone() };
    assert!(of(heard(1, &elsewhere), 2) > 0, "between other addresses");
    assert!(of(Subflow { established: false, ..heard(1, &plain) }, 2) > 0, "a handshake");
}

/// Request to close `close`, given by its cookie, and to keep `keep`.
fn request(close: &Subflow, keep: &Subflow) -> CloseRequest {
    CloseRequest { cookie: u64::from_ne_bytes(close.cookie), ..CloseRequest::between(close, keep, 1) }
}

#[test]
fn min_paths_retains_paths() {
    let all = [1, 2, 3].map(|cookie| subflow(cookie, 5));
    let lost = Subflow { ca_state: CaState::Loss, ..all[2].clone() };
    let backup = Mptcp { backup: true, ..all[2].mptcp.unwrap() };
    let backup = Subflow { mptcp: Some(backup), ..all[2].clone() };
    let stranger = Mptcp { token_local: 8, ..all[2].mptcp.unwrap() };
    let stranger = Subflow { mptcp: Some(stranger), ..all[2].clone() };
    let judge = |third: &Subflow, min_paths, given_up: Option<u8>| {
        let all = [all[0].clone(), all[1].clone(), third.clone()];
        let given_up = |s: &Subflow| given_up.is_some_and(|cookie| s.cookie[0] == cookie);
        judge(&request(&all[1], &all[0]), &all, "mp_vmcc", min_paths, given_up)
    };
    let closed = || Judged::Close(Box::new(all[1].clone()));
    let retained = || Judged::Retain(Box::new(all[1].clone()));
    for (third, others) in [(&all[2], 2), (&lost, 1), (&backup, 1), (&stranger, 1)] {
        for min_paths in 1..=8 {
            let expected = if min_paths <= others { closed() } else { retained() };
            assert_eq!(judge(third, min_paths, None), expected, "{min_paths} {third:?}");
        }
    }
    assert_eq!(judge(&all[2], 2, Some(3)), retained(), "a dry run would have closed the third");
    assert_eq!(judge(&all[2], 1, Some(3)), closed());
}

#[test]
fn path_below_a_tenth_of_the_best_rate_for_ten_seconds_is_useless() {
    let at = |share: f64| {
        move |now: f64| {
            vec![busy(now, subflow(1, (now * 1e6) as u64)), busy(now, subflow(2, (now * 1e6 * share) as u64))]
        }
    };
    let slow = found(&USELESS, 12.0, at(0.09));
    assert_eq!(slow.iter().map(|(at, which, _)| (*at, *which)).collect::<Vec<_>>(), [(10.0, 2)], "{slow:?}");
    assert!(slow[0].2.reason().contains("0.72 Mbit/s while the best carried 8.00"), "{}", slow[0].2.reason());
    assert_eq!(found(&USELESS, 30.0, at(0.11)), []);
    let later = |now: f64| if now < 0.5 { vec![subflow(1, 0)] } else { at(0.0)(now) };
    assert_eq!(found(&USELESS, 21.0, later).len(), 1, "paths do not join at the same time");
    let young = |now: f64| if now < 9.0 { vec![subflow(1, (now * 1e6) as u64)] } else { at(0.0)(now) };
    assert_eq!(found(&USELESS, 18.0, young), [], "it has just joined");
}

#[test]
fn rates_are_not_compared_across_an_idle_period() {
    let at = |active: f64| vec![busy(active, subflow(1, (active * 1e6) as u64)), busy(active, subflow(2, 0))];
    let mut health = PathHealth::default();
    let mut scan = |now: f64, active: f64| health.scan(seconds(now), &at(active), |_| true, &USELESS);
    for half in 0..18 {
        assert_eq!(scan(f64::from(half) / 2.0, f64::from(half) / 2.0), []);
    }
    // An idle namespace is not looked at.
    for half in 0..20 {
        assert_eq!(scan(3600.0 + f64::from(half) / 2.0, 9.0 + f64::from(half) / 2.0), []);
    }
    assert_eq!(scan(3610.0, 19.0).len(), 1, "of the ten seconds after it");
}

#[test]
fn backoff_doubles_between_retries() {
    let (base, mut backoffs, path) = (seconds(60.0), Backoffs::default(), subflow(2, 5));
    let others = [subflow(1, 5)];
    let mut now = Duration::ZERO;
    let mut due_after = |backoffs: &mut Backoffs, topology: &dyn Fn(u32) -> u64, most: u32| {
        backoffs.begin(now, 9, &path, BackoffState::Closed);
        let began = now;
        for second in 0..most {
            now = began + Duration::from_secs(u64::from(second));
            let seen = Seen { netns: 9, all: &others, topology: topology(second) };
            if !backoffs.due(now, base, &seen).is_empty() {
                return Some(second);
            }
        }
        None
    };
    let same = |_: u32| 1;
    assert_eq!(due_after(&mut backoffs, &same, 1000), Some(60));
    assert_eq!(due_after(&mut backoffs, &same, 1000), Some(120));
    assert_eq!(due_after(&mut backoffs, &same, 1000), Some(240));
    // Something changes: at once, but not before the first wait is over.
    assert_eq!(due_after(&mut backoffs, &|second| u64::from(second > 10), 1000), Some(60));
    assert_eq!(due_after(&mut backoffs, &|second| u64::from(second > 100), 1000), Some(101));
    for _ in 0..40 {
        due_after(&mut backoffs, &same, 3601);
    }
    assert_eq!(due_after(&mut backoffs, &same, 3600), None);
    assert_eq!(due_after(&mut backoffs, &same, 3601), Some(3600), "an hour at the most");
}

#[test]
fn backoff_is_unchanged_if_a_retry_is_not_possible() {
    let (base, mut backoffs, path) = (seconds(60.0), Backoffs::default(), subflow(2, 5));
    let all = [subflow(1, 5)];
    let seen = Seen { netns: 9, all: &all, topology: 1 };
    backoffs.begin(Duration::ZERO, 9, &path, BackoffState::Closed);
    let mut due_at = Vec::new();
    for second in 0..400 {
        let now = Duration::from_secs(second);
        for one in backoffs.due(now, base, &seen) {
            due_at.push(second);
            backoffs.not_tried(now, one);
        }
    }
    assert_eq!(due_at, [60, 120, 180, 240, 300, 360]);
}

#[test]
fn failed_retry_is_repeated_and_successful_one_is_not() {
    let (base, mut backoffs, path) = (seconds(60.0), Backoffs::default(), subflow(2, 5));
    backoffs.begin(Duration::ZERO, 9, &path, BackoffState::Closed);
    let absent = [subflow(1, 5)];
    let present =
        [subflow(1, 5), Subflow { local: "10.0.2.1:999".parse().unwrap(), cookie: [9; 8], ..subflow(2, 0) }];
    let mut at = |second: u64, all: &[Subflow]| {
        let seen = Seen { netns: 9, all, topology: 1 };
        backoffs.due(Duration::from_secs(second), base, &seen).len()
    };
    assert_eq!((at(59, &absent), at(60, &absent)), (0, 1));
    assert_eq!((at(119, &absent), at(120, &absent)), (0, 1), "it did not come");
    assert_eq!((at(179, &absent), at(239, &absent), at(240, &absent)), (0, 0, 1));
    assert_eq!(at(10_000, &present), 0, "under another port");
    backoffs.forget(9, &[]);
    assert_eq!(backoffs.namespaces().count(), 0, "its connection is over");
}

#[test]
fn released_path_is_not_reopened_while_its_socket_lives() {
    let (base, mut backoffs, path) = (seconds(10.0), Backoffs::default(), subflow(2, 5));
    backoffs.begin(Duration::ZERO, 1, &path, BackoffState::Suppressed);
    let due = |backoffs: &mut Backoffs, at: f64, all: &[Subflow]| {
        backoffs.due(seconds(at), base, &Seen { netns: 1, all, topology: 7 }).len()
    };
    let there = [subflow(1, 5), path];
    assert_eq!(due(&mut backoffs, 10.0, &there), 1, "no backup any more");
    assert_eq!((11..4000).map(|at| due(&mut backoffs, f64::from(at), &there)).sum::<usize>(), 0);
    assert_eq!(
        (4000..4020).map(|at| due(&mut backoffs, f64::from(at), &there[..1])).sum::<usize>(),
        1,
        "it is gone"
    );
}

#[test]
fn dry_run_does_not_retry_paths() {
    let policy = Policy { retry: Some(seconds(5.0)), ..FAILED };
    assert_eq!(policy.retry_interval(), Some(seconds(5.0)));
    assert_eq!(Policy { dry_run: true, ..policy }.retry_interval(), None);
}

#[test]
fn backoff_begins_when_the_handshake_fails() {
    let (base, mut backoffs, path) = (seconds(10.0), Backoffs::default(), subflow(2, 5));
    backoffs.begin(Duration::ZERO, 9, &path, BackoffState::Closed);
    let absent = [subflow(1, 5)];
    let attempt = Subflow { cookie: [9; 8], established: false, ..subflow(2, 0) };
    let tries = [subflow(1, 5), attempt];
    let mut at = |second: u64, all: &[Subflow]| {
        let seen = Seen { netns: 9, all, topology: 1 };
        backoffs.due(Duration::from_secs(second), base, &seen).len()
    };
    assert_eq!(at(10, &absent), 1);
    assert_eq!((11..=60).map(|second| at(second, &tries)).sum::<usize>(), 0);
    assert_eq!((at(69, &absent), at(70, &absent)), (0, 1), "ten seconds after the end of the handshake");
}

#[test]
fn paths_from_one_address_are_retried_together() {
    let (base, mut backoffs) = (seconds(10.0), Backoffs::default());
    let of = |token, cookie, s: Subflow| Subflow {
        cookie: [cookie; 8],
        mptcp: s.mptcp.map(|m| Mptcp { token_local: token, ..m }),
        ..s
    };
    let six = Subflow { local: "[::ffff:10.0.2.1]:9".parse().unwrap(), ..subflow(2, 5) };
    let closed = [of(1, 11, subflow(2, 5)), of(2, 12, six), of(3, 13, subflow(3, 5))];
    for (path, second) in closed.iter().zip([0.0, 5.0, 5.0]) {
        backoffs.begin(seconds(second), 9, path, BackoffState::Closed);
    }
    backoffs.begin(seconds(5.0), 9, &of(4, 14, subflow(2, 5)), BackoffState::Suppressed);
    let others = [of(1, 1, subflow(1, 5)), of(2, 2, subflow(1, 5)), of(3, 3, subflow(1, 5))];
    let mut at = |second: f64| {
        let seen = Seen { netns: 9, all: &others, topology: 1 };
        let cookies = |all: Vec<Backoff>| all.iter().map(|one| one.subflow.cookie[0]).collect::<Vec<_>>();
        let due = cookies(backoffs.due(seconds(second), base, &seen));
        let address = "10.0.2.1".parse().unwrap();
        let is_his = due.contains(&11);
        let with = if is_his { cookies(backoffs.with(seconds(second), 9, address)) } else { Vec::new() };
        (due, with)
    };
    assert_eq!(at(10.0), (vec![11], vec![12]), "not another address, nor what still runs as a backup");
    assert_eq!(at(15.0).0, [13, 14]);
    assert_eq!(at(20.0).0, [11, 12], "in step from then on");
}

#[test]
fn backup_subflow_is_left_alone() {
    let backup = |s: Subflow| Subflow { mptcp: s.mptcp.map(|m| Mptcp { backup: true, ..m }), ..s };
    let at = |now: f64| vec![subflow(1, (now * 1e6) as u64), backup(subflow(2, 5))];
    assert_eq!(found(&FAILED, 9.0, at), []);
    assert_eq!(found(&USELESS, 30.0, at), []);
    assert_eq!(subflow(1, 0).ca_state, CaState::Open);
}

#[test]
fn idle_path_is_not_useless() {
    let seldom = |now: f64| vec![busy(now / 9.0, subflow(1, (now * 10.0) as u64)), idle(subflow(2, 0))];
    assert_eq!(found(&USELESS, 30.0, seldom), [], "an idle application, or a receiver");
    let held = |now: f64| vec![busy(now, subflow(1, (now * 1e6) as u64)), idle(subflow(2, 0))];
    assert_eq!(found(&USELESS, 30.0, held), [], "the other one suffices");
}

#[test]
fn closed_path_that_rejoined_is_not_retried() {
    let (base, mut backoffs, path) = (seconds(60.0), Backoffs::default(), subflow(2, 5));
    backoffs.begin(Duration::ZERO, 9, &path, BackoffState::Closed);
    let back = [subflow(1, 5), Subflow { cookie: [9; 8], ..subflow(2, 0) }];
    let still = [subflow(1, 5), path.clone()];
    let mut at = |second: u64, all: &[Subflow]| {
        let seen = Seen { netns: 9, all, topology: 1 };
        backoffs.due(Duration::from_secs(second), base, &seen).len()
    };
    assert_eq!((at(1, &back), at(60, &back), at(10_000, &back)), (0, 0, 0));
    backoffs.begin(Duration::ZERO, 8, &path, BackoffState::Closed);
    let seen = Seen { netns: 8, all: &still, topology: 1 };
    assert_eq!(backoffs.due(seconds(60.0), base, &seen).len(), 1, "the closed one, listed still");
}
