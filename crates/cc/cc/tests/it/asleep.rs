//! `awake` and `vmcc_awake`: what they take for a sleep of their own machine, and what they do then.

use proptest::collection::vec;
use proptest::prelude::*;
use vmcc_cc::{Algorithm, Cause, Decision, Event, EventFlags, Group, Params, Path, State};

/// One algorithm on a path.
struct Law {
    algorithm: Algorithm,
    params: Params,
    path: Path,
}

type Hook = fn(&Algorithm, &Event, &mut Path, Option<&Group>, &Params) -> Decision;

impl Law {
    fn new(name: &str) -> Self {
        let algorithm = Algorithm::by_name(name).expect("in the registry");
        Self { algorithm, params: Params::defaults(algorithm), path: Path::default() }
    }

    fn ask(&mut self, hook: Hook, event: &Event) -> Decision {
        hook(&self.algorithm, event, &mut self.path, None, &self.params)
    }

    /// The round-trip time that it goes by instead of the host's, in microseconds; 0: it goes by the host's.
    fn own_rtt_us(&self) -> u64 {
        u64::from(self.path.pub_words[0] as u32) / 8
    }
}

/// A path that gets one ACK after the other, under both algorithms, which must agree about each.
struct Sender {
    laws: [Law; 2],
    event: Event,
    peer_us: u64,
    /// Of the peer's timestamps.
    unit_us: u64,
}

impl Sender {
    /// With a smoothed round-trip time of 2 ms, forty packets in flight.
    fn new() -> Self {
        let event = Event {
            now_us: 1_000_000,
            flags: EventFlags::CWND_LIMITED,
            cwnd_pkt: 40,
            ssthresh_pkt: 30,
            srtt_8us: 16_000,
            min_rtt_us: 500,
            snd_una: 100,
            snd_nxt: 140,
            ..Event::default()
        };
        let laws = ["awake", "vmcc_awake"].map(Law::new);
        let mut sender = Self { laws, event, peer_us: 7_000_000_000, unit_us: 1000 };
        sender.ask(Algorithm::init, &event);
        sender.ack(100, 100, 2_000);
        sender
    }

    fn ask(&mut self, hook: Hook, event: &Event) -> Decision {
        let [decision, other] = self.laws.each_mut().map(|law| law.ask(hook, event));
        assert_eq!(decision, other);
        decision
    }

    /// The next ACK, `after_us` after the last one, for a segment that took `rtt_us`; the peer sent it `later_us` later than
    /// that one.
    fn ack(&mut self, after_us: u64, later_us: u64, rtt_us: u32) -> Decision {
        self.peer_us += later_us;
        self.event.now_us += after_us;
        self.event.rtt_us = rtt_us;
        self.event.peer_ts = (self.peer_us / self.unit_us) as u32;
        self.event.snd_una += 1;
        self.event.snd_nxt += 1;
        let event = self.event;
        self.ask(Algorithm::on_ack, &event)
    }

    /// Silence of the peer until a timeout is due, and beyond: what the ACK that ends it leads to.
    fn outage(&mut self, silence_us: u64, later_us: u64, rtt_us: u32) -> Decision {
        let before = (self.event.cwnd_pkt, self.event.ssthresh_pkt);
        let timeout = Event { cause: Cause::Rto, now_us: self.event.now_us + silence_us - 10, ..self.event };
        let cut = self.ask(Algorithm::on_congestion, &timeout);
        assert_eq!((cut.cwnd(), cut.ssthresh()), (Some(1), Some(self.event.cwnd_pkt / 2)));
        (self.event.state, self.event.cwnd_pkt, self.event.ssthresh_pkt) = (State::Loss, 1, 20);
        let after = self.ack(silence_us, later_us, rtt_us);
        (self.event.state, self.event.cwnd_pkt, self.event.ssthresh_pkt) = (State::Open, before.0, before.1);
        after
    }

    /// Everything is acknowledged; when there is something to send again, the peer's clock is there.
    fn idle_until(&mut self, peer_us: u64) {
        self.event.snd_nxt = self.event.snd_una;
        self.ack(100, 100, 2_000);
        self.peer_us = peer_us;
        self.event.snd_nxt += 40;
        self.ack(100, 0, 2_000);
    }

