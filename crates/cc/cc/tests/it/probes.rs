//! The detector's probes: what a window is during one, and that it is given back.

use vmcc_cc::{Algorithm, Decision, Event, EventFlags, Group, Params, Sharing, Slot, SlotFlags, State};

const RTT_US: u32 = 1000;
const ACKS_PER_ROUND: u64 = 10;

/// The second of two paths, half of whose round trip is queue. Nothing but the detector moves its window.
struct Prober {
    params: Params,
    group: Group,
    sharing: Sharing,
    acks: u64,
    cwnd_pkt: u32,
    ssthresh_pkt: u32,
    state: State,
}

impl Prober {
    fn new(cwnd_pkt: u32, ssthresh_pkt: u32) -> Self {
        let slot = Slot {
            flags: SlotFlags::ESTABLISHED,
            cwnd_pkt,
            ssthresh_pkt,
            srtt_8us: 8 * RTT_US,
            pub_words: [0; 2],
        };
        Self {
            params: Params::defaults(vmcc()),
            group: [slot; 2].into_iter().collect(),
            sharing: Sharing::default(),
            acks: 0,
            cwnd_pkt,
            ssthresh_pkt,
            state: State::Open,
        }
    }

    fn ack(&mut self) -> Decision {
        let event = Event {
            now_us: 1_000_000 + self.acks * u64::from(RTT_US) / ACKS_PER_ROUND,
            flags: EventFlags::CWND_LIMITED,
            state: self.state,
            self_index: 1,
            cwnd_pkt: self.cwnd_pkt,
            ssthresh_pkt: self.ssthresh_pkt,
            srtt_8us: 8 * RTT_US,
            min_rtt_us: RTT_US / 2,
            rtt_us: RTT_US,
            acked_pkt: 2,
            in_flight_pkt: self.cwnd_pkt,
            snd_una: self.acks as u32,
            ..Event::default()
        };
        self.acks += 1;
        let decision = vmcc().detect(&event, &self.group, &mut self.sharing, &self.params);
        self.cwnd_pkt = decision.cwnd().unwrap_or(self.cwnd_pkt);
        self.ssthresh_pkt = decision.ssthresh().unwrap_or(self.ssthresh_pkt);
        decision
    }

    /// ACKs until the window is this, at most this many.
    fn until(&mut self, cwnd_pkt: u32, acks: u64) -> bool {
        (0..acks).any(|_| {
            self.ack();
            self.cwnd_pkt == cwnd_pkt
        })
    }

    /// The host reduces the window to this and is done with it after a round trip.
    fn reduce(&mut self, to_pkt: u32) {
        (self.state, self.cwnd_pkt, self.ssthresh_pkt) = (State::Cwr, to_pkt, to_pkt);
        for _ in 0..ACKS_PER_ROUND {
            assert_eq!(self.ack().cwnd(), None, "during a reduction the window is the host's");
        }
        self.state = State::Open;
    }
}

fn vmcc() -> Algorithm {
    Algorithm::by_name("vmcc").expect("in the registry")
}

/// Long enough for one bin in eight to be drawn.
const LONG: u64 = 200 * ACKS_PER_ROUND;
const SOON: u64 = 5 * ACKS_PER_ROUND;

#[test]
fn pause_restores_its_window_after_any_event() {
    for between in [State::Open, State::Disorder] {
        let mut path = Prober::new(40, 40);
        assert!(path.until(20, LONG), "no pause was made");
        path.state = between;
        path.ack();
        path.state = State::Open;
        assert!(path.until(40, SOON), "{between:?}: {} packets are left", path.cwnd_pkt);
    }
}

#[test]
fn reduction_during_a_pause_applies_to_the_whole_window() {
    let mut path = Prober::new(40, 40);
    assert!(path.until(20, LONG), "no pause was made");
    path.reduce(15);
    assert!(path.until(30, SOON), "three quarters of 40 packets, not {}", path.cwnd_pkt);
}
