//! `awake` and `vmcc_awake` against a model that was written from the comment in `awake.h` alone: times that never wrap, every case in a
//! line of its own. Streams of ACKs of machines that sleep and of machines that do not, over clocks that wrap. `VMCC_TEST_SCALE`
//! multiplies the streams.

use vmcc_cc::trace::{Seeded, Source};
use vmcc_cc::{
    Algorithm, Cause, Decision, Event, EventFlags, MAX_CWND_PKT, MAX_SRTT_8US, Params, Path, State,
};

const MS: i64 = 1000;

/// State at the moment when the timer fired.
#[derive(Clone, Copy, Debug)]
struct Timeout {
    window: u32,
    ssthresh: u32,
    after_us: i64,
}

/// An ACK in full: nothing is cut to 32 bits.
#[derive(Clone, Copy, Debug)]
struct Ack {
    now_us: i64,
    /// The peer's clock in its unit.
    peer: Option<i64>,
    event: Event,
}

#[derive(Debug)]
struct Model {
    gap_us: i64,
    paces: bool,
    unit_us: i64,
    seen_us: i64,
    peer: Option<i64>,
    woke_us: i64,
    host_8us: i64,
    own_8us: Option<i64>,
    waits: bool,
    slept: bool,
    paced: bool,
    trust: i64,
    late_us: i64,
    timeout: Option<Timeout>,
}

fn window(packets: u32) -> u32 {
    packets.clamp(1, MAX_CWND_PKT)
}

fn is_reducing(state: State) -> bool {
    state == State::Cwr || state == State::Recovery
}

impl Model {
    fn srtt_8us(&self, event: &Event) -> i64 {
        let host = if self.host_8us > 0 { self.host_8us } else { event.srtt_8us.into() };
        self.own_8us.unwrap_or(host).clamp(1, MAX_SRTT_8US.into())
    }

    /// Part of an ACK's waiting time `late_us` that its RTT sample confirms.
    fn borne_out(&self, late_us: i64, event: &Event, srtt_us: i64) -> i64 {
        if event.rtt_us == 0 {
            return late_us;
        }
        let least = if event.min_rtt_us > 0 { srtt_us.min(event.min_rtt_us.into()) } else { srtt_us };
        let room = (i64::from(event.rtt_us) - least).clamp(0, 3_600_000 * MS);
        if late_us > room + room / 8 + 2 * MS { 0 } else { late_us.min(room) }
    }

    fn on_timeout(&mut self, now_us: i64, event: &Event) {
        if self.timeout.is_some() {
            return;
        }
        let held = window(event.cwnd_pkt);
        let to = window(event.ssthresh_pkt);
        self.timeout = Some(Timeout {
            window: if is_reducing(event.state) { held.min(to) } else { held },
            ssthresh: event.ssthresh_pkt,
            after_us: (now_us - self.seen_us) / 2048 * 2048,
        });
    }

    /// First, true if the ACK ends a sleep. Second, true if the clocks over this silence alone show it.
    fn ends_sleep(&mut self, ack: &Ack, srtt_us: i64) -> (bool, bool) {
        let silence = ack.now_us - self.seen_us;
        let (Some(before), Some(peer)) = (self.peer, ack.peer) else {
            let sleep = self.waits && silence >= self.gap_us && silence >= (2 * srtt_us).max(50 * MS);
            if !sleep {
                self.late_us = self.borne_out(self.late_us, &ack.event, srtt_us);
            }
            return (sleep, false);
        };
        let advance = (peer - before) * self.unit_us;
        let alone = self.borne_out((silence - advance).max(0), &ack.event, srtt_us);
        let late = (self.late_us + silence - advance).max(0);
        let waited = match ack.event.rtt_us {
            0 => alone,
            _ => alone.max(self.borne_out(late, &ack.event, srtt_us)),
        };
        let says = |late: i64| 2 * (late - MS) > silence;
        let silent = self.waits && silence >= self.gap_us && silence >= srtt_us / 4;
        if silent && says(waited) {
            self.late_us = waited;
            return (true, says(alone));
        }
        self.late_us = self.borne_out(late.min(self.late_us), &ack.event, srtt_us);
        (false, false)
    }