    fn own_rtt_us(&self) -> u64 {
        let [own, other] = self.laws.each_ref().map(Law::own_rtt_us);
        assert_eq!(own, other);
        own
    }
}

#[test]
fn descheduled_time_is_no_rtt_sample_and_starts_pacing() {
    let mut sender = Sender::new();
    assert_eq!(sender.ack(90_000, 200, 91_000).gap_us(), Some(50), "40 packets over 2 ms");
    // The host's estimate takes the samples; ours does not.
    for waited in [90_900, 90_500, 90_100] {
        sender.event.srtt_8us += 80_000;
        assert_eq!(sender.ack(5, 400, waited).gap_us(), None);
        assert_eq!(sender.own_rtt_us(), 2_000);
    }
    // What was sent after the sleep counts, and pacing ends.
    assert_eq!(sender.ack(2_000, 90_000, 1_000).gap_us(), Some(0));
    assert_eq!(sender.own_rtt_us(), 1_875);
    sender.event.srtt_8us = 8 * 1_800;
    sender.ack(100, 100, 1_800);
    assert_eq!(sender.own_rtt_us(), 0, "the host's is as good again");
}

/// A host that reduces meanwhile holds its window at what is in flight; what it gives back at the end is not to leave at once.
#[test]
fn unsent_window_is_paced_over_a_second_round_trip() {
    for (in_flight_pkt, ends) in [(10, false), (33, false), (34, true), (0, true)] {
        let mut sender = Sender::new();
        assert_eq!(sender.ack(90_000, 200, 91_000).gap_us(), Some(50));
        sender.event.in_flight_pkt = in_flight_pkt;
        let after = sender.ack(2_000, 90_000, 1_000).gap_us();
        assert_eq!(after, ends.then_some(0), "{in_flight_pkt} of 40 in flight after T");
        sender.ack(500, 500, 1_000);
        // T is shorter by now.
        let after = sender.ack(1_500, 1_500, 1_000).gap_us();
        assert_eq!(after, (!ends).then_some(0), "{in_flight_pkt} of 40 in flight after 2 T");
    }
}

/// Off again before anything that it sent is acknowledged: each ACK has waited, and so had the one before.
#[test]
fn runs_shorter_than_a_round_trip_are_not_paced() {
    let mut sender = Sender::new();
    let mut gaps = Vec::new();
    for later_us in [200, 49_900, 49_900, 49_900] {
        gaps.push(sender.ack(50_000, later_us, 50_000).gap_us());
        sender.ack(5, 100, 50_000);
        assert_eq!(sender.own_rtt_us(), 2_000, "it sleeps");
    }
    assert_eq!(gaps, [Some(50), Some(0), None, None]);
    // One run that is long enough proves nothing; nor do seven.
    let longer = |sender: &mut Sender| {
        sender.ack(2_100, 52_000, 2_000);
        sender.ack(90_000, 200, 91_000).gap_us()
    };
    for _ in 0..7 {
        assert_eq!(longer(&mut sender), None);
    }
    assert!(longer(&mut sender).is_some_and(|gap| gap > 0));
}

#[test]
fn silence_of_the_peer_is_not_taken_for_descheduling() {
    for rtt_us in [41_000, 200_000] {
        let mut sender = Sender::new();
        assert_eq!(sender.ack(200_000, 199_000, rtt_us), Decision::default(), "it sent nothing");
        assert_eq!(sender.own_rtt_us(), 0);
    }
}

#[test]
fn silence_with_nothing_in_flight_is_not_taken_for_descheduling() {
    let mut sender = Sender::new();
    sender.event.snd_una = sender.event.snd_nxt;
    sender.ack(100, 100, 2_000);
    sender.event.snd_nxt += 20;
    assert_eq!(sender.ack(500_000, 10, 2_000), Decision::default());
}

#[test]
fn parameter_pace_disables_pacing() {
    let mut sender = Sender::new();
    for law in &mut sender.laws {
        law.params.set("pace", "off").expect("a parameter of it");
    }
    assert_eq!(sender.ack(90_000, 200, 91_000), Decision::default());
    assert_eq!(sender.own_rtt_us(), 2_000);
}

