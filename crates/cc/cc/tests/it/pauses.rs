//! Idle and application-limited periods must not affect an algorithm later: neither the length of a silence, nor the amount
//! sent while the application, not the window, was the limit.

use vmcc_cc::{Algorithm, Cause, DecisionFlags, Event, EventFlags, Group, Host, Params};

const RTT_US: u32 = 20_000;
const PATHS: usize = 2;

/// One connection whose paths send a window per round trip, each acknowledged by two ACKs.
struct Connection {
    algorithm: Algorithm,
    params: Params,
    now_us: u64,
    paths: [Path; PATHS],
    grouped: bool,
}

#[derive(Clone, Copy)]
struct Path {
    host: Host,
    sent: u32,
}

impl Connection {
    fn new(algorithm: Algorithm) -> Self {
        let params = Params::defaults(algorithm);
        let paths = [Path { host: Host::new(100), sent: 0 }; PATHS];
        let mut this = Self { algorithm, params, now_us: 1_000_000, paths, grouped: false };
        for path in 0..PATHS {
            let event = this.event(path, 0, 0);
            this.algorithm.begin(&event, &mut this.paths[path].host, None, &this.params);
        }
        this
    }

    fn event(&self, path: usize, acked_pkt: u32, left: u32) -> Event {
        let sent = self.paths[path].sent;
        Event {
            now_us: self.now_us,
            flags: EventFlags::CWND_LIMITED,
            self_index: path as u32,
            srtt_8us: RTT_US * 8,
            min_rtt_us: RTT_US,
            rtt_us: RTT_US,
            acked_pkt,
            in_flight_pkt: left,
            snd_una: sent.wrapping_sub(left),
            snd_nxt: sent,
            ..Event::default()
        }
    }

    fn step(&mut self, path: usize, event: &Event) -> DecisionFlags {
        let group: Group = self.paths.iter().map(|path| path.host.slot(RTT_US * 8)).collect();
        let host = &mut self.paths[path].host;
        self.algorithm.step(event, host, self.grouped.then_some(&group), &self.params);
        host.decision.set
    }

    /// A window is sent on each path, and a round-trip time later its two halves are acknowledged.
    fn round(&mut self) -> DecisionFlags {
        self.now_us += u64::from(RTT_US);
        let mut decided = DecisionFlags::NONE;
        for path in 0..PATHS {
            let window = self.paths[path].host.cwnd_pkt;
            self.paths[path].sent = self.paths[path].sent.wrapping_add(window);
            for (acked, left) in [(window - window / 2, window / 2), (window / 2, 0)] {
                let event = self.event(path, acked, left);
                decided |= self.step(path, &event);
            }
        }
        decided
    }

    /// A round trip in which the application sends `units` of sequence space and could have sent more packets.
    fn limited_by_the_application(&mut self, units: u32) {
        self.now_us += u64::from(RTT_US);
        for path in 0..PATHS {
            self.paths[path].sent = self.paths[path].sent.wrapping_add(units);
            let event = Event { flags: EventFlags::NONE, ..self.event(path, 1, 0) };
            self.step(path, &event);
        }
    }

    fn lose(&mut self) {
        for path in 0..PATHS {
            let event = Event { cause: Cause::Loss, ..self.event(path, 0, 0) };
            self.step(path, &event);
        }
    }

    fn windows(&self) -> [u32; PATHS] {
        self.paths.map(|path| path.host.cwnd_pkt)
    }
}

/// RFC 9438, section 4.2, and everybody else as well.
#[test]
fn idle_time_does_not_count_for_growth() {
    for algorithm in Algorithm::all() {
        let [mut busy, mut silent] = [(); 2].map(|()| Connection::new(algorithm));
        for connection in [&mut busy, &mut silent] {
            connection.lose();
            for _ in 0..40 {
                connection.round();
            }
        }
        silent.now_us += 10_000_000;
        for round in 0..10 {
            busy.round();
            silent.round();
            assert_eq!(silent.windows(), busy.windows(), "{algorithm}, {round} rounds after the silence");
        }
    }
}

/// 2^31 units of sequence space is where "before" turns into "after".
#[test]
fn rounds_advance_while_application_limited() {
    for algorithm in Algorithm::all() {
        let [mut little, mut much] = [(); 2].map(|()| Connection::new(algorithm));
        little.lose();
        much.lose();
        for _ in 0..10 {
            little.limited_by_the_application(10);
            much.limited_by_the_application(1 << 28);
        }
        for round in 0..10 {
            little.round();
            much.round();
            assert_eq!(much.windows(), little.windows(), "{algorithm}, {round} rounds after 2.5 GiB");
        }
    }
}

/// The same for what is decided once a sibling has joined.
#[test]
fn late_sibling_gets_a_verdict() {
    for units in [10, 1 << 28] {
        let mut connection = Connection::new(Algorithm::by_name("amp").expect("in the registry"));
        (0..10).for_each(|_| connection.limited_by_the_application(units));
        connection.grouped = true;
        for path in &mut connection.paths {
            (path.host.cwnd_pkt, path.host.ssthresh_pkt) = (1, 1);
        }
        let mut decided = DecisionFlags::NONE;
        for _ in 0..12 {
            connection.now_us += u64::from(RTT_US);
            for path in 0..PATHS {
                connection.paths[path].sent = connection.paths[path].sent.wrapping_add(1);
                let event = Event { flags: EventFlags::NONE, ..connection.event(path, 1, 0) };
                decided |= connection.step(path, &event);
            }
        }
        assert!(decided.has(DecisionFlags::ONLY_PATH), "after {units} units per round: {decided:?}");
    }
}