    fn wake(&mut self, ack: &Ack, srtt_us: i64, alone: bool, out: &mut Decision) {
        let silence = ack.now_us - self.seen_us;
        let goes_on = silence < srtt_us && self.late_us >= silence + MS;
        if !goes_on {
            self.trust = if self.slept { (self.trust - 8).max(0) } else { (self.trust + 1).min(15) };
        }
        self.woke_us = ack.now_us;
        self.slept = true;
        let Some(timeout) = self.timeout.filter(|_| alone && ack.event.state == State::Loss) else { return };
        let advance = (ack.peer.expect("both clocks") - self.peer.expect("both clocks")) * self.unit_us;
        if advance.clamp(0, silence) + MS < timeout.after_us {
            out.set |= vmcc_cc::DecisionFlags::CWND;
            out.cwnd_pkt = timeout.window.max(window(ack.event.cwnd_pkt));
            let ssthresh = timeout.ssthresh.min(MAX_CWND_PKT);
            if ssthresh > ack.event.ssthresh_pkt {
                out.set |= vmcc_cc::DecisionFlags::SSTHRESH;
                out.ssthresh_pkt = ssthresh;
            }
        }
    }

    fn sample(&mut self, ack: &Ack) {
        let rtt_us = i64::from(ack.event.rtt_us);
        if self.slept && rtt_us > ack.now_us - self.woke_us {
            self.own_8us = Some(self.srtt_8us(&ack.event));
            return;
        }
        self.slept = false;
        self.late_us = 0;
        let Some(own) = self.own_8us else { return };
        let max = i64::from(MAX_SRTT_8US);
        let t = (own - own / 8 + (8 * rtt_us).min(max) / 8).clamp(1, max);
        let apart = (t - i64::from(ack.event.srtt_8us)).abs();
        self.own_8us = (apart >= t / 8).then_some(t);
    }

    fn pace(&mut self, ack: &Ack, woke: bool, out: &mut Decision) {
        let event = &ack.event;
        let srtt_us = self.srtt_8us(event) / 8;
        let mut w = window(out.cwnd().unwrap_or(event.cwnd_pkt));
        if is_reducing(event.state) || event.state == State::Loss {
            w = w.max(window(event.ssthresh_pkt));
        }
        let awake_us = ack.now_us - self.woke_us;
        let nearly_all = i64::from(event.in_flight_pkt) >= i64::from(w) - i64::from(w / 8) - 1;
        let has_left =
            awake_us >= 2 * srtt_us || (awake_us >= srtt_us && (event.in_flight_pkt == 0 || nearly_all));
        let gap = if woke && self.trust >= 8 {
            let twice = if w < event.ssthresh_pkt / 2 { 2 } else { 1 };
            self.paced = true;
            Some((srtt_us / (i64::from(w) * twice)).max(1) as u32)
        } else if self.paced && (woke || has_left) {
            self.paced = false;
            Some(0)
        } else {
            None
        };
        if let Some(gap_us) = gap {
            out.set |= vmcc_cc::DecisionFlags::GAP;
            out.gap_us = gap_us;
        }
    }

    fn on_ack(&mut self, ack: &Ack) -> Decision {
        let mut out = Decision::default();
        let srtt_us = self.srtt_8us(&ack.event) / 8;
        let overtaken = self.waits && matches!((self.peer, ack.peer), (Some(a), Some(b)) if b < a);
        let mut woke = false;
        if !overtaken {
            let alone;
            (woke, alone) = self.ends_sleep(ack, srtt_us);
            if woke {
                self.wake(ack, srtt_us, alone, &mut out);
            }
            (self.timeout, self.seen_us, self.peer) = (None, ack.now_us, ack.peer);
        }
        if ack.event.rtt_us > 0 {
            self.sample(ack);
        }
        if self.paces {
            self.pace(ack, woke, &mut out);
        }
        if !self.slept {
            self.host_8us = ack.event.srtt_8us.into();
        }
        self.waits = ack.event.snd_una != ack.event.snd_nxt;
        out
    }
}