/// The timer fires before the ACKs that had been waiting; or it is right, and the ACK answers what it sent.
#[test]
fn timeout_refuted_by_waiting_acks_is_undone() {
    for (later_us, taken_back) in [(300, true), (399_000, false)] {
        let mut sender = Sender::new();
        let after = sender.outage(400_010, later_us, 401_000);
        let before = taken_back.then_some((40, 30));
        assert_eq!(after.cwnd().zip(after.ssthresh()), before);
        // Once is enough.
        assert_eq!(sender.ack(90_000, 10, 90_000).cwnd(), None);
    }
}

/// A peer that was suspended, and whose clock was as well, makes every ACK from then on look late.
#[test]
fn detection_recovers_after_the_peer_clock_stopped() {
    for (ack_between, rtt_us) in [(true, 401_000), (false, 401_000), (true, 0), (false, 0)] {
        let mut sender = Sender::new();
        assert!(sender.ack(3_000_000, 0, 3_002_000).gap_us().is_some(), "nobody can tell whose clock it was");
        if ack_between {
            sender.ack(2_500, 2_500, 2_000);
        }
        // It is silent, three times; each was belied at once if it had been sleep.
        for _ in 0..3 {
            let after = sender.outage(400_000, 400_000, rtt_us);
            assert_eq!((after.cwnd(), after.ssthresh()), (None, None), "the timeout was right");
            sender.ack(2_500, 2_500, 2_000);
            assert!(sender.own_rtt_us() <= 3_000, "{}", sender.own_rtt_us());
        }
        // The own machine is off.
        let after = sender.outage(400_000, 300, 401_000);
        assert_eq!((after.cwnd(), after.ssthresh()), (Some(40), Some(30)));
    }
}

/// One packet at a time, whose ACK is delayed: each ends a silence, and nothing comes between.
#[test]
fn delayed_acks_end_pacing_after_the_peer_clock_stopped() {
    let mut sender = Sender::new();
    sender.ack(3_000_000, 0, 3_002_000);
    for _ in 0..40 {
        sender.event.srtt_8us += (8 * 40_500 - sender.event.srtt_8us) / 8;
        assert_eq!(sender.ack(40_500, 40_500, 40_500).cwnd(), None);
    }
    assert_eq!(sender.own_rtt_us(), 0, "the host's estimate is good");
}

/// ACKs that have each waited like the one before show that the sender was descheduled. A timeout is undone only if the
/// silence before the current ACK shows it, too.
#[test]
fn earlier_waiting_acks_do_not_undo_a_timeout() {
    let mut sender = Sender::new();
    for later_us in [200, 49_900, 49_900] {
        sender.ack(50_000, later_us, 50_000);
        assert_eq!(sender.own_rtt_us(), 2_000, "it sleeps");
    }
    let after = sender.outage(50_000, 49_900, 50_000);
    assert_eq!((after.cwnd(), sender.own_rtt_us()), (None, 2_000), "it sleeps, and the timeout stands");
    let after = sender.outage(400_000, 49_900, 400_000);
    assert_eq!(after.cwnd(), Some(40), "a longer sleep");
}

/// A clock of microseconds wraps after 71 minutes, one of milliseconds after 49 days.
#[test]
fn wrap_of_the_peer_clock_is_handled() {
    for unit_us in [1, 1000] {
        let mut sender = Sender::new();
        if unit_us == 1 {
            sender.event.flags = sender.event.flags.with(EventFlags::PEER_US, true);
        }
        sender.unit_us = unit_us;
        sender.idle_until((1 << 32) * unit_us - 150_000);
        // The peer is silent over the wrap; then the own machine is off.
        assert_eq!(sender.ack(200_000, 199_000, 41_000), Decision::default());
        assert_eq!(sender.own_rtt_us(), 0);
        assert!(sender.ack(90_000, 200, 91_000).gap_us().is_some());
        // And off over the wrap.
        sender.idle_until((2 << 32) * unit_us - 100);
        sender.ack(2_000, 50, 1_000);
        assert!(sender.ack(90_000, 200, 91_000).gap_us().is_some());
    }
}

#[test]
fn descheduling_without_timestamps_needs_longer_silence() {
    for (silence_us, asleep) in [(45_000, false), (60_000, true)] {
        let mut sender = Sender::new();
        sender.event.now_us += silence_us;
        let ack = Event { rtt_us: 50_000, peer_ts: 0, ..sender.event };
        let decision = sender.ask(Algorithm::on_ack, &ack);
        assert_eq!(decision.gap_us().is_some(), asleep);
    }
}

