//! XMP against its own equilibrium: what its windows are depends on which rounds are marked, and how marks fall on
//! subflows decides what several of them take of a link.
//!
//! XMP (CoNEXT 2013) adds delta_r packets to a subflow's window per round trip and takes off w_r / beta in a round with a
//! mark. If a share P_r of the rounds is marked, the window rests at w_r = beta delta_r / P_r. Subflows of equal round
//! trips share delta: each of n has 1/n.
//!
//! * **Every subflow sees the same marked rounds** (P_r = P, what the paper's model of a link says): w_r = beta / (n P), and n
//!   subflows together have beta / P, what one has.
//! * **Every packet is marked alike** (P_r = p w_r while small): w_r = sqrt(beta / (n p)), and n subflows together have
//!   sqrt(n) times what one has: a smaller window meets fewer marks, but is cut by less.

use vmcc_cc::trace::{Seeded, Source};
use vmcc_cc::{Algorithm, Cause, Event, EventFlags, Group, Host, Params};

const RTT_US: u32 = 1_000;
const BETA: f64 = 4.0;

/// Distribution of marks.
#[derive(Clone, Copy)]
enum Marks {
    /// A share of the rounds, the same ones for every subflow.
    Rounds(f64),
    /// A share of the packets, each by itself.
    Packets(f64),
}

/// Subflows of equal round trips that send a window per round.
struct Connection {
    xmp: Algorithm,
    params: Params,
    now_us: u64,
    sent: Vec<u32>,
    hosts: Vec<Host>,
    draws: Seeded,
}

impl Connection {
    fn new(subflows: usize, window_pkt: u32) -> Self {
        let xmp = Algorithm::by_name("xmp").expect("in the registry");
        // Past slow start, which the law says nothing of.
        let host = Host { ssthresh_pkt: 2, ..Host::new(window_pkt) };
        let mut this = Self {
            xmp,
            params: Params::defaults(xmp),
            now_us: 1_000_000,
            sent: vec![0; subflows],
            hosts: vec![host; subflows],
            draws: Seeded(1),
        };
        for r in 0..subflows {
            let event = this.event(r, 0, 0);
            this.xmp.begin(&event, &mut this.hosts[r], None, &this.params);
        }
        this
    }

    fn event(&self, r: usize, acked_pkt: u32, left: u32) -> Event {
        Event {
            now_us: self.now_us,
            flags: EventFlags::CWND_LIMITED,
            self_index: r as u32,
            srtt_8us: RTT_US * 8,
            min_rtt_us: RTT_US,
            rtt_us: RTT_US,
            acked_pkt,
            in_flight_pkt: left,
            snd_una: self.sent[r].wrapping_sub(left),
            snd_nxt: self.sent[r],
            ..Event::default()
        }
    }

    fn chance(&mut self) -> f64 {
        (self.draws.next().expect("endless") >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Every subflow sends a window, which an ACK for the first half and one for the second acknowledge.
    fn round(&mut self, marks: Marks) {
        self.now_us += u64::from(RTT_US);
        let common = self.chance();
        for r in 0..self.hosts.len() {
            let window = self.hosts[r].cwnd_pkt;
            let marked = match marks {
                Marks::Rounds(share) => common < share,
                Marks::Packets(share) => self.chance() < 1.0 - (1.0 - share).powi(window as i32),
            };
            self.sent[r] = self.sent[r].wrapping_add(window);
            for (acked, left, ece) in [(window - window / 2, window / 2, marked), (window / 2, 0, false)] {
                let event = self.event(r, acked, left);
                let event = if ece {
                    Event { cause: Cause::Ece, flags: event.flags.with(EventFlags::ECE, true), ..event }
                } else {
                    event
                };
                self.step(r, &event);
            }
        }
    }

    fn step(&mut self, r: usize, event: &Event) {
        let group: Group = self.hosts.iter().map(|host| host.slot(RTT_US * 8)).collect();
        let group = (self.hosts.len() > 1).then_some(&group);
        self.xmp.step(event, &mut self.hosts[r], group, &self.params);
    }

    /// Packets that all subflows together have in flight, on average.
    fn mean_window(mut self, marks: Marks) -> f64 {
        let (settle, rounds) = (5_000, 60_000);
        (0..settle).for_each(|_| self.round(marks));
        let mut sum = 0.0;
        for _ in 0..rounds {
            sum += self.hosts.iter().map(|host| f64::from(host.cwnd_pkt)).sum::<f64>();
            self.round(marks);
        }
        sum / f64::from(rounds)
    }
}

/// Against one subflow under the same marks. Tolerance: 10 %, since a cut rounds down and costs its round's growth.
fn gain(subflows: usize, marks: Marks) -> f64 {
    let mean = |subflows| Connection::new(subflows, 100).mean_window(marks);
    mean(subflows) / mean(1)
}

#[test]
fn single_window_converges_to_beta_over_the_share_of_marked_rounds() {
    for share in [0.01, 0.02, 0.04] {
        let mean = Connection::new(1, 100).mean_window(Marks::Rounds(share));
        println!("{share} of the rounds: {mean:.1} packets, law {:.1}", BETA / share);
        assert!((mean * share / BETA - 1.0).abs() < 0.1, "{mean:.1} packets at {share}");
    }
}

#[test]
fn subflows_with_equally_marked_rounds_take_one_share() {
    for subflows in [2, 4, 8] {
        let gain = gain(subflows, Marks::Rounds(0.01));
        println!("{subflows} subflows: {gain:.3} of one");
        assert!((gain - 1.0).abs() < 0.1, "{subflows} subflows: {gain:.3}");
    }
}

#[test]
fn subflows_with_equal_mark_rates_take_the_square_root_of_their_number() {
    for subflows in [2, 4, 8] {
        let gain = gain(subflows, Marks::Packets(1e-4));
        let law = (subflows as f64).sqrt();
        println!("{subflows} subflows: {gain:.3} of one, law {law:.3}");
        assert!((gain / law - 1.0).abs() < 0.1, "{subflows} subflows: {gain:.3}");
    }
}