/// A connection under both algorithms and the model.
struct Bench {
    laws: [(Algorithm, Params, Path); 2],
    model: Model,
    numbers: Seeded,
    now_us: i64,
    /// The peer's clock, when the newest ACK was sent, and later.
    peer_us: i64,
    event: Event,
    sleeps: u32,
    undone: u32,
    spread: u32,
    overtaken: u32,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let mut numbers = Seeded(seed);
        let mut below = |n: u32| i64::from(numbers.below(n).expect("endless"));
        let gap_us = [500, 4000, 20_000, 10_000_000][below(4) as usize];
        let paces = below(4) > 0;
        let unit_us = if below(2) > 0 { 1 } else { 1000 };
        // Often soon before they wrap.
        let now_us = [1_000_000, (7 << 32) - 3_000_000][below(2) as usize];
        let peer_us = [5_000_000, ((1 << 32) - 2000) * unit_us, 0][below(3) as usize];
        let event = Event {
            now_us: now_us as u64,
            flags: EventFlags::CWND_LIMITED.with(EventFlags::PEER_US, unit_us == 1),
            cwnd_pkt: 10,
            ssthresh_pkt: 20,
            srtt_8us: [0, 400, 16_000, 80_000, 2_400_000][below(5) as usize],
            snd_una: u32::MAX - 5,
            snd_nxt: 20,
            ..Event::default()
        };
        let laws = ["awake", "vmcc_awake"].map(|name| {
            let algorithm = Algorithm::by_name(name).expect("in the registry");
            let mut params = Params::defaults(algorithm);
            params.set("gap", gap_us.to_string().as_str()).expect("in range");
            params.set("pace", if paces { "on" } else { "off" }).expect("a choice");
            let mut path = Path::default();
            algorithm.init(&event, &mut path, None, &params);
            (algorithm, params, path)
        });
        let model = Model {
            gap_us,
            paces,
            unit_us,
            seen_us: 0,
            peer: None,
            woke_us: 0,
            host_8us: event.srtt_8us.into(),
            own_8us: None,
            waits: false,
            slept: false,
            paced: false,
            trust: 15,
            late_us: 0,
            timeout: None,
        };
        Self { laws, model, numbers, now_us, peer_us, event, sleeps: 0, undone: 0, spread: 0, overtaken: 0 }
    }

    fn below(&mut self, n: i64) -> i64 {
        i64::from(self.numbers.below(n as u32).expect("endless"))
    }

    fn wide(&mut self, n: i64) -> i64 {
        i64::from(self.numbers.wide(n as u32).expect("endless"))
    }

    /// Timers that expire within a silence.
    fn timeouts(&mut self, silence: i64) {
        for _ in 0..self.below(3) {
            let now_us = self.now_us + self.below(silence + 1);
            let event = Event { cause: Cause::Rto, now_us: now_us as u64, ..self.event };
            for (algorithm, params, path) in &mut self.laws {
                algorithm.on_congestion(&event, path, None, params);
            }
            self.model.on_timeout(now_us, &event);
            (self.event.state, self.event.cwnd_pkt) = (State::Loss, 1);
        }
    }

    /// Draws a state that the host may report at any moment.
    fn host(&mut self) {
        match self.below(8) {
            0 => self.event.cwnd_pkt = [1, 2, 10, 100, 65_536, MAX_CWND_PKT][self.below(6) as usize],
            1 => {
                self.event.ssthresh_pkt =
                    [2, 7, 60, 40_000, vmcc_cc::SSTHRESH_INFINITE][self.below(5) as usize]
            }
            2 => {
                let states = [State::Open, State::Disorder, State::Cwr, State::Recovery, State::Loss];
                self.event.state = states[self.below(5) as usize];
            }
            3 => self.event.min_rtt_us = self.wide(300_000) as u32,
            _ => {}
        }
        let w = i64::from(self.event.cwnd_pkt);
        self.event.in_flight_pkt = if self.below(3) == 0 { self.wide(w) as u32 } else { (w - w / 9) as u32 };
    }

    /// Time until the next ACK, time by which it was sent later than the last, and its RTT sample, in microseconds.
    fn next(&mut self) -> (i64, i64, i64) {
        let t = (i64::from(self.event.srtt_8us) / 8).max(50);
        let near = |a: i64| if a > 0 { a } else { 1 };
        match self.below(16) {
            // The machine is off, for hardly any time or for minutes; or its ACKs are late by as much.
            0 | 1 => {
                let off = self.wide(60_000 * MS);
                let sent = self.below(off.min(2 * t) + 1);
                let rtt = [off - sent + t, off + t, t, 0][self.below(4) as usize];
                (off, sent, rtt)
            }
            // The peer is off, or the path is down; its clock may stand still, or show nearly the sleep's half.
            2 => {
                let off = self.wide(60_000 * MS);
                let sent =
                    [off, off - self.below(off + 1), off / 2 + self.below(5 * MS), 0][self.below(4) as usize];
                (off, sent, [t, off, 0][self.below(3) as usize])
            }
            // It delays an ACK.
            3 => (40 * MS, 40 * MS, t + 40 * MS),
            // Handled slowly.
            4 => {
                let slow = 3 * MS + self.below(8 * MS);
                (slow, self.below(MS), slow + self.model.late_us + t)
            }
            // Soon after a sleep, just about a round trip, or two.
            5 => {
                let after = near(self.model.woke_us + [t, 2 * t][self.below(2) as usize] - self.now_us);
                let exact = near(after.min(600_000 * MS) + self.below(3) - 1);
                (exact, exact, near(t - self.below(2)))
            }
            // In turn with the samples that were late.
            6 => {
                let after = self.wide(2 * t);
                (
                    after,
                    after + self.model.late_us,
                    near(self.now_us - self.model.woke_us + after).min(60_000 * MS),
                )
            }
            _ => {
                let after = self.below(t.min(20 * MS)) + 1;
                (after, near(after + self.below(2 * MS) - MS), [t, t + after, 0][self.below(3) as usize])
            }
        }
    }

    fn step(&mut self) {
        self.host();
        let (silence, later, rtt) = self.next();
        if silence > 10 * MS && self.below(2) == 0 {
            self.timeouts(silence);
        }
        self.now_us += silence;
        self.peer_us += later;
        // Another overtook it, by up to a minute; it tells nothing of clocks; it empties the network; it brings something.
        let behind = if self.below(24) == 0 { self.wide(60_000 * MS) } else { 0 };
        let shows = self.below(24) > 0;
        let sent = (self.peer_us - behind).max(0) / self.model.unit_us;
        self.event.snd_una =
            if self.below(24) == 0 { self.event.snd_nxt } else { self.event.snd_nxt.wrapping_sub(9) };
        self.event.rtt_us = rtt.max(0) as u32;
        if self.event.rtt_us > 0 {
            let (sample, host) = ((rtt * 8).min(MAX_SRTT_8US.into()), i64::from(self.event.srtt_8us));
            self.event.srtt_8us =
                if host == 0 { sample as u32 } else { (host - host / 8 + sample / 8) as u32 };
        }
        self.event.now_us = self.now_us as u64;
        self.event.peer_ts = if shows { sent as u32 } else { 0 };
        // A clock that shows 0 shows nothing.
        let peer = Some(sent).filter(|_| self.event.peer_ts != 0);
        self.check(&Ack { now_us: self.now_us, peer, event: self.event });
        self.event.snd_nxt = self.event.snd_nxt.wrapping_add(3);
    }

    fn check(&mut self, ack: &Ack) {
        let before = format!("{:?}", self.model);
        let heard = self.model.seen_us != ack.now_us;
        let wants = self.model.on_ack(ack);
        self.sleeps += u32::from(self.model.woke_us == ack.now_us);
        self.undone += u32::from(wants.cwnd().is_some());
        self.spread += u32::from(wants.gap_us().is_some_and(|gap| gap > 0));
        self.overtaken += u32::from(heard && self.model.seen_us != ack.now_us);
        for (algorithm, params, path) in &mut self.laws {
            let decision = algorithm.on_ack(&ack.event, path, None, params);
            let name = algorithm.name();
            assert_eq!(decision, wants, "{name}\n{ack:?}\n{before}");
            let own = i64::from(path.pub_words[0] as u32);
            assert_eq!(own, self.model.own_8us.unwrap_or(0), "{name}: T\n{ack:?}\n{before}");
            if name == "vmcc_awake" {
                assert_eq!(
                    path.pub_words[0] >> 63 == 1,
                    self.model.slept,
                    "{name}: the detector's\n{ack:?}\n{before}"
                );
            }
        }
    }
}

#[test]
fn awake_algorithms_agree_with_the_model() {
    let scale: u64 = std::env::var("VMCC_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut seen = [0u32; 4];
    for seed in 0..400 * scale {
        let mut bench = Bench::new(seed);
        for _ in 0..500 {
            bench.step();
        }
        for (sum, more) in seen.iter_mut().zip([bench.sleeps, bench.undone, bench.spread, bench.overtaken]) {
            *sum += more;
        }
    }
    println!("sleeps, timeouts taken back, spread windows, overtaken ACKs: {seen:?}");
    assert!(seen.iter().all(|&n| n > 300), "the streams have none of something: {seen:?}");
}