/// During a reduction the host reports the window from before it. An undone timeout restores the reduced window.
#[test]
fn timeout_undone_during_a_reduction_restores_the_reduced_window() {
    for (state, window) in [(State::Open, 40), (State::Cwr, 20), (State::Recovery, 20)] {
        let mut sender = Sender::new();
        (sender.event.state, sender.event.ssthresh_pkt) = (state, 20);
        let now_us = sender.event.now_us + 400_000;
        let timeout = Event { cause: Cause::Rto, now_us, ..sender.event };
        sender.ask(Algorithm::on_congestion, &timeout);
        (sender.event.state, sender.event.cwnd_pkt) = (State::Loss, 1);
        assert_eq!(sender.ack(400_010, 300, 401_000).cwnd(), Some(window), "{state:?}");
    }
}

/// Something is lost, the timer says so, and the machine is off when the answer to that comes.
#[test]
fn timeout_that_the_ack_may_answer_is_not_undone() {
    for (fired_us, later_us, in_vain) in [
        (200_000, 203_000, false),
        (200_000, 199_500, false),
        (200_000, 190_000, true),
        (900_000, 203_000, true),
    ] {
        let mut sender = Sender::new();
        // Of several the first.
        for fired_us in [fired_us, 950_000] {
            let timeout = Event { cause: Cause::Rto, now_us: sender.event.now_us + fired_us, ..sender.event };
            sender.ask(Algorithm::on_congestion, &timeout);
        }
        (sender.event.state, sender.event.cwnd_pkt) = (State::Loss, 1);
        let after = sender.ack(1_000_000, later_us, 0);
        assert_eq!(
            after.cwnd(),
            in_vain.then_some(40),
            "the timer after {fired_us}, the ACK after {later_us} us"
        );
    }
}

/// Its clock is of before that of the ACK that came before it.
#[test]
fn reordered_ack_does_not_end_a_descheduled_period() {
    let mut sender = Sender::new();
    sender.ack(1_000, 10_000, 2_000);
    let newest_us = sender.peer_us;
    sender.peer_us -= 8_000;
    assert_eq!(sender.ack(9_000, 0, 0), Decision::default());
    // Nor does it hide one.
    sender.peer_us = newest_us;
    assert!(sender.ack(81_000, 200, 91_000).gap_us().is_some());
    assert_eq!(sender.own_rtt_us(), 2_000);
}

/// A clock of microseconds that has gone round by half while nothing was sent is one of before, but nothing overtook it.
#[test]
fn detection_works_after_an_hour_without_data() {
    let mut sender = Sender::new();
    sender.event.flags = sender.event.flags.with(EventFlags::PEER_US, true);
    sender.unit_us = 1;
    sender.idle_until(1 << 32);
    sender.event.now_us += 3_000_000_000;
    sender.idle_until((1 << 32) + 3_000_000_000);
    assert!(sender.ack(90_000, 200, 91_000).gap_us().is_some());
}

/// A machine that is slow to handle what waited, or is off for a moment meanwhile, is still the one that woke up.
#[test]
fn backlog_after_descheduling_is_not_another_run() {
    let mut sender = Sender::new();
    sender.event.srtt_8us = 8 * 10_000;
    sender.ack(100, 100, 10_000);
    for _ in 0..4 {
        assert_eq!(sender.ack(360_000, 200, 370_000).gap_us(), Some(250), "it is paced");
        for _ in 0..3 {
            assert_eq!(sender.ack(5_000, 300, 370_000).gap_us(), Some(250), "and goes on to be");
        }
        sender.event.srtt_8us = 8 * 10_000;
        assert_eq!(sender.ack(10_000, 383_900, 10_000).gap_us(), Some(0));
    }
    // Off for longer than a round trip, it was another.
    assert!(sender.ack(360_000, 200, 370_000).gap_us().is_some());
    assert_eq!(sender.ack(20_000, 300, 370_000).gap_us(), Some(0));
}

/// A host that reduces when it wakes up, or as it wakes up, holds the window at what is in flight.
#[test]
fn window_held_back_by_a_reduction_is_paced() {
    for (state, cwnd_pkt, gap_us, ends) in [
        (State::Open, 4, 500, true),
        (State::Cwr, 4, 66, false),
        (State::Recovery, 4, 66, false),
        (State::Recovery, 40, 50, false),
        // The host may take it back.
        (State::Loss, 1, 66, false),
    ] {
        let mut sender = Sender::new();
        sender.event.ssthresh_pkt = if state == State::Open { 4 } else { 30 };
        (sender.event.state, sender.event.cwnd_pkt) = (state, cwnd_pkt);
        assert_eq!(sender.ack(90_000, 200, 91_000).gap_us(), Some(gap_us), "{state:?}");
        sender.event.in_flight_pkt = 4;
        let after = sender.ack(2_000, 90_000, 2_000).gap_us();
        assert_eq!(after, ends.then_some(0), "{state:?}: four are in flight after T");
        assert_eq!(
            sender.ack(2_000, 2_000, 2_000).gap_us(),
            (!ends).then_some(0),
            "{state:?}: 2 T are enough"
        );
    }
}

/// Within T it is twice the window.
#[test]
fn pacing_does_not_slow_slow_start() {
    for (ssthresh_pkt, gap_us) in [(vmcc_cc::SSTHRESH_INFINITE, 25), (82, 25), (81, 50), (40, 50)] {
        let mut sender = Sender::new();
        sender.event.ssthresh_pkt = ssthresh_pkt;
        assert_eq!(sender.ack(90_000, 200, 91_000).gap_us(), Some(gap_us), "{ssthresh_pkt}");
    }
}

/// OLIA's count between losses: a timeout in vain was no loss, however often the timer fired, and whether or not an ACK that
/// another overtook came in between.
#[test]
fn undone_timeout_does_not_count_as_a_loss_for_olia() {
    let cases = [(1, 300, true), (3, 300, true), (1, 399_000, false)];
    for ((timeouts, later_us, taken_back), overtaken) in
        cases.into_iter().flat_map(|case| [(case, 0), (case, 1), (case, 3)])
    {
        let mut sender = Sender::new();
        let law = &mut sender.laws[1];
        law.params.set("increase", "olia").expect("a parameter of it");
        let packets = |law: &Law| law.path.pub_words[1];
        let event = Event { acked_pkt: 500, ..sender.event };
        law.ask(Algorithm::on_ack, &event);
        law.ask(Algorithm::on_congestion, &Event { cause: Cause::Loss, ..event });
        law.ask(Algorithm::on_ack, &Event { acked_pkt: 200, ..event });
        assert_eq!(packets(law), 500);
        for _ in 0..timeouts {
            let fired_us = event.now_us + 300_000;
            law.ask(Algorithm::on_congestion, &Event { cause: Cause::Rto, now_us: fired_us, ..event });
        }
        for _ in 0..overtaken {
            let peer_ts = event.peer_ts - 50;
            let now_us = event.now_us + 350_000;
            let overtaken = Event { state: State::Loss, cwnd_pkt: 1, acked_pkt: 0, now_us, peer_ts, ..event };
            law.ask(Algorithm::on_ack, &overtaken);
        }
        let now_us = event.now_us + 400_000;
        let peer_ts = event.peer_ts + later_us / 1000;
        let late = Event { state: State::Loss, cwnd_pkt: 1, now_us, peer_ts, rtt_us: 401_000, ..event };
        let after = law.ask(Algorithm::on_ack, &Event { acked_pkt: 10, ..late });
        assert_eq!(after.cwnd().is_some(), taken_back);
        assert_eq!(packets(law), if taken_back { 500 } else { 200 });
        // And the last 200 are still known.
        law.ask(Algorithm::on_ack, &Event { acked_pkt: 400, ..late });
        assert_eq!(packets(law), if taken_back { 610 } else { 410 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Queues of any length, in either direction: ACKs come as they were sent, a bit sooner or later each. However far the
    /// round-trip time rises above the minimum, that is no sleep.
    #[test]
    fn queueing_delay_is_not_taken_for_descheduling(acks in vec((1..20_000u64, 0..3_000u64, 500..5_000_000u32), 1..300)) {
        let mut sender = Sender::new();
        for (apart_us, jitter_us, rtt_us) in acks {
            sender.event.srtt_8us = rtt_us * 8;
            let decision = sender.ack(apart_us + jitter_us, apart_us.max(jitter_us + 1_000), rtt_us);
            prop_assert_eq!(decision, Decision::default());
            prop_assert_eq!(sender.own_rtt_us(), 0);
        }
    }
}
